# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The scores of `hf_memaug.evaluation.scores` as `evaluate` modules. `load_metric` imports this module on first use."""

import datasets
import evaluate
import numpy as np

from hf_memaug.evaluation import scores

_LABELS = datasets.Value("int64")
_A_DISTANCE_CITATION = """\
@inproceedings{bendavid2006analysis,
  title={Analysis of Representations for Domain Adaptation},
  author={Ben-David, Shai and Blitzer, John and Crammer, Koby and Pereira, Fernando},
  booktitle={Advances in Neural Information Processing Systems},
  volume={19},
  year={2006}
}"""


class _Module(evaluate.Metric):
    """A module that is described by its docstring. Its name is that of its score."""

    _inputs: str
    _citation = ""
    _predictions = _LABELS

    def _info(self):
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation=self._citation,
            inputs_description=self._inputs,
            features=datasets.Features({"predictions": self._predictions, "references": _LABELS}),
        )

    def _compute(self, predictions, references, **options):
        return {self.name: getattr(scores, self.name)(predictions, references, **options)}


class Accuracy(_Module):
    """Share of examples whose prediction is the reference."""

    _inputs = """
Args:
    predictions: predicted label ids.
    references: true label ids.
Returns:
    dict with "accuracy", between 0 and 1.
"""


class MacroF1(_Module):
    """Unweighted mean over labels of F1 = 2 TP / (2 TP + FP + FN)."""

    _inputs = """
Args:
    predictions: predicted label ids.
    references: true label ids.
    labels: label ids to average over. Default: those that occur in predictions or references.
Returns:
    dict with the F1, between 0 and 1.
"""


class MicroF1(_Module):
    """F1 = 2 TP / (2 TP + FP + FN) with the counts summed over labels."""

    _inputs = MacroF1._inputs


class ADistance(_Module):
    """2 (1 - 2e), where e is the held-out error of a linear classifier between source and target features."""

    # `evaluate` stores rows, so its columns are equally long, while two domains seldom are: a row is an example.
    _inputs = """
Args:
    predictions: one feature vector per example.
    references: the domain of each example, 0 for source and 1 for target.
    seed: seed of the subsampling and of the split. Default 0.
    test_fraction: share of each domain that is held out. Default 0.5.
Returns:
    dict with "a_distance", between 0 (domains alike) and 2 (linearly separable).
"""
    _citation = _A_DISTANCE_CITATION
    _predictions = datasets.Sequence(datasets.Value("float64"))

    def _compute(self, predictions, references, **options):
        features, domain = np.asarray(predictions), np.asarray(references)
        if not np.isin(domain, (0, 1)).all():
            raise ValueError("`references` must be 0 for a source row and 1 for a target row.")
        return super()._compute(features[domain == 0], features[domain == 1], **options)
