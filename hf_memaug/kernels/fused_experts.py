# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
All experts at once, as `hf_memaug.kernels.grouped_experts`, with what lies around the products in Triton kernels: the
order of the tokens by their experts, the tokens in that order, the first bias and GELU, and the way back to the tokens
with the second bias, the weights and the sum over the k experts.

The plain twin is `hf_memaug.layers.experts.Experts.forward`. Tokens are put in order by counting, not by sorting, and
are read and written in their own type, whatever that of the products. Nothing is added up by atomic operations, so that
a step can be repeated. A backward pass that is differentiated itself (IRM, MLDG, Fishr) goes through plain torch.
"""

import functools
import importlib
from typing import NamedTuple

import torch
from torch.nn import functional as F

from hf_memaug.kernels.grouped_experts import _has_grouped_product, _products
from hf_memaug.kernels.triton_launches import block_of, can_launch
from hf_memaug.layers.second_derivatives import plain_gradients

# Each program that puts choices in order reads the counts of all: so many at most, each with more choices instead.
MOST_PROGRAMS = 128
# Rows and columns of a block.
ROWS, COLUMNS = 32, 128


class Places(NamedTuple):
    """
    Args:
        experts: `(tokens, k)`, who reads each token.
        order: `(tokens * k,)`, which of those each row is, with the rows of one expert together.
        back: `(tokens * k,)`, the other way: the row of each.
        expert_of_row: `(tokens * k,)`.
        ends: `(experts,)`, where each expert's rows end.
    """

    experts: torch.Tensor
    order: torch.Tensor
    back: torch.Tensor
    expert_of_row: torch.Tensor
    ends: torch.Tensor


def by_expert(experts: torch.Tensor, num_experts: int) -> Places:
    """`(tokens, k)`, who reads each token, to the stable order that puts rows of one expert together."""
    experts = experts.contiguous()
    total, block_experts = experts.numel(), block_of(num_experts)
    block = max(32, 4096 // block_experts)
    turns = -(-total // (block * MOST_PROGRAMS))
    programs = -(-total // (block * turns))
    counts = torch.empty(programs, num_experts, dtype=torch.int32, device=experts.device)
    order, back = (torch.empty(total, dtype=torch.long, device=experts.device) for _ in range(2))
    expert_of_row = torch.empty(total, dtype=torch.int32, device=experts.device)
    ends = torch.empty(num_experts, dtype=torch.int32, device=experts.device)
    _kernels().count_choices[(programs,)](experts, counts, total, turns, num_experts, block, block_experts)
    _kernels().place_choices[(programs,)](
        experts, counts, order, back, expert_of_row, ends, total, turns, programs, num_experts, block, block_experts, 32
    )
    return Places(experts, order, back, expert_of_row, ends)


def fused_experts(tokens, experts, weights, up, up_bias, down, down_bias) -> torch.Tensor:
    """
    `sum_e g(x)_e FFN_e(x)` (Eq. 3) with GELU between the projections.

    Args:
        tokens: `(tokens, hidden)`.
        experts, weights: `(tokens, k)`, who reads each token and how much it says.
        up, up_bias, down, down_bias: as in `Experts`.
    """
    dtype = tokens.dtype
    if torch.is_autocast_enabled(tokens.device.type):
        dtype = torch.get_autocast_dtype(tokens.device.type)
    places = by_expert(experts, len(up))
    with torch.autocast(tokens.device.type, enabled=False):
        rows = Spread.apply(tokens.contiguous(), places, dtype)
        # Kernels read what lies together. Here, and not inside of them, it is differentiated twice as well.
        inner = _products(rows, up.to(dtype), places.ends).contiguous()
        inner = BiasGELU.apply(inner, up_bias.contiguous(), places)
        said = _products(inner, down.to(dtype), places.ends).contiguous()
        return Combined.apply(said, down_bias.contiguous(), weights.contiguous(), places, tokens.dtype)


def can_fuse(tokens: torch.Tensor, up: torch.Tensor, activation) -> bool:
    """Whether `fused_experts` is there for these: on a GPU with Triton, for GELU in its exact form."""
    # transformers' own class holds the function.
    function = getattr(activation, "act", activation)
    return function is F.gelu and can_launch(tokens.device) and _has_grouped_product(tokens, up)


class Spread(torch.autograd.Function):
    """Tokens in the order of their experts, each k times; the gradient of a token is the sum of its k."""

    @staticmethod
    def forward(ctx, tokens, places, dtype):
        ctx.save_for_backward(places.back)
        ctx.k, ctx.dtype = places.experts.shape[1], tokens.dtype
        rows = tokens.new_empty(len(places.order), tokens.shape[1], dtype=dtype)
        _launch_on_tokens(_kernels().spread, tokens, places.back, rows, ctx.k)
        return rows

    @staticmethod
    def backward(ctx, gradient):
        (back,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            return gradient[back].unflatten(0, (-1, ctx.k)).sum(dim=1).to(ctx.dtype), None, None
        found = gradient.new_empty(len(back) // ctx.k, gradient.shape[1], dtype=ctx.dtype)
        _launch_on_tokens(_kernels().spread_backward, gradient, back, found, ctx.k)
        return found, None, None


class BiasGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, bias, places):
        ctx.save_for_backward(rows, bias, places.expert_of_row, places.ends)
        found = torch.empty_like(rows)
        _launch_bias_gelu(rows, bias, places.expert_of_row, found)
        return found

    @staticmethod
    def plain(rows, bias, expert_of_row):
        return F.gelu(rows.float() + bias.float()[expert_of_row]).to(rows.dtype)

    @staticmethod
    def backward(ctx, gradient):
        rows, bias, expert_of_row, ends = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(BiasGELU.plain, (rows, bias, expert_of_row), (gradient,))
        found, parts = torch.empty_like(rows), _new_parts(rows, bias)
        _launch_bias_gelu(rows, bias, expert_of_row, found, gradient.contiguous(), parts)
        return found, _sum_parts(parts, ends, bias), None


class Combined(torch.autograd.Function):
    @staticmethod
    def forward(ctx, said, bias, weights, places, dtype):
        ctx.save_for_backward(said, bias, weights, *places)
        ctx.dtype = dtype
        (count, k), width = weights.shape, said.shape[1]
        found = said.new_empty(count, width, dtype=dtype)
        _kernels().combine[(count,)](said, bias, places.experts, weights, places.back, found, width, k, block_of(width))
        return found

    @staticmethod
    def plain(said, bias, weights, places, dtype):
        words = said.float()[places.back].unflatten(0, weights.shape) + bias.float()[places.experts]
        return (weights.float().unsqueeze(-1) * words).sum(dim=1).to(dtype)

    @staticmethod
    def backward(ctx, gradient):
        said, bias, weights, *places = ctx.saved_tensors
        places = Places(*places)
        if torch.is_grad_enabled():
            return plain_gradients(Combined.plain, (said, bias, weights, places, ctx.dtype), (gradient,))
        of_said, of_weights, parts = torch.empty_like(said), torch.empty_like(weights), _new_parts(said, bias)
        rows, width = said.shape
        _kernels().combine_backward[(-(-rows // ROWS),)](
            said, bias, weights, places.order, places.expert_of_row, gradient.contiguous(), of_said, of_weights, parts,
            rows, width, weights.shape[1], ROWS, COLUMNS,
        )  # fmt: skip
        return of_said, _sum_parts(parts, places.ends, bias), of_weights, None, None


@functools.cache
def _kernels():
    return importlib.import_module("hf_memaug.kernels.triton_experts")


def _grid(count: int, width: int) -> tuple[int, int]:
    return -(-count // ROWS), -(-width // COLUMNS)


def _launch_on_tokens(kernel, given, back, found, k: int) -> None:
    count, width = len(back) // k, given.shape[1]
    kernel[_grid(count, width)](given.contiguous(), back, found, count, width, k, ROWS, COLUMNS)


def _launch_bias_gelu(rows, bias, expert_of_row, found, gradient=None, parts=None) -> None:
    count, width = rows.shape
    _kernels().bias_gelu[_grid(count, width)](
        rows, bias, expert_of_row, gradient, found, parts, count, width, gradient is not None, ROWS, COLUMNS
    )


def _new_parts(rows, bias) -> torch.Tensor:
    """Room for sums of blocks of rows: one for each block, and one more wherever an expert begins."""
    return bias.new_empty(-(-len(rows) // ROWS) + len(bias), bias.shape[1], dtype=torch.float32)


def _sum_parts(parts, ends, bias) -> torch.Tensor:
    """The gradient by the bias, each expert's in the order of its rows: nothing is left to chance."""
    found, width = torch.empty_like(bias), bias.shape[1]
    _kernels().sum_parts[(len(bias), -(-width // 64))](parts, ends, found, width, ROWS, 32, 64)
    return found
