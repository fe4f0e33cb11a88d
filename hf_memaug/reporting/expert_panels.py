# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""How the pictures of experts look: colours, patches drawn over images, and grids of images with their titles."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.reporting import plots
from hf_memaug.reporting.expert_maps import patch_size

# Okabe and Ito's colours, which the colour-blind tell apart. Expert 0 has the first of them in every picture. Vermilion
# and sky blue come last: on bright patches they are nearest to others.
EXPERT_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#1A1A1A", "#D55E00", "#56B4E9")
HEAT = "inferno"
# How much of a patch is the expert's colour. The rest is the image in grey, because its own colours would change it,
# and neither black nor white, so that a colour looks the same on a dark image, on a bright one and in the legend.
TINT, HEAT_TINT, DARKEST, BRIGHTEST = 0.7, 0.55, 0.15, 0.85
# In inches: the side of an image, and the gap to the next.
CELL, GAP = 1.5, 0.06


def tinted(image: np.ndarray, experts: np.ndarray, patch: tuple[int, int]) -> np.ndarray:
    """The image in grey, each patch mixed with the colour of its expert."""
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(colour) for colour in EXPERT_COLOURS])
    return _blended(image, palette[experts % len(palette)], patch, TINT)


def heated(image: np.ndarray, heat: np.ndarray, patch: tuple[int, int]) -> np.ndarray:
    """The image in grey, each patch mixed with the colour of a number between 0 and 1."""
    import matplotlib

    return _blended(image, matplotlib.colormaps[HEAT](heat)[..., :3], patch, HEAT_TINT)


def _blended(image: np.ndarray, colours: np.ndarray, patch: tuple[int, int], tint: float) -> np.ndarray:
    over = colours.repeat(patch[0], axis=0).repeat(patch[1], axis=1)
    height, width = over.shape[:2]
    # Luminance as television has it.
    grey = (image @ [0.299, 0.587, 0.114])[:height, :width, None]
    # No patch reaches the last pixels of a size that is no multiple of it: they stay as they were.
    result = image.copy()
    result[:height, :width] = (1 - tint) * (DARKEST + (BRIGHTEST - DARKEST) * grey) + tint * over
    return result


def image_figure(rows: int, headings: Sequence[str], titles: Sequence[str], shape: tuple[int, int]):
    """Axes for `rows` times `headings` images, with the headings above and the titles at the left.

    Args:
        shape: height and width of the images in pixels; where they differ, of any.
    """
    headings, titles = [wrapped(one) for one in headings], [wrapped(one) for one in titles]
    longest = max(len(line) for title in titles for line in title.split("\n"))
    height, width = (CELL * side / max(shape) + GAP for side in shape)
    # Of letters in 9 points, which is what titles are written in.
    letter, line = 0.07, 0.16
    width = max(len(headings) * width + letter * longest + 0.2, 3.2)
    height = max(height, line * max(title.count("\n") + 1 for title in titles))
    height = rows * height + line * max(heading.count("\n") + 1 for heading in headings) + 0.6
    all_titles = headings + [""] * (len(headings) * (rows - 1))
    figure, panels = plots.new_figure(width, height, all_titles, len(headings), grid=False)
    figure.get_layout_engine().set(w_pad=GAP / 2, h_pad=GAP / 2, wspace=0, hspace=0, rect=(0, 0, 1, 1 - GAP / height))
    for place, axes in enumerate(panels):
        axes.set(xticks=(), yticks=())
        axes.spines[:].set_visible(False)
        axes.title.set_fontsize(9)
        row, column = divmod(place, len(headings))
        if column == 0:
            axes.set_ylabel(plots.plain(titles[row]), rotation=0, ha="right", va="center", fontsize=9)
    return figure, panels


def draw_grid(
    gmoe, cells: list[list], titles: Sequence[str], headings: Sequence[str], path: Path, numbers: bool
) -> Path:
    """`cells` holds, for each row, (image, experts of its patches or None), or None where there is no image."""
    patch, experts = patch_size(gmoe), gmoe.config.num_experts
    numbers = numbers or experts > len(EXPERT_COLOURS)
    flat = [cell for row in cells for cell in row]
    shape = next(cell for cell in flat if cell is not None)[0].shape[:2]
    figure, panels = image_figure(len(cells), headings, titles, shape)
    for axes, cell in zip(panels, flat, strict=True):
        if cell is None:
            axes.text(0.5, 0.5, "no image", transform=axes.transAxes, ha="center", va="center", color=plots.GREY)
            axes.set(xlim=(0, shape[1]), ylim=(0, shape[0]), aspect="equal")
            continue
        image, chosen = cell
        axes.imshow(image if chosen is None else tinted(image, chosen, patch), interpolation="nearest")
        if chosen is not None and numbers:
            write_numbers(axes, chosen, patch)
    expert_legend(figure, experts)
    return plots.save(figure, path, [])


def write_numbers(axes, experts: np.ndarray, patch: tuple[int, int]) -> None:
    from matplotlib.patheffects import withStroke

    size = min(9.0, 45 * CELL / max(experts.shape))
    # Legible on all colours.
    style = {"color": "white", "path_effects": [withStroke(linewidth=size / 5, foreground="black")]}
    for (row, column), expert in np.ndenumerate(experts):
        # The middle of the first pixel is at 0.
        x, y = (column + 0.5) * patch[1] - 0.5, (row + 0.5) * patch[0] - 0.5
        axes.text(x, y, str(expert), ha="center", va="center", fontsize=size, **style)


def expert_legend(figure, experts: int) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(label=f"expert {expert}", **expert_style(expert)) for expert in range(experts)]
    columns = max(1, min(int(figure.get_figwidth() / 0.85), experts))
    # matplotlib fills one column after the other, and people read lines.
    by_column = [handle for first in range(columns) for handle in handles[first::columns]]
    compact = {"handlelength": 1.2, "handletextpad": 0.5, "columnspacing": 1.2, "fontsize": 8, "frameon": False}
    figure.legend(handles=by_column, loc="outside lower center", ncols=columns, **compact)


def expert_style(expert: int) -> dict[str, Any]:
    # Colours that come again are hatched.
    colour, again = EXPERT_COLOURS[expert % len(EXPERT_COLOURS)], expert // len(EXPERT_COLOURS)
    hatch = ("", "////", "....", "xxxx")[again % 4]
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}


def wrapped(text: str, width: int = 16) -> str:
    """The text on lines of no more than `width` letters, broken at spaces, hyphens and underscores where it can be."""
    lines = [part for line in str(text).split("\n") for part in textwrap.wrap(line.replace("_", "_ "), width) or [""]]
    return "\n".join(lines).replace("_ ", "_")
