# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""BLEU of replies (IDA, appendix C)."""

import math
from collections import Counter
from collections.abc import Sequence

from hf_memaug.evaluation.checks import check_same_length

Words = str | Sequence[str]


def bleu(predictions: Sequence[Words], references: Sequence[Words], max_order: int = 2) -> float:
    """
    BLEU of all replies together, in [0, 1]: the geometric mean of the precisions of runs of 1 to `max_order` words,
    each counted at most as often as the reference has it, times exp(1 - r / c) where the replies (c words) are shorter
    than the references (r words). One reference for each reply; 0 where a precision is 0.

    Args:
        predictions, references: texts, whose words are parted by white space, or lists of words.
    """
    for name, texts in (("predictions", predictions), ("references", references)):
        if isinstance(texts, str) or not len(texts):
            raise ValueError(f"`{name}` is {texts!r}: give a list of texts, at least one.")
    check_same_length(predictions=predictions, references=references)
    if max_order < 1:
        raise ValueError(f"`max_order` is {max_order}: a run has at least one word.")
    replies, given = [_words(text) for text in predictions], [_words(text) for text in references]
    logarithm = 0.0
    for order in range(1, max_order + 1):
        found = total = 0
        for reply, reference in zip(replies, given, strict=True):
            ours, theirs = _runs(reply, order), _runs(reference, order)
            found += sum(min(count, theirs[run]) for run, count in ours.items())
            total += sum(ours.values())
        if not found:
            return 0.0
        logarithm += math.log(found / total) / max_order
    said, wanted = sum(map(len, replies)), sum(map(len, given))
    return math.exp(logarithm + min(0.0, 1 - wanted / said))


def _runs(words: list[str], order: int) -> Counter:
    return Counter(tuple(words[place : place + order]) for place in range(len(words) - order + 1))


def _words(text: Words) -> list[str]:
    return text.split() if isinstance(text, str) else list(text)
