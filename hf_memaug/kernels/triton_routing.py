# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The Triton kernels of `hf_memaug.kernels.fused_routing`, which says what they do. Importing this needs Triton.

A program has some tokens and all experts; what is summed over tokens is written for each program, and added up in one
order by who launched them.
"""

import triton
import triton.language as tl


@triton.jit
def cosine(
    projected,
    products,
    scale,
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
    found = tl.load(products + place, mask=inside, other=0.0) * (tl.load(scale) / length)[:, None]
    tl.store(logits + place, found, mask=inside)
    tl.store(lengths + token, length, mask=token < count)


@triton.jit
def cosine_back(
    gradient,
    projected,
    scale,
    lengths,
    logits,
    of_products,
    of_projected,
    of_scale,
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
    factor = tl.load(scale)
    tl.store(of_products + place, given * (factor / length)[:, None], mask=inside)
    of_length = -tl.sum(given * said, axis=1) / length
    tl.store(of_scale + tl.program_id(0), tl.sum(tl.sum(given * said, axis=1), axis=0) / factor)
    x_place, x_inside = rows * width + column[None, :], there & (column < width)[None, :]
    x = tl.load(projected + x_place, mask=x_inside, other=0.0)
    # Below the shortest length, the length is no longer the row's.
    of_length = tl.where(length > 1e-12, of_length / length, 0.0)
    tl.store(of_projected + x_place, x * of_length[:, None], mask=x_inside)


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
    x = tl.where((expert < experts)[None, :], x, -float("inf"))
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
        weight = tl.exp(tl.max(left, axis=1) - largest) / total
        tl.store(chosen + rows * k + turn, best.to(tl.int64), mask=token < count)
        tl.store(weights + rows * k + turn, weight, mask=token < count)
        left = tl.where(expert[None, :] == best[:, None], -float("inf"), left)


@triton.jit
def choose_back(
    gradient,
    chosen,
    weights,
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
    tl.store(of_logits + rows[:, None] * experts + expert[None, :], found, mask=inside)


@triton.jit
def busy(
    logits,
    noisy,
    chosen,
    noise,
    sums,
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
    tl.store(sums + place, tl.sum(tl.where(inside, part, 0.0), axis=0), mask=expert < experts)
    tl.store(sums + place + experts, tl.sum(tl.where(inside, chance, 0.0), axis=0), mask=expert < experts)


@triton.jit
def busy_back(
    gradient,
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
    of_part = tl.load(gradient + expert, mask=expert < experts, other=0.0)[None, :]
    of_chance = tl.load(gradient + experts + expert, mask=expert < experts, other=0.0)[None, :]
    last = tl.load(chosen + rows * k + k - 1, mask=there, other=0)
    threshold = tl.load(noisy + rows * experts + last, mask=there, other=0.0)
    away = (x - threshold[:, None]) / noise
    density = 0.3989422804014327 * tl.exp(-0.5 * away * away) / noise * of_chance
    density = tl.where(inside, density, 0.0)
    found = part * (of_part - tl.sum(part * of_part, axis=1)[:, None]) + density
    # The threshold is a logit, too.
    found -= tl.where(expert[None, :] == last[:, None], tl.sum(density, axis=1)[:, None], 0.0)
    tl.store(of_logits + place, found, mask=inside)
