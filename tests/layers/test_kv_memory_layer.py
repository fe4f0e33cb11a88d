# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The memory against its definition, slot by slot."""

import math

import pytest
import torch

from hf_memaug.layers.kv_memory import KeyValueMemory


def slow_memory(memory: KeyValueMemory, hidden: list[float]) -> torch.Tensor:
    """Eq. 1 and 2 in loops over heads and slots, with Python's own exponentials."""
    query = memory.query_network(torch.tensor(hidden, dtype=torch.float64)).tolist()
    slots, key_size = memory.slot_keys.shape
    total = torch.zeros(memory.slot_values.shape[-1], dtype=torch.float64)
    for head in range(memory.heads):
        asked = query[head * key_size : (head + 1) * key_size]
        scores = [sum(q * k for q, k in zip(asked, key, strict=True)) for key in memory.slot_keys.tolist()]
        exponentials = [math.exp(score) for score in scores]
        for slot in range(slots):
            total += exponentials[slot] / sum(exponentials) * memory.slot_values[head, slot]
    return memory.output(total)


@pytest.fixture(params=["linear", "mlp"])
def memory(request) -> KeyValueMemory:
    torch.manual_seed(0)
    memory = KeyValueMemory(hidden_size=6, slots=7, key_size=3, heads=2, query=request.param).double()
    for parameter in memory.parameters():
        torch.nn.init.normal_(parameter)
    return memory


def test_equals_the_slow_reference(memory):
    hidden = torch.randn(4, 6, dtype=torch.float64)
    expected = torch.stack([slow_memory(memory, row) for row in hidden.tolist()])
    torch.testing.assert_close(memory(hidden)[0], expected, rtol=1e-6, atol=1e-6)


def test_heads_have_values_of_their_own(memory):
    hidden = torch.randn(1, 6, dtype=torch.float64)
    before = memory(hidden)[0]
    with torch.no_grad():
        memory.slot_values[1] += 1.0
    # Every weight of head 1 sums to one, so its answer moves by exactly one before the projection.
    moved = memory.output.weight.sum(dim=1)
    torch.testing.assert_close(memory(hidden)[0] - before, moved[None], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_keeps_its_type_and_comes_near(memory, dtype):
    hidden = torch.randn(4, 6, dtype=torch.float64)
    expected = memory(hidden)[0]
    read, weights = memory.to(dtype)(hidden.to(dtype))
    assert read.dtype == weights.dtype == dtype
    assert (read.double() - expected).norm() / expected.norm() < 0.05


def test_parameter_count_of_the_paper():
    memory = KeyValueMemory(hidden_size=768, slots=1024, key_size=256, heads=4)
    assert sum(parameter.numel() for parameter in memory.parameters()) == 4_785_920  # "about 4.8M"


def test_autocast_reads_in_the_precision_of_the_table(memory):
    memory, hidden = memory.float(), torch.randn(4, 6)
    expected = memory(hidden)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        read, weights = memory(hidden.to(torch.bfloat16))
    assert read.dtype == weights.dtype == torch.float32
    torch.testing.assert_close(read, memory(hidden.to(torch.bfloat16).float())[0], rtol=0, atol=0)
    assert (read - expected).norm() / expected.norm() < 0.05
