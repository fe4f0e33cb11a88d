# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Paired tests between two models scored on the same seeds, splits or examples. SciPy computes them.

The difference is always a - b, and `alternative` refers to it: "greater" tests whether a scores higher.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_memaug.evaluation import scores
from hf_memaug.evaluation.checks import as_numpy, check_name, check_same_length, label_arrays

ALTERNATIVES = ("two-sided", "greater", "less")
METRICS = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1, "micro_f1": scores.micro_f1}

# Resampled scores add up in another order than the observed one: equal scores must stay equal after rounding.
_TIE = 1e-12
_RESAMPLED_ITEMS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class PairedTest:
    """Outcome of a paired test.

    Attributes:
        test: name of the test.
        n: number of pairs.
        mean_a: mean score of a (for `compare_models`, the metric of a on all examples).
        mean_b: the same for b.
        difference: mean_a - mean_b.
        p_value: probability of a difference at least this extreme if the models were equally good.
        low: lower end of the confidence interval of the difference, or None.
        high: upper end, or None. A one-sided test bounds one side only.
        alternative: "two-sided", "greater" or "less".
    """

    test: str
    n: int
    mean_a: float
    mean_b: float
    difference: float
    p_value: float
    low: float | None
    high: float | None
    alternative: str


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation (n - 1), standard error and number of values; a single value has no spread (None)."""

    mean: float
    std: float | None
    standard_error: float | None
    n: int


def summarise(values: Any) -> Summary:
    """Mean, std = sqrt(Σ(x - mean)² / (n - 1)) and standard error = std / sqrt(n) of the scores of several seeds."""
    values = _score_array("values", values)
    if values.size == 1:
        return Summary(float(values[0]), None, None, 1)
    std = float(values.std(ddof=1))
    return Summary(float(values.mean()), std, std / math.sqrt(values.size), values.size)


def paired_t_test(a: Any, b: Any, *, alternative: str = "two-sided", confidence: float = 0.95) -> PairedTest:
    """Student's paired t-test, with n - 1 degrees of freedom.

    Without variance t is undefined, and the limit is reported: if all differences are the same non-zero number the
    p-value is 0 (1 for the alternative in the other direction); if all are zero, it is 1.
    """
    a, b, differences = _paired("paired_t_test", a, b, alternative, confidence)
    from scipy.stats import ttest_1samp

    if np.ptp(differences) == 0:
        mean = float(differences[0])
        in_favour = mean != 0 if alternative == "two-sided" else mean > 0 if alternative == "greater" else mean < 0
        return _outcome("paired t-test", a, b, 0.0 if in_favour else 1.0, mean, mean, alternative)
    found = ttest_1samp(differences, 0.0, alternative=alternative)
    low, high = found.confidence_interval(confidence)
    return _outcome("paired t-test", a, b, found.pvalue, low, high, alternative)


def paired_bootstrap(
    a: Any,
    b: Any,
    n_resamples: int = 10_000,
    seed: int = 0,
    *,
    alternative: str = "two-sided",
    confidence: float = 0.95,
) -> PairedTest:
    """Paired bootstrap over per-example scores whose mean is the metric.

    p = (1 + #{|δ* - δ| >= |δ|}) / (1 + n_resamples), with δ the observed difference and δ* a resampled one: the
    resampled differences moved to the null hypothesis (Efron and Tibshirani, 1993, ch. 16; Berg-Kirkpatrick et al.,
    EMNLP 2012). One-sided: δ* - δ >= δ for "greater", <= for "less". The interval is the percentile interval of δ*.

    The bootstrap of a handful of pairs understates the spread: use `paired_t_test` for seeds, and this for examples.
    """
    a, b, differences = _paired("paired_bootstrap", a, b, alternative, confidence)
    options = (n_resamples, seed, alternative, confidence)
    found = _bootstrap(differences, np.mean, float(differences.mean()), *options, vectorized=True)
    return _outcome("paired bootstrap", a, b, *found, alternative)


def compare_models(
    references: Any,
    predictions_a: Any,
    predictions_b: Any,
    metric: str | Callable[..., float] = "macro_f1",
    *,
    n_resamples: int = 1_000,
    seed: int = 0,
    alternative: str = "two-sided",
    confidence: float = 0.95,
    **metric_options: Any,
) -> PairedTest:
    """Paired bootstrap over examples, for a metric such as F1 that is no mean of per-example scores.

    Each resample of the examples is scored for both models; p-value and interval are those of `paired_bootstrap`.

    Args:
        references: true labels.
        predictions_a: predicted labels of model a, one per reference.
        predictions_b: predicted labels of model b, one per reference.
        metric: "accuracy", "macro_f1", "micro_f1", or a function called as `metric(predictions=..., references=...,
            **metric_options)`.
        n_resamples: number of resamples.
        seed: seed of the resampling.
        alternative: "two-sided", "greater" (a is better) or "less".
        confidence: level of the interval.
        metric_options: passed to the metric, such as `num_labels=3`.
    """
    _check_options(alternative, confidence)
    references, predictions_a, predictions_b = label_arrays(
        references=references, predictions_a=predictions_a, predictions_b=predictions_b
    )
    if references.size < 2:
        raise ValueError("`compare_models` needs at least 2 examples in `references`: pass the whole test set.")
    if isinstance(metric, str):
        check_name("metric", metric, METRICS)
        metric = METRICS[metric]

    def score(predictions, rows):
        return float(metric(predictions=predictions[rows], references=references[rows], **metric_options))

    def resampled_difference(rows):
        return score(predictions_a, rows) - score(predictions_b, rows)

    rows = np.arange(references.size)
    score_a, score_b = score(predictions_a, rows), score(predictions_b, rows)
    options = (n_resamples, seed, alternative, confidence)
    found = _bootstrap(rows, resampled_difference, score_a - score_b, *options, vectorized=False)
    means = (score_a, score_b, score_a - score_b)
    return PairedTest("paired bootstrap", references.size, *means, *found, alternative)


def _bootstrap(
    sample: np.ndarray,
    statistic: Callable,
    observed: float,
    n_resamples: int,
    seed: int,
    alternative: str,
    confidence: float,
    vectorized: bool,
) -> tuple[float, float | None, float | None]:
    """p-value and the ends of the interval."""
    if n_resamples < 1:
        raise ValueError(f"`n_resamples` is {n_resamples}: draw at least 1, better 10000.")
    from scipy.stats import bootstrap

    found = bootstrap(
        (sample,),
        statistic,
        n_resamples=n_resamples,
        batch=max(_RESAMPLED_ITEMS_AT_ONCE // sample.size, 1),
        vectorized=vectorized,
        confidence_level=confidence,
        alternative=alternative,
        method="percentile",
        random_state=seed,
    )
    under_null = found.bootstrap_distribution - observed
    if alternative == "two-sided":
        extreme = np.abs(under_null) >= abs(observed) - _TIE
    elif alternative == "greater":
        extreme = under_null >= observed - _TIE
    else:
        extreme = under_null <= observed + _TIE
    p_value = (1 + int(extreme.sum())) / (1 + n_resamples)
    low, high = found.confidence_interval
    return p_value, _finite(low), _finite(high)


def _score_array(name: str, values: Any) -> np.ndarray:
    array = np.asarray(as_numpy(values), dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"`{name}` has shape {array.shape}: pass one score per seed or per example.")
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` holds NaN or infinite scores: leave out that pair on both sides, or rerun it.")
    return array


def _check_options(alternative: str, confidence: float) -> None:
    check_name("alternative", alternative, ALTERNATIVES)
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` is {confidence}: choose a value between 0 and 1, such as 0.95.")


def _paired(
    test: str, a: Any, b: Any, alternative: str, confidence: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    _check_options(alternative, confidence)
    a, b = _score_array("a", a), _score_array("b", b)
    check_same_length(a=a, b=b)
    if a.size < 2:
        raise ValueError(f"`{test}` needs at least 2 pairs and `a` has 1: run more seeds, or pass per-example scores.")
    # 0.3 - 0.2 and 0.2 - 0.1 differ in the last bit; unrounded, that bit would break ties and fake a variance.
    scale = max(np.abs(a).max(), np.abs(b).max()) or 1.0
    return a, b, np.round(a - b, 12 - math.ceil(math.log10(scale)))


def _outcome(
    test: str, a: np.ndarray, b: np.ndarray, p_value: float, low: float | None, high: float | None, alternative: str
) -> PairedTest:
    low = None if alternative == "less" else _finite(low)
    high = None if alternative == "greater" else _finite(high)
    mean_a, mean_b = float(a.mean()), float(b.mean())
    return PairedTest(test, a.size, mean_a, mean_b, mean_a - mean_b, float(p_value), low, high, alternative)


def _finite(end: float | None) -> float | None:
    """An end of an interval; None where it is open."""
    return float(end) if end is not None and math.isfinite(end) else None
