# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels around the experts' products, in Triton's interpreter or on a GPU, against their plain twins."""

import importlib.util

import pytest
import torch
from interpreted import run_interpreted
from torch.nn import functional as F

from hf_memaug.kernels import fused_experts as module
from hf_memaug.kernels.fused_experts import by_expert, can_fuse, fused_experts
from hf_memaug.layers.experts import Experts
from hf_memaug.layers.router import route

# Tokens, hidden, inner, experts, k: sizes that fill no block, one expert a token, all experts, one token, and many
# experts, some of which nobody reads.
SIZES = [(37, 136, 40, 6, 2), (5, 24, 8, 4, 1), (64, 48, 136, 3, 3), (1, 16, 16, 12, 2), (40, 16, 16, 64, 2)]
# Tokens, experts, k for the order alone: one block, and several.
ORDERS = [(13, 4, 2), (1, 6, 1), (50, 3, 3), (1500, 6, 2), (300, 64, 2), (200, 100, 1)]
HALVES = {torch.bfloat16: 6e-2, torch.float16: 1e-2}


def compare_order(tokens: int, experts: int, k: int, device: str = "cpu") -> None:
    chosen = route(torch.randn(tokens, experts, generator=torch.Generator().manual_seed(0)), k).experts.to(device)
    # Nobody chooses the second expert.
    chosen = torch.where(chosen == 1, 0, chosen)
    places, flat = by_expert(chosen, experts), chosen.flatten()
    assert torch.equal(places.order, flat.argsort(stable=True))
    assert torch.equal(places.order[places.back], torch.arange(tokens * k, device=device))
    assert torch.equal(places.expert_of_row, flat[places.order].int())
    assert places.ends.tolist() == F.one_hot(flat, experts).sum(dim=0).cumsum(dim=0).tolist()
    assert places.ends.dtype == torch.int32


def compare_mixed(sizes, device: str = "cpu", dtype=torch.bfloat16) -> None:
    """Tokens and parameters in fp32, and products in another type: what comes out and goes back is in fp32."""
    tokens, hidden, inner, experts, k = sizes
    torch.manual_seed(0)
    plain = Experts(experts, hidden, inner).to(device)
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    given = torch.randn(tokens, hidden, device=device, requires_grad=True)
    logits = torch.randn(tokens, experts, device=device, requires_grad=True)
    wanted, learned = torch.randn(tokens, hidden, device=device), [given, logits, *plain.parameters()]
    parameters = (plain.up_proj, plain.up_proj_bias, plain.down_proj, plain.down_proj_bias)
    _, chosen, weights, _ = route(logits, k)
    expected = plain(given, chosen, weights)
    expected = [expected, *torch.autograd.grad(expected, learned, wanted, retain_graph=True)]
    found = []
    for _ in range(2):
        with torch.autocast(device, dtype=dtype):
            said = fused_experts(given, chosen, weights, *parameters)
        found.append([said, *torch.autograd.grad(said, learned, wanted, retain_graph=True)])
    for one, again, other in zip(*found, expected, strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, again), "a step can be repeated"
        away = (one - other).norm() / other.norm().clamp(min=1e-6)
        assert away < HALVES[dtype] / 3, (one.shape, away)


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
    run_interpreted(__file__, 2 * len(ORDERS) + len(SIZES) + 2 * len(HALVES))


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [*SIZES, (4000, 384, 1536, 6, 2)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-3), (torch.bfloat16, 6e-2)])
def test_values_and_gradients_on_a_gpu(sizes, dtype, tolerance):
    compare(sizes, "cuda", dtype, tolerance * sizes[2] ** 0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [*SIZES, (4000, 384, 1536, 6, 2), (4000, 384, 1536, 64, 3)])
@pytest.mark.parametrize("dtype", HALVES)
def test_products_in_another_type_on_a_gpu(sizes, dtype):
    compare_mixed(sizes, "cuda", dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [*ORDERS, (31520, 6, 2), (31520, 64, 2), (200_000, 128, 2)])
def test_counting_puts_rows_in_the_order_that_sorting_does_on_a_gpu(sizes):
    compare_order(*sizes, "cuda")


def test_it_is_for_a_gpu():
    assert not can_fuse(torch.zeros(3, 8), torch.zeros(2, 16, 8), F.gelu)


if __name__ == "__main__":
    for most in (module.MOST_PROGRAMS, 3):
        # With few programs, each has several blocks.
        module.MOST_PROGRAMS = most
        for sizes in ORDERS:
            compare_order(*sizes)
            print("the same")
    for sizes in SIZES:
        compare(sizes)
        print("the same")
    for half, tolerance in HALVES.items():
        compare(SIZES[0], dtype=half, tolerance=tolerance)
        print("the same")
        compare_mixed(SIZES[0], dtype=half)
        print("the same")
