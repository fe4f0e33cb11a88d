# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What a model predicts for one input, and the errors whose text is meant for users."""

from dataclasses import dataclass


class InferenceError(ValueError):
    """The base of the next two."""


class CheckpointError(InferenceError):
    """A checkpoint that cannot be loaded, or that does not predict."""


class InputError(InferenceError):
    """An input that the model cannot read."""


@dataclass(frozen=True)
class Piece:
    """A stretch of a text; `label` and `score` where the model says something about it."""

    text: str
    label: str | None = None
    score: float | None = None


@dataclass(frozen=True)
class Prediction:
    """
    Args:
        kind: "probabilities", which add up to 1; "independent", of several labels at once; "number", of a regression;
            "reply"; "tags" of words; "answer" to a question; or "words" in the place of masks.
        scores: labels, or answers, with their scores, the largest first.
        text: the reply, or the answer, which is "" where the context holds none.
        pieces: the text that was given, in stretches: entities, the answer, or the likeliest words, and the rest.
        words, tags: of "tags", each word and its tag.
        start: of "answer", where it begins in the context.
        masks: of "words", the likeliest words of each mask with their scores.
        part: of a long context, the part that the answer comes from.
        notes: what the user has to know, such as that a text was cut.
    """

    kind: str
    scores: tuple[tuple[str, float], ...] = ()
    text: str | None = None
    pieces: tuple[Piece, ...] = ()
    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    start: int | None = None
    masks: tuple[tuple[tuple[str, float], ...], ...] = ()
    part: int = 0
    notes: tuple[str, ...] = ()
