# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import itertools
import json
import math

import numpy as np
import pytest

from hf_memaug.evaluation import (
    compare_models,
    macro_f1,
    paired_bootstrap,
    paired_t_test,
    summarise,
)

pytestmark = pytest.mark.filterwarnings("error")

A = [0.71, 0.74, 0.69, 0.80, 0.77]
B = [0.70, 0.70, 0.70, 0.75, 0.71]


def t_tail(statistic, degrees):
    """P(T > statistic) by summing the density of Student's t, with the tail beyond 2000 left out."""
    x = np.linspace(statistic, 2000, 2_000_001)
    constant = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    return float(np.trapezoid(constant * (1 + x**2 / degrees) ** (-(degrees + 1) / 2), x))


class TestTTest:
    def test_textbook(self):
        # d = 0.01, 0.04, -0.01, 0.05, 0.06: mean 0.03, Σ(d - mean)² = 0.0034, std = sqrt(0.00085).
        result = paired_t_test(A, B)
        standard_error = math.sqrt(0.00085 / 5)
        assert result.difference == pytest.approx(0.03)
        assert result.mean_a == pytest.approx(0.742) and result.mean_b == pytest.approx(0.712)
        assert result.n == 5 and result.test == "paired t-test"
        assert result.p_value == pytest.approx(2 * t_tail(0.03 / standard_error, 4), abs=1e-6)
        # 2.776445 is the 97.5 % point of Student's t with 4 degrees of freedom, in every table.
        assert result.low == pytest.approx(0.03 - 2.776445 * standard_error, abs=1e-7)
        assert result.high == pytest.approx(0.03 + 2.776445 * standard_error, abs=1e-7)

    def test_one_sided(self):
        two, greater, less = (paired_t_test(A, B, alternative=name) for name in ("two-sided", "greater", "less"))
        assert greater.p_value == pytest.approx(two.p_value / 2)
        assert less.p_value == pytest.approx(1 - two.p_value / 2)
        # 2.131847 is the 95 % point.
        assert greater.low == pytest.approx(0.03 - 2.131847 * math.sqrt(0.00085 / 5), abs=1e-7)
        assert greater.high is None and less.low is None

    @pytest.mark.parametrize("alternative, expected", [("two-sided", 0.0), ("greater", 0.0), ("less", 1.0)])
    def test_constant_difference(self, alternative, expected):
        # 0.3 - 0.2 and 0.2 - 0.1 are not the same float.
        result = paired_t_test([0.2, 0.3, 0.4], [0.1, 0.2, 0.3], alternative=alternative)
        assert result.p_value == expected
        assert {result.low, result.high} <= {0.1, None}

    @pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
    def test_no_difference(self, alternative):
        noise = [a + 1e-17 for a in A]
        assert paired_t_test(A, noise, alternative=alternative).p_value == 1.0

    def test_scale_does_not_matter(self):
        points = paired_t_test([100 * a for a in A], [100 * b for b in B])
        assert points.p_value == pytest.approx(paired_t_test(A, B).p_value)


class TestBootstrap:
    def test_against_every_resample(self):
        differences = [0.1, 0.3, -0.1, 0.4]
        mean = sum(differences) / 4
        resampled = [sum(draw) / 4 for draw in itertools.product(differences, repeat=4)]
        extreme = {
            "two-sided": sum(abs(value - mean) >= abs(mean) - 1e-9 for value in resampled),
            "greater": sum(value - mean >= mean - 1e-9 for value in resampled),
            "less": sum(value - mean <= mean + 1e-9 for value in resampled),
        }
        for alternative, count in extreme.items():
            result = paired_bootstrap(differences, [0] * 4, n_resamples=40_000, alternative=alternative)
            assert result.p_value == pytest.approx(count / len(resampled), abs=0.01)
        result = paired_bootstrap(differences, [0] * 4, confidence=0.8)
        assert result.low == pytest.approx(np.quantile(resampled, 0.1), abs=0.026)
        assert result.high == pytest.approx(np.quantile(resampled, 0.9), abs=0.026)

    def test_seed(self):
        assert paired_bootstrap(A, B) == paired_bootstrap(A, B, seed=0)
        assert paired_bootstrap(A, B, 200) != paired_bootstrap(A, B, 200, seed=1)

    def test_constant_and_zero(self):
        assert paired_bootstrap([1, 1, 1], [0, 0, 0], n_resamples=99).p_value == 1 / 100
        assert paired_bootstrap([1, 1, 1], [0, 0, 0], n_resamples=99, alternative="less").p_value == 1.0
        result = paired_bootstrap(A, A)
        assert (result.p_value, result.low, result.high) == (1.0, 0.0, 0.0)


class TestCompareModels:
    def models(self, n=150, labels=4, seed=0):
        rng = np.random.default_rng(seed)
        references = rng.integers(labels, size=n)
        guesses = rng.integers(labels, size=(2, n))
        keep = rng.random((2, n)) < [[0.8], [0.6]]
        return references, *np.where(keep, references, guesses)

    def test_functions_and_options(self):
        models = self.models(n=12)
        found = compare_models(*models, "macro_f1", n_resamples=20, num_labels=6)
        assert found == compare_models(*models, lambda **i: macro_f1(**i, num_labels=6), n_resamples=20)
        assert found.mean_a != compare_models(*models, macro_f1, n_resamples=20).mean_a

    def test_accuracy_is_the_paired_bootstrap(self):
        references, a, b = self.models()
        by_example = paired_bootstrap(a == references, b == references, n_resamples=50)
        by_metric = compare_models(references, a, b, "accuracy", n_resamples=50)
        assert by_metric.p_value == by_example.p_value
        assert by_metric.low == pytest.approx(by_example.low)

    def test_direction(self):
        references, a, b = self.models()
        result = compare_models(references, a, b, n_resamples=120)
        assert result.mean_a == macro_f1(a, references) and result.mean_b == macro_f1(b, references)
        assert result.difference > 0 and result.p_value < 0.05 and result.low > 0
        swapped = compare_models(references, b, a, n_resamples=120, alternative="greater")
        assert swapped.difference == -result.difference and swapped.p_value > 0.95

    def test_equal_models(self):
        references, a, _ = self.models()
        assert compare_models(references, a, a, n_resamples=20).p_value == 1.0

    def test_names(self):
        references, a, b = self.models()
        names = np.array(["book", "dvd", "film", "song"])
        by_name = compare_models(names[references], names[a], names[b], n_resamples=20)
        assert by_name == compare_models(references, a, b, n_resamples=20)


def test_summarise():
    summary = summarise([1.0, 2.0, 4.0])
    # Squared deviations from 7/3: 16/9, 1/9, 25/9; their sum over 2 is 7/3.
    assert summary.mean == pytest.approx(7 / 3)
    assert summary.std == pytest.approx(math.sqrt(7 / 3))
    assert summary.standard_error == pytest.approx(math.sqrt(7) / 3)
    assert summary.n == 3
    assert dataclasses.astuple(summarise([0.5])) == (0.5, None, None, 1)


def test_results_are_frozen_and_plain():
    results = [paired_t_test(A, B), paired_bootstrap(A, B)]
    for result in [*results, summarise(A)]:
        json.dumps(dataclasses.asdict(result), allow_nan=False)
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.n = 0


@pytest.mark.parametrize("test", [paired_t_test, paired_bootstrap])
@pytest.mark.parametrize(
    "a, b, options, words",
    [
        ([1.0], [2.0], {}, "needs at least 2 pairs"),
        ([], [], {}, "`a` has shape"),
        ([1.0, 2.0], [1.0], {}, "`a` has 2 items and `b` has 1"),
        ([1.0, 2.0], [1.0, float("nan")], {}, "`b` holds NaN"),
        ([[1.0, 2.0]], [1.0], {}, "`a` has shape"),
        ([1.0, 2.0], [2.0, 1.0], {"alternative": "greter"}, "`alternative` 'greter'.*Did you mean 'greater'"),
    ],
)
def test_paired_errors(test, a, b, options, words):
    with pytest.raises(ValueError, match=words):
        test(a, b, **options)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: summarise([]), "`values` has shape"),
        (lambda: paired_t_test(A, B, confidence=95), "`confidence` is 95"),
        (lambda: paired_bootstrap(A, B, n_resamples=0), "`n_resamples` is 0"),
        (lambda: compare_models([0, 1], [0, 1], [0]), "`references` has 2 items and `predictions_b` has 1"),
        (lambda: compare_models([0], [0], [0]), "at least 2 examples"),
        (lambda: compare_models([0, 1], [0, 1], [0, 1], "macro-f1"), "Did you mean 'macro_f1'"),
    ],
)
def test_other_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()
