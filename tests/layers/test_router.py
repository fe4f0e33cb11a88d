# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Sections 4.3, C.3 and C.4 of GMoE, one token at a time."""

import math
import statistics

import pytest
import torch
from families import leave_together
from torch import nn

from hf_memaug.layers.router import CosineRouter, LinearRouter, importance_loss, load_loss, route

TOKENS, WIDTH, EXPERTS = 7, 5, 4


def make_tokens(seed: int = 0, **kwargs) -> torch.Tensor:
    return torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, **kwargs)


def make_router(kind: type[nn.Module] = CosineRouter) -> nn.Module:
    torch.manual_seed(0)
    return (
        CosineRouter(WIDTH, EXPERTS, router_dim=3) if kind is CosineRouter else LinearRouter(WIDTH, EXPERTS)
    ).double()


def squared_variation(values: list[float]) -> float:
    return (statistics.pstdev(values) / statistics.fmean(values)) ** 2


def softmax(values: list[float]) -> list[float]:
    total = sum(map(math.exp, values))
    return [math.exp(value) / total for value in values]


def test_the_cosine_router_is_the_angle_to_each_expert():
    router, tokens = make_router(), make_tokens()
    with torch.no_grad():
        router.log_scale.fill_(math.log(3.0))
    found = router(tokens)
    for token in range(TOKENS):
        embedding = router.projection.weight @ tokens[token] + router.projection.bias
        for expert in range(EXPERTS):
            direction = router.experts[expert]
            cosine = embedding @ direction / (embedding.norm() * direction.norm())
            assert float(found[token, expert]) == pytest.approx(3 * float(cosine), abs=1e-12)
    with torch.no_grad():
        router.experts *= 7.0  # only the directions count
    torch.testing.assert_close(router(tokens), found)


def test_the_scale_begins_at_2_and_ends_at_100():
    router, tokens = make_router(), make_tokens()
    at_first = router(tokens)
    assert at_first.abs().max() <= 2 and float(router.log_scale.exp()) == pytest.approx(2.0)
    with torch.no_grad():
        router.log_scale.fill_(50.0)
    torch.testing.assert_close(router(tokens), 50 * at_first)
    # FSDP2 and DeepSpeed cannot shard a scalar, which it was before 0.2.0.
    assert router.log_scale.shape == (1,)
    router.load_state_dict({**router.state_dict(), "log_scale": torch.tensor(0.0)})
    torch.testing.assert_close(router(tokens), at_first / 2)


@pytest.mark.parametrize("kind", [CosineRouter, LinearRouter])
def test_the_choice_is_made_in_full_precision(kind):
    router, tokens = make_router(kind).float(), make_tokens().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = router(tokens.bfloat16())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, router(tokens.bfloat16().float()), rtol=0, atol=0)
    half = kind(WIDTH, EXPERTS).bfloat16()
    assert half(tokens.bfloat16()).dtype == torch.float32


def test_top_k_of_the_softmax_made_to_add_up_to_one():
    logits = make_router(LinearRouter)(make_tokens()).detach()
    routing = route(logits, k=2)
    for token in range(TOKENS):
        gates = softmax(logits[token].tolist())
        first, second = sorted(range(EXPERTS), key=lambda expert: -gates[expert])[:2]
        assert routing.experts[token].tolist() == [first, second]
        both = gates[first] + gates[second]
        assert routing.weights[token].tolist() == pytest.approx([gates[first] / both, gates[second] / both])


def test_noise_changes_the_choice_and_only_where_asked():
    logits = torch.zeros(2000, EXPERTS)
    torch.manual_seed(0)
    noisy = route(logits, k=1, noise=0.25)
    assert (noisy.noisy_logits - logits).std() == pytest.approx(0.25, rel=0.05)
    assert torch.equal(noisy.logits, logits) and noisy.experts.unique().numel() == EXPERTS
    assert torch.equal(route(logits, k=1).experts, route(logits, k=1).experts)


def test_the_importance_loss_is_equation_9():
    logits = make_tokens()[:, :EXPERTS]
    importance = [0.0] * EXPERTS
    for token in range(TOKENS):
        for expert, gate in enumerate(softmax(logits[token].tolist())):
            importance[expert] += gate
    assert float(importance_loss(logits)) == pytest.approx(squared_variation(importance), rel=1e-10)
    assert float(importance_loss(torch.zeros(3, EXPERTS))) == 0.0, "all alike"


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_load_loss_is_equation_10(k):
    logits, noise = make_tokens()[:, :EXPERTS], 0.3
    torch.manual_seed(1)
    routing = route(logits, k, noise)
    load = [0.0] * EXPERTS
    for token in range(TOKENS):
        threshold = sorted(routing.noisy_logits[token].tolist(), reverse=True)[k - 1]
        for expert in range(EXPERTS):
            missing = (threshold - float(logits[token, expert])) / noise
            load[expert] += 1 - statistics.NormalDist().cdf(missing)
    assert float(load_loss(routing, noise)) == pytest.approx(squared_variation(load), rel=1e-9)


def losses_of_a_part(rank: int, folder: str) -> None:
    """One of two processes, with a part of the tokens each."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    router, tokens = make_router(), make_tokens()
    part = tokens[:3] if rank == 0 else tokens[3:]
    logits = router(part)
    loss = importance_loss(logits) + load_loss(route(logits, 2), 0.25)
    loss.backward()
    # As data parallel training does.
    for parameter in router.parameters():
        torch.distributed.all_reduce(parameter.grad)
        parameter.grad /= 2
    torch.save((loss.detach(), [p.grad for p in router.parameters()]), f"{folder}/{rank}.pt")
    leave_together()


@pytest.mark.slow
def test_two_processes_have_the_loss_and_the_gradient_of_one(tmp_path):
    torch.multiprocessing.spawn(losses_of_a_part, args=(str(tmp_path),), nprocs=2)
    router = make_router()
    logits = router(make_tokens())
    loss = importance_loss(logits) + load_loss(route(logits, 2), 0.25)
    loss.backward()
    for rank in (0, 1):
        found, gradients = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(found, loss.detach())
        for gradient, parameter in zip(gradients, router.parameters(), strict=True):
            torch.testing.assert_close(gradient, parameter.grad)


def test_a_router_of_one_expert_learns_as_if_its_weight_were_the_softmax():
    logits = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    wanted = torch.randn(7, dtype=torch.float64)
    weights = route(logits, 1).weights
    torch.testing.assert_close(weights, torch.ones(7, 1, dtype=torch.float64), rtol=0, atol=0)
    (found,) = torch.autograd.grad(weights[:, 0] @ wanted, logits)
    (expected,) = torch.autograd.grad(logits.softmax(dim=-1).amax(dim=-1) @ wanted, logits)
    torch.testing.assert_close(found, expected)
    assert found.abs().min() > 0
