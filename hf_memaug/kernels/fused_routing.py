# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What a router does beside its products, in Triton kernels, forward and backward: the cosine, the choice of the experts,
and the importance and load losses.

The plain twins are in `hf_memaug.layers.router`. Nothing is added up by atomic operations, so that a step can be
repeated. A backward pass that is differentiated itself goes through plain torch.
"""

import functools
import importlib

import torch
from torch.nn import functional as F

from hf_memaug.kernels.triton_launches import block_of, can_launch
from hf_memaug.layers.processes import has_processes
from hf_memaug.layers.router import balance_loss
from hf_memaug.layers.second_derivatives import plain_gradients

MOST_EXPERTS, WIDEST = 128, 1024
# Tokens of a program, where it has no more than a row of logits of each.
TOKENS = 64


def can_fuse_routing(rows: torch.Tensor, experts: int, k: int, width: int) -> bool:
    """On a GPU with Triton, in single precision, for two experts a token or more; but not where a compiler fuses."""
    fits = rows.dtype == torch.float32 and k > 1 and experts <= MOST_EXPERTS and width <= WIDEST
    return fits and can_launch(rows.device)


def cosine_logits(tokens: torch.Tensor, weight, bias, experts, log_scale, max_log_scale: float) -> torch.Tensor:
    """
    `E^T W x / (|W x| |E|)` times the scale (section 4.3).

    Args:
        tokens, weight, bias, experts, log_scale: in single precision.
    """
    return _Cosine.apply(F.linear(tokens, weight, bias), experts, log_scale, max_log_scale)


def choose_experts(logits: torch.Tensor, k: int, noise: float = 0.0):
    """As `hf_memaug.layers.router.route`: the experts, their weights, and the logits with their noise."""
    logits = logits.contiguous()
    return _Choose.apply(logits, torch.randn_like(logits) if noise else None, k, noise)


def busy_experts(logits, noisy, experts, noise: float) -> torch.Tensor:
    """
    `(parts, 2, experts)`, to be summed over parts of the tokens: how much each is asked to say (Eq. 9), and how many it
    can expect (Eq. 10).
    """
    # Noise does not learn: what is learned from logits goes back by those with noise, where others add theirs.
    return _Busy.apply(logits.detach(), noisy, experts, noise)


def busy_loss(logits, noisy, experts, noise: float) -> torch.Tensor:
    """The mean of importance and load loss (C.4), of the tokens of all processes."""
    parts = busy_experts(logits, noisy, experts, noise)
    # With other processes, their sums come in between.
    return balance_loss(parts.sum(dim=0)).mean() if has_processes() else _Balance.apply(parts)


class _Cosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, projected, experts, log_scale, max_log_scale):
        (count, width), blocks = projected.shape, (block_of(projected.shape[1]), block_of(len(experts)))
        directions = torch.empty_like(experts)
        _kernels().normalize[(len(experts),)](experts, directions, width, blocks[0])
        products = projected @ directions.T
        logits, lengths = torch.empty_like(products), projected.new_empty(count)
        _kernels().cosine[_programs(count, 16)](
            projected, products, log_scale, max_log_scale, lengths, logits, count, width, len(experts), 16, *blocks
        )
        ctx.save_for_backward(projected, experts, log_scale, directions, lengths, logits)
        ctx.max_log_scale = max_log_scale
        return logits

    @staticmethod
    def plain(projected, experts, log_scale, max_log_scale):
        scale = log_scale.clamp(max=max_log_scale).exp()
        return F.normalize(projected, dim=-1) @ F.normalize(experts, dim=-1).T * scale

    @staticmethod
    def backward(ctx, gradient):
        projected, experts, log_scale, directions, lengths, logits = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(_Cosine.plain, (projected, experts, log_scale, ctx.max_log_scale), (gradient,))
        (count, width), blocks = projected.shape, (block_of(projected.shape[1]), block_of(len(experts)))
        programs = _programs(count, 16)
        of_products, of_projected = torch.empty_like(logits), torch.empty_like(projected)
        parts = projected.new_empty(programs[0])
        _kernels().cosine_back[programs](
            gradient.contiguous(), projected, log_scale, ctx.max_log_scale, lengths, logits, of_products, of_projected,
            parts, count, width, len(experts), 16, *blocks,
        )  # fmt: skip
        of_projected.addmm_(of_products, directions)
        of_experts, of_log_scale = torch.empty_like(experts), torch.empty_like(log_scale)
        _kernels().normalize_back[(len(experts),)](
            of_products.T @ projected, experts, directions, parts, log_scale, ctx.max_log_scale, of_experts,
            of_log_scale, len(parts), width, blocks[0], 1024,
        )  # fmt: skip
        return of_projected, of_experts, of_log_scale, None


class _Choose(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, draws, k, noise):
        count, experts = logits.shape
        noisy = logits if draws is None else torch.empty_like(logits)
        chosen = torch.empty(count, k, dtype=torch.long, device=logits.device)
        weights = logits.new_empty(count, k)
        _kernels().choose[_programs(count, TOKENS)](
            logits, draws, noise, noisy, chosen, weights, count, experts, k, draws is not None, TOKENS,
            block_of(experts),
        )  # fmt: skip
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
        found, of_noisy = weights.new_empty(count, ctx.experts), None if of_noisy is None else of_noisy.contiguous()
        _kernels().choose_back[_programs(count, TOKENS)](
            of_weights.contiguous(), of_noisy, chosen, weights, found, count, ctx.experts, k, of_noisy is not None,
            TOKENS, block_of(ctx.experts),
        )  # fmt: skip
        return found, None, None, None


class _Busy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, noisy, chosen, noise):
        count, experts = logits.shape
        programs = _programs(count, TOKENS)
        parts = logits.new_empty(programs[0], 2, experts)
        _kernels().busy[programs](
            logits, noisy, chosen, noise, parts, count, experts, chosen.shape[1], TOKENS, block_of(experts)
        )
        ctx.save_for_backward(logits, noisy, chosen)
        ctx.noise = noise
        return parts

    @staticmethod
    def plain(logits, noisy, chosen, noise):
        # The threshold is a logit, too.
        threshold, logits = noisy.gather(-1, chosen[:, -1:]), noisy + (logits - noisy).detach()
        chances = torch.special.ndtr((logits - threshold) / noise)
        both = torch.stack([logits.softmax(dim=-1), chances], dim=1)
        return F.pad(both, (0, 0, 0, 0, 0, -len(both) % TOKENS)).unflatten(0, (-1, TOKENS)).sum(dim=1)

    @staticmethod
    def backward(ctx, gradient):
        logits, noisy, chosen = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(_Busy.plain, (logits, noisy, chosen, ctx.noise), (gradient,))
        count, experts = logits.shape
        found = torch.empty_like(logits)
        # Of a sum over parts all have the same, which is there once.
        gradient = gradient if gradient.stride()[1:] == (experts, 1) else gradient.contiguous()
        _kernels().busy_back[_programs(count, TOKENS)](
            gradient, gradient.stride(0), logits, noisy, chosen, ctx.noise, found, count, experts, chosen.shape[1],
            TOKENS, block_of(experts),
        )  # fmt: skip
        return None, found, None, None


class _Balance(torch.autograd.Function):
    """`balance_loss` of the sums over the parts, and the mean of both: one kernel each way."""

    @staticmethod
    def forward(ctx, parts):
        count, _, experts = parts.shape
        sums, loss, block = parts.new_empty(2, experts), parts.new_empty(()), block_of(experts)
        _kernels().balance[(1,)](parts, sums, loss, count, experts, 4096 // block, block)
        ctx.save_for_backward(parts, sums)
        return loss

    @staticmethod
    def plain(parts):
        return balance_loss(parts.sum(dim=0)).mean()

    @staticmethod
    def backward(ctx, gradient):
        parts, sums = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(_Balance.plain, (parts,), (gradient,))
        found, experts = torch.empty_like(sums), sums.shape[1]
        _kernels().balance_back[(2,)](gradient, sums, found, experts, block_of(experts))
        return found.expand_as(parts)


@functools.cache
def _kernels():
    return importlib.import_module("hf_memaug.kernels.triton_routing")


def _programs(count: int, tokens: int) -> tuple[int]:
    return (-(-count // tokens),)
