# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What a model has kept and gained on its way through several domains.

All figures are read off the matrix R, in which R[i, j] is the score on domain j after training on domain i, both in the
order of training (Lopez-Paz and Ranzato, 2017). A cell that is not known is nan.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hf_memaug.evaluation.checks import as_numpy

# T is the number of domains; a higher score is a better one.
DEFINITIONS = {
    "acc": "mean over all domains j of R[T, j]: the score at the end",
    "bwt": "backward transfer, mean over j < T of R[T, j] - R[j, j]: what later domains added (+) or cost (-)",
    "fwt": "forward transfer, mean over j > 1 of R[j-1, j] - b[j]: what a domain was given before its turn; b[j] is "
    "the score of the model before any training",
    "forgetting": "mean over j < T of max over l < T of R[l, j], less R[T, j]: how far a domain fell from its best",
}
LOWER_IS_BETTER = ("forgetting",)


def continual_scores(matrix: Any, baseline: Sequence[float] | None = None) -> dict[str, float | None]:
    """
    Every figure of `DEFINITIONS`, in the unit of the matrix; `None` if it is undefined: with one domain only, or if a
    cell is unknown.

    Args:
        matrix: R, one row for each domain trained on and one column for each domain, in the same order.
        baseline: b, the score on each domain before any training; needed for `fwt`.
    """
    matrix = np.asarray(as_numpy(matrix), dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(
            f"`matrix` has shape {matrix.shape}: pass one row for each domain trained on and one column for each "
            "domain, in the same order."
        )
    # nan stays nan: a mean over the known domains would be another figure.
    found = {"acc": matrix[-1].mean(), **dict.fromkeys(("bwt", "fwt", "forgetting"), math.nan)}
    if len(matrix) > 1:
        earlier, last = matrix[:-1, :-1], matrix[-1, :-1]
        found["bwt"] = (last - matrix.diagonal()[:-1]).mean()
        # Before its turn a domain may be unknown; from then on it must be known.
        unknown = np.isnan(earlier) & np.tri(len(earlier), dtype=bool)
        if not unknown.any():
            found["forgetting"] = (np.nanmax(earlier, axis=0) - last).mean()
        if baseline is not None:
            untrained = np.asarray(as_numpy(baseline), dtype=np.float64)
            if untrained.shape != (len(matrix),):
                raise ValueError(
                    f"`baseline` has shape {untrained.shape}: pass one score for each of {len(matrix)} domains."
                )
            found["fwt"] = (matrix.diagonal(1) - untrained[1:]).mean()
    return {name: None if math.isnan(value) else float(value) for name, value in found.items()}
