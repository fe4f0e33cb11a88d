# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures of HMA's memories show the arrays and the rows they were given, and refuse what they cannot show."""

import json

import numpy as np
import pytest
import torch

from hf_memaug.reporting import memory_maps, memory_panels, memory_sizes, plots

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")
pytest.importorskip("sklearn", reason="t-SNE needs scikit-learn: pip install hf_memaug[report]")

from matplotlib.colors import to_hex
from matplotlib.image import imread

CLASSES = ["dog", "horse", "person"]


def features(rows=6, seed=3) -> torch.Tensor:
    return torch.randn(rows, 32, generator=torch.Generator().manual_seed(seed))


def legend_of(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def ticks(axis) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


def check_layout(figure, with_texts=True) -> None:
    """Nothing is cut off, and no text covers another."""
    figure.draw_without_rendering()
    texts = [text for axes in figure.axes for text in (axes.title, axes.xaxis.label, axes.yaxis.label)]
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        # matplotlib has labels beyond the ends of an axis, and does not draw them.
        texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        texts += [tick.label2 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    texts += [text for axes in figure.axes for text in axes.texts] if with_texts else []
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    shown = [text for text in texts if text.get_text() and text.get_visible()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
    for place, (text, box) in enumerate(boxes):
        (left, bottom), (right, top) = box.min, figure.bbox.max - box.max
        assert min(left, bottom, right, top) >= 1, f"{text!r} is cut off"
        for other, other_box in boxes[:place]:
            assert not box.overlaps(other_box), f"{text!r} covers {other!r}"


def points_of(axes) -> list[tuple[np.ndarray, str, bool]]:
    """The points of each group with their colour, and whether they have an edge, as slots have."""
    return [
        (np.asarray(group.get_offsets()), to_hex(group.get_facecolor()[0]), group.get_linewidths()[0] > 0)
        for group in axes.collections
        if len(group.get_offsets())
    ]


class TestSlots:
    SLOTS, SLOT_LABELS = features(9, seed=1).numpy(), np.repeat([0, 1, 2], 3)
    ROWS, LABELS = features(12, seed=2).numpy(), np.arange(12) % 3

    def test_points_are_the_embedding_of_the_slots_and_of_all(self, tmp_path, drawn):
        path = tmp_path / "deep" / "slots.png"
        given = self.SLOTS, self.SLOT_LABELS, path, torch.tensor(self.ROWS), self.LABELS, CLASSES, 5
        assert memory_panels.plot_slots(*given) == path and imread(path)[..., :3].std() > 0.05
        left, right = drawn[0].axes
        assert (left.get_title(), right.get_title()) == ("synthetic slots", "slots and rows")
        alone = plots._neighbour_embedding(self.SLOTS.astype(float), 5)
        both = plots._neighbour_embedding(np.concatenate([self.ROWS, self.SLOTS]).astype(float), 5)
        colours = [colour.lower() for colour in plots._COLOURS[:3]]
        for label, (points, colour, is_slot) in enumerate(points_of(left)):
            assert np.allclose(points, alone[self.SLOT_LABELS == label]) and is_slot and colour == colours[label]
        wanted = [both[:12][self.LABELS == label] for label in range(3)]
        wanted += [both[12:][self.SLOT_LABELS == label] for label in range(3)]
        groups = points_of(right)
        assert [is_slot for _, _, is_slot in groups] == [False] * 3 + [True] * 3
        for place, (points, colour, _) in enumerate(groups):
            assert np.allclose(points, wanted[place]) and colour == colours[place % 3]
        for text, label in zip(right.texts, range(3), strict=True):
            assert text.get_text() == CLASSES[label]
            assert np.allclose(text.get_position(), np.median(wanted[label], axis=0))
        assert legend_of(drawn[0]) == [*CLASSES, "a slot", "a row"]

    def test_slots_alone(self, tmp_path, drawn):
        memory_panels.plot_slots(self.SLOTS, self.SLOT_LABELS, tmp_path / "a.png")
        assert len(drawn[0].axes) == 1 and legend_of(drawn[0]) == ["0", "1", "2"] and not drawn[0].axes[0].texts

    def test_all_classes_can_be_told_apart(self):
        styles = [memory_panels._point_style(place, slot=True) for place in range(memory_panels.MOST_STYLES)]
        assert len({(style["color"], style["marker"]) for style in styles}) == memory_panels.MOST_STYLES == 35
        turned = [{"s", "D"}, {"^", "v"}]
        for place in range(28):
            assert {styles[place]["marker"], styles[place + 7]["marker"]} not in turned

    def test_long_names(self, tmp_path, drawn):
        names = ["Great_Crested_Flycatcher_of_the_northern_woods", "$a$", "x" * 40]
        given = self.SLOTS, self.SLOT_LABELS, tmp_path / "a.png", self.ROWS, self.LABELS, names
        memory_panels.plot_slots(*given)
        check_layout(drawn[0], with_texts=False)

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"path": "a.pdf"}, "end it in '.png'"),
            (
                {"slots": SLOTS[:4], "slot_labels": SLOT_LABELS[:4]},
                "`slots` are 4, and t-SNE needs at least 5: train with more `synthetic_slots`",
            ),
            ({"features": ROWS[:4], "labels": LABELS[:4]}, "`features` are 4, and t-SNE needs at least 5: pass more"),
            ({"slot_labels": SLOT_LABELS[:8]}, "`slots` has 9 items and `slot_labels` has 8"),
            ({"slot_labels": ["a"] * 9}, "`slot_labels` must hold the number of a class"),
            ({"features": ROWS, "labels": None}, "`labels` is missing: pass the class of each"),
            ({"features": ROWS[:, :30]}, "`features` are 30 wide and `slots` 32: pass both without the part"),
            ({"slots": SLOTS * np.nan}, "`slots` holds nan or infinity: leave such points out, here and in `slot_lab"),
            ({"slots": SLOTS[0]}, r"`slots` has shape \(32,\): pass \(points, feature_size\)"),
            ({"class_names": ["a", "b"]}, "`class_names` are 2, and there is a class 2: name all"),
            (
                {"slots": np.ones((36, 3)), "slot_labels": range(36), "features": None},
                "hold 36 classes, of which 35 can be told apart",
            ),
        ],
    )
    def test_refusals(self, changed, words, tmp_path):
        given = {"slots": self.SLOTS, "slot_labels": self.SLOT_LABELS, "features": self.ROWS, "labels": self.LABELS}
        with pytest.raises(ValueError, match=words):
            memory_panels.plot_slots(**{**given, "path": tmp_path / "a.png", **changed})
        assert not list(tmp_path.iterdir())


class TestAttention:
    LABELS, SLOT_LABELS = np.array([2, 0, 2, 1, 0]), np.array([0, 2, 1, 2])

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        drawn = np.random.default_rng(0).random((5, 9))
        return drawn[:, :5], drawn[:, 5:]

    def test_rows_and_columns_are_grouped_by_class(self, tmp_path, drawn):
        rows, slots = self.weights()
        path = tmp_path / "deep" / "a.png"
        given = torch.tensor(rows), slots, self.LABELS, self.SLOT_LABELS, path, CLASSES
        assert memory_panels.plot_datapoint_attention(*given) == path and imread(path)[..., :3].std() > 0.05
        axes, bar = drawn[0].axes
        order, slot_order = [1, 4, 3, 0, 2], [0, 2, 1, 3]
        expected = [[*(rows[i, j] for j in order), *(slots[i, j] for j in slot_order)] for i in order]
        assert np.allclose(axes.images[0].get_array(), expected)
        assert axes.images[0].get_clim() == pytest.approx(tuple(np.quantile(expected, (0.005, 0.995))))
        across, down, between = axes.collections
        assert [segment[0, 1] for segment in across.get_segments()] == [1.5, 2.5]
        assert [segment[0, 0] for segment in down.get_segments()] == [1.5, 2.5, 5.5, 6.5]
        assert [segment[0, 0] for segment in between.get_segments()] == [4.5]
        assert across.get_linewidths()[0] == down.get_linewidths()[0] < 1 < between.get_linewidths()[0]
        assert ticks(axes.yaxis) == CLASSES and list(axes.get_yticks()) == [0.5, 2, 3.5]
        assert ticks(axes.xaxis) == CLASSES * 2 and list(axes.get_xticks()) == [0.5, 2, 3.5, 5, 6, 7.5]
        headings = {text.get_text(): text.get_position()[0] for text in axes.texts}
        assert headings == {"rows of the batch": 2, "synthetic slots": 6.5}
        assert bar.get_ylabel() == "attention, mean over heads"
        check_layout(drawn[0])

    def test_without_slots(self, tmp_path, drawn):
        rows, _ = self.weights()
        memory_panels.plot_datapoint_attention(rows, np.zeros((5, 0)), self.LABELS, [], tmp_path / "a.png")
        axes = drawn[0].axes[0]
        assert axes.images[0].get_array().shape == (5, 5) and len(axes.collections) == 2
        assert [text.get_text() for text in axes.texts] == ["rows of the batch"]

    def test_even_attention_is_no_pattern(self, tmp_path, drawn):
        even = np.full((5, 9), 1 / 9) + 1e-12 * np.random.default_rng(0).random((5, 9))
        given = even[:, :5], even[:, 5:], self.LABELS, self.SLOT_LABELS, tmp_path / "a.png"
        memory_panels.plot_datapoint_attention(*given)
        assert drawn[0].axes[0].images[0].get_clim() == pytest.approx((0, 2 / 9))

    @pytest.mark.parametrize("classes", [3, 30])
    def test_long_names(self, classes, tmp_path, drawn):
        names = [f"Great_Crested_Flycatcher_of_the_northern_woods_{label}" for label in range(classes)]
        labels = np.repeat(np.arange(classes), 2)
        weights = np.random.default_rng(0).random((len(labels), 2 * len(labels)))
        halves = weights[:, : len(labels)], weights[:, len(labels) :]
        memory_panels.plot_datapoint_attention(*halves, labels, labels, tmp_path / "a.png", names)
        check_layout(drawn[0])
        shown = ticks(drawn[0].axes[0].yaxis)
        assert shown[2] == "Great_Crested_F…rn_woods_2" and len(set(shown)) == classes

    def test_refusals(self, tmp_path):
        rows, slots = self.weights()
        with pytest.raises(ValueError, match=r"`slot_weights` has shape \(5, 4\): by the labels it should be \(5, 3\)"):
            memory_panels.plot_datapoint_attention(rows, slots, self.LABELS, [0, 1, 2], tmp_path / "a.png")
        with pytest.raises(ValueError, match=r"`row_weights` has shape \(5, 4\): by the labels it should be \(5, 5\)"):
            memory_panels.plot_datapoint_attention(rows[:, 1:], slots, self.LABELS, [0] * 4, tmp_path / "a.png")
        with pytest.raises(ValueError, match="`labels` is empty"):
            memory_panels.plot_datapoint_attention(rows[:0, :0], slots[:0], [], [0] * 4, tmp_path / "a.png")


class TestRealMemory:
    def test_bars_are_counts_and_cells_are_shares(self, tmp_path, drawn):
        weights = np.random.default_rng(0).random((4, 7))
        weights /= weights.sum(axis=1, keepdims=True)
        own, weights = weights[:, -1], weights[:, :-1]
        labels, slot_labels = [2, 0, 2, 2], [0, 0, 1, 2, 0, 2]
        path, shares = memory_panels.plot_real_memory(
            weights, own, labels, slot_labels, tmp_path / "a.png", [*CLASSES, "others"]
        )
        assert imread(path)[..., :3].std() > 0.05
        bars, matrix = drawn[0].axes
        assert [bar.get_width() for bar in bars.containers[0]] == [3, 1, 2, 0]
        assert [text.get_text() for text in bars.texts] == ["3", "1", "2", "0"]
        assert ticks(bars.yaxis) == [*CLASSES, "others"] and bars.get_ylim() == (3.5, -0.5)
        assert bars.get_title() == "slots of each class (of 6)"
        by_class = memory_maps.read_by_class(weights, labels, slot_labels, 4)
        assert shares.shape == (4, 5) and np.allclose(shares[:, :4], by_class, equal_nan=True)
        assert shares[2, 4] == pytest.approx(own[[0, 2, 3]].mean()) and np.isnan(shares[[1, 3]]).all()
        assert np.allclose(shares[[0, 2]].sum(axis=1), 1)
        # Classes that nobody asks for are not there.
        assert np.allclose(matrix.images[0].get_array(), shares[[0, 2]])
        assert ticks(matrix.yaxis) == ["dog", "person"] and ticks(matrix.xaxis) == [*CLASSES, "others", "itself"]
        cells = {text.get_position(): text.get_text() for text in matrix.texts}
        assert cells == {(x, y): f"{100 * shares[label, x]:.0f}" for y, label in enumerate((0, 2)) for x in range(5)}
        check_layout(drawn[0])

    @pytest.mark.parametrize("classes", [2, 12])
    def test_long_names(self, classes, tmp_path, drawn):
        names = [f"Great_Crested_Flycatcher_of_the_northern_woods_{label}" for label in range(classes)]
        labels, weights = np.arange(classes), np.full((classes, classes), 0.5 / classes)
        memory_panels.plot_real_memory(weights, np.full(classes, 0.5), labels, labels, tmp_path / "a.png", names)
        check_layout(drawn[0])

    def test_refusals(self, tmp_path):
        with pytest.raises(ValueError, match="`labels` has 2 items and `own` has 3"):
            memory_panels.plot_real_memory(np.ones((2, 1)), np.ones(3), [0, 1], [0], tmp_path / "a.png")
        with pytest.raises(ValueError, match="`labels` is empty: pass at least one row"):
            memory_panels.plot_real_memory(np.ones((0, 1)), [], [], [0], tmp_path / "a.png")


def accuracy_rows() -> list[dict]:
    """Slots of 8 before those of 0, seeds 0 to 2, and a backbone without memories."""
    shared = {"data": "imdb", "target": "imdb", "backbone": "gin", "metric": "accuracy"}
    rows = [{**shared, "method": "backbone", "seed": 0, "value": 50.0}]
    for real in (128, 0):
        for slots in (8, 0, 2):
            sizes = {"synthetic_slots": slots, "real_memory_size": real}
            rows += [
                {**shared, "method": "hma", "seed": seed, "value": 60 + slots + real / 64 + seed, **sizes}
                for seed in range(3)
            ]
    return rows


class TestMemorySizes:
    def test_a_line_for_each_real_memory(self, tmp_path, drawn):
        curves = memory_sizes.memory_size_curves(accuracy_rows())
        assert curves[0] == {0: [60, 61, 62], 2: [62, 63, 64], 8: [68, 69, 70]} and list(curves) == [0, 128]
        path = tmp_path / "deep" / "sizes.png"
        assert memory_sizes.plot_memory_sizes(accuracy_rows(), path) == path and path.is_file()
        (axes,) = drawn[0].axes
        none, some = axes.lines[:2]
        assert np.allclose(none.get_xydata(), [[0, 61], [2, 63], [8, 69]])
        assert np.allclose(some.get_xydata(), [[0, 63], [2, 65], [8, 71]])
        # The standard deviation of three neighbours is 1.
        band = axes.collections[0].get_paths()[0].get_extents()
        assert (band.y0, band.y1) == pytest.approx((60, 70))
        assert legend_of(drawn[0]) == ["no real memory", "real memory of 128"]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("synthetic slots of each class", "accuracy")
        assert ticks(axes.xaxis) == ["0", "2", "8"]
        check_layout(drawn[0])

    def test_some_of_the_rows(self):
        rows = [*accuracy_rows(), {**accuracy_rows()[-1], "target": "proteins", "value": 1.0}]
        with pytest.raises(ValueError, match=r"several values of 'target', \['imdb', 'proteins'\]: pass `target`"):
            memory_sizes.memory_size_curves(rows)
        assert memory_sizes.memory_size_curves(rows, target="proteins") == {0: {2: [1.0]}}

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"real_memory_size": None}, "`real_memory_size` is None in `rows` entry .*: write a number, 0 for none"),
            ({"synthetic_slots": -1}, "`synthetic_slots` is -1"),
            ({}, "several values for seed 2 of `synthetic_slots` 2 and `real_memory_size` 0: pass only the rows of"),
            ({"momentum": 0.9}, r"They also differ in \['momentum'\]"),
        ],
    )
    def test_rows_that_cannot_be_drawn(self, changed, words):
        with pytest.raises(ValueError, match=words):
            memory_sizes.memory_size_curves([*accuracy_rows(), {**accuracy_rows()[-1], **changed}])

    def test_refusals(self):
        with pytest.raises(ValueError, match="`rows` have no `synthetic_slots`.*: pass runs of different sizes"):
            memory_sizes.memory_size_curves(accuracy_rows()[:1])
        with pytest.raises(ValueError, match="`target` 'imbd' is not known: .*Did you mean 'imdb'"):
            memory_sizes.memory_size_curves(accuracy_rows(), target="imbd")
        with pytest.raises(ValueError, match="`selection` 'traget' is not known: .*Did you mean 'target'"):
            memory_sizes.memory_size_curves(accuracy_rows(), traget="imdb")

    def test_the_command(self, tmp_path, capsys, drawn):
        head = {"table": "sizes", "command": "c", "device": "CPU", "versions": {}, "date": "2026-01-01"}
        (tmp_path / "a.json").write_text(json.dumps({**head, "rows": accuracy_rows()}))
        memory_sizes.main([str(tmp_path / "a.json"), "--output", str(tmp_path / "a.png"), "--metric", "accuracy"])
        assert capsys.readouterr().out.strip() == str(tmp_path / "a.png") and (tmp_path / "a.png").is_file()
        with pytest.raises(SystemExit):
            memory_sizes.main([str(tmp_path / "a.json"), "--data", "mutag"])
        assert "`data` 'mutag' is not known" in capsys.readouterr().err
