# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import math

import numpy as np
import pytest

from hf_memaug.evaluation import paired_t_test, summarise

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
        assert result.n == 5
        assert result.p_value == pytest.approx(2 * t_tail(0.03 / standard_error, 4), abs=1e-6)
        # 2.776445 is the 97.5 % point of Student's t with 4 degrees of freedom, in every table.
        assert result.low == pytest.approx(0.03 - 2.776445 * standard_error, abs=1e-7)
        assert result.high == pytest.approx(0.03 + 2.776445 * standard_error, abs=1e-7)

    def test_constant_difference(self):
        # 0.3 - 0.2 and 0.2 - 0.1 are not the same float.
        result = paired_t_test([0.2, 0.3, 0.4], [0.1, 0.2, 0.3])
        assert (result.p_value, result.low, result.high) == (0.0, 0.1, 0.1)

    def test_no_difference(self):
        assert paired_t_test(A, [a + 1e-17 for a in A]).p_value == 1.0

    def test_scale_does_not_matter(self):
        points = paired_t_test([100 * a for a in A], [100 * b for b in B])
        assert points.p_value == pytest.approx(paired_t_test(A, B).p_value)


def test_summarise():
    summary = summarise([1.0, 2.0, 4.0])
    # Squared deviations from 7/3: 16/9, 1/9, 25/9; their sum over 2 is 7/3.
    assert summary.mean == pytest.approx(7 / 3)
    assert summary.std == pytest.approx(math.sqrt(7 / 3))
    assert summary.n == 3
    assert dataclasses.astuple(summarise([0.5])) == (0.5, None, 1)


def test_results_are_frozen_and_plain():
    for result in (paired_t_test(A, B), summarise(A)):
        json.dumps(dataclasses.asdict(result), allow_nan=False)
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.n = 0


@pytest.mark.parametrize(
    "a, b, words",
    [
        ([1.0, 2.0], [2.0, 3.5], "needs at least 3 pairs"),
        ([], [], "`a` has shape"),
        ([1.0, 2.0], [1.0], "`a` has 2 items and `b` has 1"),
        ([1.0, 2.0], [1.0, float("nan")], "`b` holds NaN"),
        ([[1.0, 2.0]], [1.0], "`a` has shape"),
    ],
)
def test_paired_errors(a, b, words):
    with pytest.raises(ValueError, match=words):
        paired_t_test(a, b)


def test_summarise_nothing():
    with pytest.raises(ValueError, match="`values` has shape"):
        summarise([])
