# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""HMA's reader against the paper's formulas, row by row."""

import math

import pytest
import torch

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


@pytest.mark.parametrize("slots", [0, 24])
def test_of_an_empty_memory_a_row_reads_itself(slots):
    torch.manual_seed(1)
    tensors = [torch.randn(4, count, 26).double().requires_grad_() for count in (9, slots, slots, 9, 9)]
    found, _ = read_slots(*tensors, filled=torch.zeros(slots, dtype=torch.bool))
    torch.testing.assert_close(found, tensors[-1], rtol=0, atol=1e-13)
    assert all(torch.isfinite(one).all() for one in torch.autograd.grad(found.sum(), tensors))
