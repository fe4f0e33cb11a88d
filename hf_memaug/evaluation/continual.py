# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What a model has kept and gained on its way through several domains.

All figures are read off the matrix R, in which R[i, j] is the score on domain j after training on domain i, both in the
order of training (Lopez-Paz and Ranzato, 2017). A cell that is not known is nan.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hf_memaug.evaluation.checks import as_numpy, check_name

# T is the number of domains; a higher score is a better one.
DEFINITIONS = {
    "acc": "mean over all domains j of R[T, j]: the score at the end",
    "bwt": "backward transfer, mean over j < T of R[T, j] - R[j, j]: what later domains added (+) or cost (-)",
    "fwt": "forward transfer, mean over j > 1 of R[j-1, j] - b[j]: what a domain was given before its turn; b[j] is "
    "the score of the model before any training",
    "forgetting": "mean over j < T of max over l < T of R[l, j], less R[T, j]: how far a domain fell from its best",
}
LOWER_IS_BETTER = ("forgetting",)
# These compare a domain with itself at another time.
OF_SEVERAL_DOMAINS = ("bwt", "fwt", "forgetting")


def average_score(matrix: Any) -> float:
    """ACC, the mean of R's last row."""
    return _mean(_square(matrix)[-1])


def backward_transfer(matrix: Any) -> float:
    """BWT, the mean over j < T of R[T, j] - R[j, j]."""
    matrix = _several("bwt", matrix)
    return _mean(matrix[-1, :-1] - matrix.diagonal()[:-1])


def forward_transfer(matrix: Any, baseline: Sequence[float]) -> float:
    """
    FWT, the mean over j > 1 of R[j-1, j] - b[j].

    Args:
        baseline: b, the score on each domain before any training.
    """
    matrix = _several("fwt", matrix)
    baseline = np.asarray(as_numpy(baseline), dtype=np.float64)
    if baseline.shape != (len(matrix),):
        raise ValueError(
            f"`baseline` has shape {baseline.shape} and `matrix` {len(matrix)} domains: pass one score for each domain."
        )
    return _mean(matrix.diagonal(1) - baseline[1:])


def forgetting(matrix: Any) -> float:
    """The mean over j < T of max over l < T of R[l, j], less R[T, j]; below 0 where domains went on to improve."""
    matrix = _several("forgetting", matrix)
    earlier = matrix[:-1, :-1]
    # Before its turn a domain may not have been scored; from then on it must have been.
    unknown = np.isnan(earlier) & (np.arange(len(earlier))[:, None] >= np.arange(len(earlier)))
    if unknown.any():
        return math.nan
    return _mean(np.nanmax(earlier, axis=0) - matrix[-1, :-1])


def continual_scores(matrix: Any, baseline: Sequence[float] | None = None) -> dict[str, float | None]:
    """
    Every figure of `DEFINITIONS`, in the unit of the matrix; `None` where one domain alone, or a cell that is not
    known, leaves it undefined.
    """
    matrix = _square(matrix)
    found = {"acc": average_score(matrix), **dict.fromkeys(OF_SEVERAL_DOMAINS, math.nan)}
    if len(matrix) > 1:
        found["bwt"], found["forgetting"] = backward_transfer(matrix), forgetting(matrix)
        if baseline is not None:
            found["fwt"] = forward_transfer(matrix, baseline)
    return {name: None if math.isnan(value) else value for name, value in found.items()}


def check_figures(argument: str, names: Iterable[str], domains: int) -> None:
    """Refuses figures that are not known, or that so few domains leave undefined."""
    for name in names:
        check_name(argument, name, DEFINITIONS)
        if name in OF_SEVERAL_DOMAINS and domains < 2:
            raise ValueError(
                f"`{argument}` asks for {name!r}, which compares domains, and there is {domains} of them. Give two or "
                "more, or leave it out."
            )


def _square(matrix: Any) -> np.ndarray:
    matrix = np.asarray(as_numpy(matrix), dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(
            f"`matrix` has shape {matrix.shape}: pass one row for each domain trained on and one column for each "
            "domain, in the same order."
        )
    return matrix


def _several(name: str, matrix: Any) -> np.ndarray:
    matrix = _square(matrix)
    check_figures("figure", [name], len(matrix))
    return matrix


def _mean(values: np.ndarray) -> float:
    # nan stays nan: a mean over the domains that happen to be known would be another figure.
    return float(np.mean(values))
