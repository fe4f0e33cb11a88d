# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The queue of HMA against a list."""

import random

import pytest
import torch

from hf_memaug.layers.real_memory import RealMemory


def test_it_is_a_queue_for_batches_of_any_size():
    memory, kept, draw = RealMemory(7, 3), [], random.Random(0)
    assert not memory.filled.any()
    for step in range(20):
        rows = torch.full((draw.randint(1, 7), 3), float(step)) + torch.rand(1)
        labels = torch.randint(0, 9, (len(rows),))
        memory.write(rows, labels)
        kept = (kept + list(zip(rows.tolist(), labels.tolist(), strict=True)))[-7:]
        assert memory.filled.sum() == len(kept)
        found = zip(memory.slots[memory.filled].tolist(), memory.slot_labels[memory.filled].tolist(), strict=True)
        assert sorted(found) == sorted(kept)
    memory.clear()
    assert not memory.filled.any() and memory.slots.eq(0).all()


def test_rows_that_are_not_finite_are_left_out():
    memory, wrong = RealMemory(4, 2), torch.tensor([[float("nan"), 0.0], [float("inf"), 1.0]])
    memory.write(torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]), torch.tensor([1, 2, 3]))
    memory.write(torch.stack([wrong[0], torch.tensor([4.0, 4.0]), wrong[1]]), torch.tensor([7, 4, 8]))
    assert memory.slots.tolist() == [[1, 1], [2, 2], [3, 3], [4, 4]] and memory.slot_labels.tolist() == [1, 2, 3, 4]
    memory.write(wrong, torch.tensor([7, 8]))
    memory.write(torch.tensor([[5.0, 5.0]]), torch.tensor([5]))
    assert memory.written == 5 and memory.slot_labels.tolist() == [5, 2, 3, 4]
    fresh = RealMemory(4, 2)
    fresh.write(wrong, torch.tensor([7, 8]))
    assert not fresh.filled.any() and fresh.slots.eq(0).all()


def test_its_whole_state_is_saved():
    memory = RealMemory(5, 2)
    memory.write(torch.randn(7 - 3, 2), torch.arange(4))
    again = RealMemory(5, 2)
    again.load_state_dict(memory.state_dict())
    for one in (memory, again):
        one.write(torch.ones(3, 2), torch.arange(3))
    assert all(torch.equal(a, b) for a, b in zip(memory.buffers(), again.buffers(), strict=True))
    assert not list(memory.parameters())


def test_more_rows_than_slots_are_refused():
    memory = RealMemory(4, 2)
    with pytest.raises(ValueError, match="`real_memory_size=4` is less than the 5 rows.*`real_memory_size=5`"):
        memory.write(torch.zeros(5, 2), torch.zeros(5, dtype=torch.long))
    assert not memory.filled.any()
