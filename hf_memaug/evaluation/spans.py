# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of what is a span of a text: named entities (entity F1), and answers to questions (exact match and F1)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

from hf_memaug.evaluation.checks import check_same_length
from hf_memaug.iob2 import entities


def entity_f1(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 of whole entities over all sequences: the type and both ends must be right."""
    check_same_length(predictions=predictions, references=references)
    right = predicted = wanted = 0
    for row, (mine, theirs) in enumerate(zip(predictions, references, strict=True)):
        if len(mine) != len(theirs):
            raise ValueError(f"`predictions` has {len(mine)} tags in row {row}, and `references` has {len(theirs)}.")
        found, expected = set(entities(mine)), set(entities(theirs))
        right, predicted, wanted = right + len(found & expected), predicted + len(found), wanted + len(expected)
    precision, recall = right / predicted if predicted else 0.0, right / wanted if wanted else 0.0
    both = precision + recall
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / both if both else 0.0}


def answer_scores(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """
    Exact match and F1 of answers, as SQuAD has them: case, punctuation and articles do not count, and of several right
    answers the nearest does. A question without an answer is answered by nothing.

    Args:
        predictions: an answer for each question, "" for none.
        references: the right answers of each; empty where there is none.
    """
    check_same_length(predictions=predictions, references=references)
    exact = overlap = 0.0
    for mine, theirs in zip(predictions, references, strict=True):
        right = list(theirs) or [""]
        exact += max(_normal(mine) == _normal(one) for one in right)
        overlap += max(_overlap(mine, one) for one in right)
    count = max(len(predictions), 1)
    return {"exact_match": exact / count, "f1": overlap / count}


def _normal(text: str) -> list[str]:
    text = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def _overlap(mine: str, theirs: str) -> float:
    mine_words, their_words = _normal(mine), _normal(theirs)
    if not mine_words or not their_words:
        return float(mine_words == their_words)
    shared = sum((Counter(mine_words) & Counter(their_words)).values())
    return 2 * shared / (len(mine_words) + len(their_words))
