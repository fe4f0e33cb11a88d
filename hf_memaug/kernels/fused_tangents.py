# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Forward-mode derivatives of what an encoder is made of, by the fused kernels of its backward pass.

A layer norm without weights and a softmax have symmetric derivatives: what carries a gradient backwards through them
carries a tangent forwards. torch makes their tangents of many elementwise operations; here it is one kernel. The
plain twin is torch's own forward mode.
"""

import torch
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class FusedTangents(TorchFunctionMode):
    """While it is entered, tangents of layer norms, softmaxes, dropout and linear layers come from few kernels."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        rule = _RULES.get(function)
        found = None if rule is None else rule(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {})) if found is None else found


def _unpacked(*tensors: torch.Tensor | None) -> list[tuple]:
    """Each as `(value, tangent)`; none of them where a graph is kept, for which torch's own operations are needed."""
    if any(one is not None and one.requires_grad for one in tensors):
        return []
    return [(None, None) if one is None else tuple(forward_ad.unpack_dual(one)) for one in tensors]


def _all_move(parts: list[tuple]) -> bool:
    """Whether all are there, each with a tangent."""
    return bool(parts) and all(tangent is not None for _, tangent in parts)


def _layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    parts = _unpacked(input, weight, bias)
    if not _all_move(parts):
        return None
    if torch.is_autocast_enabled(input.device.type):
        # As autocast has it: a layer norm is computed in float32.
        parts = [(value.float(), tangent.float()) for value, tangent in parts]
    (value, tangent), (weight, weight_tangent), (bias, bias_tangent) = parts
    normed, mean, scale = torch.native_layer_norm(value, normalized_shape, None, None, eps)
    # d normed = scale (I - 1 1^T / n - normed normed^T / n) d value, and that matrix is symmetric.
    backward = torch.ops.aten.native_layer_norm_backward
    tangent = backward(tangent, value, normalized_shape, mean, scale, None, None, [True, False, False])[0]
    tangent = torch.addcmul(torch.addcmul(bias_tangent, tangent, weight), normed, weight_tangent)
    return forward_ad.make_dual(torch.addcmul(bias, normed, weight), tangent)


def _softmax(input, dim=None, _stacklevel=3, dtype=None):
    parts = _unpacked(input)
    if not _all_move(parts) or dim is None:
        return None
    ((value, tangent),) = parts
    weights = F.softmax(value, dim, dtype=dtype)
    # d weights = (diag(weights) - weights weights^T) d scores, which is symmetric as well.
    return forward_ad.make_dual(
        weights, torch._softmax_backward_data(tangent.to(weights.dtype), weights, dim, weights.dtype)
    )


def _linear(input, weight, bias=None):
    parts = _unpacked(input, weight, bias)
    if not _all_move(parts):
        return None
    if torch.is_autocast_enabled(input.device.type):
        # Once, where autocast would do it for each product.
        dtype = torch.get_autocast_dtype(input.device.type)
        parts = [(value.to(dtype), tangent.to(dtype)) for value, tangent in parts]
    (value, tangent), (weight, weight_tangent), (bias, bias_tangent) = parts
    found = F.linear(value, weight_tangent, bias_tangent)
    rows = (one.reshape(-1, one.shape[-1]) for one in (found, tangent))
    found = torch.addmm(*rows, weight.t()).view(found.shape)
    return forward_ad.make_dual(F.linear(value, weight, bias), found)


def _dropout(input, p=0.5, training=True, inplace=False):
    parts = _unpacked(input)
    if not _all_move(parts) or not training or not 0 < p < 1 or inplace:
        return None
    ((value, tangent),) = parts
    # What torch does, so that the same random numbers leave out the same units.
    if value.is_cuda:
        output, kept = torch.native_dropout(value, p, True)
        return forward_ad.make_dual(output, torch.ops.aten.native_dropout_backward(tangent, kept, 1 / (1 - p)))
    noise = torch.empty_like(value).bernoulli_(1 - p).div_(1 - p)
    return forward_ad.make_dual(value * noise, tangent * noise)


def _scaled(input, other):
    parts = _unpacked(input)
    if not _all_move(parts) or not isinstance(other, (int, float)):
        return None
    ((value, tangent),) = parts
    return forward_ad.make_dual(value * other, tangent * other)


def _shifted(input, other, *, alpha=1):
    """By what has no tangent, such as the mask of attention."""
    if alpha != 1 or not isinstance(input, torch.Tensor) or not isinstance(other, torch.Tensor):
        return None
    parts = _unpacked(input, other)
    if not parts or parts[0][1] is None or parts[1][1] is not None:
        return None
    (value, tangent), (other, _) = parts
    found = value + other
    return forward_ad.make_dual(found, tangent.to(found.dtype)) if found.shape == value.shape else None


_RULES = {
    F.layer_norm: _layer_norm,
    F.softmax: _softmax,
    F.linear: _linear,
    F.dropout: _dropout,
    torch.Tensor.mul: _scaled,
    torch.Tensor.add: _shifted,
}
