# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Scores of entities, answers and replies, and of how well a masked language model knows a kind of text."""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional as F

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
    counts = {"precision": predicted, "recall": wanted, "f1": (predicted + wanted) / 2}
    return {name: right / count if count else 0.0 for name, count in counts.items()}


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
    return 2 * (Counter(mine_words) & Counter(their_words)).total() / (len(mine_words) + len(their_words))


def bleu(predictions: Sequence[str], references: Sequence[str]) -> float:
    """
    BLEU-2 of all replies together, in [0, 1] (IDA, appendix C): the geometric mean of the precisions of words and of
    pairs of words, each counted at most as often as the reference has it, times exp(1 - r / c) where the replies (c
    words) are shorter than the references (r words). Words are parted by white space. One reference for each reply; 0
    where a precision is 0.
    """
    check_same_length(predictions=predictions, references=references)
    replies, given = [text.split() for text in predictions], [text.split() for text in references]
    logarithm = 0.0
    for order in (1, 2):
        found = total = 0
        for both in zip(replies, given, strict=True):
            ours, theirs = (Counter(zip(*(words[start:] for start in range(order)), strict=False)) for words in both)
            found, total = found + (ours & theirs).total(), total + ours.total()
        if not found:
            return 0.0
        logarithm += math.log(found / total) / 2
    said, wanted = sum(map(len, replies)), sum(map(len, given))
    return math.exp(logarithm + min(0.0, 1 - wanted / said))


def masked_lm_loss(model, rows: Sequence[dict], collator: Callable, batch_size: int = 32) -> float:
    """
    The mean loss over the masked tokens of rows (G-MAP, Figures 1 and 5).

    Args:
        model: takes what the batches hold but for `labels`, and returns `logits` over the vocabulary.
        rows: such as `hf_memaug.data.corpus.PackedTexts` makes.
        collator: masks, such as `WholeWordMasking(tokenizer, seed=0)`. With a seed, models can be compared.
    """
    if not len(rows):
        raise ValueError("`rows` is empty: the corpus has fewer tokens than one row.")
    device, was_training = next(model.parameters()).device, model.training
    total, count = 0.0, 0
    model.eval()
    with torch.no_grad():
        for start in range(0, len(rows), batch_size):
            batch = {name: value.to(device) for name, value in collator(rows[start : start + batch_size]).items()}
            labels = batch.pop("labels")
            chosen = labels != -100
            logits = model(**batch).logits[chosen].float()
            total += F.cross_entropy(logits, labels[chosen], reduction="sum").item()
            count += int(chosen.sum())
    model.train(was_training)
    return total / max(count, 1)
