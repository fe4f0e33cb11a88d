# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
All experts at once: tokens are sorted by expert, and each projection is one grouped matrix product.

Its plain twin is `hf_memaug.layers.experts.Experts.forward`. Three things keep the rest cheap: a token occurs exactly k
times, so that sorting and its gradient need no atomic adds; the first bias is a column of its matrix; and the second
bias is added token by token from the experts' weights.

A traced graph cannot know how many tokens an expert gets, and torch traces grouped products only in bfloat16:
`every_expert` is used there.
"""

from collections.abc import Callable

import torch
from torch.nn import functional as F

Layers = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
# A grouped product needs rows of a multiple of 16 bytes.
COLUMNS = 8
# Before torch 2.7, exporting was compiling.
_is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


class Repeated(torch.autograd.Function):
    """Rows in another order, each k times; the gradient of a row is the sum of its k."""

    @staticmethod
    def forward(rows, order, back, k):
        return rows[order // k]

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, _, back, ctx.k = inputs
        ctx.save_for_backward(back)

    @staticmethod
    def backward(ctx, gradient):
        (back,) = ctx.saved_tensors
        gradient = gradient[back]
        return gradient if ctx.k == 1 else gradient.unflatten(0, (-1, ctx.k)).sum(dim=1), None, None, None


def grouped_experts(
    tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, layers: Layers, activation: Callable
) -> torch.Tensor:
    """
    Args:
        tokens: `(tokens, hidden)`.
        experts, weights: `(tokens, k)`, the experts of each token and their weights.
        layers: the weights of `Experts`: up, its bias, down, and its bias.
    """
    count, k = experts.shape
    dtype = tokens.dtype
    if torch.is_autocast_enabled(tokens.device.type):
        dtype = torch.get_autocast_dtype(tokens.device.type)
    if _is_exporting() or (torch.compiler.is_compiling() and dtype != torch.bfloat16):
        return every_expert(tokens, experts, weights, layers, activation)
    up, up_bias, down, down_bias = layers
    chosen = experts.flatten()
    order = chosen.argsort(stable=True)
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    ends = F.one_hot(chosen, len(up)).sum(dim=0).cumsum(dim=0, dtype=torch.int32)

    more = tokens.new_zeros(count, COLUMNS, dtype=dtype)
    more[:, 0] = 1
    sorted_tokens = Repeated.apply(torch.cat([tokens.to(dtype), more], dim=-1), order, back, k)
    with_bias = F.pad(torch.cat([up, up_bias.unsqueeze(-1)], dim=-1), (0, COLUMNS - 1)).to(dtype)
    inner = activation(_products(sorted_tokens, with_bias, ends))
    said = _products(inner, down.to(dtype), ends)
    said = Repeated.apply(said, back, order, 1).unflatten(0, (count, k))
    found = (said * weights.to(dtype).unsqueeze(-1)).sum(dim=1)
    # The second bias is the same for all tokens of an expert, except for the weight.
    gates = weights.new_zeros(count, len(up)).scatter(1, experts, weights)
    return (found + gates.to(dtype) @ down_bias.to(dtype)).to(tokens.dtype)


def every_expert(
    tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, layers: Layers, activation: Callable
) -> torch.Tensor:
    """The same with all experts reading all tokens, and a weight of zero for unselected ones: fixed shapes."""
    up, up_bias, down, down_bias = layers
    gates = weights.new_zeros(tokens.shape[0], len(up)).scatter(1, experts, weights)
    inner = activation(torch.matmul(tokens, up.transpose(-2, -1)) + up_bias.unsqueeze(1))
    said = torch.matmul(inner, down.transpose(-2, -1)) + down_bias.unsqueeze(1)
    return (said * gates.T.unsqueeze(-1)).sum(dim=0).to(tokens.dtype)


def _products(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """`rows[start:end] @ matrices[e].T` for each expert e, whose rows end at `ends[e]`."""
    if _has_grouped_product(rows, matrices):
        return F.grouped_mm(rows, matrices.transpose(-2, -1), offs=ends)
    parts, start = [], 0
    for matrix, end in zip(matrices, ends.tolist(), strict=True):
        parts.append(rows[start:end] @ matrix.T)
        start = end
    return torch.cat(parts)


def _has_grouped_product(rows: torch.Tensor, matrices: torch.Tensor) -> bool:
    if not hasattr(F, "grouped_mm") or rows.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    sizes = (rows.shape[1], *matrices.shape[1:])
    if any(size * rows.element_size() % 16 for size in sizes):
        return False
    return rows.device.type == "cpu" or torch.cuda.get_device_capability(rows.device) >= (8, 0)
