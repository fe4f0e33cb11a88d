# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Domain discriminators: the adversaries of invariance learning."""

from collections.abc import Sequence

import torch
from torch import nn


class DomainDiscriminators(nn.Module):
    """
    `f_1 ... f_n` (MIL, section 3.3): one for each source domain, telling its features from those of all others.

    Args:
        domains (`Sequence[str]`): the source domains.
        feature_size, hidden_size (`int`): widths of the features and of the hidden layer; 0 leaves the layer out.
    """

    def __init__(self, domains: Sequence[str], feature_size: int, hidden_size: int = 256):
        super().__init__()
        self.domains = list(domains)
        self.discriminators = nn.ModuleList(
            nn.Sequential(nn.Linear(feature_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 1))
            if hidden_size
            else nn.Linear(feature_size, 1)
            for _ in self.domains
        )

    def forward(self, features: torch.Tensor, domain: str) -> torch.Tensor:
        """The logit of each row's coming from `domain`: `(rows, feature_size)` to `(rows,)`."""
        discriminator = self.discriminators[self.domains.index(domain)]
        # A float32 game between two players ends otherwise in bfloat16, whose steps are coarser than a fine advantage.
        with torch.autocast(features.device.type, enabled=False):
            return discriminator(features.float() if features.dtype != torch.float64 else features).squeeze(-1)


class ReverseGradient(torch.autograd.Function):
    """The identity, whose gradient is turned round and scaled (Ganin et al., 2016)."""

    @staticmethod
    def forward(ctx, features, scale):
        ctx.scale = scale
        return features.view_as(features)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.scale * gradient, None
