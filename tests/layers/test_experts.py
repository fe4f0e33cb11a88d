# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Eq. 3 of GMoE token by token, and the fast way of it against the plain one."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hf_memaug.kernels.grouped_experts import every_expert, grouped_experts
from hf_memaug.layers.experts import Experts
from hf_memaug.layers.router import route

TOKENS, EXPERTS, WIDTH, INNER = 13, 4, 16, 32


def make(dtype=torch.float64, width: int = WIDTH, inner: int = INNER):
    torch.manual_seed(0)
    experts = Experts(EXPERTS, width, inner)
    for parameter in experts.parameters():
        nn.init.normal_(parameter, std=0.3)
    tokens = torch.randn(TOKENS, width)
    return experts.to(dtype), tokens.to(dtype)


def make_routing(k: int, dtype=torch.float64, unused: int | None = None):
    logits = torch.randn(TOKENS, EXPERTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if unused is not None:
        logits[:, unused] = -10
    routing = route(logits, k)
    return routing.experts, routing.weights.to(dtype)


def grouped(module: Experts, tokens, experts, weights):
    parameters = (module.up_proj, module.up_proj_bias, module.down_proj, module.down_proj_bias)
    return grouped_experts(tokens, experts, weights, parameters, module.act_fn)


def dense(module: Experts, tokens, experts, weights):
    parameters = (module.up_proj, module.up_proj_bias, module.down_proj, module.down_proj_bias)
    return every_expert(tokens, experts, weights, parameters, module.act_fn)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_experts_are_equation_3(k):
    module, tokens = make()
    experts, weights = make_routing(k)
    found = module(tokens, experts, weights)
    for token in range(TOKENS):
        expected = torch.zeros(WIDTH, dtype=torch.float64)
        for expert, weight in zip(experts[token].tolist(), weights[token], strict=True):
            inner = F.gelu(module.up_proj[expert] @ tokens[token] + module.up_proj_bias[expert])
            expected = expected + weight * (module.down_proj[expert] @ inner + module.down_proj_bias[expert])
        torch.testing.assert_close(found[token], expected)


def test_copies_of_a_network_say_together_what_it_says():
    up, down = nn.Linear(WIDTH, INNER).double(), nn.Linear(INNER, WIDTH).double()
    module, tokens = make()
    module.copy_of(up, down)
    experts, weights = make_routing(2)
    for found in (module(tokens, experts, weights), grouped(module, tokens, experts, weights)):
        torch.testing.assert_close(found, down(F.gelu(up(tokens))), rtol=0, atol=1e-12)
    assert module.up_proj.is_contiguous() and module.up_proj[0].data_ptr() != module.up_proj[1].data_ptr()


# An inner width that fits no grouped product, one without a token for an expert, and half precision.
@pytest.mark.parametrize(
    ("dtype", "inner", "unused"),
    [
        (torch.float64, INNER, None),
        (torch.float32, INNER, None),
        (torch.float32, 27, None),
        (torch.float32, INNER, 0),
        (torch.float32, INNER, 3),
        (torch.bfloat16, INNER, 2),
    ],
)
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("way", [grouped, dense])
def test_all_at_once_is_one_by_one(dtype, inner, unused, k, way):
    module, tokens = make(dtype, inner=inner)
    experts, weights = make_routing(k, dtype, unused)
    results = []
    for run in (module, lambda *inputs: way(module, *inputs)):
        given, said = tokens.clone().requires_grad_(), weights.clone().requires_grad_()
        module.zero_grad()
        found = run(given, experts, said)
        # Not the sum: its gradient has no strides of its own.
        (found * torch.linspace(-1, 1, found.numel(), dtype=dtype).view_as(found)).sum().backward()
        results.append({"": found, "tokens": given.grad, "weights": said.grad})
        results[-1] |= {name: parameter.grad.clone() for name, parameter in module.named_parameters()}
    plain, fast = results
    exact = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 6e-2}[dtype]
    for name, value in plain.items():
        assert fast[name].dtype == value.dtype
        torch.testing.assert_close(
            fast[name],
            value,
            rtol=exact,
            atol=exact * float(value.detach().abs().max()),
            msg=lambda t, n=name: f"{n}: {t}",
        )
    if unused is not None:
        assert all((fast[name][unused] == 0).all() for name in ("up_proj", "up_proj_bias", "down_proj"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_traced_graph_is_the_same_forwards_and_backwards(dtype):
    module, tokens = make(dtype)
    experts, weights = make_routing(2, dtype)
    results = []
    for run in (grouped, torch.compile(grouped, fullgraph=True, backend="aot_eager")):
        module.zero_grad()
        found = run(module, tokens, experts, weights)
        (found * torch.linspace(-1, 1, found.numel(), dtype=dtype).view_as(found)).sum().backward()
        results.append([found.detach(), *(parameter.grad.clone() for parameter in module.parameters())])
    exact = 1e-5 if dtype == torch.float32 else 3e-2
    for plain, traced in zip(*results, strict=True):
        torch.testing.assert_close(traced, plain, rtol=exact, atol=exact * float(plain.abs().max()))


def test_half_precision_by_autocast():
    module, tokens = make(torch.float32)
    experts, weights = make_routing(2, torch.float32)
    expected = module(tokens, experts, weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = grouped(module, tokens, experts, weights)
    assert found.dtype == torch.float32
    assert 0 < (found - expected).abs().max() < 0.05 * expected.abs().max()
    found.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in module.parameters())
