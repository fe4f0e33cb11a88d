# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
`layers.datapoint_reader.DatapointReader` as one operation, with its backward pass by hand.

A read of a batch is small: a GPU waits for Python between its operations. Here slots and rows share one norm, and keys
and values one product, weights are rounded together, and autograd has one node to walk instead of many.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from hf_memaug.kernels.fused_slots import attend, attend_backward, bias_of, join_own, join_own_backward
from hf_memaug.layers.second_derivatives import plain_gradients


class Weights(NamedTuple):
    """Of a reader, in the order of its parts; or what goes with each of them."""

    norm: torch.Tensor
    norm_bias: torch.Tensor
    query: torch.Tensor
    query_bias: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    value_bias: torch.Tensor
    norm2: torch.Tensor
    norm2_bias: torch.Tensor
    up: torch.Tensor
    up_bias: torch.Tensor
    down: torch.Tensor
    down_bias: torch.Tensor


def read_rows_fused(reader: nn.Module, rows, slots, filled, between_rows: bool) -> torch.Tensor | None:
    """The rows that the reader gives, without the weights; None if it is not as it was made, or has nothing to do."""
    if not rows.shape[0] or not (slots.shape[0] or between_rows) or not _is_as_made(reader, rows.dtype):
        return None
    kind = rows.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else rows.dtype
    with torch.autocast(kind, enabled=False):
        return _ReadRows.apply(rows, slots, filled, reader, between_rows, dtype, *_weights(reader))


def _is_as_made(reader: nn.Module, dtype: torch.dtype) -> bool:
    """Without dropout, adapters, hooks, or weights of other types than the rows."""
    return not (reader.training and reader.dropout.p > 0) and all(
        type(part) in (nn.LayerNorm, nn.Linear)
        and part.weight.dtype == dtype
        and not (part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks)
        for part in _parts(reader)
    )


def _parts(reader) -> tuple[nn.Module, ...]:
    return (
        reader.norm,
        reader.query_projection,
        reader.key_projection,
        reader.value_projection,
        reader.feed_forward_norm,
        reader.up_projection,
        reader.down_projection,
    )


def _weights(reader) -> list[torch.Tensor]:
    return [one for part in _parts(reader) for one in (part.weight, part.bias) if one is not None]


def _rounded(tensors: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    """All of them in one go."""
    if all(one.dtype == dtype for one in tensors):
        return tensors
    made = [torch.empty(one.shape, dtype=dtype, device=one.device) for one in tensors]
    torch._foreach_copy_(made, tensors)
    return made


class _ReadRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, slots, filled, reader, between_rows, dtype, *weights):
        given = Weights(*weights)
        (count, size), rest, heads = rows.shape, slots.shape[0], reader.heads
        both = torch.cat([slots.to(rows.dtype), rows])
        normed, mean, scale = torch.native_layer_norm(both, (size,), *given[:2], reader.norm.eps)
        # Keys and values side by side; the keys have no bias.
        pair = torch.empty(2 * size, size, dtype=dtype, device=rows.device)
        pair_bias = torch.zeros(2 * size, dtype=dtype, device=rows.device)
        torch._foreach_copy_([pair[:size], pair[size:], pair_bias[size:]], [given.key, given.value, given.value_bias])
        low, query, query_bias, up, up_bias, down, down_bias = _rounded(
            [normed, given.query, given.query_bias, given.up, given.up_bias, given.down, given.down_bias], dtype
        )
        asked = torch.addmm(query_bias, low[rest:], query.t()).view(count, heads, -1).transpose(0, 1)
        pairs = torch.addmm(pair_bias, low, pair.t())
        keys, values = pairs.view(rest + count, 2, heads, -1).permute(1, 2, 0, 3)
        seen, mask = rest, filled
        if between_rows:
            seen, mask = rest + count, None if filled is None else torch.cat([filled, filled.new_ones(count)])
        bias = bias_of(mask, asked)
        said, denominator, seed = attend(asked[None], keys[None, :, :seen], values[None, :, :seen], bias)
        said, own_weight = said[0], None  # Att of Eq. 1, for each head
        if not between_rows:
            said, denominator, own_weight = join_own(said, denominator, asked, keys[:, rest:], values[:, rest:])
        first = rows + said.transpose(0, 1).reshape(count, size)  # H of Eq. 2
        normed, mean2, scale2 = torch.native_layer_norm(
            first, (size,), given.norm2, given.norm2_bias, reader.feed_forward_norm.eps
        )
        low2 = normed.to(dtype)
        inner = torch.addmm(up_bias, low2, up.t())
        active = F.gelu(inner)
        ctx.reader, ctx.between_rows, ctx.dtype = reader, between_rows, dtype
        ctx.save_for_backward(
            *(rows, slots, filled, both, mean, scale, low, asked, pairs, said, denominator, own_weight, bias),
            *(first, mean2, scale2, low2, inner, active, query, pair, up, down, *weights, *seed),
        )
        return first + torch.addmm(down_bias, active, down.t())

    @staticmethod
    def backward(ctx, gradient):
        saved = ctx.saved_tensors
        rows, slots, filled, both, mean, scale, low, asked, pairs, said, denominator, own_weight, bias = saved[:13]
        first, mean2, scale2, low2, inner, active, query, pair, up, down = saved[13:23]
        weights, seed = Weights(*saved[23:36]), saved[36:]
        dtype, heads = ctx.dtype, ctx.reader.heads
        if torch.is_grad_enabled():
            plain = partial(_plain, ctx.reader, filled, ctx.between_rows, dtype)
            found = plain_gradients(plain, (rows, slots, *weights), (gradient,))
            return *found[:2], None, None, None, None, *found[2:]
        learns = Weights(*ctx.needs_input_grad[6:])
        exact, (count, size), rest = rows.dtype, rows.shape, len(slots)
        seen = rest + count if ctx.between_rows else rest

        def product(learns: bool, outer, inner):
            """The gradient of a matrix; None where it does not learn."""
            return outer.t() @ inner if learns else None

        def total(learns: bool, outer):
            """The gradient of a bias."""
            return outer.sum(0, dtype=exact) if learns else None

        # The feed-forward network, and the residual beside it.
        of_output = gradient.to(dtype)
        of_inner = torch.ops.aten.gelu_backward(of_output @ down, inner)
        backward = torch.ops.aten.native_layer_norm_backward
        of_first, of_norm2, of_norm2_bias = backward(
            (of_inner @ up).to(exact), first, (size,), mean2, scale2, weights.norm2, weights.norm2_bias, [True] * 3
        )
        of_first += gradient
        # What was read.
        of_said = of_first.to(dtype).view(count, heads, -1).transpose(0, 1).contiguous()
        keys, values = pairs.view(rest + count, 2, heads, -1).permute(1, 2, 0, 3)
        of_asked, of_keys, of_values = attend_backward(
            *(of_said[None], asked[None], keys[None, :, :seen], values[None, :, :seen], bias),
            *(said[None], denominator, seed),
        )
        of_asked, of_pairs = of_asked[0], torch.empty_like(pairs)
        parts = of_pairs.view(rest + count, 2, heads, -1).permute(1, 2, 0, 3)
        parts[0, :, :seen], parts[1, :, :seen] = of_keys[0], of_values[0]
        if not ctx.between_rows:
            given = (of_said, asked, keys[:, rest:], values[:, rest:], said, own_weight)
            join_own_backward(*given, of_asked, parts[0, :, rest:], parts[1, :, rest:])
        # The projections, and the norm that slots and rows share.
        of_asked = of_asked.transpose(0, 1).reshape(count, size)
        of_low = of_pairs @ pair
        of_low[rest:].addmm_(of_asked, query)
        of_both, of_norm, of_norm_bias = backward(
            of_low.to(exact), both, (size,), mean, scale, weights.norm, weights.norm_bias, [True] * 3
        )
        of_pair = product(learns.key or learns.value, of_pairs, low)
        matrices = [
            product(learns.query, of_asked, low[rest:]),
            None if of_pair is None else of_pair[:size],
            None if of_pair is None else of_pair[size:],
            product(learns.up, of_inner, low2),
            product(learns.down, of_output, active),
        ]
        known = [one for one in matrices if one is not None]
        rounded = iter(_rounded(known, exact))
        of_query, of_key, of_value, of_up, of_down = (None if one is None else next(rounded) for one in matrices)
        of_weights = Weights(
            norm=of_norm,
            norm_bias=of_norm_bias,
            query=of_query,
            query_bias=total(learns.query_bias, of_asked),
            key=of_key,
            value=of_value,
            value_bias=total(learns.value_bias, of_pairs[:, size:]),
            norm2=of_norm2,
            norm2_bias=of_norm2_bias,
            up=of_up,
            up_bias=total(learns.up_bias, of_inner),
            down=of_down,
            down_bias=total(learns.down_bias, gradient),
        )
        of_slots = of_both[:rest].to(slots.dtype) if ctx.needs_input_grad[1] else None
        return of_both[rest:] + of_first, of_slots, None, None, None, None, *of_weights


def _plain(reader: nn.Module, filled, between_rows: bool, dtype: torch.dtype, rows, slots, *weights) -> torch.Tensor:
    """The reader in plain torch, with these weights, for derivatives of its derivatives."""
    names = {id(weight): name for name, weight in reader.named_parameters()}
    named = {names[id(own)]: weight for own, weight in zip(_weights(reader), weights, strict=True)}
    with torch.autocast(rows.device.type, dtype=dtype, enabled=dtype != rows.dtype):
        return torch.func.functional_call(reader, named, (rows, slots, filled, between_rows))[0]
