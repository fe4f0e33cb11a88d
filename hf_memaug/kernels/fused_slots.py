# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
`layers.datapoint_reader.read_slots` by the fused attention kernels of torch: no score is kept, so that memory grows
with rows plus slots, and not with rows times slots.

The kernels know no column that is another for each row. They read the slots and give the logarithm of the softmax's
denominator; the own column joins by that. For the way back the kernels are told of the joint output and denominator:
the derivative of a softmax needs no more of the other columns.
"""

import torch
from torch.nn import functional as F

_SCALE = None  # the kernels' own, 1 / sqrt(size)


def can_fuse(device: torch.device, size: int) -> bool:
    """Whether there are kernels for heads of this size. What is traced keeps to plain operations."""
    # On a GPU a head's row must be whole vectors of 16 bytes, in half precision as well.
    fits = device.type == "cpu" or (device.type == "cuda" and size % 8 == 0)
    return fits and not torch.compiler.is_compiling()


def read_slots_fused(query, keys, values, own_keys=None, own_values=None, filled=None) -> tuple[torch.Tensor, None]:
    """As `read_slots`, without the weights."""
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        given = (query, keys, values, own_keys, own_values)
        query, keys, values, own_keys, own_values = (None if one is None else one.to(dtype) for one in given)
    if own_keys is None:
        mask = None if filled is None else filled[None, None]
        read = F.scaled_dot_product_attention(query[None], keys[None], values[None], attn_mask=mask)
        return read[0], None
    if keys.shape[1] == 0:
        # One column, whose weight is 1. Its score has a gradient all the same, of zeros.
        return own_values + 0 * query * own_keys, None
    return _ReadSlots.apply(query, keys, values, own_keys, own_values, filled), None


class _ReadSlots(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, keys, values, own_keys, own_values, filled):
        bias = bias_of(filled, query)
        read, denominator, seed = attend(query[None], keys[None], values[None], bias)
        output, denominator, own_weight = join_own(read[0], denominator, query, own_keys, own_values)
        ctx.save_for_backward(query, keys, values, own_keys, own_values, output, denominator, own_weight, bias, *seed)
        return output

    @staticmethod
    def backward(ctx, gradient):
        query, keys, values, own_keys, own_values, output, denominator, own_weight, bias, *seed = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_query, of_keys, of_values = attend_backward(
            gradient[None], query[None], keys[None], values[None], bias, output[None], denominator, seed
        )
        of_query, of_own_keys, of_own_values = of_query[0], torch.empty_like(own_keys), torch.empty_like(own_values)
        given = (gradient, query, own_keys, own_values, output, own_weight)
        join_own_backward(*given, of_query, of_own_keys, of_own_values)
        return of_query, of_keys[0], of_values[0], of_own_keys, of_own_values, None


def join_own(read, denominator, query, own_keys, own_values) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What was read of slots `(heads, rows, size)` and of the own column; their denominator, and the own weight."""
    exact, rows = torch.promote_types(query.dtype, torch.float32), query.shape[1]
    own_score = (query.to(exact) * own_keys).sum(-1) * query.shape[-1] ** -0.5
    slots_denominator = denominator[0, :, :rows].to(exact)
    own_weight = (own_score - slots_denominator).sigmoid()[..., None]
    output = (read * (1 - own_weight) + own_weight * own_values).to(query.dtype)
    joint = torch.logaddexp(slots_denominator, own_score).to(denominator.dtype)[None]
    if denominator.shape[-1] > rows:
        # In the kernel's own shape, which may have more rows than were asked for.
        whole = denominator.clone()
        whole[..., :rows] = joint
        joint = whole
    return output, joint, own_weight


def join_own_backward(
    gradient, query, own_keys, own_values, output, own_weight, of_query, of_own_keys, of_own_values
) -> None:
    """Adds to `of_query`, and fills the last two."""
    # d softmax: the weight, times what the own value gains over the mixture.
    gain = (gradient.to(own_weight.dtype) * (own_values - output)).sum(-1, keepdim=True)
    of_score = own_weight * gain * query.shape[-1] ** -0.5
    of_query += of_score * own_keys
    torch.mul(of_score, query, out=of_own_keys)
    torch.mul(own_weight, gradient, out=of_own_values)


def bias_of(filled, query) -> torch.Tensor | None:
    if filled is None:
        return None
    # Not minus infinity: of an empty memory the kernels would make NaN. The exponential of this is 0 as well.
    nothing = -1e4 if query.dtype == torch.float16 else -1e30
    slots = len(filled)
    # The kernels want rows of a bias to begin at multiples of 16 bytes.
    padded = query.new_empty((1, 1, 1, -(-slots // 16) * 16))
    padded[..., :slots] = torch.where(filled, 0.0, nothing)
    return padded[..., :slots].expand(1, query.shape[0], query.shape[1], slots)


def attend(query, keys, values, bias):
    """What `query` reads, the logarithm of the denominator, and what the way back needs beside them."""
    if query.device.type == "cpu":
        read, denominator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, keys, values, 0.0, False, attn_mask=bias, scale=_SCALE
        )
        return read, denominator, ()
    read, denominator, *seed = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, keys, values, bias, True, 0.0, False, scale=_SCALE
    )
    return read, denominator, seed


def attend_backward(gradient, query, keys, values, bias, output, denominator, seed):
    if query.device.type == "cpu":
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, query, keys, values, output, denominator, 0.0, False, attn_mask=bias, scale=_SCALE
        )
    wanted = [True, True, True, False]
    return torch.ops.aten._scaled_dot_product_efficient_attention_backward(
        gradient, query, keys, values, bias, output, denominator, *seed, 0.0, wanted, False, scale=_SCALE
    )[:3]
