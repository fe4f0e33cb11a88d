# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures of a run, as PNG files.

pyplot is never imported, so that drawing needs no display and leaves a notebook's own figures and settings alone.
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.evaluation.checks import as_numpy, check_name, check_same_length
from hf_memaug.evaluation.statistics import summarise

FEATURE_METHODS = ("pca", "tsne")
NEEDS_MATPLOTLIB = 'Figures need matplotlib: `pip install "hf_memaug[report]"`.'

# Okabe and Ito's colours, which the colour-blind tell apart; their yellow is left out, it vanishes on white.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#4D4D4D", "#D55E00")
_SOURCE_COLOURS, _TARGET_COLOUR = _COLOURS[:-1], _COLOURS[-1]
_DARK, _GREY, _PALE = "#333333", "#8C8C8C", "#E3E3E3"
# Five, so that with six or seven colours no pair comes twice among the first thirty.
_MARKERS = ("o", "s", "^", "D", "v")

# A contour encloses this share of its group's rows: unlike a height, it means the same for groups of any size.
_ENCLOSED = (0.95, 0.8, 0.6, 0.4, 0.2)
_GRID_POINTS, _GRID_LIMITS = 141, (-0.2, 1.2)
_LEAST_ROWS = 5
_META_NAMES, _META_PREFIXES = ("task_loss", "slot_entropy", "slots_used"), ("domain_loss_", "discriminator_accuracy_")


def plot_features(
    features: Mapping[str, Any], domains: Sequence, target: str, path: str | Path, method: str = "pca", seed: int = 0
) -> Path:
    """Features of the target domain against those of the sources, one panel for each kind of feature (MIL, Figure 3).

    Args:
        features: title of the panel -> array or tensor of shape (rows, width). Each panel is reduced on its own.
        domains: the domain of each row.
        target: the domain that training did not see.
        path: the PNG file to write, in a folder that is made if need be.
        method: "pca" scales two principal components into the unit square, and draws the contours of a Gaussian kernel
            density estimate of the target's rows and of all the sources' rows; the contours enclose 20, 40, 60, 80 and
            95 % of the rows. "tsne" draws each row as a point, coloured by domain.
        seed: seed of t-SNE.
    """
    path = _png_path(path)
    check_name("method", method, FEATURE_METHODS)
    _check_mapping("features", features, "{title: array of shape (rows, width)}")
    domains, target = np.array([str(domain) for domain in domains]), str(target)
    arrays = {title: _feature_array(title, array, domains) for title, array in features.items()}
    names = list(dict.fromkeys(domains.tolist()))
    check_name("target", target, names)
    sources = [name for name in names if name != target]
    if not sources:
        raise ValueError(f"`domains` holds nothing but the target {target!r}: add rows of the source domains.")

    figure, panels = _new_figure(3.4 * len(arrays) + 0.4, 4.0, titles=list(arrays), grid=False)
    for axes, array in zip(panels, arrays.values(), strict=True):
        if method == "pca":
            points, shares = _principal_components(array)
            handles = _draw_densities(axes, points, domains == target, sources, target)
            axes.set(xlabel=f"component 1 ({shares[0]:.0%})", ylabel=f"component 2 ({shares[1]:.0%})")
        else:
            handles = _draw_domains(axes, _neighbour_embedding(array, seed), domains, sources, target)
    return _save(figure, path, handles)


def plot_a_distance(distances: Mapping[str, Mapping[str, Any]], path: str | Path) -> Path:
    """A-distance between each target domain and its sources, a bar for each method (MIL, Figures 4 and 6).

    Args:
        distances: method -> target domain -> distance, as in `plot_bars`.
    """
    shape = "{method: {target: distance or distances over seeds}}"
    label = r"$\mathcal{A}$-distance to the sources"
    return _draw_bars("distances", shape, distances, path, "target domain", label)


def plot_bars(bars: Mapping[str, Mapping[str, Any]], path: str | Path, xlabel: str, ylabel: str) -> Path:
    """Groups of bars beside each other, such as the masked-LM loss on each corpus before and after (G-MAP, Figure 1).

    Args:
        bars: name of a bar -> group -> value, or one value for each seed: the bar is their mean, the error bar their
            standard deviation. A group that a bar lacks stays empty.
        path: the PNG file to write, in a folder that is made if need be.
        xlabel: what the groups are.
        ylabel: what the values are.
    """
    return _draw_bars("bars", "{name: {group: value or values over seeds}}", bars, path, xlabel, ylabel)


def _draw_bars(argument: str, shape: str, bars, path, xlabel: str, ylabel: str) -> Path:
    """`argument` and `shape` are what errors call `bars`."""
    path = _png_path(path)
    _check_mapping(argument, bars, shape, nested=True)
    groups = list(dict.fromkeys(str(group) for row in bars.values() for group in row))
    width, longest = min(max(5.0, 0.42 * len(groups) * (len(bars) + 1) + 0.8), 14.0), max(map(len, groups))
    crowded = 0.085 * longest > width / len(groups)
    figure, (axes,) = _new_figure(width, 3.8 + 0.035 * longest * crowded)
    bar_width = min(0.8 / len(bars), 0.35)
    for index, (name, row) in enumerate(bars.items()):
        places = [groups.index(str(group)) + (index - (len(bars) - 1) / 2) * bar_width for group in row]
        cells = [_mean_and_spread(f"{argument}[{name!r}][{group!r}]", cell) for group, cell in row.items()]
        means, spread = zip(*cells, strict=True)
        style = {"color": _COLOURS[index % len(_COLOURS)], "hatch": "///" * (index // len(_COLOURS))}
        style |= {"edgecolor": "white", "linewidth": 0, "ecolor": _DARK, "capsize": 2.5}
        drawn = axes.bar(places, means, 0.92 * bar_width, yerr=spread, label=_text(name), **style)
        if width * bar_width / len(groups) > 0.3:
            axes.bar_label(drawn, [f"{mean:.2f}" for mean in means], fontsize=7, padding=2, color=_DARK)
    axes.grid(False, axis="x")
    axes.axhline(0, color=_DARK, linewidth=0.8)
    axes.margins(y=0.1)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    slant = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(groups)), [_text(group) for group in groups], **slant)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return _save(figure, path, axes.get_legend_handles_labels()[0])


def plot_curve(
    curves: Mapping[str, Mapping[float, Any]],
    path: str | Path,
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    baseline: Mapping[str, float] | None = None,
) -> Path:
    """A score against a setting, such as the memory size or the memory's learning rate (MIL, Figures 5 and 7).

    Args:
        curves: name -> x -> score, or one score for each seed: the line is their mean, the band their standard
            deviation.
        path: the PNG file to write, in a folder that is made if need be.
        xlabel: what x is.
        ylabel: what the score is, and on which split.
        log_x: space x by ratio, with ticks at the values themselves. Zero keeps its place, one step to the left.
        baseline: name -> score, as a dashed line. Under the name of a curve it takes that curve's colour.
    """
    path = _png_path(path)
    _check_mapping("curves", curves, "{name: {x: score or scores over seeds}}", nested=True)
    if baseline not in (None, {}):
        _check_mapping("baseline", baseline, "{name: score}")
    figure, (axes,) = _new_figure(5.6, 4.0)
    colours, positions = {}, set()
    for index, (name, curve) in enumerate(curves.items()):
        cells = ((_position(name, x), *_mean_and_spread(f"curves[{name!r}][{x!r}]", curve[x])) for x in curve)
        x, means, spread = np.array(sorted(cells)).T
        positions.update(x.tolist())
        style = _series_style(index, _text(name))
        colour = colours[name] = style["color"]
        axes.plot(x, means, markersize=5, linewidth=1.6, zorder=3, **style)
        axes.fill_between(x, means - spread, means + spread, color=colour, alpha=0.18, linewidth=0)
        # A band needs two neighbours; a point that stands alone shows its spread all the same.
        axes.errorbar(x, means, spread, fmt="none", ecolor=colour, elinewidth=1, alpha=0.6)
    for index, (name, cell) in enumerate((baseline or {}).items()):
        level, _ = _mean_and_spread(f"baseline[{name!r}]", cell)
        label = f"{_text(name)}, baseline" if name in colours else _text(name)
        dashes = (0, (5, 2 if name in colours else 2 + 2 * index))
        axes.axhline(level, color=colours.get(name, _GREY), linestyle=dashes, linewidth=1.3, label=label)
    if log_x:
        _space_by_ratio(axes, np.array(sorted(positions)))
    elif all(x.is_integer() for x in positions):
        # Between two layers there is none.
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return _save(figure, path, axes.get_legend_handles_labels()[0])


def plot_meta_training(log_history: Sequence[dict], path: str | Path) -> Path:
    """How meta-training went: task loss, domain loss, discriminator accuracy and use of the memory, against the step.

    Args:
        log_history: `trainer.state.log_history`. Entries hold any of `task_loss`, `domain_loss_<domain>`,
            `discriminator_accuracy_<domain>`, `slot_entropy` and `slots_used`; those without are passed over.
        path: the PNG file to write, in a folder that is made if need be.
    """
    path = _png_path(path)
    series = _meta_series(log_history)
    losses, accuracies = (
        {name.removeprefix(prefix): points for name, points in series.items() if name.startswith(prefix)}
        for prefix in _META_PREFIXES
    )
    entropy, used = series.get("slot_entropy"), series.get("slots_used")

    shown = {
        "Task loss": series.get("task_loss"),
        "Domain loss (dotted: ln 2, chance)": losses,
        "Discriminator accuracy (dotted: 0.5, chance)": accuracies,
        "Use of the memory": entropy or used,
    }
    figure, panels = _new_figure(9.6, 6.4, titles=list(shown), rows=2, sharex=True)
    for axes, points in zip(panels, shown.values(), strict=True):
        if not points:
            axes.text(0.5, 0.6, "not logged", transform=axes.transAxes, ha="center", va="center", color=_GREY)
    task, loss, accuracy, memory = panels
    accuracy.set_xlabel("step")
    _draw_series(task, series.get("task_loss"), {"color": _DARK, "marker": "o"})
    loss.axhline(math.log(2), color=_DARK, linestyle=":", linewidth=1.3)
    accuracy.axhline(0.5, color=_DARK, linestyle=":", linewidth=1.3)
    handles = {}
    for index, domain in enumerate(sorted({*losses, *accuracies})):
        style = _series_style(index, f"meta-target {_text(domain)}")
        lines = [_draw_series(loss, losses.get(domain), style), _draw_series(accuracy, accuracies.get(domain), style)]
        handles[domain] = lines[0] or lines[1]
    low, high = accuracy.get_ylim()
    accuracy.set_ylim(min(low, 0.0), max(high, 1.02))

    right = memory.twinx()
    right.spines["top"].set_visible(False)
    _draw_series(memory, entropy, {"color": _DARK, "marker": "o"})
    _draw_series(right, used, {"color": _TARGET_COLOUR, "marker": "s", "linestyle": "--"})
    memory.set(xlabel="step", ylabel="slot entropy (solid)" if entropy else "")
    memory.tick_params(axis="y", left=bool(entropy), labelleft=bool(entropy))
    right.set_ylabel("slots used (dashed)" if used else "", color=_TARGET_COLOUR)
    right.tick_params(axis="y", colors=_TARGET_COLOUR, right=bool(used), labelright=bool(used))
    return _save(figure, path, list(handles.values()))


def _png_path(path: str | Path) -> Path:
    if Path(path).suffix.lower() != ".png":
        raise ValueError(f"`path` is {str(path)!r}: figures are PNG files, so end it in '.png'.")
    return Path(path)


def _check_mapping(argument: str, value: Any, shape: str, nested: bool = False) -> None:
    if not isinstance(value, Mapping) or not value:
        found = "empty" if isinstance(value, Mapping) else f"a {type(value).__name__}"
        raise ValueError(f"`{argument}` is {found}: pass {shape}.")
    for name, part in value.items() if nested else ():
        _check_mapping(f"{argument}[{name!r}]", part, shape.split(": ", 1)[1][:-1])


def _feature_array(title: str, values: Any, domains: np.ndarray) -> np.ndarray:
    array = np.asarray(as_numpy(values), dtype=np.float64)
    if array.ndim != 2 or array.shape[0] < _LEAST_ROWS or array.shape[1] < 2:
        raise ValueError(
            f"`features[{title!r}]` has shape {array.shape}: pass (rows, width), one vector for each example, with at "
            f"least {_LEAST_ROWS} rows and a width of 2 (average token features over the sequence first)."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"`features[{title!r}]` holds nan or infinity: drop such rows here and in `domains`.")
    check_same_length(**{f"features[{title!r}]": array, "domains": domains})
    return array


def _mean_and_spread(where: str, cell: Any) -> tuple[float, float]:
    values = np.atleast_1d(np.asarray(as_numpy(cell), dtype=np.float64))
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"`{where}` has shape {values.shape}: pass a number, or one number for each seed.")
    if not np.isfinite(values).all():
        raise ValueError(f"`{where}` holds nan or infinity: leave out the run that diverged, or repeat it.")
    summary = summarise(values)
    # A single run has no spread, and matplotlib draws nothing for nan.
    return summary.mean, math.nan if summary.std is None else summary.std


def _position(name: str, x: Any) -> float:
    try:
        return float(x)
    except (TypeError, ValueError):
        raise ValueError(f"`curves[{name!r}]` has the key {x!r}: pass numbers, the places on the x axis.") from None


def _meta_series(log_history: Sequence[dict]) -> dict[str, list[tuple[float, float]]]:
    series = {}
    for index, entry in enumerate(log_history):
        for name, value in entry.items():
            if (name in _META_NAMES or name.startswith(_META_PREFIXES)) and isinstance(value, Real):
                if "step" not in entry:
                    raise ValueError(f"`log_history[{index}]` has no `step`: pass `trainer.state.log_history`.")
                series.setdefault(name, []).append((entry["step"], value))
    if not series:
        wanted = ", ".join(f"`{name}`" for name in (*_META_NAMES, *(f"{prefix}<domain>" for prefix in _META_PREFIXES)))
        raise ValueError(
            f"`log_history` holds none of {wanted}: pass the `state.log_history` of a trainer that meta-trained, with "
            "`logging_steps` no larger than the number of its steps."
        )
    return series


def _principal_components(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two principal components scaled into [0, 1] x [0, 1], and the share of the variance that each holds."""
    left, singular, _ = np.linalg.svd(array - array.mean(axis=0), full_matrices=False)
    points, variances = left[:, :2] * singular[:2], np.square(singular)
    low, span = points.min(axis=0), np.ptp(points, axis=0)
    # An untrained memory answers every row alike: rounding must not be blown up into a cloud.
    flat = span <= 1e-9 * np.abs(array).max()
    scaled = np.where(flat, 0.5, (points - low) / np.where(flat, 1.0, span))
    return scaled, np.where(flat, 0.0, variances[:2] / (variances.sum() or 1.0))


def _neighbour_embedding(array: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.manifold import TSNE

    if (array == array[0]).all():
        return np.zeros((len(array), 2))
    # The perplexity is a number of neighbours: t-SNE wants it well below that of the rows.
    return TSNE(perplexity=min(30.0, (len(array) - 1) / 3), init="pca", random_state=seed).fit_transform(array)


def _draw_densities(axes, points: np.ndarray, is_target: np.ndarray, sources: list[str], target: str) -> list:
    from matplotlib import colors, lines, patches
    from scipy.stats import gaussian_kde

    source_colour = _SOURCE_COLOURS[0]
    shades = [colors.to_rgba(source_colour, alpha) for alpha in np.linspace(0.12, 0.75, len(_ENCLOSED))]
    ticks = np.linspace(*_GRID_LIMITS, _GRID_POINTS)
    grid = np.stack(np.meshgrid(ticks, ticks))
    for group, colour in ((points[~is_target], source_colour), (points[is_target], _TARGET_COLOUR)):
        # Scott's bandwidth along the group's narrowest direction. Contours finer than the grid cannot be drawn, and
        # a group without extent has no density: the rows themselves are shown.
        narrowest = max(np.linalg.eigvalsh(np.cov(group.T))[0], 0.0) if len(group) > 2 else 0.0
        if math.sqrt(narrowest) * len(group) ** (-1 / 6) < ticks[1] - ticks[0]:
            axes.scatter(*group.T, s=45 if colour == source_colour else 12, color=colour, alpha=0.7, linewidth=0)
            continue
        density = gaussian_kde(group.T)(grid.reshape(2, -1))
        heights = np.sort(density)[::-1]
        levels = np.unique(heights[np.searchsorted(np.cumsum(heights) / heights.sum(), _ENCLOSED)])
        density = density.reshape(grid[0].shape)
        if colour == source_colour:
            axes.contourf(*grid, density, levels, colors=shades[: len(levels)], extend="max")
        else:
            axes.contour(*grid, density, levels, colors=colour, linewidths=1.2)
    axes.set(xlim=_GRID_LIMITS, ylim=_GRID_LIMITS, xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), aspect="equal")
    listed = ", ".join(sources) if len(sources) <= 5 else f"{len(sources)} domains"
    return [
        patches.Patch(color=colors.to_rgba(source_colour, 0.55), label=f"sources: {_text(listed)}"),
        lines.Line2D([], [], color=_TARGET_COLOUR, linewidth=1.6, label=f"target: {_text(target)}"),
    ]


def _draw_domains(axes, points: np.ndarray, domains: np.ndarray, sources: list[str], target: str) -> list:
    handles = []
    for index, domain in enumerate([*sources, target]):
        style = {"color": _SOURCE_COLOURS[index % len(_SOURCE_COLOURS)], "marker": _MARKERS[index % len(_MARKERS)]}
        style |= {"s": 16, "alpha": 0.65, "linewidth": 0, "label": _text(domain)}
        if domain == target:
            style = {"color": _TARGET_COLOUR, "marker": "*", "s": 46, "edgecolor": "black", "linewidth": 0.4}
            style["label"] = f"{_text(target)} (target)"
        handles.append(axes.scatter(*points[domains == domain].T, **style))
    axes.set(xticks=(), yticks=(), xlabel="t-SNE 1", ylabel="t-SNE 2", box_aspect=1)
    return handles


def _space_by_ratio(axes, values: np.ndarray) -> None:
    positive = values[values > 0]
    if values[0] < 0 or not positive.size:
        raise ValueError(f"`log_x` cannot space x from {values[0]:g} to {values[-1]:g} by ratio: pass `log_x=False`.")
    places = np.log2(positive)
    step = float(np.median(np.diff(places))) if positive.size > 1 else 1.0
    # matplotlib gives the part below `linthresh`, where zero is, a width of linscale / (1 - 1 / base): one usual step.
    axes.set_xscale("symlog", base=2, linthresh=positive[0], linscale=step / 2)
    if positive.size < values.size:
        places = np.concatenate([[places[0] - step], places])
    # The baselines froze the limits of the linear axis.
    axes.autoscale(axis="x")
    labels, places = [_number(x) for x in values], (places - places[0]) / (np.ptp(places) or 1.0)
    # A character takes about 1.6 % of the axis; slanted labels stand closer, and below a line's height some must go.
    crowded = (np.diff(places) < 0.016 * max(map(len, labels)) + 0.015).any()
    last = -1.0
    for index, place in enumerate(places):
        last, labels[index] = (place, labels[index]) if place - last > 0.04 else (last, "")
    axes.set_xticks(values, labels, rotation=45 if crowded else 0)
    axes.set_xticks([], minor=True)


def _number(x: float) -> str:
    if x and not 0.01 <= x < 1e7:
        return np.format_float_scientific(x, precision=3, trim="-", exp_digits=1)
    return f"{x:,.0f}" if x == round(x) else f"{x:g}"


def _series_style(index: int, label: str) -> dict[str, str]:
    return {"color": _COLOURS[index % len(_COLOURS)], "marker": _MARKERS[index % len(_MARKERS)], "label": label}


def _draw_series(axes, points: list[tuple[float, float]] | None, style: dict[str, str]):
    if points:
        # Markers on every point of a long run would hide the line.
        style = {"markersize": 4.5, "markevery": max(1, len(points) // 15), "linewidth": 1.3, **style}
        return axes.plot(*zip(*points, strict=True), **style)[0]


def _text(name: Any) -> str:
    # Between two dollar signs matplotlib would read a formula.
    return str(name).replace("$", r"\$")


def _new_figure(width: float, height: float, titles: Sequence = ("",), rows: int = 1, grid=True, sharex=False):
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(NEEDS_MATPLOTLIB) from error
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    panels = list(figure.subplots(rows, len(titles) // rows, sharex=sharex, squeeze=False).flat)
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(_text(title), fontsize=10.5)
        if grid:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(True, color=_PALE, linewidth=0.7)
            axes.set_axisbelow(True)
    return figure, panels


def _save(figure, path: Path, handles: list) -> Path:
    if handles:
        entry_width = 0.085 * max(len(handle.get_label()) for handle in handles) + 0.6
        columns = max(1, min(int(figure.get_figwidth() / entry_width), len(handles)))
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=150)
    figure.clear()
    return path
