# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The recurrent network with a memory bank (IDA: Asghar et al., 2020, section 3.1)."""

import torch
from torch import nn

from hf_memaug.layers.memory_recurrence import Setting, recur

GATES = {"lstm": 4, "gru": 3}


class MemoryBank(nn.Module):
    r"""`N` slots for each of 1 or 2 directions, each with a key, as wide as the hidden state that asks, and a value."""

    def __init__(self, directions: int, slots: int, key_size: int, value_size: int):
        super().__init__()
        self.slot_keys = nn.Parameter(torch.empty(directions, slots, key_size))
        self.slot_values = nn.Parameter(torch.empty(directions, slots, value_size))

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values. A call, so that a module in its place (an adapter's copy) is used."""
        return self.slot_keys, self.slot_values


class MemoryRNN(nn.Module):
    r"""
    One layer that reads its memory at each step, with the previous hidden state for a query.

    Gates lie in the order i, f, o, g (LSTM) or r, z, n (GRU). The weights of hidden states and of content are
    `(direction, from, gate * to)`, so that one batched product serves both directions.

    Args:
        input_size (`int`): the width of a word vector.
        hidden_size (`int`): the width of the hidden state, of each direction.
        slots (`int`): `N`; 0 for the plain network.
        value_size (`int`): the width of the memory's content.
        cell (`str`): `"lstm"` or `"gru"`.
        bidirectional (`bool`): whether a second network of the same kind reads from right to left.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        slots: int,
        value_size: int,
        cell: str = "lstm",
        bidirectional: bool = True,
    ):
        super().__init__()
        self.cell, self.hidden_size = cell, hidden_size
        self.directions, self.gates = 1 + bidirectional, GATES[cell]
        width = self.gates * hidden_size
        self.input_projection = nn.Linear(input_size, self.directions * width)
        self.hidden_weight = nn.Parameter(torch.empty(self.directions, hidden_size, width))
        # GRU's candidate has a bias inside of what the reset gate lets through.
        self.candidate_bias = nn.Parameter(torch.empty(self.directions, hidden_size)) if cell == "gru" else None
        self.memory = self.content_weight = None
        if slots:
            self.memory = MemoryBank(self.directions, slots, hidden_size, value_size)
            self.content_weight = nn.Parameter(torch.empty(self.directions, value_size, width))

    def unflattened(self) -> dict[str, tuple[int, ...]]:
        """Parameters with several axes in one, and what these axes are: where a larger network keeps a smaller one."""
        gates = (self.directions, self.gates, self.hidden_size)
        shapes = {
            "input_projection.weight": (*gates, self.input_projection.in_features),
            "input_projection.bias": gates,
            "hidden_weight": (self.directions, self.hidden_size, self.gates, self.hidden_size),
        }
        if self.content_weight is not None:
            shapes["content_weight"] = (self.directions, self.content_weight.shape[1], self.gates, self.hidden_size)
        return shapes

    def forward(
        self,
        inputs: torch.Tensor,
        mask: torch.Tensor | None = None,
        state: tuple[torch.Tensor, ...] | None = None,
        output_weights: bool = False,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor | None]:
        """
        Args:
            inputs (`Tensor`): word vectors, `(rows, steps, input_size)`.
            mask (`Tensor`, *optional*): true where there is a word, `(rows, steps)`. Padding leaves the state alone.
            state (`tuple[Tensor, ...]`, *optional*): where to start: the hidden state and, for an LSTM, the cell state,
                each `(directions, rows, hidden_size)`.
            output_weights (`bool`): whether to return the attention over the slots.

        Returns:
            The hidden states `(rows, steps, directions * hidden_size)`, zero at padding; the last state; and `α` of
            Eq. 1 as `(rows, directions, steps, slots)`, zero where nothing is read.
        """
        projected = self.input_projection(inputs)
        # In low precision, rounding errors would accumulate from step to step.
        with torch.autocast(inputs.device.type, enabled=False):
            return self._run(projected.to(self.hidden_weight.dtype), mask, state, output_weights)

    def _run(self, projected, mask, state, output_weights):
        rows, steps, _ = projected.shape
        projected = self._by_step(projected.unflatten(-1, (self.directions, -1)).permute(1, 2, 0, 3))
        keep = has_read = None
        if mask is not None:
            mask = mask.to(torch.bool)
            keep = self._by_step(mask.t()[:, None, :, None].expand(-1, self.directions, -1, -1))
            if state is None:
                # A row's first word is its first step, however much padding lies before it.
                has_read = keep.cumsum(0) > keep.int()
        recurrent, values, content_weight = self.hidden_weight, None, None
        if self.memory is not None and self.content_weight is not None:
            keys, values = self.memory()
            # Scores and gates use the same state: one product.
            recurrent = torch.cat([keys.to(recurrent.dtype).transpose(1, 2), recurrent], dim=-1)
            values, content_weight = _content(values.to(recurrent.dtype), self.content_weight, rows * steps)
        first = None if state is None else tuple(part.to(projected.dtype) for part in state)
        setting = Setting(self.cell, state is not None, keep, has_read, output_weights)
        tensors = (projected, recurrent, values, content_weight, self.candidate_bias)
        hidden, state, weights = recur(setting, *tensors, first)
        hidden = self._by_step(hidden).permute(2, 0, 1, 3).flatten(2)
        if mask is not None:
            hidden = hidden * mask.unsqueeze(-1)
        if weights is not None:
            weights = self._by_step(weights).permute(2, 1, 0, 3)
            if mask is not None:
                weights = weights * mask[:, None, :, None]
        return hidden, state, weights

    def _by_step(self, values: torch.Tensor) -> torch.Tensor:
        """`(steps, directions, ...)`, with the second direction's steps in the order that it takes them, or back."""
        if self.directions == 1:
            return values
        return torch.stack([values[:, 0], values[:, 1].flip(0)], dim=1)


def _content(values: torch.Tensor, weight: torch.Tensor, reads: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """
    The values to read, and the weight for their content. `(Σ α v) W` equals `Σ α (v W)`: with few slots and many reads,
    the weight is applied to the slots once, instead of to the content of every read.
    """
    slots, size = values.shape[1:]
    width = weight.shape[-1]
    if slots * width * (reads + size) < reads * size * (slots + width):
        return values @ weight, None
    return values, weight
