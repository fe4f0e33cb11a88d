# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The charts of a report: matplotlib figures as inline SVG.

matplotlib writes an artist's gid as the id of its SVG group. A gid "tip TEXT" becomes a tooltip; a gid "rows 3 5" marks
the points of a scatter with the rows they stand for, which the page's script shows.
"""

import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from hf_memaug.reporting import plots
from hf_memaug.reporting.html.blocks import Chart, Note

WIDTH, PANELS_A_ROW = 11.0, 3
# Of bars, where there are more parts than colours.
_HATCHES = ("", "////", "....", "xxxx")
_SVG = "{http://www.w3.org/2000/svg}"


class Spread(NamedTuple):
    """A mean, the ends of its interval, and the values behind it."""

    mean: float
    low: float | None
    high: float | None
    values: Sequence[float]
    tip: str


class Line(NamedTuple):
    """`place` sets the colour; `quiet` is for one run of several."""

    name: str
    place: int
    points: Sequence[tuple[float, float]]
    quiet: bool = False


def chart(label: str, draw: Callable, *args, **kwargs) -> Chart | Note:
    """What `draw` draws as a block of the report, or a note where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return Note(plots.NEEDS_MATPLOTLIB, "warning")
    return Chart(_inline(draw(*args, **kwargs), label), label)


def _panel_grid(panels: Mapping[str, Any], panel_height: float, most: int = PANELS_A_ROW, width=WIDTH, **kwargs):
    """A figure with a panel for each title, as many in a row as there is room for."""
    columns = min(len(panels), most)
    return plots.new_figure(width, -(-len(panels) // columns) * panel_height, list(panels), columns, **kwargs)


def interval_panels(names: Sequence[str], panels: Mapping[str, Mapping[str, Spread]]):
    """For each name a mean with its interval; small dots are single values. Panels have one scale."""
    figure, all_axes = _panel_grid(panels, 0.34 * len(names) + 0.9, sharey=True)
    for axes, spreads in zip(all_axes, panels.values(), strict=True):
        for name, one in spreads.items():
            place = list(names).index(name)
            style = plots.series_style(place, name)
            if one.low is not None:
                axes.plot([one.low, one.high], [place, place], color=style["color"], linewidth=2.2)
            axes.scatter(one.values, [place + 0.28] * len(one.values), s=6, color=plots.GREY, linewidth=0)
            axes.plot(one.mean, place, markersize=7, markeredgecolor="white", gid=f"tip {one.tip}", **style)
        axes.grid(False, axis="y")
    half = max(1.0, *(np.ptp(axes.get_xlim()) for axes in all_axes)) / 2
    for axes in all_axes:
        middle = np.mean(axes.get_xlim())
        axes.set_xlim(middle - half, middle + half)
    all_axes[0].set(ylim=(len(names) - 0.4, -0.6))
    all_axes[0].set_yticks(range(len(names)), [plots.plain(name) for name in names])
    return figure


def line_panels(panels: Mapping[str, Sequence[Line]], xlabel: str, ticks: Sequence[str] = (), legend=()):
    """`ticks` name the places 0, 1, ... of x; `legend` names the colours."""
    from matplotlib.lines import Line2D

    figure, all_axes = _panel_grid(panels, 2.7, width=WIDTH if len(panels) > 1 else WIDTH / 2)
    for axes, lines in zip(all_axes, panels.values(), strict=True):
        for line in lines:
            style = {"linewidth": 0.8 if line.quiet else 1.8, "alpha": 0.45 if line.quiet else 1}
            style["color"] = plots.COLOURS[line.place % len(plots.COLOURS)]
            if ticks or len(line.points) == 1:
                style |= {"marker": plots.MARKERS[line.place % len(plots.MARKERS)], "markersize": 4}
            x, y = zip(*line.points, strict=True)
            axes.plot(x, y, gid=f"tip {line.name}: {y[-1]:.4g}", **style)
        axes.set_xlabel(xlabel)
        if ticks:
            plots.name_ticks(axes, ticks)
    handles = [Line2D([], [], linewidth=2, **plots.series_style(place, name)) for place, name in enumerate(legend)]
    plots.add_legend(figure, handles)
    return figure


def strip_panels(panels: Mapping[str, tuple[Sequence[str], np.ndarray, Sequence[int]]]):
    """title -> row names, shares of shape (rows, slots), and the numbers of the slots: the darker, the more."""
    heights = [0.24 * len(names) + 0.6 for names, _, _ in panels.values()]
    figure, all_axes = plots.new_figure(
        WIDTH, sum(heights), list(panels), 1, grid=False, gridspec_kw={"height_ratios": heights}
    )
    for axes, (names, shares, numbers) in zip(all_axes, panels.values(), strict=True):
        axes.imshow(shares, cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
        axes.set_yticks(range(len(names)), [plots.plain(name) for name in names])
        axes.set_xticks(range(0, len(numbers), -(-len(numbers) // 32)), numbers[:: -(-len(numbers) // 32)])
        axes.tick_params(length=0, labelsize=8)
    all_axes[-1].set_xlabel("slot")
    return figure


def stack_panels(panels: Mapping[str, Mapping[str, Sequence[float]]], parts: Sequence[str]):
    """For each row one bar of 100 %, divided into its parts."""
    figure, all_axes = _panel_grid(panels, 0.3 * max(map(len, panels.values())) + 0.9, PANELS_A_ROW - 1, grid=False)
    for axes, of_panel in zip(all_axes, panels.values(), strict=True):
        values = np.array(list(of_panel.values()), dtype=float)
        shares = 100 * values / np.maximum(values.sum(axis=1, keepdims=True), 1e-12)
        starts = np.cumsum(shares, axis=1) - shares
        for part, name in enumerate(parts[: shares.shape[1]]):
            style = {"color": plots.COLOURS[part % len(plots.COLOURS)], "edgecolor": "white"}
            style |= {"hatch": _HATCHES[part // len(plots.COLOURS) % len(_HATCHES)], "label": plots.plain(name)}
            bars = axes.barh(range(len(shares)), shares[:, part], 0.8, starts[:, part], **style)
            for bar, row, share in zip(bars, of_panel, shares[:, part], strict=True):
                bar.set_gid(f"tip {name}, {row}: {share:.1f} %")
        axes.set_yticks(range(len(of_panel)), [plots.plain(name) for name in of_panel], fontsize=9)
        axes.set(xlim=(0, 100), ylim=(len(of_panel) - 0.5, -0.5), xlabel="%")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    widest = max(all_axes, key=lambda axes: len(axes.get_legend_handles_labels()[0]))
    plots.add_legend(figure, widest.get_legend_handles_labels()[0])
    return figure


def feature_maps(maps: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray], rows: Sequence[int], target):
    """Rows in two dimensions: colours are domains, markers are labels, a black edge is a wrong prediction."""
    from matplotlib.lines import Line2D

    figure, all_axes = plots.new_figure(WIDTH, 4.7, list(maps), grid=False)
    domains, labels = (list(dict.fromkeys(arrays[name].tolist())) for name in ("domain", "label"))
    colours = {name: plots.COLOURS[place % 6] for place, name in enumerate(domains)} | {target: plots.COLOURS[-1]}
    markers = {name: plots.MARKERS[place % len(plots.MARKERS)] for place, name in enumerate(labels)}
    wrong = (arrays["predicted"] != arrays["label"]) & (arrays["predicted"] != "") & (arrays["label"] != "")
    for axes, points in zip(all_axes, maps.values(), strict=True):
        axes.set(xticks=(), yticks=(), box_aspect=0.85)
        for name in domains:
            for label in labels:
                for is_wrong in (False, True):
                    chosen = (arrays["domain"] == name) & (arrays["label"] == label) & (wrong == is_wrong)
                    gid = "rows " + " ".join(str(rows[place]) for place in np.flatnonzero(chosen))
                    edge = {"edgecolor": "black", "linewidth": 1.2} if is_wrong else {"edgecolor": "none"}
                    style = {"facecolor": colours[name], "marker": markers[label], "s": 22, "alpha": 0.75, **edge}
                    axes.scatter(*points[chosen].T, gid=gid, **style)
    dot = {"linestyle": "", "marker": "o"}
    named = [(f"{name} (target)" if name == target else name or "unknown", colours[name]) for name in domains]
    handles = [Line2D([], [], color=colour, label=plots.plain(name), **dot) for name, colour in named]
    handles += [
        Line2D([], [], color=plots.GREY, linestyle="", marker=markers[name], label=plots.plain(name or "no label"))
        for name in labels
    ]
    handles.append(Line2D([], [], color=plots.PALE, markeredgecolor="black", label="wrong prediction", **dot))
    plots.add_legend(figure, handles)
    return figure


def _inline(figure, label: str):
    """The figure as SVG that can stand in a page: no ids, no metadata, as wide as the page."""
    from markupsafe import Markup
    from matplotlib import rc_context

    buffer = io.StringIO()
    # Texts as texts, and ids of markers and clips that depend on the chart, since charts share a page.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True)
    ElementTree.register_namespace("", _SVG[1:-1])
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(buffer.getvalue())
    for metadata in root.findall(f"{_SVG}metadata"):
        root.remove(metadata)
    for group in list(root.iter(f"{_SVG}g")):
        kind, _, content = group.attrib.pop("id", "").partition(" ")
        if kind == "tip":
            title = ElementTree.Element(f"{_SVG}title")
            title.text = content
            group.insert(0, title)
        elif kind == "rows":
            # Short outlines of few points are written out instead of reused.
            points = list(group.iter(f"{_SVG}use")) or list(group.iter(f"{_SVG}path"))
            for point, row in zip(points, content.split(), strict=True):
                point.set("data-row", row)
    width = float(root.attrib.pop("width").removesuffix("pt"))
    del root.attrib["height"]
    # Letters have one size in all charts; on a phone, wide charts scroll.
    style = f"min-width:{min(0.9 * width, 640):.0f}px;max-width:{1.3 * width:.0f}px"
    root.attrib.update({"role": "img", "aria-label": label, "style": style})
    return Markup(ElementTree.tostring(root, encoding="unicode"))
