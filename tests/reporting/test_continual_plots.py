# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The figures of R show the numbers they are given."""

import sys
from pathlib import Path

import numpy as np
import pytest

from hf_memaug.training.continual.record import ContinualRecord

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "figures"))
import continual

NAMES = ["fiction", "government", "slate"]
TABLE_3 = [[65.41, 58.87, 55.83], [67.55, 70.82, 61.04], [67.04, 71.55, 63.29]]


def record(stages=3, known=3, **kwargs):
    stages = [
        {
            "domains": [NAMES[row]],
            "strategy": "f+m+v",
            "growth": {},
            "steps": 1,
            "rows": 1,
            "scores": {name: value / 100 for name, value in list(zip(NAMES, TABLE_3[row], strict=True))[:known]},
        }
        for row in range(stages)
    ]
    baseline = dict.fromkeys(NAMES[:known], 1 / 3)
    return ContinualRecord(**{"plan": NAMES, "baseline": baseline, "stages": stages, **kwargs})


def test_the_matrix_shows_r(tmp_path, drawn):
    path = continual.plot_matrix(record(), tmp_path / "matrix.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    axes = drawn[0].axes[0]
    assert [text.get_text() for text in axes.texts] == [f"{value:.1f}" for row in TABLE_3 for value in row]
    styles = np.array([text.get_style() for text in axes.texts]).reshape(3, 3)
    assert (styles == "italic").tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    assert axes.get_title().startswith("f+m+v: ACC 67.3")


def test_the_curves_are_dotted_before_the_turn(tmp_path, drawn):
    continual.plot_curves(record(), tmp_path / "curves.png")
    lines = drawn[0].axes[0].get_lines()
    before, after = lines[2], lines[3]
    assert before.get_linestyle() == ":" and before.get_ydata() == pytest.approx([58.87, 70.82])
    assert after.get_linestyle() == "-" and after.get_ydata() == pytest.approx([70.82, 71.55])


def test_a_domain_without_a_score_is_a_dash(tmp_path, drawn):
    continual.plot_matrix(record(1, 2), tmp_path / "matrix.png")
    assert [text.get_text() for text in drawn[0].axes[0].texts] == ["65.4", "58.9", "–"]
    with pytest.raises(ValueError, match="`record` has no stage that was scored"):
        continual.plot_matrix(record(0), tmp_path / "none.png")
