# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The figures show the numbers they are given."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from hf_memaug.reporting import plots

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "figures"))
from charts import plot_bars, plot_curve


def entries(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_t_sne_takes_few_rows():
    points = plots.t_sne(np.random.default_rng(0).normal(size=(5, 6)))
    assert points.shape == (5, 2) and np.isfinite(points).all()


def test_bars_are_means_with_their_spread(tmp_path, drawn):
    bars = {"before": {"books": [1.0, 2.0], "dvd": 1.5}, "after": {"dvd": [0.5, 0.7, 0.9]}}
    plot_bars(bars, tmp_path / "bars.svg", "corpus", "loss")
    (axes,) = drawn[0].axes
    before, after = (container for container in axes.containers if hasattr(container, "patches"))
    assert [bar.get_height() for bar in before] == pytest.approx([1.5, 1.5])
    assert [bar.get_height() for bar in after] == pytest.approx([0.7])
    (start, end), *_ = before.errorbar[2][0].get_segments()
    assert end[1] - start[1] == pytest.approx(2 * math.sqrt(0.5))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["books", "dvd"]
    assert (tmp_path / "bars.svg").read_text().startswith("<?xml")


def test_curves_are_means_with_bands(tmp_path, drawn):
    curves = {"mil": {64: [80.0, 82.0], 16: [78.0, 80.0], 0: 75.0}, "erm": {16: 77.0}}
    plot_curve(curves, tmp_path / "curve.png", "slots", "macro-F1", log_x=True)
    (axes,) = drawn[0].axes
    line = axes.containers[0][0]
    assert line.get_xdata().tolist() == [0, 16, 64] and line.get_ydata().tolist() == [75.0, 79.0, 81.0]
    assert axes.get_xscale() == "symlog" and entries(drawn[0]) == ["mil", "erm"]


def test_a_missing_matplotlib_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install \"hf_memaug\[report\]\""):
        plot_bars({"a": {"b": 1.0}}, tmp_path / "bars.png", "x", "y")
