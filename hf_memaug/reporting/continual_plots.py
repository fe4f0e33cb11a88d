# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures of a model's way through its domains: the matrix R, and a curve for each domain."""

import importlib.util
import math
from pathlib import Path

import numpy as np
from transformers import TrainerCallback
from transformers.utils import logging

from hf_memaug.hub.provenance import FRACTIONS
from hf_memaug.reporting import plots
from hf_memaug.training.continual.record import ContinualRecord

logger = logging.get_logger(__name__)

MATRIX_FILE, CURVES_FILE = "continual_matrix.png", "continual_curves.png"
_NAMES = {"acc": "ACC", "bwt": "BWT", "fwt": "FWT", "forgetting": "forgetting"}


class ContinualPlots(TrainerCallback):
    """
    For `ContinualTrainer(..., callbacks=[ContinualPlots()])`: draws R and the curves after each domain, so that a run
    can be watched, as `continual_matrix.png` and `continual_curves.png`. Where matplotlib is missing it says so, before
    anything is trained, and draws nothing.

    Args:
        folder (`str`, *optional*): where. By default the trainer's `output_dir`.
    """

    def __init__(self, folder: str | Path | None = None):
        self.folder = folder
        self.can_draw = importlib.util.find_spec("matplotlib") is not None
        if not self.can_draw:
            logger.warning(f"No pictures are drawn. {plots.NEEDS_MATPLOTLIB}")

    def on_stage_end(self, args, state, control, record=None, **kwargs):
        if not self.can_draw:
            return
        folder = Path(self.folder or args.output_dir)
        plot_matrix(record, folder / MATRIX_FILE)
        plot_curves(record, folder / CURVES_FILE)


def plot_matrix(record: ContinualRecord, path: str | Path) -> Path:
    """R as a heat map: what is known of each domain (columns) after each stage (rows), as in the paper's Table 3.

    Cells of domains that had not had their turn are set in italics, those of the domain just trained in a frame. Cells
    that nobody has scored are left grey.

    Args:
        record: `trainer.record`, or `ContinualRecord.load(folder)`.
        path: the PNG file to write, in a folder that is made if need be.
    """
    path = plots._png_path(path)
    values, rows, columns, unit = _cells(record)
    longest = max(map(len, rows))
    crowded = max(map(len, columns)) > 10
    width = 1.6 + 0.075 * longest + 0.95 * len(columns)
    height = 1.6 + 0.5 * len(rows) + 0.06 * max(map(len, columns)) * crowded
    figure, (axes,) = plots._new_figure(max(width, 4.6), height, titles=[_title(record)], grid=False)
    from matplotlib.patches import Rectangle  # which the figure has asked for

    known = values[np.isfinite(values)]
    # A scale with some room, so that one cell alone is no black spot.
    low, high = known.min(), known.max()
    room = max(0.05 * (high - low), 0.5 if unit else 1e-3)
    axes.set_facecolor(plots._PALE)
    image = axes.imshow(np.ma.masked_invalid(values), cmap="YlGnBu", vmin=low - room, vmax=high + room, aspect="auto")
    own = {name: number for number, stage in enumerate(record.stages) for name in stage["domains"]}
    frame = {"edgecolor": plots._TARGET_COLOUR, "linewidth": 1.8}
    for row, column in np.ndindex(values.shape):
        value = values[row, column]
        text = "–" if math.isnan(value) else f"{value:.1f}" if unit else f"{value:.3g}"
        turn = own.get(columns[column], len(rows))
        dark = not math.isnan(value) and (value - low + room) / (high - low + 2 * room) > 0.55
        style = {"color": "white" if dark else plots._DARK, "fontsize": 9, "ha": "center", "va": "center"}
        axes.text(column, row, text, style="italic" if row < turn else "normal", **style)
        if row == turn:
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, clip_on=False, **frame))
    slant = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(columns)), [plots._text(name) for name in columns], **slant)
    axes.set_yticks(range(len(rows)), [plots._text(name) for name in rows])
    axes.set(xlabel="scored on (italics: before its turn)", ylabel="after training on")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label=_label(record, unit), shrink=0.9)
    return plots._save(figure, path, [])


def plot_curves(record: ContinualRecord, path: str | Path) -> Path:
    """The score of each domain over the stages: dotted before its turn, with a large mark where it was trained.

    Args:
        record: `trainer.record`, or `ContinualRecord.load(folder)`.
        path: the PNG file to write, in a folder that is made if need be.
    """
    path = plots._png_path(path)
    values, rows, columns, unit = _cells(record)
    start = [record.baseline.get(name, math.nan) * (100 if unit else 1) for name in columns]
    has_start = not all(map(math.isnan, start))
    values = np.vstack([start, values]) if has_start else values
    places = ["start", *rows] if has_start else rows
    figure, (axes,) = plots._new_figure(max(5.6, 1.1 * len(places) + 1.6), 4.0)
    own = {name: number for number, stage in enumerate(record.stages) for name in stage["domains"]}
    handles = []
    for index, name in enumerate(columns):
        if np.isnan(values[:, index]).all():
            continue  # nobody has scored it yet
        style = plots._series_style(index, plots._text(name))
        turn = own.get(name, len(rows)) + has_start
        x = np.arange(len(places))
        before, after = x <= turn, x >= turn
        quiet = {**style, "label": None, "linestyle": ":", "markersize": 3.5, "linewidth": 1.2, "alpha": 0.8}
        axes.plot(x[before], values[before, index], **quiet)
        (line,) = axes.plot(x[after], values[after, index], markersize=5, linewidth=1.7, zorder=3, **style)
        if turn < len(places):
            axes.plot(x[turn], values[turn, index], zorder=4, markersize=9.5, **{**style, "label": None})
        handles.append(line)
    crowded = 0.085 * max(map(len, places)) > 0.9
    slant = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(places)), [plots._text(name) for name in places], **slant)
    axes.set_xlim(-0.3, len(places) - 0.7)
    axes.set(xlabel="after training on", ylabel=_label(record, unit))
    axes.set_title(_title(record), fontsize=10.5)
    return plots._save(figure, path, handles)


def _cells(record: ContinualRecord) -> tuple[np.ndarray, list[str], list[str], bool]:
    """R, the names of its rows and columns, and whether it is in points."""
    values = np.array(record.matrix(), dtype=np.float64)
    if not record.stages or not np.isfinite(values).any():
        raise ValueError("`record` has no stage that was scored: train at least one domain first.")
    points = record.metric in FRACTIONS and np.nanmax(np.abs(values)) <= 1
    return values * (100 if points else 1), record.row_names, record.domains, points


def _label(record: ContinualRecord, points: bool) -> str:
    return f"{record.metric.replace('_', ' ')}{' in points' if points else ''}"


def _title(record: ContinualRecord) -> str:
    points = _cells(record)[3]
    figures = {name: value for name, value in record.figures().items() if value is not None}
    said = [
        f"{_NAMES[name]} {value * (100 if points else 1):{'' if name == 'acc' else '+'}.1f}"
        for name, value in figures.items()
    ]
    strategy = record.stages[-1]["strategy"]
    return f"{strategy}: {', '.join(said)}" if said else strategy
