# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What a router does beside its products, as one Triton kernel each, and one backward: the cosine, the choice of the
experts, and the sums behind the importance and load losses.

The plain twins are in `hf_memaug.layers.router`. Nothing is added up by atomic operations, so that a step can be
repeated. A backward pass that is differentiated itself goes through plain torch.
"""

import importlib

import torch
from torch.nn import functional as F

from hf_memaug.kernels.triton_launches import HAS_TRITON, block_of
from hf_memaug.layers.second_derivatives import plain_gradients

MOST_EXPERTS, WIDEST = 128, 1024


def can_fuse_routing(rows: torch.Tensor, experts: int, k: int, width: int) -> bool:
    """On a GPU with Triton, in single precision, for two experts a token or more; but not where a compiler fuses."""
    fits = rows.is_cuda and rows.dtype == torch.float32 and k > 1 and experts <= MOST_EXPERTS and width <= WIDEST
    return HAS_TRITON and fits and not torch.compiler.is_compiling()


def cosine_logits(tokens: torch.Tensor, weight, bias, experts, scale) -> torch.Tensor:
    """
    `E^T W x / (|W x| |E|)` times the scale (section 4.3).

    Args:
        tokens, weight, bias, experts, scale: in single precision.
    """
    projected, directions = F.linear(tokens, weight, bias), F.normalize(experts, dim=-1)
    return _Cosine.apply(projected, directions, scale)


def choose_experts(logits: torch.Tensor, k: int, noise: float = 0.0):
    """As `hf_memaug.layers.router.route`: the experts, their weights, and the logits with their noise."""
    return _Choose.apply(logits, torch.randn_like(logits) if noise else None, k, noise)


def busy_experts(logits, noisy, experts, noise: float) -> torch.Tensor:
    """`(2, experts)`, over all tokens: how much each is asked to say (Eq. 9), and how many it can expect (Eq. 10)."""
    return _Busy.apply(logits, noisy.detach(), experts, noise)


class _Cosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, projected, directions, scale):
        products = projected @ directions.T
        logits, lengths = torch.empty_like(products), projected.new_empty(len(projected))
        count, width = projected.shape
        _kernels().cosine[_programs(count, 16)](
            projected, products, scale, lengths, logits, count, width, len(directions), 16, block_of(width),
            block_of(len(directions)),
        )  # fmt: skip
        ctx.save_for_backward(projected, directions, scale, lengths, logits)
        return logits

    @staticmethod
    def plain(projected, directions, scale):
        return F.normalize(projected, dim=-1) @ directions.T * scale

    @staticmethod
    def backward(ctx, gradient):
        projected, directions, scale, lengths, logits = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(_Cosine.plain, (projected, directions, scale), (gradient,))
        count, width = projected.shape
        programs = _programs(count, 16)
        of_products, of_projected = torch.empty_like(logits), torch.empty_like(projected)
        of_scale = projected.new_empty(programs[0])
        _kernels().cosine_back[programs](
            gradient.contiguous(), projected, scale, lengths, logits, of_products, of_projected, of_scale, count, width,
            len(directions), 16, block_of(width), block_of(len(directions)),
        )  # fmt: skip
        of_projected.addmm_(of_products, directions)
        return of_projected, of_products.T @ projected, of_scale.sum()


class _Choose(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, draws, k, noise):
        count, experts = logits.shape
        noisy = logits if draws is None else torch.empty_like(logits)
        chosen = torch.empty(count, k, dtype=torch.long, device=logits.device)
        weights = logits.new_empty(count, k)
        _kernels().choose[_programs(count, 64)](
            logits, draws, noise, noisy, chosen, weights, count, experts, k, draws is not None, 64, block_of(experts)
        )
        ctx.save_for_backward(logits, draws, chosen, weights)
        ctx.experts, ctx.noise = experts, noise
        ctx.mark_non_differentiable(chosen)
        ctx.set_materialize_grads(False)
        return chosen, weights, noisy.view_as(noisy) if draws is None else noisy

    @staticmethod
    def plain(logits, draws, chosen, noise):
        noisy = logits if draws is None else logits + noise * draws
        return noisy.gather(-1, chosen).softmax(dim=-1), noisy

    @staticmethod
    def backward(ctx, _, of_weights, of_noisy):
        logits, draws, chosen, weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(_Choose.plain, (logits, draws, chosen, ctx.noise), (of_weights, of_noisy))
        if of_weights is None:
            return of_noisy, None, None, None
        count, k = chosen.shape
        found = weights.new_empty(count, ctx.experts)
        _kernels().choose_back[_programs(count, 64)](
            of_weights.contiguous(), chosen, weights, found, count, ctx.experts, k, 64, block_of(ctx.experts)
        )
        return found if of_noisy is None else found + of_noisy, None, None, None


class _Busy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, noisy, chosen, noise):
        count, experts = logits.shape
        programs = _programs(count, 64)
        sums = logits.new_empty(programs[0], 2, experts)
        _kernels().busy[programs](
            logits, noisy, chosen, noise, sums, count, experts, chosen.shape[1], 64, block_of(experts)
        )
        ctx.save_for_backward(logits, noisy, chosen)
        ctx.noise = noise
        return sums.sum(dim=0)

    @staticmethod
    def plain(logits, noisy, chosen, noise):
        # The threshold is a logit, too, with noise that does not learn.
        threshold = (logits + (noisy - logits).detach()).gather(-1, chosen[:, -1:])
        chances = torch.special.ndtr((logits - threshold) / noise)
        return torch.stack([logits.softmax(dim=-1).sum(dim=0), chances.sum(dim=0)])

    @staticmethod
    def backward(ctx, gradient):
        logits, noisy, chosen = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(_Busy.plain, (logits, noisy, chosen, ctx.noise), (gradient,))
        count, experts = logits.shape
        found = torch.empty_like(logits)
        _kernels().busy_back[_programs(count, 64)](
            gradient.contiguous(), logits, noisy, chosen, ctx.noise, found, count, experts, chosen.shape[1], 64,
            block_of(experts),
        )  # fmt: skip
        return found, None, None, None


def _kernels():
    return importlib.import_module("hf_memaug.kernels.triton_routing")


def _programs(count: int, tokens: int) -> tuple[int]:
    return (-(-count // tokens),)
