# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels of `hf_memaug.kernels.fused_experts`, which says what they do. Importing this needs Triton."""

import triton
import triton.language as tl


@triton.jit
def bias_gelu(
    rows,
    bias,
    expert_of_row,
    gradient,
    found,
    count,
    width,
    IS_BACKWARD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """GELU of a row and its expert's bias; backward, the gradient by the row."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.program_id(1) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    inside = (row < count)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    expert = tl.load(expert_of_row + row, mask=row < count, other=0)
    x = tl.load(rows + place, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias + expert[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
    below = 0.5 * (1.0 + tl.math.erf(x * 0.7071067811865476))
    if IS_BACKWARD:
        density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
        result = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32) * (below + x * density)
    else:
        result = x * below
    tl.store(found + place, result.to(found.dtype.element_ty), mask=inside)


@triton.jit
def combine(said, bias, experts, weights, back, found, width, k: tl.constexpr, BLOCK_WIDTH: tl.constexpr):
    """For one token, the sum of what its experts say, by their weights."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK_WIDTH)
    inside = column < width
    total = tl.zeros((BLOCK_WIDTH,), dtype=tl.float32)
    for place in tl.static_range(k):
        row = tl.load(back + token * k + place)
        expert = tl.load(experts + token * k + place)
        weight = tl.load(weights + token * k + place).to(tl.float32)
        words = tl.load(said + row * width + column, mask=inside, other=0.0).to(tl.float32)
        words += tl.load(bias + expert * width + column, mask=inside, other=0.0).to(tl.float32)
        total += weight * words
    tl.store(found + token * width + column, total.to(found.dtype.element_ty), mask=inside)


@triton.jit
def combine_backward(
    said,
    bias,
    experts,
    weights,
    order,
    gradient,
    of_said,
    of_weights,
    width,
    k: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """For one row in the order of the experts: its own gradient, and that of its weight."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.load(order + row)
    token = place // k
    column = tl.arange(0, BLOCK_WIDTH)
    inside = column < width
    weight = tl.load(weights + place).to(tl.float32)
    expert = tl.load(experts + place)
    wanted = tl.load(gradient + token * width + column, mask=inside, other=0.0).to(tl.float32)
    words = tl.load(said + row * width + column, mask=inside, other=0.0).to(tl.float32)
    words += tl.load(bias + expert * width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(of_said + row * width + column, (weight * wanted).to(of_said.dtype.element_ty), mask=inside)
    tl.store(of_weights + place, tl.sum(tl.where(inside, wanted * words, 0.0)))
