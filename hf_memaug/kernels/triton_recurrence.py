# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The Triton kernels of `hf_memaug.kernels.fused_recurrence`, which says what they do. Importing this needs Triton.

A program has one row: of `directions * rows` there are few, and each is read and written once. Where rows lie apart,
`..._step` is how far.
"""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def attend(scores, scores_step, begun, weights, slots, HAS_BEGUN: tl.constexpr, BLOCK: tl.constexpr):
    """The softmax of Eq. 1; zero where no word came before."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < slots
    x = tl.load(scores + row * scores_step + column, mask=inside, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    x = x / tl.sum(x, axis=0)
    if HAS_BEGUN:
        x = tl.where(tl.load(begun + row) != 0, x, 0.0)
    tl.store(weights + row * slots + column, x, mask=inside)


@triton.jit
def attend_back(
    to_weights, asked, weights, to_scores, to_scores_step, slots, HAS_ASKED: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < slots
    place = row * slots + column
    gradient = tl.load(to_weights + place, mask=inside, other=0.0)
    if HAS_ASKED:
        gradient += tl.load(asked + place, mask=inside, other=0.0)
    x = tl.load(weights + place, mask=inside, other=0.0)
    found = x * (gradient - tl.sum(x * gradient, axis=0))
    tl.store(to_scores + row * to_scores_step + column, found, mask=inside)


@triton.jit
def lstm(
    from_words,
    from_hidden,
    from_hidden_step,
    before,
    word,
    gates,
    after,
    cell_before,
    cell_after,
    size,
    HAS_WORD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    words, hidden = from_words + row * 4 * size + column, from_hidden + row * from_hidden_step + column
    opened, place = gates + row * 4 * size + column, row * size + column
    taken = sigmoid(tl.load(words, mask=inside) + tl.load(hidden, mask=inside))
    kept = sigmoid(tl.load(words + size, mask=inside) + tl.load(hidden + size, mask=inside))
    shown = sigmoid(tl.load(words + 2 * size, mask=inside) + tl.load(hidden + 2 * size, mask=inside))
    new = tanh(tl.load(words + 3 * size, mask=inside) + tl.load(hidden + 3 * size, mask=inside))
    old = tl.load(cell_before + place, mask=inside)
    cell = kept * old + taken * new
    if HAS_WORD:
        is_word = tl.load(word + row) != 0
        cell = tl.where(is_word, cell, old)
    state = shown * tanh(cell)
    if HAS_WORD:
        state = tl.where(is_word, state, tl.load(before + place, mask=inside))
    tl.store(opened, taken, mask=inside)
    tl.store(opened + size, kept, mask=inside)
    tl.store(opened + 2 * size, shown, mask=inside)
    tl.store(opened + 3 * size, new, mask=inside)
    tl.store(cell_after + place, cell, mask=inside)
    tl.store(after + place, state, mask=inside)


@triton.jit
def lstm_back(
    to_hidden,
    asked,
    word,
    opened,
    to_gates,
    to_gates_step,
    to_cell,
    cell_before,
    cell_after,
    to_cell_before,
    residual,
    size,
    HAS_ASKED: tl.constexpr,
    HAS_WORD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    place, gates = row * size + column, opened + row * 4 * size + column
    from_after = tl.load(to_hidden + place, mask=inside, other=0.0)
    if HAS_ASKED:
        from_after += tl.load(asked + place, mask=inside, other=0.0)
    from_cell = tl.load(to_cell + place, mask=inside, other=0.0)
    passed = tl.zeros_like(from_cell)
    if HAS_WORD:
        is_word = tl.load(word + row) != 0
        tl.store(residual + place, tl.where(is_word, 0.0, from_after), mask=inside)
        passed = tl.where(is_word, 0.0, from_cell)
        from_after = tl.where(is_word, from_after, 0.0)
        from_cell = tl.where(is_word, from_cell, 0.0)
    taken, kept = tl.load(gates, mask=inside, other=0.0), tl.load(gates + size, mask=inside, other=0.0)
    shown = tl.load(gates + 2 * size, mask=inside, other=0.0)
    new = tl.load(gates + 3 * size, mask=inside, other=0.0)
    old = tl.load(cell_before + place, mask=inside, other=0.0)
    seen = tanh(tl.load(cell_after + place, mask=inside, other=0.0))
    from_cell += from_after * shown * (1.0 - seen * seen)
    found = to_gates + row * to_gates_step + column
    tl.store(found, from_cell * new * taken * (1.0 - taken), mask=inside)
    tl.store(found + size, from_cell * old * kept * (1.0 - kept), mask=inside)
    tl.store(found + 2 * size, from_after * seen * shown * (1.0 - shown), mask=inside)
    tl.store(found + 3 * size, from_cell * taken * (1.0 - new * new), mask=inside)
    tl.store(to_cell_before + place, from_cell * kept + passed, mask=inside)


@triton.jit
def gru(
    from_words,
    from_hidden,
    from_hidden_step,
    before,
    word,
    gates,
    after,
    candidate_bias,
    inner,
    rows,
    size,
    HAS_WORD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    words, hidden = from_words + row * 3 * size + column, from_hidden + row * from_hidden_step + column
    opened, place = gates + row * 3 * size + column, row * size + column
    reset = sigmoid(tl.load(words, mask=inside) + tl.load(hidden, mask=inside))
    update = sigmoid(tl.load(words + size, mask=inside) + tl.load(hidden + size, mask=inside))
    bias = tl.load(candidate_bias + (row // rows) * size + column, mask=inside)
    said = tl.load(hidden + 2 * size, mask=inside) + bias
    candidate = tanh(tl.load(words + 2 * size, mask=inside) + reset * said)
    old = tl.load(before + place, mask=inside)
    state = candidate + update * (old - candidate)
    if HAS_WORD:
        state = tl.where(tl.load(word + row) != 0, state, old)
    tl.store(opened, reset, mask=inside)
    tl.store(opened + size, update, mask=inside)
    tl.store(opened + 2 * size, candidate, mask=inside)
    tl.store(inner + place, said, mask=inside)
    tl.store(after + place, state, mask=inside)


@triton.jit
def gru_back(
    to_hidden,
    asked,
    word,
    opened,
    to_gates,
    before,
    inner,
    to_joint,
    to_joint_step,
    residual,
    size,
    HAS_ASKED: tl.constexpr,
    HAS_WORD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    place, gates = row * size + column, opened + row * 3 * size + column
    from_after = tl.load(to_hidden + place, mask=inside, other=0.0)
    if HAS_ASKED:
        from_after += tl.load(asked + place, mask=inside, other=0.0)
    passed = tl.zeros_like(from_after)
    if HAS_WORD:
        is_word = tl.load(word + row) != 0
        passed = tl.where(is_word, 0.0, from_after)
        from_after = tl.where(is_word, from_after, 0.0)
    reset, update = tl.load(gates, mask=inside, other=0.0), tl.load(gates + size, mask=inside, other=0.0)
    candidate = tl.load(gates + 2 * size, mask=inside, other=0.0)
    to_candidate = from_after * (1.0 - update) * (1.0 - candidate * candidate)
    to_update = from_after * (tl.load(before + place, mask=inside, other=0.0) - candidate) * update * (1.0 - update)
    to_reset = to_candidate * tl.load(inner + place, mask=inside, other=0.0) * reset * (1.0 - reset)
    for_words, for_hidden = to_gates + row * 3 * size + column, to_joint + row * to_joint_step + column
    tl.store(for_words, to_reset, mask=inside)
    tl.store(for_words + size, to_update, mask=inside)
    tl.store(for_words + 2 * size, to_candidate, mask=inside)
    tl.store(for_hidden, to_reset, mask=inside)
    tl.store(for_hidden + size, to_update, mask=inside)
    tl.store(for_hidden + 2 * size, to_candidate * reset, mask=inside)
    tl.store(residual + place, from_after * update + passed, mask=inside)
