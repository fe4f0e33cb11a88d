# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures of HMA's memories from plain arrays, as PNG files (Qiu et al., 2023, Figures 3, 4 and 6)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.evaluation.checks import as_numpy, check_same_length
from hf_memaug.reporting import plots
from hf_memaug.reporting.expert_panels import HEAT, wrapped
from hf_memaug.reporting.memory_maps import read_by_class

# Of classes whose points can be told apart, by colour and marker.
MOST_STYLES = len(plots.COLOURS) * len(plots.MARKERS)
# What lies between the darkest and the brightest colour: one row that reads itself alone would leave all others dark.
_SCALE = (0.005, 0.995)
# In inches, of a letter in 8 points; and how many of them a name has that is not broken into lines.
_LETTER, _MOST_LETTERS = 0.066, 26


def plot_slots(
    slots: Any,
    slot_labels: Any,
    path: str | Path,
    features: Any = None,
    labels: Any = None,
    class_names: Sequence[str] | None = None,
    seed: int = 0,
) -> Path:
    """t-SNE of the synthetic slots by class, and of slots and rows together (Figures 3 and 4). Each panel is reduced on
    its own. A class is named where the median of its rows is.

    Args:
        slots: of shape (slots, feature_size), without the label embedding, by which all slots of a class would be near.
        slot_labels: the class of each, from 0.
        path: the PNG file to write, in a folder that is made if need be.
        features: of shape (rows, feature_size), such as `C^2` of rows; left out, the slots alone are drawn.
        labels: the class of each row.
        class_names: the name of each class. By default its number.
        seed: seed of t-SNE.
    """
    path = Path(path)
    slots, slot_labels = _points("slots", slots, slot_labels, "slot_labels", "train with more `synthetic_slots`")
    names = _names(class_names, slot_labels, [] if labels is None else labels)
    panels = {"synthetic slots": (slots, slot_labels, np.ones(len(slots), dtype=bool))}
    if features is not None:
        features, labels = _points("features", features, labels, "labels", "pass more rows")
        if features.shape[1] != slots.shape[1]:
            raise ValueError(
                f"`features` are {features.shape[1]} wide and `slots` {slots.shape[1]}: pass both without the part of "
                "the label."
            )
        is_slot = np.arange(len(features) + len(slots)) >= len(features)
        both = np.concatenate([features, slots]), np.concatenate([labels, slot_labels]), is_slot
        panels["slots and rows"] = both
    shown = sorted({int(label) for _, of_panel, _ in panels.values() for label in of_panel})
    if len(shown) > MOST_STYLES:
        raise ValueError(
            f"`slot_labels` and `labels` hold {len(shown)} classes, of which {MOST_STYLES} can be told apart: pass "
            "fewer of them."
        )

    figure, axes = plots.new_figure(4.2 * len(panels) + 0.4, 4.6, titles=list(panels), grid=False)
    for one, (array, of_panel, is_slot) in zip(axes, panels.values(), strict=True):
        points = plots.t_sne(array, seed)
        for place, label in enumerate(shown):
            # Slots come last: there are few, and they must not be hidden.
            one.scatter(*points[(of_panel == label) & ~is_slot].T, **_point_style(place, slot=False))
        for place, label in enumerate(shown):
            one.scatter(*points[(of_panel == label) & is_slot].T, **_point_style(place, slot=True))
            if (~is_slot[of_panel == label]).any():
                _write_name(one, names[label], np.median(points[(of_panel == label) & ~is_slot], axis=0))
        one.set(xticks=(), yticks=(), xlabel="t-SNE 1", ylabel="t-SNE 2", box_aspect=1)
    return plots.save(figure, path, _point_handles(names, shown, features is not None))


def _point_style(place: int, slot: bool) -> dict[str, Any]:
    again, colour = divmod(place, len(plots.COLOURS))
    # Classes of one colour have markers that are easily told apart, not one that is another turned round.
    style = {"color": plots.COLOURS[colour], "marker": plots.MARKERS[(place - again) % len(plots.MARKERS)]}
    if slot:
        return {**style, "s": 44, "edgecolor": "black", "linewidth": 0.9, "zorder": 3}
    return {**style, "s": 12, "alpha": 0.45, "linewidth": 0}


def _write_name(axes, name: str, place: np.ndarray) -> None:
    from matplotlib.patheffects import withStroke

    style = {"fontsize": 9, "fontweight": "bold", "zorder": 4, "ha": "center", "va": "center"}
    # Legible on points of all colours.
    outline = [withStroke(linewidth=2.5, foreground="white")]
    axes.text(*place, plots.plain(wrapped(name)), path_effects=outline, **style)


def _point_handles(names: Sequence[str], shown: Sequence[int], with_rows: bool) -> list:
    from matplotlib.lines import Line2D

    def handle(label: str, colour: str, marker: str, slot: bool):
        edge = {"markeredgecolor": "black", "markersize": 6.5} if slot else {"markeredgewidth": 0, "markersize": 4}
        return Line2D([], [], color=colour, marker=marker, linestyle="", label=plots.plain(label), **edge)

    styles = [_point_style(place, slot=True) for place in range(len(shown))]
    named = zip(shown, styles, strict=True)
    handles = [handle(names[label], style["color"], style["marker"], slot=True) for label, style in named]
    if with_rows:
        handles += [handle("a slot", "white", "o", slot=True), handle("a row", plots.GREY, "o", slot=False)]
    return handles


def plot_datapoint_attention(
    row_weights: Any,
    slot_weights: Any,
    labels: Any,
    slot_labels: Any,
    path: str | Path,
    class_names: Sequence[str] | None = None,
) -> Path:
    """What the rows of a batch read of each other and of the synthetic slots, both grouped by class (Figure 6).

    The colours leave out the smallest and the largest of each 200 weights, which look like the next ones.

    Args:
        row_weights: of shape (rows, rows), a line for each row that reads, the mean over heads.
        slot_weights: of shape (rows, slots), the same. There may be no slots.
        labels, slot_labels: the class of each row, and of each slot.
        path, class_names: as in `plot_slots`.
    """
    path = Path(path)
    row_weights, labels = np.asarray(as_numpy(row_weights), dtype=np.float64), _labels("labels", labels)
    slot_weights, slot_labels = (
        np.asarray(as_numpy(slot_weights), dtype=np.float64),
        _labels("slot_labels", slot_labels),
    )
    wanted = {"row_weights": (len(labels), len(labels)), "slot_weights": (len(labels), len(slot_labels))}
    for name, array in (("row_weights", row_weights), ("slot_weights", slot_weights)):
        if array.shape != wanted[name]:
            raise ValueError(f"`{name}` has shape {array.shape}: by the labels it should be {wanted[name]}.")
    if not len(labels):
        raise ValueError("`labels` is empty: pass at least one row.")
    names = _names(class_names, labels, slot_labels)
    rows, slots = (np.argsort(of, kind="stable") for of in (labels, slot_labels))
    drawn = np.concatenate([row_weights[rows][:, rows], slot_weights[rows][:, slots]], axis=1)
    groups, starts = _groups(labels[rows])
    slot_groups, slot_starts = _groups(slot_labels[slots])
    height, width = drawn.shape

    row_names = [_side_name(names[label]) for label in groups]
    # In inches: a row has its height, and the smallest group room for its name.
    smallest = np.diff([*starts, height]).min()
    room = 0.15 * max(name.count("\n") + 1 for name in row_names) * height / smallest
    side = min(max(0.05 * height, room, 3.6), 14.0)
    inches = min(max(side * width / height, 4.0), 14.0)
    figure, (axes,) = plots.new_figure(inches + _width_of(row_names) + 1.2, side + 0.9, grid=False)
    least, most = np.quantile(drawn, _SCALE)
    # Of a memory that is read evenly, rounding must not be blown up into a pattern.
    least, most = (0.0, 2 * most) if most - least <= 1e-6 * most else (least, most)
    image = axes.imshow(drawn, cmap=HEAT, vmin=least, vmax=most, aspect="auto", interpolation="nearest")
    # The middle of the first cell is at 0.
    lines = {"color": "white", "linewidth": 0.5, "alpha": 0.7}
    axes.hlines(starts[1:] - 0.5, -0.5, width - 0.5, **lines)
    axes.vlines([*(starts[1:] - 0.5), *(slot_starts[1:] + height - 0.5)], -0.5, height - 0.5, **lines)
    headings = {"rows of the batch": (height - 1) / 2}
    if len(slots):
        axes.vlines(height - 0.5, -0.5, height - 0.5, color="white", linewidth=3)
        headings["synthetic slots"] = height + (len(slots) - 1) / 2
    for text, place in headings.items():
        style = {"ha": "center", "va": "bottom", "fontsize": 10.5}
        axes.text(place, 1.015, text, transform=axes.get_xaxis_transform(), **style)
    middles = _middles(starts, height)
    columns = [*middles, *(_middles(slot_starts, len(slots)) + height)]
    apart = inches / width * min(np.diff(columns), default=width)
    _name_ticks(axes, columns, [names[label] for label in (*groups, *slot_groups)], apart)
    axes.set_yticks(middles, row_names, fontsize=8)
    axes.tick_params(length=0)
    axes.set(xlabel="what is read, by class", ylabel="rows that read, by class")
    bar = figure.colorbar(image, ax=axes, fraction=0.035, pad=0.015, extend="both")
    bar.set_label("attention, mean over heads", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return plots.save(figure, path, [])


def _groups(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes of sorted labels, and where each begins."""
    return np.unique(labels, return_index=True)


def _middles(starts: np.ndarray, end: int) -> np.ndarray:
    return (starts + np.append(starts[1:], end)[: len(starts)] - 1) / 2


def _name_ticks(axes, places: Sequence[float], names: Sequence[str], inches: float) -> None:
    """Below each other where names have room side by side; `inches` is what two neighbours are apart."""
    shown = [wrapped(name) for name in names]
    longest = max(len(line) for name in shown for line in name.split("\n"))
    slant = {"rotation": 90} if _LETTER * longest + 0.05 > inches else {}
    if slant:
        shown = [_shortened(name) for name in names]
        # What upright names take must not be taken from the rows.
        figure = axes.figure
        figure.set_figheight(figure.get_figheight() + _LETTER * max(map(len, shown)))
    axes.set_xticks(places, [plots.plain(name) for name in shown], fontsize=8, **slant)


def _side_name(name: str) -> str:
    """On at most two lines."""
    return plots.plain(wrapped(name) if wrapped(name).count("\n") < 2 else _shortened(name))


def _shortened(name: str) -> str:
    # In the middle: names of a kind often begin alike.
    return name if len(name) <= _MOST_LETTERS else f"{name[:15]}…{name[15 + 1 - _MOST_LETTERS :]}"


def _width_of(names: Sequence[str]) -> float:
    """In inches, of names at the left of an axis, and its label."""
    return _LETTER * max(len(line) for name in names for line in name.split("\n")) + 0.4


def plot_real_memory(
    weights: Any,
    own: Any,
    labels: Any,
    slot_labels: Any,
    path: str | Path,
    class_names: Sequence[str] | None = None,
) -> tuple[Path, np.ndarray]:
    """How many slots of the real memory each class has, and how much the rows of each class read of each class there.

    Returns the file and the shares drawn, of shape (classes, classes + 1): the last column is what rows read of
    themselves, and the numbers of a class add up to 1. A class without rows has nan, and is not drawn.

    Args:
        weights: of shape (rows, slots), a line for each row that reads, the mean over heads.
        own: of shape (rows,), what each reads of itself.
        labels, slot_labels: the class of each row, and of each slot.
        path, class_names: as in `plot_slots`.
    """
    path = Path(path)
    labels, slot_labels = _labels("labels", labels), _labels("slot_labels", slot_labels)
    check_same_length(labels=labels, own=own)
    names = _names(class_names, labels, slot_labels)
    shares = read_by_class(weights, labels, slot_labels, len(names))
    of_own = read_by_class(np.reshape(as_numpy(own), (-1, 1)), labels, np.zeros(1), len(names))[:, :1]
    shares = np.concatenate([shares, of_own], axis=1)
    counts = np.bincount(slot_labels, minlength=len(names))
    asking = np.flatnonzero(~np.isnan(shares[:, -1]))
    if not len(asking):
        raise ValueError("`labels` is empty: pass at least one row.")

    shown = [_side_name(name) for name in names]
    pitch = max(0.3, 0.15 * max(name.count("\n") + 1 for name in shown))
    titles = [f"slots of each class (of {len(slot_labels)})", "% of attention, by class"]
    inches = max(3.0, 0.48 * (len(names) + 1))
    figure, (bars, matrix) = plots.new_figure(
        2 * (inches + _width_of(shown) + 0.3), max(pitch * len(names) + 1.7, 3.2), titles=titles, grid=False
    )
    drawn = bars.barh(range(len(names)), counts, 0.75, color=plots.COLOURS[0])
    bars.bar_label(drawn, [f"{count:,}" for count in counts], fontsize=8, padding=2, color=plots.DARK)
    bars.set_yticks(range(len(names)), shown, fontsize=8)
    bars.set(
        ylim=(len(names) - 0.5, -0.5), xlim=(0, 1.18 * max(counts.max(), 1)), xticks=(), ylabel="class of the slot"
    )
    bars.spines[["top", "right", "bottom"]].set_visible(False)
    bars.tick_params(axis="y", length=0)

    most = float(shares[asking].max()) or 1.0
    matrix.imshow(shares[asking], cmap="Blues", vmin=0, vmax=most, aspect="auto", interpolation="nearest")
    for (row, column), share in np.ndenumerate(shares[asking]):
        # Legible on pale and on dark cells.
        colour = "white" if share > 0.6 * most else plots.DARK
        matrix.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=8, color=colour)
    matrix.axvline(len(names) - 0.5, color="white", linewidth=3)
    _name_ticks(matrix, range(len(names) + 1), [*names, "itself"], inches / (len(names) + 1))
    matrix.set_yticks(range(len(asking)), [shown[label] for label in asking], fontsize=8)
    matrix.tick_params(length=0)
    matrix.spines[:].set_visible(False)
    matrix.set(xlabel="class of the slot that is read", ylabel="class of the row that reads")
    return plots.save(figure, path, []), shares


def _points(name: str, values: Any, labels: Any, labels_name: str, mend: str) -> tuple[np.ndarray, np.ndarray]:
    array = np.asarray(as_numpy(values), dtype=np.float64)
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(f"`{name}` has shape {array.shape}: pass (points, feature_size), at least 2 wide.")
    if len(array) < plots.LEAST_ROWS:
        raise ValueError(f"`{name}` are {len(array)}, and t-SNE needs at least {plots.LEAST_ROWS}: {mend}.")
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` holds nan or infinity: leave such points out, here and in `{labels_name}`.")
    if labels is None:
        raise ValueError(f"`{labels_name}` is missing: pass the class of each point.")
    labels = _labels(labels_name, labels)
    check_same_length(**{name: array, labels_name: labels})
    return array, labels


def _labels(name: str, values: Any) -> np.ndarray:
    labels = np.asarray(as_numpy(values))
    if labels.ndim != 1 or (labels.size and (labels.dtype.kind not in "iu" or labels.min() < 0)):
        raise ValueError(f"`{name}` must hold the number of a class, from 0, for each item, in one dimension.")
    return labels.astype(np.int64)


def _names(class_names: Sequence[str] | None, *labels: Any) -> list[str]:
    found = [int(label) for of in labels for label in _labels("labels", of)]
    if class_names is None:
        return [str(label) for label in range(max(found, default=-1) + 1)]
    if found and max(found) >= len(class_names):
        raise ValueError(f"`class_names` are {len(class_names)}, and there is a class {max(found)}: name all of them.")
    return [str(name) for name in class_names]
