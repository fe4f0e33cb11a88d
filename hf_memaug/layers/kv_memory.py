# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The key-value memory of MIL (Jia and Zhang, 2023, section 3.1)."""

import math
from collections import OrderedDict

import torch
from torch import nn


def slot_entropy(weights: torch.Tensor) -> torch.Tensor:
    """Of weights `(..., slots)`: how evenly each query reads them, from 0, a single slot, to 1, all alike."""
    return torch.special.entr(weights).sum(dim=-1) / math.log(max(weights.shape[-1], 2))


def query_mlp(hidden_size: int, query_size: int) -> nn.Sequential:
    """The multi-layer perceptron that the paper allows in place of a linear query network."""
    up_proj, down_proj = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, query_size)
    return nn.Sequential(OrderedDict(up_proj=up_proj, activation=nn.GELU(), down_proj=down_proj))


class KeyValueMemory(nn.Module):
    r"""
    `m : R^d -> R^d`, a differentiable lookup table. Each head asks its own query of the same keys, and reads values
    of its own; what the heads read is summed (Lample et al., 2019) and projected.

    Args:
        hidden_size (`int`): `d`, the width of the hidden state that asks, and of the answer.
        slots (`int`): `|K|`, the number of keys.
        key_size (`int`): `d_q`, the width of a key and of one head's query.
        heads (`int`): the number of queries asked of the keys.
        query (`str`): the query network, `"linear"` or `"mlp"`.
    """

    def __init__(self, hidden_size: int, slots: int, key_size: int, heads: int, query: str = "linear"):
        super().__init__()
        self.heads = heads
        query_size = heads * key_size
        # Not named `query`: adapters that target the encoder's attention by that name must not catch the memory.
        self.query_network = (
            nn.Linear(hidden_size, query_size) if query == "linear" else query_mlp(hidden_size, query_size)
        )
        self.slot_keys = nn.Parameter(torch.empty(slots, key_size))
        self.slot_values = nn.Parameter(torch.empty(heads, slots, hidden_size))
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes `(..., hidden_size)`; returns the memory `(..., hidden_size)` and the weights `(..., heads, slots)`."""
        # One position a row is too little work for low precision to pay: casting the table would take longer than
        # reading it.
        with torch.autocast(hidden_state.device.type, enabled=False):
            query = self.query_network(hidden_state.to(self.slot_values.dtype)).unflatten(-1, (self.heads, -1))
            # Eq. 1. In low precision too, the softmax sums in float32 before it rounds.
            weights = torch.softmax(nn.functional.linear(query, self.slot_keys), dim=-1)
            # Eq. 2, summed over the heads: one product with the heads' tables on top of each other.
            read = weights.flatten(-2) @ self.slot_values.flatten(0, 1)
            return self.output(read), weights
