# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Paired tests between two models: the same seeds, splits or examples, scored under both.

In every test the difference is a - b, and `alternative` is about it: "greater" asks whether a scores higher. Fewer
than two pairs are refused: one run says nothing about the next.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_memaug.evaluation import scores
from hf_memaug.evaluation.checks import as_numpy, check_name, check_same_length, label_arrays

ALTERNATIVES = ("two-sided", "greater", "less")

# The probabilities are multiples of 2 ** -50, which float64 adds without rounding.
_EXACT_WILCOXON = 50
_RESAMPLED_ITEMS_AT_ONCE = 2_000_000
# Resampled scores are sums in another order than the observed one: ties must survive the rounding.
_TIE = 1e-12


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
        low: lower end of the confidence interval of the difference; None where there is none.
        high: upper end; None where there is none. A one-sided test bounds one side only.
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
    """Mean, standard deviation (n - 1 in the denominator), standard error and number of values.

    `std` and `standard_error` are None for a single value, which has no spread.
    """

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
    """Student's paired t-test: t = mean(d) / (std(d) / sqrt(n)) with n - 1 degrees of freedom, d = a - b.

    Without variance t is not defined, and the limit is reported: if every difference is the same non-zero number the
    p-value is 0 (1 for the alternative in the other direction) and the interval is that number; if all are zero, the
    p-value is 1.
    """
    a, b, differences = _paired("paired_t_test", a, b, alternative, confidence)
    from scipy.stats import t as student

    n, mean = differences.size, float(differences.mean())
    if np.ptp(differences) == 0:
        mean = float(differences[0])
        in_favour = mean != 0 if alternative == "two-sided" else mean > 0 if alternative == "greater" else mean < 0
        return _outcome("paired t-test", a, b, 0.0 if in_favour else 1.0, mean, mean, alternative)
    standard_error = float(differences.std(ddof=1)) / math.sqrt(n)
    statistic = mean / standard_error
    if alternative == "two-sided":
        p_value = 2 * student.sf(abs(statistic), n - 1)
    else:
        p_value = student.sf(statistic if alternative == "greater" else -statistic, n - 1)
    margin = standard_error * float(student.ppf(_upper_quantile(alternative, confidence), n - 1))
    return _outcome("paired t-test", a, b, p_value, mean - margin, mean + margin, alternative)


def wilcoxon(a: Any, b: Any, *, alternative: str = "two-sided", confidence: float = 0.95) -> PairedTest:
    """Wilcoxon's signed-rank test (1945) on d = a - b: W = Σ rank(|d|) over d > 0, ties sharing their mean rank.

    Zero differences are dropped; if all are zero the p-value is 1. Up to 50 non-zero differences the null distribution
    is exact, ties included; beyond that it is the normal approximation with tie correction. With n pairs the smallest
    two-sided p-value is 2 / 2^n: five seeds can never reach 0.05.

    The interval is that of the pseudo-median, by order statistics of the Walsh averages (d_i + d_j) / 2. It is given
    up to 50 pairs, and only where n is large enough for the confidence asked (6 pairs for 95 %, two-sided).
    """
    a, b, differences = _paired("wilcoxon", a, b, alternative, confidence)
    from scipy.stats import norm, rankdata

    signed = differences[differences != 0]
    n = signed.size
    ranks = rankdata(np.abs(signed)) if n else np.zeros(0)
    statistic = float(ranks[signed > 0].sum())
    if n <= _EXACT_WILCOXON:
        null = _signed_rank_distribution(ranks)
        # Mean ranks are halves: the distribution is indexed by twice the rank sum.
        observed = round(2 * statistic)
        at_least, at_most = float(null[observed:].sum()), float(null[: observed + 1].sum())
    else:
        mean, std = n * (n + 1) / 4, math.sqrt(float(np.square(ranks).sum()) / 4)
        at_least, at_most = float(norm.sf((statistic - mean) / std)), float(norm.cdf((statistic - mean) / std))
    p_value = {"two-sided": 2 * min(at_least, at_most), "greater": at_least, "less": at_most}[alternative]
    low, high = _walsh_interval(differences, _upper_quantile(alternative, confidence))
    return _outcome("Wilcoxon signed-rank", a, b, p_value, low, high, alternative)


def paired_bootstrap(
    a: Any,
    b: Any,
    n_resamples: int = 10_000,
    seed: int = 0,
    *,
    alternative: str = "two-sided",
    confidence: float = 0.95,
) -> PairedTest:
    """Paired bootstrap over per-example (or per-seed) scores whose mean is the metric.

    Pairs are drawn with replacement. p = (1 + #{|δ* - δ| >= |δ|}) / (1 + n_resamples), with δ the observed difference
    and δ* a resampled one: the resampled differences moved to the null hypothesis (Efron and Tibshirani, 1993, ch. 16;
    Berg-Kirkpatrick et al., EMNLP 2012). One-sided: δ* - δ >= δ for "greater", <= for "less". The interval is the
    percentile interval of δ*. If all differences are equal, so are all resamples: p is 1 / (1 + n_resamples), or 1 if
    they are zero.

    Resampling a handful of pairs understates the spread by sqrt((n - 1) / n) and more: for five seeds use
    `paired_t_test`, and keep this for examples.
    """
    a, b, differences = _paired("paired_bootstrap", a, b, alternative, confidence)
    resampled = np.concatenate(
        [differences[indices].mean(axis=1) for indices in _resamples(differences.size, n_resamples, seed)]
    )
    p_value, low, high = _bootstrap(float(differences.mean()), resampled, alternative, confidence)
    return _outcome("paired bootstrap", a, b, p_value, low, high, alternative)


def compare_models(
    references: Any,
    predictions_a: Any,
    predictions_b: Any,
    metric: str | Callable[..., float] = scores.macro_f1,
    *,
    n_resamples: int = 10_000,
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
        metric: "accuracy", "macro_f1", "micro_f1", the functions of these names, or any function called as
            `metric(predictions=..., references=..., **metric_options)`. The three are resampled from counts, which is
            some hundred times faster than calling a function per resample and gives the same numbers.
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
        check_name("metric", metric, _COUNTABLE)
        metric = _COUNTABLE[metric]
    score_a = float(metric(predictions=predictions_a, references=references, **metric_options))
    score_b = float(metric(predictions=predictions_b, references=references, **metric_options))
    resamples = _resamples(references.size, n_resamples, seed)
    if metric in _COUNTABLE.values():
        resampled = _resampled_from_counts(metric, references, predictions_a, predictions_b, resamples, metric_options)
    else:
        resampled = np.array(
            [
                metric(predictions=predictions_a[rows], references=references[rows], **metric_options)
                - metric(predictions=predictions_b[rows], references=references[rows], **metric_options)
                for indices in resamples
                for rows in indices
            ]
        )
    difference = score_a - score_b
    p_value, low, high = _bootstrap(difference, resampled, alternative, confidence)
    return PairedTest(
        "paired bootstrap", references.size, score_a, score_b, difference, p_value, low, high, alternative
    )


_COUNTABLE = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1, "micro_f1": scores.micro_f1}


def _score_array(name: str, values: Any) -> np.ndarray:
    array = np.asarray(as_numpy(values), dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"`{name}` has {array.ndim} dimensions: pass one score per seed or per example.")
    if array.size == 0:
        raise ValueError(f"`{name}` is empty: pass one score per seed or per example.")
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` holds NaN or infinite scores: leave out that pair on both sides, or run it again.")
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
    low = None if low is None or alternative == "less" else float(low)
    high = None if high is None or alternative == "greater" else float(high)
    mean_a, mean_b = float(a.mean()), float(b.mean())
    return PairedTest(test, a.size, mean_a, mean_b, mean_a - mean_b, min(float(p_value), 1.0), low, high, alternative)


def _upper_quantile(alternative: str, confidence: float) -> float:
    return (1 + confidence) / 2 if alternative == "two-sided" else confidence


def _signed_rank_distribution(ranks: np.ndarray) -> np.ndarray:
    """Probability of each value of twice the signed-rank sum, every sign being + or - with probability 1/2."""
    doubled = np.round(2 * ranks).astype(int)
    probability = np.zeros(doubled.sum() + 1)
    probability[0] = 1.0
    for rank in doubled:
        shifted = np.zeros_like(probability)
        shifted[rank:] = probability[: probability.size - rank]
        probability = (probability + shifted) / 2
    return probability


def _walsh_interval(differences: np.ndarray, upper_quantile: float) -> tuple[float | None, float | None]:
    """Hodges-Lehmann interval: the k-th smallest and k-th largest Walsh average, P(W < k) <= 1 - upper_quantile."""
    n = differences.size
    if n > _EXACT_WILCOXON:
        return None, None
    tail = np.cumsum(_signed_rank_distribution(np.arange(1, n + 1))[::2])
    k = int(np.searchsorted(tail, 1 - upper_quantile + _TIE, side="right"))
    if k == 0:
        return None, None
    rows, columns = np.triu_indices(n)
    walsh = np.sort((differences[rows] + differences[columns]) / 2)
    return float(walsh[k - 1]), float(walsh[-k])


def _resamples(n: int, n_resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Index arrays of shape (some resamples, n), as many rows in all as `n_resamples`."""
    if n_resamples < 1:
        raise ValueError(f"`n_resamples` is {n_resamples}: draw at least 1, better 10000.")
    generator = np.random.default_rng(seed)
    at_once = max(_RESAMPLED_ITEMS_AT_ONCE // n, 1)
    for start in range(0, n_resamples, at_once):
        yield generator.integers(n, size=(min(at_once, n_resamples - start), n))


def _bootstrap(
    difference: float, resampled: np.ndarray, alternative: str, confidence: float
) -> tuple[float, float | None, float | None]:
    under_null = resampled - difference
    if alternative == "two-sided":
        extreme = np.abs(under_null) >= abs(difference) - _TIE
    elif alternative == "greater":
        extreme = under_null >= difference - _TIE
    else:
        extreme = under_null <= difference + _TIE
    p_value = (1 + int(extreme.sum())) / (1 + resampled.size)
    upper = _upper_quantile(alternative, confidence)
    low = None if alternative == "less" else float(np.quantile(resampled, 1 - upper))
    high = None if alternative == "greater" else float(np.quantile(resampled, upper))
    return p_value, low, high


def _resampled_from_counts(
    metric: Callable[..., float],
    references: np.ndarray,
    predictions_a: np.ndarray,
    predictions_b: np.ndarray,
    resamples: Iterator[np.ndarray],
    options: dict[str, Any],
) -> np.ndarray:
    """Differences of a built-in metric over the resamples.

    A score depends only on how often each triple (reference, prediction a, prediction b) was drawn, so each resample
    is reduced to these counts and all are scored by matrix products.
    """
    triples, triple_of_row = np.unique(
        np.stack([references, predictions_a, predictions_b]), axis=1, return_inverse=True
    )
    triple_of_row = triple_of_row.reshape(-1)
    kinds = triples.shape[1]
    differences = []
    for indices in resamples:
        offsets = kinds * np.arange(len(indices))[:, None]
        flat = (triple_of_row[indices] + offsets).ravel()
        counts = np.bincount(flat, minlength=kinds * len(indices)).reshape(len(indices), kinds).astype(np.float64)
        score_a, score_b = (_score_counts(metric, triples[0], triples[row], counts, options) for row in (1, 2))
        differences.append(score_a - score_b)
    return np.concatenate(differences)


def _score_counts(
    metric: Callable[..., float],
    reference: np.ndarray,
    prediction: np.ndarray,
    counts: np.ndarray,
    options: dict[str, Any],
) -> np.ndarray:
    if metric is scores.accuracy:
        return counts @ (reference == prediction) / counts.sum(axis=1)
    chosen = scores.averaged_labels(options.get("labels"), options.get("num_labels"))
    labels = np.unique([reference, prediction]) if chosen is None else np.asarray(chosen)
    is_reference = reference[:, None] == labels
    is_predicted = prediction[:, None] == labels
    twice_true_positives = 2 * (counts @ (is_reference & is_predicted))
    # 2 TP + FP + FN: the rows of the label plus the rows predicted as it.
    denominator = counts @ (is_reference.astype(float) + is_predicted)
    if metric is scores.micro_f1:
        twice_true_positives, denominator = twice_true_positives.sum(axis=1), denominator.sum(axis=1)
        return twice_true_positives / np.where(denominator > 0, denominator, 1)
    f1 = twice_true_positives / np.where(denominator > 0, denominator, 1)
    averaged = (denominator > 0).sum(axis=1) if chosen is None else labels.size
    return f1.sum(axis=1) / averaged
