# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""HMA's reader against the paper's formulas, row by row, and its fused twin against it."""

import math

import pytest
import torch
from launches import Launches

from hf_memaug.kernels.fused_slots import can_fuse, read_slots_fused
from hf_memaug.layers.datapoint_reader import DatapointReader, read_slots


def reader(size: int = 12, heads: int = 3) -> DatapointReader:
    torch.manual_seed(0)
    made = DatapointReader(size, heads, 4 * size).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def slow(module: DatapointReader, row: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eq. 1 and 2 for one row that reads the rows of `seen`, head by head and key by key."""
    size = len(row) // module.heads
    query = module.query_projection(module.norm(row))
    keys, values = module.key_projection(module.norm(seen)), module.value_projection(module.norm(seen))
    said, weights = [], []
    for head in range(module.heads):
        part = slice(head * size, (head + 1) * size)
        scores = torch.stack([query[part] @ key[part] / math.sqrt(size) for key in keys])
        weights.append(scores.exp() / scores.exp().sum())
        said.append(sum(weight * value[part] for weight, value in zip(weights[-1], values, strict=True)))
    h = row + torch.cat(said)
    inner = module.up_projection(module.feed_forward_norm(h))
    gelu = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))
    return h + module.down_projection(gelu), torch.stack(weights)


@pytest.mark.parametrize("between_rows", [False, True])
@pytest.mark.parametrize("filled", [None, 3, 0])
def test_it_is_the_papers_formula(between_rows, filled):
    module = reader()
    rows, slots = torch.randn(4, 12).double(), torch.randn(5, 12).double()
    mask = None if filled is None else torch.arange(5) < filled
    kept = slots if filled is None else slots[:filled]
    found, weights = module(rows, slots, mask, between_rows=between_rows)
    assert weights.shape == (4, 3, 5 + (4 if between_rows else 1))
    for place, row in enumerate(rows):
        seen = torch.cat([kept, rows if between_rows else row[None]])
        expected, expected_weights = slow(module, row, seen)
        torch.testing.assert_close(found[place], expected, rtol=0, atol=1e-12)
        read = torch.cat([weights[place, :, : len(kept)], weights[place, :, 5:]], dim=-1)
        torch.testing.assert_close(read, expected_weights, rtol=0, atol=1e-12)
        assert weights[place, :, len(kept) : 5].eq(0).all(), "an empty slot was read"


def test_a_row_that_reads_nothing_but_itself():
    module = reader()
    rows = torch.randn(3, 12).double()
    found, weights = module(rows, rows[:0])
    assert weights.eq(1).all()
    torch.testing.assert_close(found[1], slow(module, rows[1], rows[1:2])[0], rtol=0, atol=1e-12)


def queries(slots: int, dtype=torch.float64):
    torch.manual_seed(1)
    return [torch.randn(4, count, 26, dtype=dtype, requires_grad=True) for count in (9, slots, slots, 9, 9)]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("slots", "filled"), [(40, None), (40, 17), (37, 1), (16, 16), (1, None)])
def test_the_fused_twin_gives_the_same(slots, filled, own):
    tensors = queries(slots)
    tensors = tensors if own else tensors[:3]
    mask = None if filled is None else torch.arange(slots) < filled
    results = []
    for read in (read_slots, read_slots_fused):
        said, _ = read(*tensors, filled=mask)
        results.append((said, *torch.autograd.grad(said, tensors, torch.sin(torch.arange(said.numel())).view_as(said))))
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(plain, fused, rtol=0, atol=1e-13)


@pytest.mark.parametrize("slots", [0, 24])
def test_of_an_empty_memory_a_row_reads_itself(slots):
    tensors = queries(slots)
    for read in (read_slots, read_slots_fused):
        said, _ = read(*tensors, filled=torch.zeros(slots, dtype=torch.bool))
        torch.testing.assert_close(said, tensors[-1], rtol=0, atol=1e-13)
        assert all(torch.isfinite(one).all() for one in torch.autograd.grad(said.sum(), tensors, allow_unused=True)[3:])


def test_the_fused_twin_keeps_to_autocast():
    tensors = [one.detach().float().requires_grad_() for one in queries(40)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused, _ = read_slots_fused(*tensors)
    plain, _ = read_slots(*tensors)
    assert fused.dtype == torch.bfloat16
    torch.testing.assert_close(fused.float(), plain, rtol=0.05, atol=0.05)
    assert torch.autograd.grad(fused.float().sum(), tensors)[0].dtype == torch.float32


def test_what_is_traced_is_not_fused():
    assert can_fuse(torch.device("cpu"), 7)
    assert torch.compile(can_fuse, backend="eager")(torch.device("cpu"), 7) is False


def test_on_a_gpu_a_head_is_whole_vectors():
    assert all(can_fuse(torch.device("cuda"), size) for size in (8, 24, 112, 208))
    assert not any(can_fuse(torch.device("cuda"), size) for size in (10, 18, 22, 66, 126))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("slots", "filled"), [(2048, None), (2048, 700), (1001, 1000), (64, 0)])
def test_the_fused_twin_on_a_gpu(slots, filled, dtype):
    torch.manual_seed(1)
    made = [torch.randn(4, count, 208, device="cuda", dtype=dtype) for count in (96, slots, slots, 96, 96)]
    tensors = [one.requires_grad_() for one in made]
    mask = None if filled is None else torch.arange(slots, device="cuda") < filled
    results = []
    for read in (read_slots, read_slots_fused):
        said, _ = read(*tensors, filled=mask)
        results.append((said, *torch.autograd.grad(said, tensors, torch.ones_like(said))))
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(plain, fused, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("between_rows", "most"), [(False, 104), (True, 67)])
def test_a_read_launches_little(between_rows, most):
    """Small batches wait for launches. Slots and rows by themselves, each with its own keys and values, were more."""
    module = reader(32, 4).float()
    rows, slots = torch.randn(8, 32, requires_grad=True), torch.randn(16, 32)
    with Launches() as launches:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            said, _ = module(rows, slots, between_rows=between_rows, read=read_slots_fused)
        said.sum().backward()
    assert len(launches.found) <= most
    assert all(parameter.grad is not None for parameter in module.parameters())
