# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The scores of `hf_memaug.evaluation.scores` as `evaluate` modules. `load_metric` imports them."""

import inspect
from collections.abc import Callable

import datasets
import evaluate
import numpy as np

from hf_memaug.evaluation import scores

_LABELS = datasets.Value("int64")


class _ScoreModule(evaluate.Metric):
    """
    Args:
        predictions: predicted label ids.
        references: true label ids.
        options: those of the function of the same name in `hf_memaug.evaluation`.
    Returns:
        dict with the score under the module's name.
    """

    score: Callable[..., float]
    predictions = _LABELS

    def _info(self):
        return evaluate.MetricInfo(
            description=inspect.getdoc(self.score),
            citation="",
            inputs_description=inspect.getdoc(type(self)),
            features=datasets.Features({"predictions": self.predictions, "references": _LABELS}),
        )

    def _compute(self, predictions, references, **options):
        return {self.name: self.score(predictions, references, **options)}


class Accuracy(_ScoreModule):
    score = staticmethod(scores.accuracy)


class MacroF1(_ScoreModule):
    score = staticmethod(scores.macro_f1)


class MicroF1(_ScoreModule):
    score = staticmethod(scores.micro_f1)


class ADistance(_ScoreModule):
    """
    `evaluate` stores rows, so its columns are equally long, while two domains seldom are. Hence a row is an example.

    Args:
        predictions: one feature vector per example.
        references: the domain of each example, 0 for source and 1 for target.
        seed: seed of the subsampling and of the split. Default 0.
    Returns:
        dict with "a_distance", between 0 (domains alike) and 2 (linearly separable).
    """

    score = staticmethod(scores.a_distance)
    predictions = datasets.Sequence(datasets.Value("float64"))

    def _compute(self, predictions, references, **options):
        features, domain = np.asarray(predictions), np.asarray(references)
        if not np.isin(domain, (0, 1)).all():
            raise ValueError("`references` must be 0 for a source row and 1 for a target row.")
        return super()._compute(features[domain == 0], features[domain == 1], **options)
