# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Proxy A-distance, as an `evaluate` module; the arithmetic is `hf_memaug.evaluation.a_distance`.

`evaluate` stores rows, so its columns are always equally long, while two domains seldom are. Hence one row is one
example: `predictions` holds its feature vector and `references` its domain, 0 for source and 1 for target. Batches of
either domain, or of both mixed, can then be added as they come.
"""

import datasets
import evaluate
import numpy as np

from hf_memaug.evaluation import scores

_DESCRIPTION = "2 (1 - 2e), where e is the held-out error of a linear classifier between source and target features."
_CITATION = """\
@inproceedings{bendavid2006analysis,
  title={Analysis of Representations for Domain Adaptation},
  author={Ben-David, Shai and Blitzer, John and Crammer, Koby and Pereira, Fernando},
  booktitle={Advances in Neural Information Processing Systems},
  volume={19},
  year={2006}
}"""
_INPUTS = """
Args:
    predictions: one feature vector per example.
    references: the domain of each example, 0 for source and 1 for target.
    seed: seed of the subsampling and of the split. Default 0.
    test_fraction: share of each domain that is held out. Default 0.5.
Returns:
    dict with "a_distance", between 0 (domains alike) and 2 (linearly separable).
"""


class ADistance(evaluate.Metric):
    """Proxy A-distance between source and target features."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features(
                {"predictions": datasets.Sequence(datasets.Value("float64")), "references": datasets.Value("int64")}
            ),
        )

    def _compute(self, predictions, references, seed=0, test_fraction=0.5):
        features, domain = np.asarray(predictions), np.asarray(references)
        if not np.isin(domain, (0, 1)).all():
            raise ValueError("`references` must be 0 for a source row and 1 for a target row.")
        distance = scores.a_distance(
            features[domain == 0], features[domain == 1], seed=seed, test_fraction=test_fraction
        )
        return {"a_distance": distance}
