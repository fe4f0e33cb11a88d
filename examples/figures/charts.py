# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Bars and curves of means over seeds, for the figures of the papers. The suffix of a path chooses its format."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.evaluation.statistics import summarise
from hf_memaug.reporting import plots


def plot_bars(bars: Mapping[str, Mapping[str, Any]], path: str | Path, xlabel: str, ylabel: str) -> Path:
    """
    Groups of bars, such as the A-distance of each method on each target domain (MIL, Figures 4 and 6).

    Args:
        bars: bar name -> group -> value, or one value per seed: the bar is their mean, the error bar their standard
            deviation.
        xlabel: what the groups are.
        ylabel: what the values are.
    """
    groups = list(dict.fromkeys(str(group) for row in bars.values() for group in row))
    figure, (axes,) = plots.new_figure(min(max(5.0, 0.42 * len(groups) * (len(bars) + 1) + 0.8), 14.0), 3.8)
    width = 0.8 / len(bars)
    for index, (name, row) in enumerate(bars.items()):
        places = [groups.index(str(group)) + (index - (len(bars) - 1) / 2) * width for group in row]
        means, spread = zip(*map(mean_and_std, row.values()), strict=True)
        style = {
            "color": plots.COLOURS[index % len(plots.COLOURS)],
            "hatch": "///" * (index // len(plots.COLOURS)),
            "ecolor": plots.DARK,
        }
        drawn = axes.bar(places, means, 0.92 * width, yerr=spread, label=plots.plain(name), capsize=2.5, **style)
        axes.bar_label(drawn, [f"{mean:.2f}" for mean in means], fontsize=7, padding=2)
    axes.grid(False, axis="x")
    axes.margins(y=0.1)
    plots.name_ticks(axes, groups)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return plots.save(figure, path, axes.get_legend_handles_labels()[0])


def plot_curve(
    curves: Mapping[str, Mapping[float, Any]], path: str | Path, xlabel: str, ylabel: str, log_x: bool = False
) -> Path:
    """
    A score against a setting, such as the memory size or the memory's learning rate (MIL, Figures 5 and 7).

    Args:
        curves: name -> x -> score, or one score per seed: the line is their mean, the band their standard deviation.
        xlabel: what x is.
        ylabel: what the score is.
        log_x: whether x is on a logarithmic scale of base 2, on which 0 keeps a place.
    """
    figure, (axes,) = plots.new_figure(5.6, 4.0)
    for index, (name, curve) in enumerate(curves.items()):
        x = np.array(sorted(curve), dtype=float)
        means, spread = np.array([mean_and_std(curve[place]) for place in sorted(curve)]).T
        style = plots.series_style(index, name)
        axes.errorbar(x, means, np.nan_to_num(spread), markersize=5, linewidth=1.6, elinewidth=1, **style)
        axes.fill_between(x, means - spread, means + spread, color=style["color"], alpha=0.18, linewidth=0)
    places = sorted({float(x) for curve in curves.values() for x in curve})
    if log_x:
        axes.set_xscale("symlog", base=2, linthresh=min(x for x in places if x > 0), linscale=0.5)
        axes.set_xticks(places, [f"{x:g}" for x in places])
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return plots.save(figure, path, axes.get_legend_handles_labels()[0])


def mean_and_std(values: Any) -> tuple[float, float]:
    summary = summarise(np.atleast_1d(np.asarray(values, dtype=np.float64)))
    return summary.mean, math.nan if summary.std is None else summary.std
