# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures of R show the numbers they were given, and refuse what they cannot show."""

import numpy as np
import pytest

from hf_memaug.reporting import continual_plots, plots
from hf_memaug.training.continual.record import ContinualRecord

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")

NAMES = ["fiction", "government", "slate", "telephone", "travel"]
TABLE_3 = [
    [65.41, 58.87, 55.83, 61.39, 57.35],
    [67.55, 70.82, 61.04, 65.07, 61.90],
    [67.04, 71.55, 63.29, 64.66, 63.53],
    [68.46, 71.10, 63.39, 71.60, 61.50],
    [69.36, 72.47, 63.96, 69.74, 68.39],
]


def record(count=5, known=5, **kwargs):
    stages = [
        {
            "domains": [NAMES[row]],
            "strategy": "f+m+v",
            "growth": {},
            "steps": 1,
            "rows": 1,
            "scores": {name: value / 100 for name, value in list(zip(NAMES, TABLE_3[row], strict=True))[:known]},
        }
        for row in range(count)
    ]
    baseline = dict.fromkeys(NAMES[:known], 1 / 3)
    return ContinualRecord(**{"plan": NAMES, "baseline": baseline, "stages": stages, **kwargs})


@pytest.fixture
def figures(monkeypatch):
    """Figures as they are when they are saved."""
    found = []
    save = plots._save

    def noted(figure, path, handles):
        axes = figure.axes[0]
        found.append(
            {
                "texts": [text.get_text() for text in axes.texts],
                "styles": [text.get_style() for text in axes.texts],
                "lines": {h.get_label(): np.array(h.get_ydata(), dtype=float) for h in handles},
                "title": axes.get_title(),
                "rows": [tick.get_text() for tick in axes.get_yticklabels()],
                "frames": [patch.get_xy() for patch in axes.patches],
                "places": [tick.get_text() for tick in axes.get_xticklabels()],
            }
        )
        return save(figure, path, handles)

    monkeypatch.setattr(plots, "_save", noted)
    return found


def test_the_matrix_of_the_paper(figures, tmp_path):
    path = continual_plots.plot_matrix(record(), tmp_path / "new" / "matrix.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    (found,) = figures
    assert found["texts"] == [f"{value:.1f}" for row in TABLE_3 for value in row]
    italics = [found["styles"][5 * row + column] == "italic" for row in range(5) for column in range(5)]
    assert italics == [column > row for row in range(5) for column in range(5)], "before its turn"
    assert found["frames"] == [(n - 0.5, n - 0.5) for n in range(5)]
    assert found["rows"] == NAMES
    assert found["title"] == "f+m+v: ACC 68.8, BWT +1.1, FWT +28.2, forgetting -0.1"


def test_a_matrix_that_grows_and_has_cells_that_nobody_scored(figures, tmp_path):
    continual_plots.plot_matrix(record(count=2, known=3), tmp_path / "matrix.png")
    texts = figures[0]["texts"]
    assert texts[:5] == ["65.4", "58.9", "55.8", "–", "–"] and len(texts) == 10
    continual_plots.plot_matrix(record(count=1, known=1), tmp_path / "one.png")
    assert figures[1]["texts"] == ["65.4", "–", "–", "–", "–"]


def test_the_curves_begin_before_and_go_on_after_a_domains_turn(figures, tmp_path):
    continual_plots.plot_curves(record(), tmp_path / "curves.png")
    (found,) = figures
    assert found["places"] == ["start", *NAMES]
    for number, name in enumerate(NAMES):
        np.testing.assert_allclose(found["lines"][name], [row[number] for row in TABLE_3[number:]])
    continual_plots.plot_curves(record(baseline={}), tmp_path / "curves.png")
    assert figures[1]["places"] == NAMES


def test_scores_that_are_no_fractions_are_shown_as_they_are(figures, tmp_path):
    one = record(count=2, metric="bleu")
    continual_plots.plot_matrix(one, tmp_path / "matrix.png")
    assert figures[0]["texts"][0] == "0.654"


def test_the_references_are_drawn_too(tmp_path):
    together = record(count=1)
    together.stages[0]["domains"], together.kind = NAMES, "last_row"
    for name, draw in (("matrix", continual_plots.plot_matrix), ("curves", continual_plots.plot_curves)):
        assert draw(together, tmp_path / f"{name}.png").is_file()


def test_what_cannot_be_drawn_is_refused(tmp_path):
    for draw in (continual_plots.plot_matrix, continual_plots.plot_curves):
        with pytest.raises(ValueError, match="train at least one domain first"):
            draw(ContinualRecord(), tmp_path / "matrix.png")
        with pytest.raises(ValueError, match="figures are PNG files"):
            draw(record(), tmp_path / "matrix.pdf")


def test_without_matplotlib_a_run_goes_on_without_pictures(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(continual_plots.importlib.util, "find_spec", lambda name: None)
    drawn = continual_plots.ContinualPlots(tmp_path)
    assert 'pip install "hf_memaug[report]"' in caplog.text
    drawn.on_stage_end(None, None, None, record=None)
    assert not list(tmp_path.iterdir())


def test_a_run_is_drawn_as_it_goes(tmp_path):
    from training.continual_runs import continual_trainer

    drawn = []

    class Watching(continual_plots.ContinualPlots):
        def on_stage_end(self, args, state, control, **kwargs):
            super().on_stage_end(args, state, control, **kwargs)
            drawn.append({path.name: path.read_bytes() for path in tmp_path.glob("*.png")})

    continual_trainer("f", tmp_path, callbacks=[Watching()]).train()
    assert len(drawn) == 3 and all(set(one) == {"continual_matrix.png", "continual_curves.png"} for one in drawn)
    assert drawn[0] != drawn[1] != drawn[2]
