# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Which experts read a token, and what keeps them all busy (GMoE: Li et al., 2023, sections 4.1, 4.3 and C.3, C.4)."""

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from hf_memaug.layers.real_memory import has_processes


class Routing(NamedTuple):
    """
    Args:
        logits, noisy_logits: `(tokens, experts)`, before the noise and with it.
        experts, weights: `(tokens, k)`, the chosen experts and their weights, which add up to 1.
    """

    logits: torch.Tensor
    experts: torch.Tensor
    weights: torch.Tensor
    noisy_logits: torch.Tensor


class CosineRouter(nn.Module):
    """`E^T W x / (|W x| |E|)` times a learned scale, `1 / tau` of section 4.3, from `scale` up to `max_scale`."""

    def __init__(
        self, hidden_size: int, num_experts: int, router_dim: int = 256, scale: float = 2.0, max_scale: float = 100.0
    ):
        super().__init__()
        self.projection = nn.Linear(hidden_size, router_dim)
        self.experts = nn.Parameter(torch.empty(num_experts, router_dim).normal_())
        # One-dimensional, because FSDP2 and DeepSpeed cannot shard a scalar.
        self.log_scale = nn.Parameter(torch.tensor([math.log(scale)]))
        self.max_log_scale = math.log(max_scale)
        self.register_load_state_dict_pre_hook(_without_scalars)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        # In full precision, whatever the rest is in: close calls decide who reads a token.
        with torch.autocast(tokens.device.type, enabled=False):
            weight, bias = self.projection.weight, self.projection.bias
            exact = torch.promote_types(weight.dtype, torch.float32)
            scale = self.log_scale.to(exact).clamp(max=self.max_log_scale).exp()
            directions = F.normalize(F.linear(tokens.to(exact), weight.to(exact), bias.to(exact)), dim=-1)
            return F.linear(directions, F.normalize(self.experts.to(exact), dim=-1)) * scale


def _without_scalars(router: CosineRouter, state: dict[str, torch.Tensor], prefix: str, *_) -> None:
    """Weights of before 0.2.0 have a scalar here."""
    name = f"{prefix}log_scale"
    if name in state:
        state[name] = state[name].reshape(1)


class LinearRouter(nn.Module):
    """`W x` (Eq. 3)."""

    def __init__(self, hidden_size: int, num_experts: int):
        super().__init__()
        self.projection = nn.Linear(hidden_size, num_experts, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        with torch.autocast(tokens.device.type, enabled=False):
            weight = self.projection.weight
            exact = torch.promote_types(weight.dtype, torch.float32)
            return F.linear(tokens.to(exact), weight.to(exact))


def route(logits: torch.Tensor, k: int, noise: float = 0.0) -> Routing:
    """
    TOP_k of the softmax (Eq. 3). The weights of the chosen experts add up to 1, so that copies of one network give
    together what it gives. `noise` is the standard deviation of the noise on the logits in training (C.3).
    """
    noisy = logits + noise * torch.randn_like(logits) if noise else logits
    best, experts = noisy.topk(k, dim=-1)
    # The softmax over the chosen ones is the softmax over all, made to add up to 1 again.
    weights = best.softmax(dim=-1)
    if k == 1:
        # Which is 1, whatever the router says: it learns as if it were the softmax over all.
        chance = noisy.softmax(dim=-1).gather(-1, experts)
        weights = weights + (chance - chance.detach())
    return Routing(logits, experts, weights, noisy)


def importance_loss(logits: torch.Tensor) -> torch.Tensor:
    """The squared coefficient of variation of Eq. 9: how much each expert is asked to say, over all tokens."""
    return balance_loss(logits.softmax(dim=-1).sum(dim=0))


def load_loss(routing: Routing, noise: float) -> torch.Tensor:
    """
    The same of the number of tokens that each expert can expect (Eq. 10): the chance that, with its noise drawn again,
    it reaches the k-th largest noisy logit. Without noise that is 0 or 1, without a gradient.
    """
    threshold = routing.noisy_logits.gather(-1, routing.experts[:, -1:])
    missing = threshold - routing.logits
    chance = torch.special.ndtr(-missing / noise) if noise else (missing <= 0).to(missing.dtype)
    return balance_loss(chance.sum(dim=0))


def balance_loss(sums: torch.Tensor) -> torch.Tensor:
    """The squared coefficient of variation over the experts, the last axis, of what all processes have summed."""
    if has_processes():
        from torch.distributed.nn.functional import all_reduce

        # Gradients go back through it: the loss is that of the whole batch.
        sums = all_reduce(sums)
    return sums.var(dim=-1, correction=0) / sums.mean(dim=-1).square()
