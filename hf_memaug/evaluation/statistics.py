# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The paired t-test between two models scored on the same seeds or splits, and summaries. SciPy computes the test.

The difference is always a - b.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_memaug.evaluation.checks import check_same_length, float_array

# With two pairs an interval is wider than any score.
FEWEST_PAIRS = 3


@dataclass(frozen=True)
class PairedTest:
    """
    Args:
        n: number of pairs.
        mean_a, mean_b: the mean scores.
        difference: mean_a - mean_b.
        p_value: probability of a difference at least this extreme, of either sign, if the models were equally good.
        low, high: ends of the 95 % confidence interval of the difference.
    """

    n: int
    mean_a: float
    mean_b: float
    difference: float
    p_value: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation (n - 1) and number of values; a single value has no spread (None)."""

    mean: float
    std: float | None
    n: int


def summarise(values: Any) -> Summary:
    """Mean and std = sqrt(Σ(x - mean)² / (n - 1)) of the scores of several seeds."""
    values = float_array("values", values)
    return Summary(float(values.mean()), float(values.std(ddof=1)) if values.size > 1 else None, values.size)


def paired_t_test(a: Any, b: Any) -> PairedTest:
    """Student's paired, two-sided t-test, with n - 1 degrees of freedom.

    Without variance t is undefined, and the limit is reported: if all differences are the same non-zero number the
    p-value is 0; if all are zero, it is 1.
    """
    a, b = (float_array(name, values) for name, values in (("a", a), ("b", b)))
    check_same_length(a=a, b=b)
    if a.size < FEWEST_PAIRS:
        raise ValueError(f"`paired_t_test` needs at least {FEWEST_PAIRS} pairs and `a` has {a.size}: run more seeds.")
    from scipy.stats import ttest_1samp

    # 0.3 - 0.2 and 0.2 - 0.1 differ in the last bit; unrounded, that bit would fake a variance.
    scale = max(np.abs(a).max(), np.abs(b).max()) or 1.0
    differences = np.round(a - b, 12 - math.ceil(math.log10(scale)))
    if np.ptp(differences) == 0:
        low = high = mean = float(differences[0])
        p_value = 0.0 if mean else 1.0
    else:
        found = ttest_1samp(differences, 0.0)
        p_value, (low, high) = float(found.pvalue), found.confidence_interval(0.95)
    mean_a, mean_b = float(a.mean()), float(b.mean())
    return PairedTest(a.size, mean_a, mean_b, mean_a - mean_b, p_value, float(low), float(high))
