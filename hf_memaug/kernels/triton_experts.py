# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The Triton kernels of `hf_memaug.kernels.fused_experts`, which says what they do. Importing this needs Triton.

A choice is one of the k experts of a token, `token * k + place`; a row is a choice in the order of the experts.
"""

import triton
import triton.language as tl


@triton.jit
def count_choices(chosen, counts, total, turns, experts, BLOCK: tl.constexpr, BLOCK_EXPERTS: tl.constexpr):
    """How many of a program's choices each expert has."""
    program = tl.program_id(0)
    expert = tl.arange(0, BLOCK_EXPERTS)
    found = tl.zeros((BLOCK_EXPERTS,), dtype=tl.int32)
    for turn in range(turns):
        choice = (program * turns + turn) * BLOCK + tl.arange(0, BLOCK)
        whose = tl.load(chosen + choice, mask=choice < total, other=-1).to(tl.int32)
        found += tl.sum((whose[:, None] == expert[None, :]).to(tl.int32), axis=0)
    tl.store(counts + program * experts + expert, found, mask=expert < experts)


@triton.jit
def place_choices(
    chosen,
    counts,
    order,
    back,
    expert_of_row,
    ends,
    total,
    turns,
    programs,
    experts,
    BLOCK: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
    BLOCK_PROGRAMS: tl.constexpr,
):
    """The row of each choice of a program: behind those of earlier experts, and behind earlier ones of its own."""
    mine = tl.program_id(0)
    expert = tl.arange(0, BLOCK_EXPERTS)
    earlier = tl.zeros((BLOCK_EXPERTS,), dtype=tl.int32)
    everybody = tl.zeros((BLOCK_EXPERTS,), dtype=tl.int32)
    for start in range(0, programs, BLOCK_PROGRAMS):
        program = start + tl.arange(0, BLOCK_PROGRAMS)
        inside = (program < programs)[:, None] & (expert < experts)[None, :]
        found = tl.load(counts + program[:, None] * experts + expert[None, :], mask=inside, other=0)
        everybody += tl.sum(found, axis=0)
        earlier += tl.sum(tl.where((program < mine)[:, None], found, 0), axis=0)
    end = tl.cumsum(everybody, axis=0).to(tl.int32)
    if mine == 0:
        tl.store(ends + expert, end, mask=expert < experts)
    following = end - everybody + earlier
    for turn in range(turns):
        choice = (mine * turns + turn) * BLOCK + tl.arange(0, BLOCK)
        there = choice < total
        whose = tl.load(chosen + choice, mask=there, other=-1).to(tl.int32)
        is_expert = whose[:, None] == expert[None, :]
        ranks = tl.cumsum(is_expert.to(tl.int32), axis=0).to(tl.int32) - 1 + following[None, :]
        row = tl.sum(tl.where(is_expert, ranks, 0), axis=1)
        tl.store(back + choice, row.to(tl.int64), mask=there)
        tl.store(order + row, choice.to(tl.int64), mask=there)
        tl.store(expert_of_row + row, whose, mask=there)
        following += tl.sum(is_expert.to(tl.int32), axis=0)


@triton.jit
def spread(tokens, back, rows, count, width, k: tl.constexpr, BLOCK_TOKENS: tl.constexpr, BLOCK_WIDTH: tl.constexpr):
    """Each token into its k rows, in their type."""
    token = tl.program_id(0) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    column = tl.program_id(1) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    inside = (token < count)[:, None] & (column < width)[None, :]
    x = tl.load(tokens + token.to(tl.int64)[:, None] * width + column[None, :], mask=inside, other=0.0)
    for place in tl.static_range(k):
        row = tl.load(back + token * k + place, mask=token < count, other=0)
        tl.store(rows + row[:, None] * width + column[None, :], x.to(rows.dtype.element_ty), mask=inside)


@triton.jit
def spread_backward(
    gradient, back, found, count, width, k: tl.constexpr, BLOCK_TOKENS: tl.constexpr, BLOCK_WIDTH: tl.constexpr
):
    """The sum of the gradients of a token's k rows."""
    token = tl.program_id(0) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    column = tl.program_id(1) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    inside = (token < count)[:, None] & (column < width)[None, :]
    total = tl.zeros((BLOCK_TOKENS, BLOCK_WIDTH), dtype=tl.float32)
    for place in tl.static_range(k):
        row = tl.load(back + token * k + place, mask=token < count, other=0)
        total += tl.load(gradient + row[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
    to = found + token.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(to, total.to(found.dtype.element_ty), mask=inside)


@triton.jit
def bias_gelu(
    rows,
    bias,
    expert_of_row,
    gradient,
    found,
    parts,
    count,
    width,
    IS_BACKWARD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """GELU of a row and its expert's bias; backward, the gradient by the row, and the parts of that by the bias."""
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
        store_parts(result, expert, expert_of_row, parts, column, count, width, BLOCK_ROWS)
    else:
        result = x * below
    tl.store(found + place, result.to(found.dtype.element_ty), mask=inside)


@triton.jit
def store_parts(values, expert, expert_of_row, parts, column, count, width, BLOCK_ROWS: tl.constexpr):
    """
    The sums of a block's rows, one for each expert between its first and its last. From one to the next in the order
    of the rows, either the block or the expert grows: their sum is a place of its own.
    """
    block = tl.program_id(0)
    first = tl.load(expert_of_row + block * BLOCK_ROWS)
    last = tl.load(expert_of_row + tl.minimum((block + 1) * BLOCK_ROWS, count) - 1)
    for one in range(first, last + 1):
        part = tl.sum(tl.where((expert == one)[:, None], values, 0.0), axis=0)
        tl.store(parts + (block + one).to(tl.int64) * width + column, part, mask=column < width)


@triton.jit
def sum_parts(
    parts, ends, found, width, BLOCK_ROWS: tl.constexpr, BLOCK_PARTS: tl.constexpr, BLOCK_WIDTH: tl.constexpr
):
    """For one expert, the sum of what `store_parts` has stored of its rows."""
    expert = tl.program_id(0)
    column = tl.program_id(1) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    end = tl.load(ends + expert)
    start = tl.where(expert > 0, tl.load(ends + tl.maximum(expert - 1, 0)), 0)
    first, behind = start // BLOCK_ROWS + expert, (end + BLOCK_ROWS - 1) // BLOCK_ROWS + expert
    # An expert without rows has no parts.
    behind = tl.where(end > start, behind, first)
    total = tl.zeros((BLOCK_WIDTH,), dtype=tl.float32)
    for begin in range(first, behind, BLOCK_PARTS):
        part = begin + tl.arange(0, BLOCK_PARTS)
        inside = (part < behind)[:, None] & (column < width)[None, :]
        total += tl.sum(
            tl.load(parts + part.to(tl.int64)[:, None] * width + column[None, :], mask=inside, other=0.0), axis=0
        )
    tl.store(found + expert * width + column, total.to(found.dtype.element_ty), mask=column < width)


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
    weights,
    order,
    expert_of_row,
    gradient,
    of_said,
    of_weights,
    parts,
    count,
    width,
    k: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """For a block of rows: their gradients, those of their weights, and the parts of that by the bias."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    there = row < count
    choice = tl.load(order + row, mask=there, other=0)
    weight = tl.load(weights + choice, mask=there, other=0.0).to(tl.float32)
    expert = tl.load(expert_of_row + row, mask=there, other=0)
    of_weight = tl.zeros((BLOCK_ROWS,), dtype=tl.float32)
    for start in range(0, width, BLOCK_WIDTH):
        column = start + tl.arange(0, BLOCK_WIDTH)
        inside = there[:, None] & (column < width)[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        wanted = tl.load(gradient + (choice // k)[:, None] * width + column[None, :], mask=inside, other=0.0)
        wanted = wanted.to(tl.float32)
        words = tl.load(said + place, mask=inside, other=0.0).to(tl.float32)
        words += tl.load(bias + expert[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
        of_weight += tl.sum(wanted * words, axis=1)
        own = weight[:, None] * wanted
        tl.store(of_said + place, own.to(of_said.dtype.element_ty), mask=inside)
        store_parts(own, expert, expert_of_row, parts, column, count, width, BLOCK_ROWS)
    tl.store(of_weights + choice, of_weight.to(of_weights.dtype.element_ty), mask=there)
