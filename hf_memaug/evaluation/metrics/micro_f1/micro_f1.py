# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Micro-averaged F1, as an `evaluate` module; the arithmetic is `hf_memaug.evaluation.micro_f1`."""

import datasets
import evaluate

from hf_memaug.evaluation import scores

_DESCRIPTION = "F1 = 2 TP / (2 TP + FP + FN) with the counts summed over labels."
_INPUTS = """
Args:
    predictions: predicted label ids.
    references: true label ids.
    labels: label ids to average over. Default: those that occur in predictions or references.
    num_labels: average over 0..num_labels-1 instead; ids outside are refused.
Returns:
    dict with "micro_f1", between 0 and 1.
"""


class MicroF1(evaluate.Metric):
    """Micro-averaged F1."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}),
        )

    def _compute(self, predictions, references, labels=None, num_labels=None):
        return {"micro_f1": scores.micro_f1(predictions, references, labels=labels, num_labels=num_labels)}
