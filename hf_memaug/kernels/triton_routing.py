# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The Triton kernels of `hf_memaug.kernels.fused_routing`, which says what they do. Importing this needs Triton.

A program has some tokens and all experts; what is summed over tokens is written for each program, and added up in one
order by the next kernel.
"""

import triton
import triton.language as tl


@triton.jit
def normalize(experts, directions, width, BLOCK_WIDTH: tl.constexpr):
    """The direction of one expert."""
    column = tl.arange(0, BLOCK_WIDTH)
    place = tl.program_id(0) * width + column
    x = tl.load(experts + place, mask=column < width, other=0.0)
    length = tl.maximum(tl.sqrt(tl.sum(x * x, axis=0)), 1e-12)
    tl.store(directions + place, x / length, mask=column < width)


@triton.jit
def normalize_back(
    gradient,
    experts,
    directions,
    parts,
    log_scale,
    max_log_scale,
    of_experts,
    of_log_scale,
    count,
    width,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_PARTS: tl.constexpr,
):
    """The gradient by one expert; the first program also sums the parts of that by the scale's logarithm."""
    column = tl.arange(0, BLOCK_WIDTH)
    place = tl.program_id(0) * width + column
    x = tl.load(experts + place, mask=column < width, other=0.0)
    given = tl.load(gradient + place, mask=column < width, other=0.0)
    direction = tl.load(directions + place, mask=column < width, other=0.0)
    length = tl.sqrt(tl.sum(x * x, axis=0))
    # Below the shortest length, the length is no longer the expert's.
    along = tl.where(length > 1e-12, tl.sum(given * direction, axis=0), 0.0)
    tl.store(of_experts + place, (given - along * direction) / tl.maximum(length, 1e-12), mask=column < width)
    if tl.program_id(0) == 0:
        total = tl.zeros((BLOCK_PARTS,), dtype=tl.float32)
        for start in range(0, count, BLOCK_PARTS):
            part = start + tl.arange(0, BLOCK_PARTS)
            total += tl.load(parts + part, mask=part < count, other=0.0)
        tl.store(of_log_scale, tl.where(tl.load(log_scale) <= max_log_scale, tl.sum(total, axis=0), 0.0))


@triton.jit
def scale_of(log_scale, max_log_scale):
    found = tl.load(log_scale)
    return tl.exp(tl.where(found > max_log_scale, max_log_scale, found))


@triton.jit
def cosine(
    projected,
    products,
    log_scale,
    max_log_scale,
    lengths,
    logits,
    count,
    width,
    experts,
    TOKENS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
):
    """`E^T W x / |W x|` times the scale, where the products with the experts' directions are there."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    column, expert = tl.arange(0, BLOCK_WIDTH), tl.arange(0, BLOCK_EXPERTS)
    there = (token < count)[:, None]
    rows = token.to(tl.int64)[:, None]
    x = tl.load(projected + rows * width + column[None, :], mask=there & (column < width)[None, :], other=0.0)
    length = tl.maximum(tl.sqrt(tl.sum(x * x, axis=1)), 1e-12)
    place = rows * experts + expert[None, :]
    inside = there & (expert < experts)[None, :]
    found = tl.load(products + place, mask=inside, other=0.0) * (scale_of(log_scale, max_log_scale) / length)[:, None]
    tl.store(logits + place, found, mask=inside)
    tl.store(lengths + token, length, mask=token < count)


@triton.jit
def cosine_back(
    gradient,
    projected,
    log_scale,
    max_log_scale,
    lengths,
    logits,
    of_products,
    of_projected,
    parts,
    count,
    width,
    experts,
    TOKENS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
):
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    column, expert = tl.arange(0, BLOCK_WIDTH), tl.arange(0, BLOCK_EXPERTS)
    there = (token < count)[:, None]
    rows = token.to(tl.int64)[:, None]
    place, inside = rows * experts + expert[None, :], there & (expert < experts)[None, :]
    given = tl.load(gradient + place, mask=inside, other=0.0)
    said = tl.load(logits + place, mask=inside, other=0.0)
    length = tl.load(lengths + token, mask=token < count, other=1.0)
    scale = scale_of(log_scale, max_log_scale)
    tl.store(of_products + place, given * (scale / length)[:, None], mask=inside)
    along = tl.sum(given * said, axis=1)
    # Logits grow with the scale: by its logarithm, each by itself.
    tl.store(parts + tl.program_id(0), tl.sum(along, axis=0))
    x_place, x_inside = rows * width + column[None, :], there & (column < width)[None, :]
    x = tl.load(projected + x_place, mask=x_inside, other=0.0)
    # Below the shortest length, the length is no longer the row's.
    of_length = tl.where(length > 1e-12, along / (length * length), 0.0)
    tl.store(of_projected + x_place, -x * of_length[:, None], mask=x_inside)


@triton.jit
def choose(
    logits,
    draws,
    noise,
    noisy,
    chosen,
    weights,
    count,
    experts,
    k: tl.constexpr,
    HAS_NOISE: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
):
    """The k largest of the logits with their noise, and the softmax over them."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    expert = tl.arange(0, BLOCK_EXPERTS)
    rows = token.to(tl.int64)
    place = rows[:, None] * experts + expert[None, :]
    inside = (token < count)[:, None] & (expert < experts)[None, :]
    x = tl.load(logits + place, mask=inside, other=0.0)
    if HAS_NOISE:
        x += noise * tl.load(draws + place, mask=inside, other=0.0)
        tl.store(noisy + place, x, mask=inside)
    # What is not a number has no largest: it goes to experts that there are, with weights that are no numbers either.
    spoilt = tl.sum(tl.where((expert < experts)[None, :], x - x, 0.0), axis=1)
    x = tl.where((expert < experts)[None, :] & (x == x), x, -float("inf"))
    largest = tl.max(x, axis=1)
    left = x
    total = tl.zeros((TOKENS,), dtype=tl.float32)
    for _ in tl.static_range(k):
        best = tl.argmax(left, axis=1)
        total += tl.exp(tl.max(left, axis=1) - largest)
        left = tl.where(expert[None, :] == best[:, None], -float("inf"), left)
    left = x
    for turn in tl.static_range(k):
        best = tl.argmax(left, axis=1)
        weight = tl.exp(tl.max(left, axis=1) - largest) / total + spoilt
        tl.store(chosen + rows * k + turn, best.to(tl.int64), mask=token < count)
        tl.store(weights + rows * k + turn, weight, mask=token < count)
        left = tl.where(expert[None, :] == best[:, None], -float("inf"), left)


@triton.jit
def choose_back(
    gradient,
    of_noisy,
    chosen,
    weights,
    of_logits,
    count,
    experts,
    k: tl.constexpr,
    HAS_NOISY: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
):
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    expert = tl.arange(0, BLOCK_EXPERTS)
    rows, there = token.to(tl.int64), token < count
    mean = tl.zeros((TOKENS,), dtype=tl.float32)
    for turn in tl.static_range(k):
        weight = tl.load(weights + rows * k + turn, mask=there, other=0.0)
        mean += weight * tl.load(gradient + rows * k + turn, mask=there, other=0.0)
    found = tl.zeros((TOKENS, BLOCK_EXPERTS), dtype=tl.float32)
    for turn in tl.static_range(k):
        weight = tl.load(weights + rows * k + turn, mask=there, other=0.0)
        of_best = weight * (tl.load(gradient + rows * k + turn, mask=there, other=0.0) - mean)
        best = tl.load(chosen + rows * k + turn, mask=there, other=-1)
        found += tl.where(expert[None, :] == best[:, None], of_best[:, None], 0.0)
    inside = there[:, None] & (expert < experts)[None, :]
    place = rows[:, None] * experts + expert[None, :]
    if HAS_NOISY:
        found += tl.load(of_noisy + place, mask=inside, other=0.0)
    tl.store(of_logits + place, found, mask=inside)


@triton.jit
def busy(
    logits,
    noisy,
    chosen,
    noise,
    parts,
    count,
    experts,
    k: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
):
    """Of the tokens of a program: the sums of their softmax, and of their chances by Eq. 10."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    expert = tl.arange(0, BLOCK_EXPERTS)
    rows, there = token.to(tl.int64), token < count
    inside = there[:, None] & (expert < experts)[None, :]
    x = tl.load(logits + rows[:, None] * experts + expert[None, :], mask=inside, other=-float("inf"))
    x = tl.where(there[:, None], x, 0.0)
    part = tl.exp(x - tl.max(x, axis=1)[:, None])
    part = part / tl.sum(part, axis=1)[:, None]
    last = tl.load(chosen + rows * k + k - 1, mask=there, other=0)
    threshold = tl.load(noisy + rows * experts + last, mask=there, other=0.0)
    chance = 0.5 * (1.0 + tl.math.erf((x - threshold[:, None]) / noise * 0.7071067811865476))
    place = tl.program_id(0) * 2 * experts + expert
    tl.store(parts + place, tl.sum(tl.where(inside, part, 0.0), axis=0), mask=expert < experts)
    tl.store(parts + place + experts, tl.sum(tl.where(inside, chance, 0.0), axis=0), mask=expert < experts)


@triton.jit
def busy_back(
    gradient,
    stride,
    logits,
    noisy,
    chosen,
    noise,
    of_logits,
    count,
    experts,
    k: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
):
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    expert = tl.arange(0, BLOCK_EXPERTS)
    rows, there = token.to(tl.int64), token < count
    inside = there[:, None] & (expert < experts)[None, :]
    place = rows[:, None] * experts + expert[None, :]
    x = tl.load(logits + place, mask=inside, other=-float("inf"))
    x = tl.where(there[:, None], x, 0.0)
    part = tl.exp(x - tl.max(x, axis=1)[:, None])
    part = part / tl.sum(part, axis=1)[:, None]
    mine = gradient + tl.program_id(0) * stride + expert
    of_part = tl.load(mine, mask=expert < experts, other=0.0)[None, :]
    of_chance = tl.load(mine + experts, mask=expert < experts, other=0.0)[None, :]
    last = tl.load(chosen + rows * k + k - 1, mask=there, other=0)
    threshold = tl.load(noisy + rows * experts + last, mask=there, other=0.0)
    away = (x - threshold[:, None]) / noise
    density = 0.3989422804014327 * tl.exp(-0.5 * away * away) / noise * of_chance
    density = tl.where(inside, density, 0.0)
    found = part * (of_part - tl.sum(part * of_part, axis=1)[:, None]) + density
    # The threshold is a logit, too.
    found -= tl.where(expert[None, :] == last[:, None], tl.sum(density, axis=1)[:, None], 0.0)
    tl.store(of_logits + place, found, mask=inside)


@triton.jit
def balance(parts, sums, loss, count, experts, BLOCK_PARTS: tl.constexpr, BLOCK_EXPERTS: tl.constexpr):
    """The sums over all parts, and the mean of their two squared coefficients of variation (C.4). One program."""
    expert = tl.arange(0, BLOCK_EXPERTS)
    total = 0.0
    for kind in tl.static_range(2):
        found = tl.zeros((BLOCK_EXPERTS,), dtype=tl.float32)
        for start in range(0, count, BLOCK_PARTS):
            part = start + tl.arange(0, BLOCK_PARTS)
            inside = (part < count)[:, None] & (expert < experts)[None, :]
            place = (part[:, None] * 2 + kind) * experts + expert[None, :]
            found += tl.sum(tl.load(parts + place, mask=inside, other=0.0), axis=0)
        tl.store(sums + kind * experts + expert, found, mask=expert < experts)
        mean = tl.sum(found, axis=0) / experts
        away = tl.where(expert < experts, found - mean, 0.0)
        total += tl.sum(away * away, axis=0) / experts / (mean * mean)
    tl.store(loss, total / 2)


@triton.jit
def balance_back(gradient, sums, found, experts, BLOCK_EXPERTS: tl.constexpr):
    """The gradient by the sums of one kind."""
    expert = tl.arange(0, BLOCK_EXPERTS)
    place = tl.program_id(0) * experts + expert
    x = tl.load(sums + place, mask=expert < experts, other=0.0)
    mean = tl.sum(x, axis=0) / experts
    away = tl.where(expert < experts, x - mean, 0.0)
    variance = tl.sum(away * away, axis=0) / experts
    result = tl.load(gradient) * (away - variance / mean) / (mean * mean) / experts
    tl.store(found + place, result, mask=expert < experts)
