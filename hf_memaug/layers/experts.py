# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The experts of GMoE: as many feed-forward networks as there are experts (Li et al., 2023, Eq. 3 and section C.2)."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


class Experts(nn.Module):
    """
    Feed-forward networks of one shape, in parameters with the experts as their first axis.

    Args:
        activation: between the two projections.
    """

    def __init__(self, num_experts: int, hidden_size: int, intermediate_size: int, activation: Callable = F.gelu):
        super().__init__()
        self.num_experts, self.act_fn = num_experts, activation
        self.up_proj = nn.Parameter(torch.empty(num_experts, intermediate_size, hidden_size).normal_(std=0.02))
        self.up_proj_bias = nn.Parameter(torch.zeros(num_experts, intermediate_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, intermediate_size).normal_(std=0.02))
        self.down_proj_bias = nn.Parameter(torch.zeros(num_experts, hidden_size))

    @torch.no_grad()
    def copy_of(self, up: nn.Linear, down: nn.Linear) -> "Experts":
        """Makes every expert a copy of one network (C.2). Returns the experts."""
        self.up_proj.copy_(up.weight)
        self.up_proj_bias.copy_(up.bias)
        self.down_proj.copy_(down.weight)
        self.down_proj_bias.copy_(down.bias)
        return self

    def forward(self, tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """
        `sum_e g(x)_e FFN_e(x)` (Eq. 3), expert by expert; `hf_memaug.kernels.grouped_experts` gives the same at once.

        Args:
            tokens: `(tokens, hidden)`.
            experts, weights: `(tokens, k)`, who reads each token and how much it says.
        """
        # Rounded once, when all experts have said their part.
        found = torch.zeros_like(tokens, dtype=torch.promote_types(tokens.dtype, weights.dtype))
        for expert in range(self.num_experts):
            rows, places = (experts == expert).nonzero(as_tuple=True)
            inner = self.act_fn(F.linear(tokens[rows], self.up_proj[expert], self.up_proj_bias[expert]))
            said = F.linear(inner, self.down_proj[expert], self.down_proj_bias[expert])
            found = found.index_add(0, rows, (said * weights[rows, places, None]).to(found.dtype))
        return found.to(tokens.dtype)
