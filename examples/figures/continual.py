# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The matrix R of continual training and a curve for each domain, as PNG, from the folder of a run.

    python examples/figures/continual.py runs/shops
"""

import argparse
from pathlib import Path

import numpy as np

from hf_memaug.hub.provenance import FRACTIONS
from hf_memaug.reporting import plots
from hf_memaug.training.continual.record import ContinualRecord


def plot_matrix(record: ContinualRecord, path: str | Path) -> Path:
    """
    R as a heat map: the score on each domain (columns) after each stage (rows), as in the paper's Table 3. Italics:
    before the domain's turn; grey: not scored.

    Args:
        record: `trainer.record`, or `ContinualRecord.load(folder)`.
    """
    values, points = _scores(record)
    rows, columns = record.row_names, record.domains
    width = 1.6 + 0.075 * max(map(len, rows)) + 0.95 * len(columns)
    figure, (axes,) = plots.new_figure(max(width, 4.6), 1.8 + 0.5 * len(rows), [_title(record)], grid=False)
    low, high = np.nanmin(values), np.nanmax(values)
    room = max(0.05 * (high - low), 0.5 if points else 1e-3)
    axes.set_facecolor(plots.PALE)
    image = axes.imshow(np.ma.masked_invalid(values), cmap="YlGnBu", vmin=low - room, vmax=high + room, aspect="auto")
    turns = _turns(record)
    for row, column in np.ndindex(values.shape):
        value = values[row, column]
        text = "–" if np.isnan(value) else f"{value:.1f}" if points else f"{value:.3g}"
        colour = "white" if value > low + 0.55 * (high - low) else plots.DARK
        style = "italic" if row < turns.get(columns[column], len(rows)) else "normal"
        axes.text(column, row, text, ha="center", va="center", fontsize=9, color=colour, style=style)
    plots.name_ticks(axes, columns)
    axes.set_yticks(range(len(rows)), [plots.plain(name) for name in rows])
    axes.set(xlabel="scored on (italics: before its turn)", ylabel="after training on")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label=_label(record, points), shrink=0.9)
    return plots.save(figure, path)


def plot_curves(record: ContinualRecord, path: str | Path) -> Path:
    """
    The score of each domain over the stages, dotted before its turn.

    Args:
        record: `trainer.record`, or `ContinualRecord.load(folder)`.
    """
    values, points = _scores(record)
    figure, (axes,) = plots.new_figure(max(5.6, 1.1 * len(values) + 1.6), 4.0, [_title(record)])
    stages, turns = np.arange(len(values)), _turns(record)
    for index, name in enumerate(record.domains):
        style, turn = plots.series_style(index, name), turns.get(name, len(values))
        before, after = stages <= turn, stages >= turn
        axes.plot(stages[before], values[before, index], **{**style, "label": None}, linestyle=":", markersize=3.5)
        axes.plot(stages[after], values[after, index], markersize=5, **style)
    plots.name_ticks(axes, record.row_names)
    axes.set(xlabel="after training on", ylabel=_label(record, points))
    return plots.save(figure, path, axes.get_legend_handles_labels()[0])


def _scores(record: ContinualRecord) -> tuple[np.ndarray, bool]:
    """R, and whether it is in points."""
    values = np.array(record.matrix(), dtype=np.float64)
    if not record.stages or not np.isfinite(values).any():
        raise ValueError("`record` has no stage that was scored: train at least one domain first.")
    points = record.metric in FRACTIONS and np.nanmax(np.abs(values)) <= 1
    return values * (100 if points else 1), points


def _turns(record: ContinualRecord) -> dict[str, int]:
    return {name: number for number, stage in enumerate(record.stages) for name in stage["domains"]}


def _label(record: ContinualRecord, points: bool) -> str:
    return f"{record.metric.replace('_', ' ')}{' in points' if points else ''}"


def _title(record: ContinualRecord) -> str:
    scale = 100 if _scores(record)[1] else 1
    figures = [f"{name.upper()} {value * scale:.1f}" for name, value in record.figures().items() if value is not None]
    return f"{record.stages[-1]['strategy']}: {', '.join(figures)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="`output_dir` of a `ContinualTrainer`")
    folder = Path(parser.parse_args().folder)
    record = ContinualRecord.load(folder)
    print(plot_matrix(record, folder / "continual_matrix.png"))
    print(plot_curves(record, folder / "continual_curves.png"))


if __name__ == "__main__":
    main()
