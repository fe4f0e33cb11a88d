# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""How HMA's rows read memories, and each other (Qiu et al., 2023, sections 3 and 4)."""

import torch
from torch import nn
from torch.nn import functional as F


def read_slots(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    own_keys: torch.Tensor | None = None,
    own_values: torch.Tensor | None = None,
    filled: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Att of Eq. 1, for each head: every row reads the same slots, and itself, which is one more column of the scores.

    Args:
        query, own_keys, own_values: of the rows, `(heads, rows, size)`. Without keys, rows do not read themselves.
        keys, values: of the slots, `(heads, slots, size)`.
        filled: which slots are read, `(slots,)`. Default: all.

    Returns what was read `(heads, rows, size)` and the weights `(heads, rows, slots)`, with the own column last.
    """
    scale = query.shape[-1] ** -0.5
    scores = query @ keys.transpose(-1, -2) * scale
    if filled is not None:
        scores = scores.masked_fill(~filled, float("-inf"))
    if own_keys is not None:
        scores = torch.cat([scores, (query * own_keys).sum(-1, keepdim=True) * scale], dim=-1)
    # Also in low precision, the softmax sums in float32.
    weights = scores.softmax(dim=-1)
    if own_keys is None:
        return weights @ values, weights
    return weights[..., :-1] @ values + weights[..., -1:] * own_values, weights


class DatapointReader(nn.Module):
    """
    MHA of Eq. 2, where the tokens are rows of a batch and slots of a memory, with the residual on the query. `heads`
    divide `size`, the width of a row.
    """

    def __init__(self, size: int, heads: int, intermediate_size: int, dropout: float = 0.0, eps: float = 1e-5):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(size, eps=eps)
        # Not `query` or `q_proj`: adapters for the backbone must not match these names.
        self.query_projection = nn.Linear(size, size)
        # Without a bias, which the softmax would cancel.
        self.key_projection = nn.Linear(size, size, bias=False)
        self.value_projection = nn.Linear(size, size)
        self.feed_forward_norm = nn.LayerNorm(size, eps=eps)
        self.up_projection = nn.Linear(size, intermediate_size)
        self.down_projection = nn.Linear(intermediate_size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, rows: torch.Tensor, slots: torch.Tensor, filled: torch.Tensor | None = None, between_rows: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Args:
            rows: `(rows, size)`.
            slots: `(slots, size)`, which all rows read. There may be none.
            filled: which slots are read.
            between_rows: whether a row also reads all other rows (ABD, Eq. 3), or only itself.

        Returns the rows and the weights `(rows, heads, slots and rows)`, where the last ones are the rows' or its own.
        """
        parts = [slots.shape[0], rows.shape[0]]
        # Slots and rows together, and rounded once: in small batches, kernel launches cost more than arithmetic.
        normed = torch.cat([self.norm(slots.to(rows.dtype)), self.norm(rows)])
        if torch.is_autocast_enabled(rows.device.type):
            normed = normed.to(torch.get_autocast_dtype(rows.device.type))
        query = self._split(self.query_projection(normed.split(parts)[1]))
        keys, values = self._split(self.key_projection(normed)), self._split(self.value_projection(normed))
        own_keys = own_values = None
        if not between_rows:
            (keys, own_keys), (values, own_values) = keys.split(parts, dim=1), values.split(parts, dim=1)
        elif filled is not None:
            filled = torch.cat([filled, filled.new_ones(rows.shape[0])])
        said, weights = read_slots(query, keys, values, own_keys, own_values, filled)
        rows = rows + self.dropout(said.transpose(0, 1).flatten(1))  # H of Eq. 2; concat(head_1, ..., head_h)
        rows = rows + self.dropout(self.down_projection(F.gelu(self.up_projection(self.feed_forward_norm(rows)))))
        return rows, weights.transpose(0, 1)

    def _split(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.unflatten(-1, (self.heads, -1)).transpose(0, 1)
