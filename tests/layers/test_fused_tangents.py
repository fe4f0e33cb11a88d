# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Tangents by fused kernels, beside those of torch's own forward mode."""

from contextlib import nullcontext

import pytest
import torch
from launches import Launches
from torch.autograd import forward_ad
from torch.nn import functional as F

from hf_memaug.kernels.fused_tangents import FusedTangents

MASK = torch.zeros(3, 1, 5, 6, dtype=torch.float64).index_fill(-1, torch.tensor([4]), -1e4)
# What is computed of `x (3, 2, 5, 6)` and of weights of six, all with tangents.
CASES = {
    "layer norm": lambda x, w, b, m: F.layer_norm(x, (6,), w, b, 1e-3),
    "softmax": lambda x, w, b, m: F.softmax(x, dim=-1),
    "softmax, an axis inside": lambda x, w, b, m: F.softmax(x, dim=1),
    "linear": lambda x, w, b, m: F.linear(x, m, b),
    "linear without bias": lambda x, w, b, m: F.linear(x, m),
    "linear, one row": lambda x, w, b, m: F.linear(x[0, 0, 0], m, b),
    "linear, the weight alone moves": lambda x, w, b, m: F.linear(x.detach(), m, b),
    "dropout": lambda x, w, b, m: F.dropout(x, 0.3, True),
    "dropout, not in training": lambda x, w, b, m: F.dropout(x, 0.3, False),
    "scaled": lambda x, w, b, m: x * 0.125,
    "scaled by what moves": lambda x, w, b, m: x * w,
    "masked": lambda x, w, b, m: x + MASK.to(x.dtype),
    "masked with a weight": lambda x, w, b, m: x.add(MASK.to(x.dtype), alpha=2),
    "shifted by a number": lambda x, w, b, m: x + 1.5,
    "shifted by what moves": lambda x, w, b, m: x + b,
    "shifted to another shape": lambda x, w, b, m: x[0, 0, 0] + MASK.to(x.dtype),
    "all of it": lambda x, w, b, m: F.dropout(F.softmax(F.linear(F.layer_norm(x, (6,), w, b), m, b) * 0.5 + MASK, -1)),
}


def tangent_of(function, fused: bool, dtype=torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 2, 5, 6), (6,), (6,), (6, 6))
    values = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    along = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    torch.manual_seed(1)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(value, tangent) for value, tangent in zip(values, along, strict=True)]
        with FusedTangents() if fused else nullcontext():
            found = function(*duals)
        return tuple(None if one is None else one.clone() for one in forward_ad.unpack_dual(found))


@pytest.mark.parametrize("function", CASES.values(), ids=CASES)
def test_tangents_are_those_of_torch(function):
    for expected, found in zip(tangent_of(function, False), tangent_of(function, True), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["layer norm", "softmax", "linear", "scaled", "masked"])
def test_under_autocast_they_have_the_same_types(name):
    def function(*inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return CASES[name](*inputs)

    for expected, found in zip(*(tangent_of(function, fused, torch.float32) for fused in (False, True)), strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=5e-2)


def test_where_a_graph_is_kept_torch_does_it():
    weight = torch.ones(6, dtype=torch.float64, requires_grad=True)
    results = []
    for fused in (False, True):
        _, tangent = tangent_of(lambda x, w, b, m: F.layer_norm(x, (6,), weight, b), fused)
        results.append(torch.autograd.grad(tangent.square().sum(), weight)[0])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", ["layer norm", "softmax", "linear", "dropout", "scaled", "masked"])
def test_they_launch_less(name):
    counts = []
    for fused in (False, True):
        with Launches() as launches:
            tangent_of(CASES[name], fused)
        counts.append(len(launches.found))
    assert counts[1] < counts[0]
