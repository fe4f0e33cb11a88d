# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Models of one shape that lie on top of each other, for `torch.func.vmap` to run as one: their parameters, their
attention, a training step of all of them, and the best weights of each. A small encoder leaves a large GPU idle; a
stack of them does not. `mil/together.py` and `gmap/together.py` train such stacks.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, Trainer
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from hf_memaug.kernels.cuda_graphs import GraphedFunction


def stacked_parameters(models: list[nn.Module]) -> dict[str, torch.Tensor]:
    """
    Names to parameters `(models, ...)`. Weights of linear layers lie in memory as their gradients come from a batched
    product, so that no gradient is copied.
    """
    named = [dict(model.named_parameters()) for model in models]
    turned = {f"{name}.weight" for name, module in models[0].named_modules() if isinstance(module, nn.Linear)}
    return {
        name: torch.stack([one[name].detach().mT for one in named]).mT
        if name in turned
        else torch.stack([one[name].detach() for one in named])
        for name in named[0]
    }


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
    def forward(query, key, value, mask, dropout, scale, longest):
        # Not cuDNN's: with a mask, the memory-efficient kernel is had on every device and version.
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            return F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)

    @staticmethod
    def vmap(info, in_dims, query, key, value, mask, dropout, scale, longest):
        parts = Folded.in_front(info, in_dims, query, key, value, mask)
        folded = [part.flatten(0, 1) for part in parts[:3]]
        if longest is not None:
            found = packed_attention(*folded, parts[3], dropout, scale, longest)
        else:
            found = FoldedAttention.forward(*folded, parts[3].flatten(0, 1), dropout, scale, None)
        return found.unflatten(0, (info.batch_size, -1)), 0


def packed_attention(query, key, value, bounds, dropout: float, scale: float | None, longest: int) -> torch.Tensor:
    """
    Attention within rows that lie one after the other.

    Args:
        query, key, value: `(models, heads, tokens, size)`.
        bounds: `(models, rows + 1)`, where the rows begin and end.
        longest: no row has more tokens.
    """
    models, _, tokens, _ = query.shape
    if query.is_cuda:
        first = tokens * torch.arange(models, device=query.device, dtype=torch.int32).unsqueeze(1)
        ends = torch.cat([bounds.new_zeros(1), (bounds[:, 1:] + first).flatten()])
        parts = [part.transpose(1, 2).flatten(0, 1) for part in (query, key, value)]
        found = torch.ops.aten._flash_attention_forward(
            *parts, ends, ends, longest, longest, dropout, False, False, scale=scale
        )
        return found[0].unflatten(0, (models, tokens)).transpose(1, 2)
    # The plain twin, for tests: each token looks at those of its own row.
    places = torch.arange(tokens, device=query.device, dtype=bounds.dtype).expand(models, -1).contiguous()
    rows = torch.searchsorted(bounds, places, right=True)
    mask = (rows.unsqueeze(1) == rows.unsqueeze(2)).unsqueeze(1)
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)


class FoldedRows(Folded):
    """`rows[index]` of each model."""

    @staticmethod
    def forward(rows, index):
        return rows[index]

    @staticmethod
    def vmap(info, in_dims, rows, index):
        rows, index = Folded.in_front(info, in_dims, rows, index)
        first = rows.shape[1] * torch.arange(info.batch_size, device=rows.device).unsqueeze(1)
        found = rows.flatten(0, 1).index_select(0, (index + first).flatten())
        return found.unflatten(0, index.shape), 0


class FoldedProduct(Folded):
    """A linear layer of each model, as one batched product."""

    @staticmethod
    def forward(rows, weight, bias):
        return F.linear(rows, weight, bias)

    @staticmethod
    def vmap(info, in_dims, rows, weight, bias):
        rows, weight, bias = Folded.in_front(info, in_dims, rows, weight, bias)
        found = torch.bmm(rows.flatten(1, -2), weight.mT)
        # Not by `baddbmm`, which first fills what it returns with the bias.
        found = found + bias.unsqueeze(1).to(found.dtype)
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
        return torch.native_dropout(rows, share, True)[0], in_dims[0]


class StackedLinear(nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if self.bias is None or rows.ndim < 2:
            return super().forward(rows)
        return FoldedProduct.apply(rows, self.weight, self.bias)


class StackedNorm(nn.LayerNorm):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if self.bias is None:
            return super().forward(rows)
        return FoldedNorm.apply(rows, self.weight, self.bias, self.eps)


class StackedDropout(nn.Dropout):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return FoldedDropout.apply(rows, self.p) if self.training and self.p > 0 else rows


FOLDED = {nn.Linear: StackedLinear, nn.LayerNorm: StackedNorm, nn.Dropout: StackedDropout}


class FusedLayer:
    """
    A layer of all models as one compiled function, which all layers of its kind share: most of a small encoder's step
    goes by between its products, element by element, and what is one kernel reads and writes its memory once.

    Args:
        layer: a layer of the kind, folded.
        backend: as `torch.compile` takes it.
    """

    def __init__(self, layer: nn.Module, backend: str = "inductor"):
        self.layer, self.backend = layer, backend
        self.names = [name for name, _ in layer.named_parameters()]
        self._compiled: dict[tuple, Callable] = {}

    def __call__(self, hidden: torch.Tensor, mask: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        device = hidden.device.type
        key = (hidden.shape, mask.shape, hidden.dtype, torch.is_autocast_enabled(device))
        if key not in self._compiled:
            # Below `vmap`, of which `torch.compile` knows no rule of our own. Attention must know that it is to keep
            # what its gradient needs.
            leaves = [value.detach().requires_grad_(value.requires_grad) for value in (hidden, mask, *values)]
            self._compiled[key] = torch.compile(make_fx(self._all)(*leaves), backend=self.backend)
        # The casts are in the trace already.
        with torch.autocast(device, enabled=False):
            return self._compiled[key](hidden, mask, *values)

    def _all(self, hidden, mask, *values):
        def one(hidden, mask, values):
            named = dict(zip(self.names, values, strict=True))
            return functional_call(self.layer, named, (hidden, mask), {"is_traced": True})

        return vmap(one, randomness="different")(hidden, mask, values)


class FoldedLayer(Folded):
    @staticmethod
    def forward(fused, hidden, mask, *values):
        raise NotImplementedError("A compiled layer is for `vmap` alone.")

    @staticmethod
    def vmap(info, in_dims, fused, *tensors):
        return fused(*Folded.in_front(info, in_dims[1:], *tensors)), 0


def fuse_layers(layers: Iterable[nn.Module], backend: str = "inductor") -> None:
    """Compiles layers that are called with hidden states and a mask, for training alone."""
    kinds: dict[tuple, type] = {}
    for layer in layers:
        kind = (type(layer), *(value.shape for value in layer.parameters()))
        if kind not in kinds:
            kinds[kind] = _stacked_layer(type(layer), FusedLayer(layer, backend))
        layer.__class__ = kinds[kind]


def _stacked_layer(kind: type[nn.Module], fused: FusedLayer) -> type[nn.Module]:
    class StackedLayer(kind):
        def forward(self, hidden_states, attention_mask=None, *others, is_traced: bool = False, **kwargs):
            if is_traced or not self.training:
                return super().forward(hidden_states, attention_mask, *others, **kwargs)
            if attention_mask is None or any(value is not None for value in others):
                raise ValueError("A compiled layer is called with hidden states and a mask alone.")
            return FoldedLayer.apply(fused, hidden_states, attention_mask, *self.parameters())

    return StackedLayer


class Packing:
    """
    The layers of a stacked encoder without its padding: the tokens of a batch lie one after the other in a single row,
    and attention stays within what were rows. What padding is still needed for, one shape for all models and steps,
    is at the end of it.
    """

    def __init__(self, encoder: nn.Module):
        self.tokens: int | None = None
        self.longest: int | None = None
        encoder.__class__ = _packed_encoder(type(encoder), self)
        for module in encoder.modules():
            module.packing = self

    @contextlib.contextmanager
    def to(self, tokens: int | None) -> Iterator[None]:
        """Packs to so many tokens, which no model's batch may exceed; `None` leaves the rows as they are."""
        self.tokens = tokens
        try:
            yield
        finally:
            self.tokens = None

    def places(self, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Of a mask `(rows, length)`: which of its positions lie in the row of tokens, where each position lies there
        (padding that does not: at the end), and the bounds of the rows, that padding in rows of its own.
        """
        kept, tokens = mask.flatten(), min(self.tokens, mask.numel())
        place = torch.where(kept, kept.cumsum(0), kept.sum() + (~kept).cumsum(0)) - 1
        index = torch.empty_like(place).scatter(0, place, torch.arange(len(place), device=mask.device))
        ends = mask.sum(dim=1).cumsum(0)
        more = mask.shape[1] * torch.arange(1, math.ceil(tokens / mask.shape[1]) + 1, device=mask.device)
        bounds = torch.cat([torch.zeros_like(ends[:1]), ends, (ends[-1] + more).clamp(max=tokens)])
        return index[:tokens], place.clamp(max=tokens - 1), bounds.int()


def _packed_encoder(kind: type[nn.Module], packing: Packing) -> type[nn.Module]:
    class PackedEncoder(kind):
        def forward(self, hidden_states, attention_mask=None, *args, **kwargs):
            if packing.tokens is None:
                return super().forward(hidden_states, attention_mask, *args, **kwargs)
            rows, packing.longest = hidden_states.shape[:2]
            index, place, bounds = packing.places(attention_mask[:, 0, 0])
            packed = FoldedRows.apply(hidden_states.flatten(0, 1), index).unsqueeze(0)
            outputs = super().forward(packed, bounds, *args, **kwargs)
            hidden = FoldedRows.apply(outputs.last_hidden_state.squeeze(0), place)
            outputs.last_hidden_state = hidden.unflatten(0, (rows, packing.longest))
            return outputs

    return PackedEncoder


def fold(model: nn.Module, fused: str | None = None) -> None:
    """
    Readies a model for `vmap` over stacked parameters: it computes what it did, in fewer and larger operations.

    Args:
        fused: compile the encoder's layers for training, with this backend of `torch.compile`.
    """
    model.set_attn_implementation("folded")
    for module in model.modules():
        if type(module) in FOLDED:
            module.__class__ = FOLDED[type(module)]
    if fused:
        fuse_layers(model.base_model.encoder.layer, fused)


def folded_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """As transformers' attention functions are called."""
    dropout = dropout if module.training else 0.0
    packing = getattr(module, "packing", None)
    longest = packing.longest if packing is not None and packing.tokens is not None else None
    found = FoldedAttention.apply(query, key, value, attention_mask, dropout, scaling, longest)
    return found.transpose(1, 2).contiguous(), None


AttentionInterface.register("folded", folded_attention)
AttentionMaskInterface.register("folded", sdpa_mask)


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
        self.run = GraphedFunction(self._gradients) if graphed else self._gradients

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
    norms = [torch.linalg.vector_norm(g, dim=tuple(range(1, g.ndim))) for g in gradients if g is not None]
    scale = (1.0 / (torch.linalg.vector_norm(torch.stack(norms), dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        if gradient is not None:
            gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))


def warm_steps(total: int, warmup: float) -> int:
    return int(warmup) if warmup >= 1 else math.ceil(total * warmup)


def linear(step: int, total: int, warmup: float) -> float:
    """The factor of the learning rate before `step` is made; `warmup` in steps, or as a share of the total."""
    warm = warm_steps(total, warmup)
    return step / max(1, warm) if step < warm else max(0.0, (total - step) / max(1, total - warm))
