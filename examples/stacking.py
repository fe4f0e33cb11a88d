# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Models of one shape that lie on top of each other, for `torch.func.vmap` to run as one: their parameters, their
attention, a training step of all of them, and the best weights of each. A small encoder leaves a large GPU idle; a
stack of them does not. `mil/together.py` and `gmap/together.py` train such stacks.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, Trainer
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from hf_memaug.kernels.cuda_graphs import GraphedFunction


def stacked_parameters(models: list[nn.Module]) -> dict[str, torch.Tensor]:
    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([one[name].detach() for one in named]) for name in named[0]}


def without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


class Folded(torch.autograd.Function):
    """
    A piece of a model under `vmap`, by one operation on all models. `vmap` by itself takes many operations apart, and
    autocast then no longer finds them: a bias in fp32 makes the whole product fp32, which a trainer has in bf16.
    """

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError("Only under `vmap`, whose rule is differentiated by itself.")

    @staticmethod
    def in_front(info, in_dims, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The tensors with the models as their first dimension."""
        return [
            part.movedim(dim, 0) if dim is not None else part.expand(info.batch_size, *part.shape)
            for part, dim in zip(tensors, in_dims, strict=False)
        ]


class FoldedAttention(Folded):
    """The models are more rows of one batch to fused attention."""

    @staticmethod
    def forward(query, key, value, mask, dropout, scale):
        # Not cuDNN's: with a mask, the memory-efficient kernel is had on every device and version.
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            return F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)

    @staticmethod
    def vmap(info, in_dims, query, key, value, mask, dropout, scale):
        folded = [part.flatten(0, 1) for part in Folded.in_front(info, in_dims, query, key, value, mask)]
        found = FoldedAttention.forward(*folded, dropout, scale)
        return found.unflatten(0, (info.batch_size, -1)), 0


class FoldedProduct(Folded):
    """A linear layer of each model, as one batched product with its bias."""

    @staticmethod
    def forward(rows, weight, bias):
        return F.linear(rows, weight, bias)

    @staticmethod
    def vmap(info, in_dims, rows, weight, bias):
        rows, weight, bias = Folded.in_front(info, in_dims, rows, weight, bias)
        found = torch.baddbmm(bias.unsqueeze(1), rows.flatten(1, -2), weight.mT)
        return found.unflatten(1, rows.shape[1:-1]), 0


class FoldedNorm(Folded):
    """Layer normalisation: no model's statistics depend on another, only the affine part is each model's own."""

    @staticmethod
    def forward(rows, weight, bias, eps):
        return F.layer_norm(rows, rows.shape[-1:], weight, bias, eps)

    @staticmethod
    def vmap(info, in_dims, rows, weight, bias, eps):
        rows, weight, bias = Folded.in_front(info, in_dims, rows, weight, bias)
        shape = (info.batch_size, *[1] * (rows.ndim - 2), -1)
        return torch.addcmul(bias.view(shape), F.layer_norm(rows, rows.shape[-1:], eps=eps), weight.view(shape)), 0


class FoldedDropout(Folded):
    """Each value has its own chance, whichever model it is of."""

    @staticmethod
    def forward(rows, share):
        return F.dropout(rows, share)

    @staticmethod
    def vmap(info, in_dims, rows, share):
        return F.dropout(rows, share), in_dims[0]


class StackedLinear(nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if self.bias is None or rows.ndim < 2:
            return super().forward(rows)
        return FoldedProduct.apply(rows, self.weight, self.bias)


class StackedNorm(nn.LayerNorm):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return FoldedNorm.apply(rows, self.weight, self.bias, self.eps)


class StackedDropout(nn.Dropout):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return FoldedDropout.apply(rows, self.p) if self.training and self.p > 0 else rows


FOLDED = {nn.Linear: StackedLinear, nn.LayerNorm: StackedNorm, nn.Dropout: StackedDropout}


def fold(model: nn.Module) -> None:
    """Readies a model for `vmap` over stacked parameters: it computes what it did, in fewer and larger operations."""
    model.set_attn_implementation("folded")
    for module in model.modules():
        if type(module) in FOLDED:
            module.__class__ = FOLDED[type(module)]


def folded_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """As transformers' attention functions are called."""
    dropout = dropout if module.training else 0.0
    found = FoldedAttention.apply(query, key, value, attention_mask, dropout, scaling)
    return found.transpose(1, 2).contiguous(), None


AttentionInterface.register("folded", folded_attention)
AttentionMaskInterface.register("folded", sdpa_mask)


class FusedFunction:
    """
    Calls `function` on tensors, compiled as a whole with the gradients that it takes: a stack of small models spends
    most of its time between products, element by element, and what is one kernel reads and writes its memory once.
    What `function` does in Python happens only when it is traced, once for each shape of its inputs; tensors that are
    no inputs are read where they lie.

    Args:
        function: what to compile.
        backend: as `torch.compile` takes it.
    """

    def __init__(self, function: Callable[[dict], Any], backend: str = "inductor"):
        self.function, self.backend = function, backend
        self._compiled: dict[tuple, Callable] = {}

    def __call__(self, inputs: dict[str, torch.Tensor]) -> Any:
        shapes = tuple((name, value.shape, value.dtype) for name, value in inputs.items())
        if shapes not in self._compiled:
            # Below `vmap` and autograd: `torch.compile` by itself knows no rule of our own for `vmap`.
            traced = make_fx(lambda inputs: self.function(inputs))(inputs)
            self._compiled[shapes] = torch.compile(traced, backend=self.backend)
        with torch.no_grad():
            return self._compiled[shapes](inputs)


class StackedStep:
    """
    A training step of all models, each with its own loss, clipping and place in the schedule, as `Trainer` makes it.

    Args:
        losses: the models' losses `(models,)`, from what a step is called with.
        model: any one of the models, whose parameters' names say which decay.
        learners: names to stacked parameters.
        rates: the learning rate of each of them.
        total, warmup: steps in all, and the share of them (or the number) that warm up.
        also: others that learn with them but are not clipped, each with its rate.
        graphed: record the step as a CUDA graph. What it is called with must then keep its shapes.
        fused: the backend of `torch.compile` to compile losses and gradients with (`FusedFunction`), if any.
    """

    def __init__(
        self,
        losses: Callable[[dict], torch.Tensor],
        model: nn.Module,
        learners: dict[str, torch.Tensor],
        rates: dict[str, float],
        total: int,
        warmup: float,
        also: list[tuple[torch.Tensor, float]] = (),
        graphed: bool = False,
        fused: str | None = None,
    ):
        self.losses, self.learners, self.total, self.warmup = losses, list(learners.values()), total, warmup
        decayed = set(Trainer.get_decay_parameter_names(None, model))
        groups: dict[tuple, list] = {}
        for name, value in learners.items():
            value.requires_grad_()
            groups.setdefault((rates[name], 0.01 if name in decayed else 0.0), []).append(value)
        for value, rate in also:
            groups.setdefault((rate, 0.0), []).append(value)
        self.everything = [value for values in groups.values() for value in values]
        self.optimizer = torch.optim.AdamW(
            [{"params": values, "lr": rate, "weight_decay": decay} for (rate, decay), values in groups.items()],
            fused=graphed,
        )
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        gradients = FusedFunction(self._gradients, fused) if fused else self._gradients
        self.run = GraphedFunction(gradients) if graphed else gradients

    def _gradients(self, inputs: dict):
        for value in self.everything:
            value.grad = None
        losses = self.losses(inputs)
        losses.sum().backward()
        clip([value.grad for value in self.learners])
        return losses.detach(), [value.grad for value in self.everything]

    def __call__(self, number: int, key: int | None = None, **inputs: torch.Tensor) -> torch.Tensor:
        """Makes step `number`, counted from 0, and returns the losses. `key`: as `GraphedFunction` takes it."""
        losses, gradients = self.run(inputs, key) if isinstance(self.run, GraphedFunction) else self.run(inputs)
        for value, gradient in zip(self.everything, gradients, strict=True):
            value.grad = gradient
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * linear(number, self.total, self.warmup)
        self.optimizer.step()
        return losses


class Best:
    """Each model's best parameters so far."""

    def __init__(self, models: int):
        self.scores: list[float] = [-1.0] * models
        self.steps = [0] * models
        self.log: list[list[dict]] = [[] for _ in range(models)]
        self.parameters: dict = {}

    def offer(self, scores: list[float], step: int, parameters: dict) -> None:
        better = [new > old for new, old in zip(scores, self.scores, strict=True)]
        for model, score in enumerate(scores):
            self.log[model].append({"step": step, "dev": score})
            if better[model]:
                self.scores[model], self.steps[model] = score, step
        if not self.parameters:
            self.parameters = {name: value.detach().clone() for name, value in parameters.items()}
            return
        for model, improved in enumerate(better):
            if improved:
                for name, value in parameters.items():
                    self.parameters[name][model] = value[model].detach()


def clip(gradients: list) -> None:
    """Each model's gradients by their own norm, as `Trainer` clips them."""
    squares = [g.float().flatten(1).square().sum(dim=1) for g in gradients if g is not None]
    scale = (1.0 / (torch.stack(squares).sum(dim=0).sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        if gradient is not None:
            gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))


def warm_steps(total: int, warmup: float) -> int:
    return int(warmup) if warmup >= 1 else math.ceil(total * warmup)


def linear(step: int, total: int, warmup: float) -> float:
    """The factor of the learning rate before `step` is made; `warmup` in steps, or as a share of the total."""
    warm = warm_steps(total, warmup)
    return step / max(1, warm) if step < warm else max(0.0, (total - step) / max(1, total - warm))
