# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures show the numbers they were given, and refuse what they cannot show."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from hf_memaug.reporting import plots

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")

from matplotlib.colors import to_hex
from matplotlib.image import imread

DOMAINS = ["books", "dvd", "kitchen"]
ROWS = np.repeat(DOMAINS, 30)
TARGET_COLOUR = plots._TARGET_COLOUR.lower()


def features(seed=0, width=8):
    generator = np.random.default_rng(seed)
    array = generator.normal(size=(len(ROWS), width))
    array[ROWS == "books", 0] += 6
    return array


def log_history():
    history = [{"step": 0, "eval_loss": 0.7}]
    for step in range(1, 13):
        domain = DOMAINS[step % 2 + 1]
        history.append({"step": step, "loss": 9.0, "task_loss": 1 / step, "slot_entropy": 3.0, "slots_used": 10 + step})
        history.append({"step": step, f"domain_loss_{domain}": 0.1 * step, f"discriminator_accuracy_{domain}": 0.75})
    return history + [{"step": 12, "train_runtime": 3.0, "train_loss": 0.2}]


def legend_of(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def overlaps(texts, figure) -> bool:
    """Whether any two of the texts, as rendered, cover each other."""
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    return any(one.overlaps(other) for index, one in enumerate(boxes) for other in boxes[:index])


CALLS = {
    "features_pca": lambda path: plots.plot_features({"a": features(), "b": features(1)}, ROWS, "books", path),
    "features_tsne": lambda path: plots.plot_features({"a": features()}, ROWS, "books", path, method="tsne"),
    "a_distance": lambda path: plots.plot_a_distance({"erm": {"books": [1.0, 2.0]}}, path),
    "curve": lambda path: plots.plot_curve({"amazon": {0: 1.0, 128: [2.0, 3.0]}}, path, "x", "y", log_x=True),
    "meta_training": lambda path: plots.plot_meta_training(log_history(), path),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_png_is_written_in_a_new_folder(name, tmp_path):
    path = tmp_path / "deep" / "down" / f"{name}.png"
    # As a string too, and over a file that is there.
    assert CALLS[name](path) == path == CALLS[name](str(path))
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5_000
    height, width = imread(path).shape[:2]
    assert 500 <= height <= 1000 and 500 <= width <= 2000
    # Not a blank page.
    assert imread(path)[..., :3].std() > 0.05


@pytest.mark.parametrize("name", CALLS)
def test_other_formats_are_refused_before_anything_is_drawn(name, tmp_path, drawn):
    with pytest.raises(ValueError, match=r"`path` is .*figure.pdf.*end it in '.png'"):
        CALLS[name](tmp_path / "figure.pdf")
    assert not drawn and not list(tmp_path.iterdir())


def test_the_figure_is_closed_after_saving(tmp_path, monkeypatch):
    figures, new_figure = [], plots._new_figure
    monkeypatch.setattr(plots, "_new_figure", lambda *a, **k: figures.append(new_figure(*a, **k)) or figures[-1])
    plots.plot_a_distance({"erm": {"books": 1.0}}, tmp_path / "figure.png")
    assert not figures[0][0].axes


class TestFeatures:
    def test_pca_panels(self, tmp_path, drawn):
        titles = ["Transformer features", "memory", "memory-augmented features"]
        panels = {title: features(seed) for seed, title in enumerate(titles)}
        plots.plot_features(panels, ROWS, "books", tmp_path / "figure.png")
        assert [axes.get_title() for axes in drawn[0].axes] == titles
        assert legend_of(drawn[0]) == ["sources: dvd, kitchen", "target: books"]
        for axes in drawn[0].axes:
            filled, lines = axes.collections
            assert filled.filled and not lines.filled and to_hex(lines.get_edgecolor()[0]) == TARGET_COLOUR
            assert len(lines.levels) == 5 and axes.get_aspect() == 1

    def test_pca_is_scaled_into_the_unit_square(self):
        array = features()
        points, shares = plots._principal_components(array)
        assert np.allclose(points.min(axis=0), 0) and np.allclose(points.max(axis=0), 1)
        values = np.sort(np.linalg.eigvalsh(np.cov(array.T)))[::-1]
        assert np.allclose(shares, values[:2] / values.sum())

    def test_contours_enclose_their_share_of_the_rows(self, tmp_path, drawn):
        array = np.random.default_rng(0).normal(size=(3000, 2))
        plots.plot_features({"a": array}, ["s"] * 2000 + ["t"] * 1000, "t", tmp_path / "figure.png")
        points = plots._principal_components(array)[0][2000:]
        outer = drawn[0].axes[0].collections[1].get_paths()[0]
        assert outer.contains_points(points).mean() == pytest.approx(0.95, abs=0.03)

    def test_tsne_marks_the_target(self, tmp_path, drawn):
        plots.plot_features({"a": features(), "b": features(1)}, ROWS, "books", tmp_path / "figure.png", method="tsne")
        assert legend_of(drawn[0]) == ["dvd", "kitchen", "books (target)"]
        for axes in drawn[0].axes:
            assert [len(points.get_offsets()) for points in axes.collections] == [30, 30, 30]
            colours = [to_hex(points.get_facecolor()[0]) for points in axes.collections]
            assert colours[-1] == TARGET_COLOUR and len(set(colours)) == 3

    def test_the_seed_decides_tsne(self):
        embedding = plots._neighbour_embedding(features(), 3)
        assert np.array_equal(embedding, plots._neighbour_embedding(features(), 3))
        assert len(plots._neighbour_embedding(features()[:5], 0)) == 5

    @pytest.mark.parametrize("method", plots.FEATURE_METHODS)
    @pytest.mark.parametrize("array", [np.zeros((90, 4)), np.full((90, 4), 0.1)], ids=["zeros", "constant"])
    def test_an_untrained_memory_is_one_point(self, method, array, tmp_path, drawn):
        plots.plot_features({"memory": array}, ROWS, "books", tmp_path / "figure.png", method=method)
        points = np.concatenate([group.get_offsets() for group in drawn[0].axes[0].collections])
        assert len(points) == 90 and np.ptp(points, axis=0).max() == 0

    def test_a_group_too_small_for_a_density_is_shown_as_points(self, tmp_path, drawn):
        rows = ["dvd"] * 88 + ["books"] * 2
        plots.plot_features({"a": features()}, rows, "books", tmp_path / "figure.png")
        assert len(drawn[0].axes[0].collections[1].get_offsets()) == 2

    def test_tensors_and_many_domains(self, tmp_path, drawn):
        tensor = torch.randn(90, 6, dtype=torch.bfloat16, requires_grad=True)
        rows = [f"domain {row % 9}" for row in range(90)]
        plots.plot_features({"a": tensor}, rows, "domain 0", tmp_path / "figure.png")
        assert legend_of(drawn[0])[0] == "sources: 8 domains"
        plots.plot_features({"a": tensor}, rows, "domain 0", tmp_path / "figure.png", method="tsne")
        styles = {
            (to_hex(points.get_facecolor()[0]), len(points.get_paths()[0].vertices), str(points.get_paths()[0]))
            for points in drawn[1].axes[0].collections
        }
        assert len(styles) == 9

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"method": "umap"}, r"`method` 'umap' is not known: choose one of \['pca', 'tsne'\]"),
            ({"target": "book"}, r"`target` 'book' is not known: .*Did you mean 'books'\?"),
            ({"domains": ROWS[:-1]}, r"`features\['a'\]` has 90 items and `domains` has 89"),
            ({"domains": ["books"] * 90}, "`domains` holds nothing but the target 'books': add rows"),
            ({"features": {}}, r"`features` is empty: pass \{title: array"),
            ({"features": features()}, "`features` is a ndarray: pass"),
            (
                {"features": {"a": np.zeros((90, 2, 3))}},
                r"`features\['a'\]` has shape \(90, 2, 3\): pass \(rows, width\)",
            ),
            ({"features": {"a": np.zeros((90, 1))}}, "a width of 2"),
            ({"features": {"a": np.zeros((4, 3))}}, "at least 5 rows"),
            ({"features": {"a": np.full((90, 3), np.nan)}}, r"`features\['a'\]` holds nan .* drop such rows"),
        ],
    )
    def test_refusals(self, changed, words, tmp_path):
        given = {"features": {"a": features()}, "domains": ROWS, "target": "books", "path": tmp_path / "figure.png"}
        with pytest.raises(ValueError, match=words):
            plots.plot_features(**(given | changed))
        assert not list(tmp_path.iterdir())


class TestADistance:
    def test_bars_are_means_and_error_bars_standard_deviations(self, tmp_path, drawn):
        distances = {
            "erm": {"books": [1.6, 1.8, 2.0], "dvd": 1.5},
            "mil": {"books": torch.tensor([1.0, 1.2]), "dvd": [0.9]},
        }
        plots.plot_a_distance(distances, tmp_path / "figure.png")
        (axes,) = drawn[0].axes
        bars = [container for container in axes.containers if hasattr(container, "patches")]
        heights = [[bar.get_height() for bar in container] for container in bars]
        assert np.allclose(heights, [[1.8, 1.5], [1.1, 0.9]])
        ends = [line for container in bars for line in container.errorbar[2][0].get_segments()]
        spread = [(line[1, 1] - line[0, 1]) / 2 if len(line) else math.nan for line in ends]
        assert np.allclose(spread, [0.2, math.nan, np.std([1.0, 1.2], ddof=1), math.nan], equal_nan=True)
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["books", "dvd"]
        assert legend_of(drawn[0]) == ["erm", "mil"]

    def test_a_missing_target_stays_empty(self, tmp_path, drawn):
        plots.plot_a_distance({"erm": {"books": 1.0, "dvd": 2.0}, "mil": {"dvd": 0.5}}, tmp_path / "figure.png")
        bars = [container for container in drawn[0].axes[0].containers if hasattr(container, "patches")]
        (bar,) = bars[1]
        assert bar.get_height() == 0.5 and 1 < bar.get_x() + bar.get_width() / 2 < 1.5

    def test_many_long_names_do_not_overlap(self, tmp_path, drawn):
        targets = [f"a domain with a long name, {index}" for index in range(8)]
        distances = {f"method {index}": dict.fromkeys(targets, [1.0, 1.1]) for index in range(9)}
        plots.plot_a_distance(distances, tmp_path / "figure.png")
        (axes,) = drawn[0].axes
        assert {label.get_rotation() for label in axes.get_xticklabels()} == {25}
        assert not overlaps(drawn[0].legends[0].get_texts() + axes.texts, drawn[0])
        bars = [container[0] for container in axes.containers if hasattr(container, "patches")]
        assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == 9

    def test_short_names_and_values_do_not_overlap(self, tmp_path, drawn):
        distances = {name: dict.fromkeys(["books", "electronics", "kitchen"], [1.0, 1.5]) for name in "abcd"}
        plots.plot_a_distance(distances, tmp_path / "figure.png")
        (axes,) = drawn[0].axes
        assert len(axes.texts) == 12 and axes.texts[0].get_text() == "1.25"
        assert not overlaps([*axes.texts, *axes.get_xticklabels(), axes.xaxis.label], drawn[0])

    def test_dollar_signs_are_no_formula(self, tmp_path, drawn):
        plots.plot_a_distance({"under $5_^": {"over $5_^ $": 1.0}}, tmp_path / "figure.png")

    @pytest.mark.parametrize(
        ("distances", "words"),
        [
            ({}, r"`distances` is empty: pass \{method: \{target: distance or distances over seeds\}\}"),
            ({"erm": {}}, r"`distances\['erm'\]` is empty: pass \{target: distance or distances over seeds\}"),
            ({"erm": 1.0}, r"`distances\['erm'\]` is a float: pass \{target"),
            ({"erm": {"books": []}}, r"`distances\['erm'\]\['books'\]` has shape \(0,\): pass a number"),
            ({"erm": {"books": [1.0, math.nan]}}, r"`distances\['erm'\]\['books'\]` holds nan .* or repeat it"),
        ],
    )
    def test_refusals(self, distances, words, tmp_path):
        with pytest.raises(ValueError, match=words):
            plots.plot_a_distance(distances, tmp_path / "figure.png")


class TestCurve:
    SIZES = (128, 256, 512, 1024, 2048)

    def test_line_is_the_mean_and_the_band_the_standard_deviation(self, tmp_path, drawn):
        # Keys in no order, and as JSON gives them back.
        curve = {"512": [3.0, 5.0], "128": [1.0, 2.0], "256": [2.0, 2.0]}
        plots.plot_curve({"amazon": curve}, tmp_path / "figure.png", "memory size", "macro-F1")
        (axes,) = drawn[0].axes
        assert np.array_equal(axes.lines[0].get_xydata(), [[128, 1.5], [256, 2.0], [512, 4.0]])
        assert axes.lines[0].get_marker() == "o"
        band = axes.collections[0].get_paths()[0].get_extents()
        assert (band.y0, band.y1) == pytest.approx((1.5 - math.sqrt(0.5), 4 + math.sqrt(2)))
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("memory size", "macro-F1")

    def test_memory_sizes_are_evenly_spaced_and_named(self, tmp_path, drawn):
        curves = {"amazon": {size: 80 + size / 1000 for size in self.SIZES}}
        plots.plot_curve(curves, tmp_path / "figure.png", "memory size", "macro-F1", log_x=True)
        (axes,) = drawn[0].axes
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["128", "256", "512", "1,024", "2,048"]
        places = axes.transData.transform([(size, 80) for size in self.SIZES])[:, 0]
        assert np.allclose(np.diff(places), np.diff(places)[0])
        assert not overlaps(axes.get_xticklabels(), drawn[0])

    def test_zero_survives_the_logarithm(self, tmp_path, drawn):
        rates = (0, 1e-6, 1e-5, 1e-4, 1e-3)
        curves = {name: {rate: [80.0, 81.0] for rate in rates} for name in ("amazon", "mnli")}
        baseline = {"mnli": 79.0, "oracle": 90.0}
        plots.plot_curve(curves, tmp_path / "figure.png", "learning rate", "macro-F1", True, baseline)
        (axes,) = drawn[0].axes
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1e-6", "1e-5", "1e-4", "1e-3"]
        assert 0 in axes.lines[0].get_xdata()
        places = axes.transAxes.inverted().transform(axes.transData.transform([(rate, 80) for rate in rates]))[:, 0]
        assert np.allclose(np.diff(places), np.diff(places)[0]) and 0.02 < places[0] < 0.1 and 0.9 < places[-1] < 0.98

    def test_baselines(self, tmp_path, drawn):
        curves = {"amazon": {1: 80.0, 2: 81.0}, "mnli": {1: 70.0, 2: 71.0}}
        plots.plot_curve(curves, tmp_path / "figure.png", "x", "y", baseline={"mnli": 69.0, "oracle": 90.0})
        amazon, mnli, baseline, oracle = drawn[0].axes[0].lines
        assert list(baseline.get_ydata()) == [69.0, 69.0] and list(oracle.get_ydata()) == [90.0, 90.0]
        assert baseline.get_color() == mnli.get_color() != amazon.get_color() != oracle.get_color()
        assert legend_of(drawn[0]) == ["amazon", "mnli", "mnli, baseline", "oracle"]

    def test_no_baseline_is_no_line(self, tmp_path, drawn):
        plots.plot_curve({"a": {1: 2.0}}, tmp_path / "figure.png", "x", "y", baseline={})
        assert len(drawn[0].axes[0].lines) == 1

    def test_crowded_sizes_do_not_overlap(self, tmp_path, drawn):
        sizes = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 1000, 1024]
        plots.plot_curve({"a": dict.fromkeys(sizes, 1.0)}, tmp_path / "figure.png", "x", "y", log_x=True)
        labels = [tick.get_text() for tick in drawn[0].axes[0].get_xticklabels()]
        assert labels[0] == "1" and labels[-2:] == ["1,000", ""]
        assert {tick.get_rotation() for tick in drawn[0].axes[0].get_xticklabels()} == {45}

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"curves": {}}, r"`curves` is empty: pass \{name: \{x: score or scores over seeds\}\}"),
            ({"curves": {"a": [1.0]}}, r"`curves\['a'\]` is a list: pass \{x: score"),
            ({"curves": {"a": {"small": 1.0}}}, r"`curves\['a'\]` has the key 'small': pass numbers"),
            ({"curves": {"a": {1: math.inf}}}, r"`curves\['a'\]\[1\]` holds nan or infinity: leave out"),
            (
                {"curves": {"a": {-1: 1.0, 1: 2.0}}, "log_x": True},
                "`log_x` cannot space x from -1 to 1 .*`log_x=False`",
            ),
            ({"curves": {"a": {0: 1.0}}, "log_x": True}, "pass `log_x=False`"),
            ({"baseline": 88.0}, r"`baseline` is a float: pass \{name: score\}"),
        ],
    )
    def test_refusals(self, changed, words, tmp_path):
        given = {"curves": {"a": {1: 2.0}}, "path": tmp_path / "figure.png", "xlabel": "x", "ylabel": "y"}
        with pytest.raises(ValueError, match=words):
            plots.plot_curve(**(given | changed))


class TestMetaTraining:
    def test_four_panels(self, tmp_path, drawn):
        plots.plot_meta_training(log_history(), tmp_path / "figure.png")
        task, loss, accuracy, memory, right = drawn[0].axes
        assert np.array_equal(task.lines[0].get_xydata(), [[step, 1 / step] for step in range(1, 13)])
        for axes, chance in ((loss, math.log(2)), (accuracy, 0.5)):
            assert list(axes.lines[0].get_ydata()) == [chance, chance] and axes.lines[0].get_linestyle() == ":"
            assert [line.get_label() for line in axes.lines[1:]] == ["meta-target dvd", "meta-target kitchen"]
        # dvd was the meta-target of the even steps only.
        assert list(loss.lines[1].get_xdata()) == [2, 4, 6, 8, 10, 12]
        assert np.allclose(loss.lines[1].get_ydata(), [0.2, 0.4, 0.6, 0.8, 1.0, 1.2])
        assert loss.lines[1].get_color() == accuracy.lines[1].get_color() != loss.lines[2].get_color()
        assert set(memory.lines[0].get_ydata()) == {3.0} and list(right.lines[0].get_ydata()) == list(range(11, 23))
        assert "slot entropy" in memory.get_ylabel() and "slots used" in right.get_ylabel()
        assert legend_of(drawn[0]) == ["meta-target dvd", "meta-target kitchen"]
        titles = [axes.title for axes in drawn[0].axes]
        assert not overlaps([*titles, memory.yaxis.label, right.yaxis.label], drawn[0])

    @pytest.mark.parametrize(
        ("entry", "logged"),
        [
            ({"task_loss": 0.5}, 0),
            ({"domain_loss_a_b": 0.5}, 1),
            ({"discriminator_accuracy_a_b": 0.5}, 2),
            ({"slot_entropy": 0.5}, 3),
            ({"slots_used": 5}, 3),
        ],
    )
    def test_any_subset_will_do(self, entry, logged, tmp_path, drawn):
        plots.plot_meta_training([{"step": 1, **entry}], tmp_path / "figure.png")
        said = [[text.get_text() for text in axes.texts] for axes in drawn[0].axes[:4]]
        assert [index for index in range(4) if said[index] != ["not logged"]] == [logged]
        if logged in (1, 2):
            assert legend_of(drawn[0]) == ["meta-target a_b"]

    def test_a_log_read_back_from_json(self, tmp_path):
        plots.plot_meta_training(json.loads(json.dumps(log_history())), tmp_path / "figure.png")

    @pytest.mark.parametrize(
        ("history", "words"),
        [
            (
                [],
                "`log_history` holds none of `task_loss`, .*`domain_loss_<domain>`.*: pass the `state.log_history` of",
            ),
            (
                [{"step": 1, "loss": 0.3, "eval_loss": 0.2}],
                "a trainer that meta-trained, with `logging_steps` no larger",
            ),
            ([{"task_loss": 0.3}], r"`log_history\[0\]` has no `step`: pass `trainer.state.log_history`"),
        ],
    )
    def test_refusals(self, history, words, tmp_path):
        with pytest.raises(ValueError, match=words):
            plots.plot_meta_training(history, tmp_path / "figure.png")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_module_imports_none_of_the_optional_packages():
    code = "import sys, hf_memaug.reporting.plots; print(sorted({'matplotlib', 'sklearn', 'scipy'} & set(sys.modules)))"
    assert run(code) == "[]"


def test_pyplot_and_the_settings_are_left_alone(tmp_path):
    code = f"""
import sys, matplotlib
before = matplotlib.rcParams.copy()
from hf_memaug.reporting.plots import plot_features
import numpy as np
array = np.random.default_rng(0).normal(size=(20, 3))
plot_features({{"a": array}}, ["s", "t"] * 10, "t", {str(tmp_path / "figure.png")!r})
print("matplotlib.pyplot" in sys.modules, matplotlib.rcParams.copy() == before)
"""
    assert run(code) == "False True"


def test_without_matplotlib_the_error_says_what_to_install(tmp_path):
    code = """
import sys
sys.modules["matplotlib"] = sys.modules["matplotlib.figure"] = None
from hf_memaug.reporting.plots import plot_a_distance
try:
    plot_a_distance({"erm": {"books": 1.0}}, "figure.png")
except ImportError as error:
    print(error)
"""
    assert run(code) == 'Figures need matplotlib: `pip install "hf_memaug[report]"`.'
