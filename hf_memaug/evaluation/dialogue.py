# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""BLEU of replies (IDA, appendix C)."""

import math
from collections import Counter
from collections.abc import Sequence

from hf_memaug.evaluation.checks import check_same_length

ORDERS = (1, 2)


def bleu(predictions: Sequence[str], references: Sequence[str]) -> float:
    """
    BLEU-2 of all replies together, in [0, 1]: the geometric mean of the precisions of words and of pairs of words, each
    counted at most as often as the reference has it, times exp(1 - r / c) where the replies (c words) are shorter than
    the references (r words). Words are parted by white space. One reference for each reply; 0 where a precision is 0.
    """
    check_same_length(predictions=predictions, references=references)
    replies, given = [text.split() for text in predictions], [text.split() for text in references]
    logarithm = 0.0
    for order in ORDERS:
        found = total = 0
        for reply, reference in zip(replies, given, strict=True):
            ours, theirs = _runs(reply, order), _runs(reference, order)
            found += sum(min(count, theirs[run]) for run, count in ours.items())
            total += sum(ours.values())
        if not found:
            return 0.0
        logarithm += math.log(found / total) / len(ORDERS)
    said, wanted = sum(map(len, replies)), sum(map(len, given))
    return math.exp(logarithm + min(0.0, 1 - wanted / said))


def _runs(words: list[str], order: int) -> Counter:
    return Counter(tuple(words[place : place + order]) for place in range(len(words) - order + 1))
