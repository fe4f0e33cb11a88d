# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels around the experts' products, in Triton's interpreter or on a GPU, against their plain twins."""

import importlib.util

import pytest
import torch
from interpreted import run_interpreted
from torch.nn import functional as F

from hf_memaug.kernels.fused_experts import by_expert, can_fuse, fused_experts
from hf_memaug.layers.experts import Experts
from hf_memaug.layers.router import route

# Tokens, hidden, inner, experts, k: sizes that fill no block, one expert a token, all experts, and many.
SIZES = [(37, 16, 40, 6, 2), (5, 24, 8, 4, 1), (64, 48, 64, 3, 3), (21, 16, 16, 12, 2)]


def compare(sizes, device: str = "cpu", dtype=torch.float32, tolerance: float = 1e-4) -> None:
    tokens, hidden, inner, experts, k = sizes
    torch.manual_seed(0)
    plain = Experts(experts, hidden, inner).to(device, dtype)
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    given = torch.randn(tokens, hidden, device=device, dtype=dtype, requires_grad=True)
    logits = torch.randn(tokens, experts, device=device, requires_grad=True)
    learned = [given, logits, *plain.parameters()]
    wanted = torch.randn(tokens, hidden, device=device, dtype=dtype)
    parameters = (plain.up_proj, plain.up_proj_bias, plain.down_proj, plain.down_proj_bias)
    results = []
    for function in (plain, lambda *args: fused_experts(*args, *parameters)):
        routing = route(logits, k)
        found = function(given, routing.experts, routing.weights)
        results.append([found, *torch.autograd.grad(found, learned, wanted)])
        if dtype == torch.float32:
            # The gradients, differentiated again: with kernels in the forward pass alone.
            routing = route(logits, k)
            found = function(given, routing.experts, routing.weights)
            firsts = torch.autograd.grad(found, learned, wanted, create_graph=True)
            seconds = torch.autograd.grad(sum(one.square().sum() for one in firsts), learned)
            results[-1] += [*firsts, *seconds]
    for expected, found in zip(*results, strict=True):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        largest = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_values_and_gradients_in_the_interpreter():
    run_interpreted(__file__, len(SIZES))


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [*SIZES, (4000, 384, 1536, 6, 2)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-3), (torch.bfloat16, 6e-2)])
def test_values_and_gradients_on_a_gpu(sizes, dtype, tolerance):
    compare(sizes, "cuda", dtype, tolerance * sizes[2] ** 0.5)


@pytest.mark.parametrize(("tokens", "experts", "k"), [(13, 4, 2), (1, 6, 1), (50, 3, 3)])
def test_counting_puts_rows_in_the_order_that_sorting_does(tokens, experts, k):
    chosen = route(torch.randn(tokens, experts, generator=torch.Generator().manual_seed(0)), k).experts
    order, back, ends = by_expert(chosen, experts)
    flat = chosen.flatten()
    assert torch.equal(order, flat.argsort(stable=True)) and torch.equal(order[back], torch.arange(tokens * k))
    assert ends.tolist() == F.one_hot(flat, experts).sum(dim=0).cumsum(dim=0).tolist()
    assert ends.dtype == torch.int32


def test_it_is_for_a_gpu():
    assert not can_fuse(torch.zeros(3, 8), torch.zeros(2, 16, 8), F.gelu)


if __name__ == "__main__":
    for sizes in SIZES:
        compare(sizes)
        print("the same")
