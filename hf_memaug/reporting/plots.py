# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What figures share: colours, a projection, and a figure that is saved to a file.

pyplot is not used: drawing needs no display and leaves a notebook's own figures alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

NEEDS_MATPLOTLIB = 'Charts need matplotlib: `pip install "hf_memaug[report]"`.'
# Okabe and Ito's palette, without its yellow, which is invisible on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#4D4D4D", "#D55E00")
MARKERS = ("o", "s", "^", "D", "v")
DARK, GREY, PALE = "#333333", "#8C8C8C", "#E3E3E3"


def t_sne(array: np.ndarray, seed: int = 0) -> np.ndarray:
    from sklearn.manifold import TSNE

    # The perplexity counts neighbours and must stay well below the number of rows.
    return TSNE(perplexity=min(30.0, (len(array) - 1) / 3), init="pca", random_state=seed).fit_transform(array)


def plain(name: Any) -> str:
    """A text without matplotlib's formulas and without control characters, which SVG forbids."""
    return "".join(one if one.isprintable() else " " for one in str(name)).replace("$", r"\$")


def series_style(index: int, label: str) -> dict[str, Any]:
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "label": plain(label)}


def name_ticks(axes, names: Sequence[str]) -> None:
    """Names below the x axis, slanted where they do not fit side by side."""
    room = axes.figure.get_figwidth() / len(axes.figure.axes) / max(len(names), 1)
    slanted = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if 0.085 * max(map(len, names)) > room else {}
    axes.set_xticks(range(len(names)), [plain(name) for name in names], **slanted)


def new_figure(width: float, height: float, titles: Sequence[str] = ("",), columns: int | None = None, grid=True, **kw):
    """A figure and its panels, one for each title, `columns` in a row."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(NEEDS_MATPLOTLIB) from error
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    columns = columns or len(titles)
    panels = list(figure.subplots(-(-len(titles) // columns), columns, squeeze=False, **kw).flat)
    for axes in panels[len(titles) :]:
        axes.set_axis_off()
    for axes, title in zip(panels, titles, strict=False):
        axes.set_title(plain(title), fontsize=10.5)
        if grid:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(True, color=PALE, linewidth=0.7)
            axes.set_axisbelow(True)
    return figure, panels[: len(titles)]


def add_legend(figure, handles: Sequence) -> None:
    """Below the panels, in as many columns as fit."""
    if handles:
        entry_width = 0.085 * max(len(handle.get_label()) for handle in handles) + 0.6
        columns = max(1, min(int(figure.get_figwidth() / entry_width), len(handles)))
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def save(figure, path: str | Path, handles: Sequence = ()) -> Path:
    path = Path(path)
    add_legend(figure, handles)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
