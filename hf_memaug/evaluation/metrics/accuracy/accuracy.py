# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Accuracy, as an `evaluate` module; the arithmetic is `hf_memaug.evaluation.accuracy`."""

import datasets
import evaluate

from hf_memaug.evaluation import scores

_DESCRIPTION = "Share of examples whose prediction is the reference."
_INPUTS = """
Args:
    predictions: predicted label ids.
    references: true label ids.
    num_labels: number of classes; ids outside 0..num_labels-1 are refused.
Returns:
    dict with "accuracy", between 0 and 1.
"""


class Accuracy(evaluate.Metric):
    """Accuracy."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}),
        )

    def _compute(self, predictions, references, num_labels=None):
        return {"accuracy": scores.accuracy(predictions, references, num_labels=num_labels)}
