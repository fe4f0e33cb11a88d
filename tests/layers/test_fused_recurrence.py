# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels between a recurrent step's products, in Triton's interpreter or on a GPU, against plain torch."""

import importlib.util
import itertools

import pytest
import torch
from interpreted import run_interpreted

from hf_memaug.kernels.fused_recurrence import MOST_SLOTS, FusedArithmetic, arithmetic_for
from hf_memaug.layers.memory_rnn import MemoryRNN

# Cell, slots (none, few, more than reads), both directions, padding, a state to go on from.
CASES = list(itertools.product(["lstm", "gru"], [0, 5, 90], [False, True], [False, True], [False, True]))


def compare(case, device: str = "cpu", size: int = 7, tolerance: float = 1e-5) -> None:
    cell, slots, both, padded, goes_on = case
    torch.manual_seed(0)
    layer = MemoryRNN(6, size, slots, 3, cell, both).to(device)
    # Of a scale that leaves the gates half open: where they are shut, rounding decides.
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=1.3 / size**0.5)
    rows, steps = 3, 4
    words = torch.randn(rows, steps, 6, device=device, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0]], device=device) if padded else None
    state = None
    if goes_on:
        count = 2 if cell == "lstm" else 1
        state = tuple(torch.randn(1 + both, rows, size, device=device, requires_grad=True) for _ in range(count))
    learned = [words, *(state or ()), *layer.parameters()]
    found = []
    for arithmetic in (None, FusedArithmetic):
        layer.arithmetic_for = lambda states, slots, chosen=arithmetic: chosen
        hidden, last, weights = layer(words, mask, state, output_weights=True)
        results = [hidden, *last, weights]
        torch.manual_seed(1)
        loss = sum((one * torch.randn_like(one)).sum() for one in results)
        found.append([*results, *torch.autograd.grad(loss, learned, allow_unused=True)])
    for expected, one in zip(*found, strict=True):
        assert (expected is None) == (one is None)
        if expected is not None:
            torch.testing.assert_close(one, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_values_and_gradients_in_the_interpreter():
    run_interpreted(__file__, len(CASES))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [7, 300, 700])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_on_a_gpu(case, size):
    compare(case, "cuda", size, tolerance=2e-4)


def test_elsewhere_it_is_plain_torch():
    assert arithmetic_for(torch.zeros(1), 5) is None


@pytest.mark.gpu
def test_it_is_chosen_where_it_fits():
    ours = torch.zeros(1, device="cuda")
    assert arithmetic_for(ours, 5) is FusedArithmetic
    assert arithmetic_for(ours.double(), 5) is None
    assert arithmetic_for(ours, MOST_SLOTS + 1) is None


if __name__ == "__main__":
    for one in CASES:
        compare(one)
        print("the same")
