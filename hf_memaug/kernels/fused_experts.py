# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
All experts at once, as `hf_memaug.kernels.grouped_experts`, with what lies between the products in Triton kernels: the
first bias and GELU, and the way back to the tokens with the second bias, the weights and the sum over the k experts.

The plain twin is `hf_memaug.layers.experts.Experts.forward`. Tokens are put in order by counting, not by sorting.
Nothing is added up by atomic operations, so that a step can be repeated. A backward pass that is differentiated itself
(IRM, MLDG, Fishr) goes through plain torch.
"""

import importlib

import torch
from torch.nn import functional as F

from hf_memaug.kernels.grouped_experts import Repeated, _has_grouped_product, _products
from hf_memaug.kernels.triton_launches import HAS_TRITON, block_of
from hf_memaug.layers.second_derivatives import plain_gradients


def by_expert(experts: torch.Tensor, num_experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """
    `(tokens, k)`, who reads each token, to the order that puts rows of one expert together, the way back, and where
    each expert's rows end.
    """
    chosen = experts.flatten()
    is_expert = chosen == torch.arange(num_experts, device=chosen.device).unsqueeze(-1)
    ranks = is_expert.to(torch.int32).cumsum(dim=1, dtype=torch.int32)
    ends = ranks[:, -1].cumsum(dim=0, dtype=torch.int32)
    starts = ends - ranks[:, -1]
    back = (ranks.gather(0, chosen.unsqueeze(0)).squeeze(0) - 1 + starts[chosen]).long()
    order = torch.empty_like(back).scatter_(0, back, torch.arange(len(back), device=back.device))
    return order, back, ends


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
    order, back, ends = by_expert(experts, len(up))
    rows = Repeated.apply(tokens.to(dtype), order, back, experts.shape[1])
    expert_of_row = experts.flatten()[order]
    with torch.autocast(tokens.device.type, enabled=False):
        inner = BiasGELU.apply(_products(rows, up.to(dtype), ends), up_bias, expert_of_row)
        said = _products(inner, down.to(dtype), ends)
        return Combined.apply(said, down_bias, experts, weights, order, back).to(tokens.dtype)


def can_fuse(tokens: torch.Tensor, up: torch.Tensor, activation) -> bool:
    """Whether `fused_experts` is there for these: on a GPU with Triton, for GELU in its exact form."""
    # transformers' own class holds the function.
    function = getattr(activation, "act", activation)
    return HAS_TRITON and tokens.is_cuda and function is F.gelu and _has_grouped_product(tokens, up)


class BiasGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, bias, expert_of_row):
        rows = rows.contiguous()
        ctx.save_for_backward(rows, bias, expert_of_row)
        return _launch_bias_gelu(rows, bias, expert_of_row)

    @staticmethod
    def plain(rows, bias, expert_of_row):
        return F.gelu(rows.float() + bias.float()[expert_of_row]).to(rows.dtype)

    @staticmethod
    def backward(ctx, gradient):
        rows, bias, expert_of_row = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(BiasGELU.plain, ctx.saved_tensors, (gradient,))
        back = _launch_bias_gelu(rows, bias, expert_of_row, gradient.contiguous())
        # One product with which row is whose: no order of additions is left to chance.
        members = (expert_of_row == torch.arange(len(bias), device=rows.device).unsqueeze(-1)).to(back.dtype)
        return back, (members @ back).to(bias.dtype), None


class Combined(torch.autograd.Function):
    @staticmethod
    def forward(ctx, said, bias, experts, weights, order, back):
        said = said.contiguous()
        ctx.save_for_backward(said, bias, experts, weights, order, back)
        return _launch_combine(said, bias, experts, weights, back)

    @staticmethod
    def plain(said, bias, experts, weights, order, back):
        words = said.float()[back].unflatten(0, experts.shape) + bias.float()[experts]
        return (weights.float().unsqueeze(-1) * words).sum(dim=1).to(said.dtype)

    @staticmethod
    def backward(ctx, gradient):
        said, bias, experts, weights, order, back = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(Combined.plain, ctx.saved_tensors, (gradient,))
        gradient = gradient.contiguous()
        of_said, of_weights = _launch_combine_backward(said, bias, experts, weights, order, gradient)
        gates = weights.new_zeros(len(experts), len(bias)).scatter(1, experts, weights)
        of_bias = gates.T.to(gradient.dtype) @ gradient
        return of_said, of_bias.to(bias.dtype), None, of_weights.to(weights.dtype), None, None


def _kernels():
    return importlib.import_module("hf_memaug.kernels.triton_experts")


def _launch_bias_gelu(rows, bias, expert_of_row, gradient=None) -> torch.Tensor:
    found = torch.empty_like(rows)
    count, width = rows.shape
    block_rows, block_width = 16, 256
    grid = (-(-count // block_rows), -(-width // block_width))
    given = rows if gradient is None else gradient
    _kernels().bias_gelu[grid](
        rows, bias, expert_of_row, given, found, count, width, gradient is not None, block_rows, block_width
    )
    return found


def _launch_combine(said, bias, experts, weights, back) -> torch.Tensor:
    (count, k), width = experts.shape, said.shape[1]
    found = said.new_empty(count, width)
    _kernels().combine[(count,)](said, bias, experts, weights, back, found, width, k, block_of(width))
    return found


def _launch_combine_backward(said, bias, experts, weights, order, gradient) -> tuple[torch.Tensor, torch.Tensor]:
    k, (rows, width) = experts.shape[1], said.shape
    of_said = torch.empty_like(said)
    of_weights = torch.empty(experts.shape, dtype=torch.float32, device=said.device)
    _kernels().combine_backward[(rows,)](
        said, bias, experts, weights, order, gradient, of_said, of_weights, width, k, block_of(width)
    )
    return of_said, of_weights
