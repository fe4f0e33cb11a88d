# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The figures of the matrix R, against the paper's table and against loops that read like the definitions."""

import math
import random

import pytest

from hf_memaug.evaluation import DEFINITIONS, continual_scores

# Table 3 of Asghar et al.: fiction, government, slate, telephone, travel.
TABLE_3 = [
    [65.41, 58.87, 55.83, 61.39, 57.35],
    [67.55, 70.82, 61.04, 65.07, 61.90],
    [67.04, 71.55, 63.29, 64.66, 63.53],
    [68.46, 71.10, 63.39, 71.60, 61.50],
    [69.36, 72.47, 63.96, 69.74, 68.39],
]


def test_the_table_of_the_paper():
    # With chance at a third for all domains.
    fwt = (58.87 + 61.04 + 64.66 + 61.50) / 4 - 100 / 3
    expected = {"acc": 68.784, "bwt": 1.1025, "fwt": fwt, "forgetting": -0.1325}
    assert continual_scores(TABLE_3, [100 / 3] * 5) == pytest.approx(expected)
    assert continual_scores(TABLE_3)["fwt"] is None


@pytest.mark.parametrize("count", [2, 3, 6])
def test_against_the_definitions_read_aloud(count):
    draw = random.Random(count)
    matrix = [[draw.random() for _ in range(count)] for _ in range(count)]
    baseline = [draw.random() for _ in range(count)]
    last = count - 1
    acc = bwt = fwt = lost = 0.0
    for j in range(count):
        acc += matrix[last][j] / count
    for j in range(last):
        bwt += (matrix[last][j] - matrix[j][j]) / last
        lost += (max(matrix[i][j] for i in range(last)) - matrix[last][j]) / last
    for j in range(1, count):
        fwt += (matrix[j - 1][j] - baseline[j]) / last
    found = continual_scores(matrix, baseline)
    assert found == pytest.approx({"acc": acc, "bwt": bwt, "fwt": fwt, "forgetting": lost})
    assert set(found) == set(DEFINITIONS)


def test_a_cell_that_is_not_known_leaves_open_only_what_needs_it():
    def without(row, column):
        matrix = [list(line) for line in TABLE_3]
        matrix[row][column] = math.nan
        found = continual_scores(matrix, [0.0] * 5)
        return {name for name, value in found.items() if value is None}

    assert without(4, 4) == {"acc"}
    assert without(4, 1) == {"acc", "bwt", "forgetting"}
    assert without(1, 1) == {"bwt", "forgetting"}
    assert without(2, 0) == {"forgetting"}
    assert without(1, 2) == {"fwt"}
    # A domain that nobody had thought of then.
    assert without(0, 3) == set()
    assert {name for name, value in continual_scores(TABLE_3, [math.nan] * 5).items() if value is None} == {"fwt"}


def test_of_one_domain_there_is_only_its_score():
    assert continual_scores([[0.7]]) == {"acc": 0.7, "bwt": None, "fwt": None, "forgetting": None}


def test_what_is_no_matrix_is_refused():
    for wrong in ([[1.0, 2.0]], [1.0, 2.0], [], [[[1.0]]]):
        with pytest.raises(ValueError, match="`matrix` has shape .*one row for each domain trained on"):
            continual_scores(wrong)
    with pytest.raises(ValueError, match=r"`baseline` has shape \(2,\).*5 domains"):
        continual_scores(TABLE_3, [0.1, 0.2])
