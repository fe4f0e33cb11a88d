# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""How near a reply is to the one that was given: BLEU-2 and the similarity of word vectors (IDA, appendix C)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

Words = str | Sequence[str]


def bleu(predictions: Sequence[Words], references: Sequence[Words], max_order: int = 2) -> float:
    """
    BLEU of all replies together, in [0, 1]: the geometric mean of the precisions of runs of 1 to `max_order` words,
    each counted at most as often as the reference has it, times exp(1 - r / c) where the replies (c words) are shorter
    than the references (r words). One reference for each reply; 0 where a precision is 0.

    Args:
        predictions, references: texts, whose words are parted by white space, or lists of words.
    """
    _check(predictions, references)
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


def embedding_similarity(
    predictions: Sequence[Words], references: Sequence[Words], vectors: Mapping[str, Sequence[float]]
) -> float:
    """
    W2V-Sim, in [-1, 1]: the cosine of the mean word vector of a reply and that of its reference, averaged over all. A
    pair of which one side has no word with a vector counts as 0.

    Args:
        vectors: by word, such as `hf_memaug.data.read_word_vectors` gives them.
    """
    _check(predictions, references)
    if not vectors:
        raise ValueError("`vectors` is empty: give the vectors of words, such as GloVe's.")
    total = 0.0
    for reply, reference in zip(predictions, references, strict=True):
        means = [_mean_vector(_words(text), vectors) for text in (reply, reference)]
        if all(mean is not None and mean.any() for mean in means):
            total += float(means[0] @ means[1] / (np.linalg.norm(means[0]) * np.linalg.norm(means[1])))
    return total / len(predictions)


def _mean_vector(words: list[str], vectors: Mapping[str, Sequence[float]]) -> np.ndarray | None:
    known = [np.asarray(vectors[word], dtype=np.float64) for word in words if word in vectors]
    return np.mean(known, axis=0) if known else None


def _runs(words: list[str], order: int) -> Counter:
    return Counter(tuple(words[place : place + order]) for place in range(len(words) - order + 1))


def _words(text: Words) -> list[str]:
    return text.split() if isinstance(text, str) else list(text)


def _check(predictions: Sequence[Words], references: Sequence[Words]) -> None:
    for name, texts in (("predictions", predictions), ("references", references)):
        if isinstance(texts, str):
            raise TypeError(f"`{name}` is one text: give a list of texts.")
    if len(predictions) != len(references) or not len(predictions):
        raise ValueError(
            f"`predictions` has {len(predictions)} replies and `references` {len(references)}: give one reference for "
            "each reply, and at least one."
        )
