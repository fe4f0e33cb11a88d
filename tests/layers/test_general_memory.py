# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Section 2.3 of G-MAP, one token at a time."""

import math

import pytest
import torch

from hf_memaug.layers.general_memory import GeneralMemory, LayerGate


def make_states(layers: int = 4, rows: int = 2, tokens: int = 5, hidden: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, tokens, hidden, generator=generator, dtype=torch.float64) for _ in range(layers)]


def slow_gate(states, score: torch.Tensor):
    """Eq. 9 to 11 as they are printed."""
    rows, tokens, hidden = states[0].shape
    memory = torch.zeros(rows, tokens, hidden, dtype=torch.float64)
    weights = torch.zeros(rows, tokens, len(states), dtype=torch.float64)
    for row in range(rows):
        for t in range(tokens):
            scores = [math.exp(sum(float(a) * float(b) for a, b in zip(m[row, t], score, strict=True))) for m in states]
            for layer, m in enumerate(states):
                weights[row, t, layer] = scores[layer] / sum(scores)
                memory[row, t] += weights[row, t, layer] * m[row, t]
    return memory, weights


def test_the_gate_is_equations_9_to_11():
    states = make_states()
    torch.manual_seed(1)
    gate = LayerGate(6).double()
    memory, weights = gate(torch.stack(states, dim=1))
    slow_memory, slow_weights = slow_gate(states, gate.importance.weight[0].detach())
    torch.testing.assert_close(memory, slow_memory, rtol=0, atol=1e-12)
    torch.testing.assert_close(weights, slow_weights, rtol=0, atol=1e-12)


def test_each_strategy_gives_each_layer_its_memory():
    states = make_states()
    memories, weights = GeneralMemory(6, "single", [3])(states)
    assert len(memories) == 1 and memories[0] is states[3] and weights is None
    memories, weights = GeneralMemory(6, "multiple", [1, 3])(states)
    assert len(memories) == 2 and memories[0] is states[0] and memories[1] is states[2] and weights is None
    gated = GeneralMemory(6, "gated", [3]).double()
    memories, weights = gated(states)
    assert len(memories) == 1 and weights.shape == (2, 5, 4)
    torch.testing.assert_close(memories[0], gated.gates[0](torch.stack(states, dim=1))[0])


@pytest.mark.parametrize("layers", [2, 4, 5])
def test_the_chunks_are_the_lower_and_the_upper_half(layers):
    states = make_states(layers)
    memory = GeneralMemory(6, "chunk_gated", [1, layers]).double()
    memories, weights = memory(states)
    half = layers // 2
    torch.testing.assert_close(memories[0], memory.gates[0](torch.stack(states[:half], dim=1))[0])
    torch.testing.assert_close(memories[1], memory.gates[1](torch.stack(states[half:], dim=1))[0])
    assert weights.shape == (2, 5, layers)
    torch.testing.assert_close(weights[..., :half].sum(-1), torch.ones(2, 5, dtype=torch.float64))


@pytest.mark.parametrize(
    ("strategy", "layers"), [("single", [3]), ("multiple", [1, 3]), ("gated", [3]), ("chunk_gated", [2, 5])]
)
def test_states_in_one_tensor_are_the_same_memory(strategy, layers):
    states = make_states(5)
    memory = GeneralMemory(6, strategy, layers).double()
    (several, weights), (one, same_weights) = memory(states), memory(torch.stack(states, dim=1))
    torch.testing.assert_close(one, several, rtol=0, atol=0)
    torch.testing.assert_close(same_weights, weights, rtol=0, atol=0)


def test_states_kept_in_half_precision_are_read_under_another():
    memory = GeneralMemory(6, "chunk_gated", [2, 4])
    states = torch.stack(make_states(), dim=1).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = memory(states.half())
    for one, exact in zip(found, memory(states)[0], strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one.float(), exact, rtol=0, atol=0.05)
