# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""From the hidden states of the general encoder to the memory that is read (G-MAP: Wan et al., 2022, section 2.3)."""

from collections.abc import Sequence

import torch
from torch import nn


def in_computed_type(states: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Under autocast, states in half precision get its type: `torch.cat` does not mix fp16, of a cache, and bf16."""
    kind = states[0].device.type
    if not torch.is_autocast_enabled(kind):
        return list(states)
    computed = torch.get_autocast_dtype(kind)
    return [one if one.dtype == torch.float32 else one.to(computed) for one in states]


class LayerGate(nn.Module):
    """Weighs the representations of a token in several layers."""

    def __init__(self, hidden_size: int):
        super().__init__()
        # `g` of Eq. 10. Without a bias, which the softmax over layers would cancel.
        self.importance = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Layers' states `(batch, layers, tokens, hidden)` to one, and their weights `(batch, tokens, layers)`."""
        # The states of all layers are large: under autocast they stay in half precision.
        kind = states.device.type
        is_mixed = torch.is_autocast_enabled(kind)
        states = states.to(torch.get_autocast_dtype(kind) if is_mixed else self.importance.weight.dtype)
        weights = self.importance(states).softmax(dim=1)  # Eq. 10
        return (weights.to(states.dtype) * states).sum(dim=1), weights.squeeze(-1).transpose(1, 2)  # Eq. 9


class GeneralMemory(nn.Module):
    """
    `M_f`, once for each layer that reads it.

    Args:
        strategy: "single", "multiple", "gated" or "chunk_gated".
        layers: the layers that read, starting at 1.
        gated_heads: heads of those layers that mix the memory in by a gate of their own ("gate_attention").
    """

    def __init__(self, hidden_size: int, strategy: str, layers: Sequence[int], gated_heads: int = 0):
        super().__init__()
        self.strategy, self.layers = strategy, tuple(layers)
        self.head_gates = nn.Parameter(torch.zeros(len(self.layers), gated_heads)) if gated_heads else None
        count = {"gated": 1, "chunk_gated": 2}.get(strategy, 0)
        self.gates = nn.ModuleList(LayerGate(hidden_size) for _ in range(count))

    def forward(self, states: Sequence[torch.Tensor] | torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        """
        The memory of each layer that reads, from `M = {M^1, ..., M^l}`, a list or one tensor with the layers as its
        second axis. Also returns the gates' weights `(batch, tokens, layers)`; those of one gate sum to 1.
        """
        if not self.gates:
            one_by_one = in_computed_type(states.unbind(dim=1) if isinstance(states, torch.Tensor) else states)
            return [one_by_one[-1 if self.strategy == "single" else layer - 1] for layer in self.layers], None
        count = states.shape[1] if isinstance(states, torch.Tensor) else len(states)
        parts = [slice(count)] if self.strategy == "gated" else [slice(count // 2), slice(count // 2, count)]
        chunks = (
            states[:, part] if isinstance(states, torch.Tensor) else torch.stack(in_computed_type(states[part]), dim=1)
            for part in parts
        )
        memories, weights = zip(*(gate(chunk) for gate, chunk in zip(self.gates, chunks, strict=True)), strict=True)
        return list(memories), torch.cat(weights, dim=-1)
