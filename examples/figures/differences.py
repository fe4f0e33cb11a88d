# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The difference between methods and their baseline in every setting of several result files, as one figure:

    python examples/figures/differences.py FILE.json FOLDER/FILE.json --methods mil --mark 1 --output differences.png
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tables import common_options, select, without_metric

from hf_memaug.evaluation.checks import check_name
from hf_memaug.evaluation.continual import LOWER_IS_BETTER
from hf_memaug.reporting import plots
from hf_memaug.reporting.results import CROSS, Comparison, compare, domains_of, read_results, scores_of, table_of


class Difference(NamedTuple):
    """A method against the baseline in one setting: backbone, head and file."""

    data: str
    metric: str
    setting: str
    method: str
    found: Comparison


def find_differences(
    files: Sequence[str | os.PathLike],
    methods: Sequence[str],
    baseline: str = "erm",
    *,
    metric: str | None = None,
    seeds: Sequence[int] | None = None,
    cross: Sequence[str] = CROSS,
    over: str = "seeds",
) -> list[Difference]:
    """
    Each method against the baseline in each setting that it was trained in, in the order of the files.

    The averages are over the targets that any of the files has for the data. Options are those of
    `tables.py`.
    """
    read = {Path(file).resolve(): read_results(file)["rows"] for file in files}
    every = [row for rows in read.values() for row in rows]
    for argument, name in (("baseline", baseline), *(("methods", method) for method in methods)):
        check_name(argument, name, dict.fromkeys(row["method"] for row in every))
    select(every, seeds, metric=metric)
    found = []
    for place, rows in zip(_places(read), read.values(), strict=True):
        for table in dict.fromkeys(table_of(row) for row in rows if metric in (None, row["metric"])):
            data, backbone, head, measured = table
            targets = domains_of([r for r in every if (r["data"], r["metric"]) == (data, measured)], data, cross)
            scores = scores_of(r for r in rows if table_of(r) == table and (seeds is None or r["seed"] in seeds))
            setting = ", ".join(filter(None, (backbone, head, place)))
            for method in (name for name in methods if name in scores):
                tested = baseline in scores
                one = compare(scores, method, baseline, targets, over) if tested else Comparison({}, None, None, 0)
                found.append(Difference(data, measured, setting, method, one))
    if not any(one.found.n for one in found):
        raise ValueError(
            f"`files` have no seed for which both {list(methods)} and {baseline!r} have all targets: train both on all "
            "targets, or name the targets outside the data with `cross`."
        )
    return found


def _places(read: dict[Path, list[dict]]) -> list[str]:
    """What tells a file from the others: its folder, and its name where a file of that folder has the same tables."""
    shared = Path(os.path.commonpath([path.parent for path in read]))
    tables = {path: set(map(table_of, rows)) for path, rows in read.items()}
    places = []
    for path in read:
        folder = path.parent.relative_to(shared)
        beside = [other for other in read if other != path and other.parent == path.parent]
        alone = not any(tables[path] & tables[other] for other in beside)
        places.append((folder if alone else folder / path.stem).as_posix().removeprefix("."))
    return places


def plot_differences(
    differences: Sequence[Difference], path: str | Path, baseline: str = "erm", mark: float | None = None
) -> Path:
    """
    A line for each setting and a panel for each data set: the difference and its 95 % interval.

    Args:
        mark (*optional*): a difference to draw a dashed line at.
    """
    differences = [one for one in differences if one.found.n]
    panels, settings, methods = (
        list(dict.fromkeys(of(one) for one in differences))
        for of in (lambda one: (one.data, one.metric), lambda one: one.setting, lambda one: one.method)
    )
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    titles = [f"{data}, {metric}" if len({m for _, m in panels}) > 1 else data for data, metric in panels]
    size = (
        2.2 + 3.2 * columns + 0.07 * max(map(len, settings)),
        rows * (1.1 + 0.2 * len(settings) * len(methods)) + 0.5,
    )
    figure, all_axes = plots.new_figure(*size, titles, columns, sharey=True)
    for axes, panel in zip(all_axes, panels, strict=True):
        axes.axvline(0, color=plots.DARK, linewidth=1)
        if mark is not None:
            axes.axvline(mark, color=plots.GREY, linewidth=1, linestyle="--")
        for index, method in enumerate(methods):
            shown = [one for one in differences if (one.data, one.metric, one.method) == (*panel, method)]
            shift = (index - (len(methods) - 1) / 2) * 0.8 / len(methods)
            places = [settings.index(one.setting) + shift for one in shown]
            means = [one.found.difference for one in shown]
            # A single pair has no interval.
            reach = [
                one.found.test.high - mean if one.found.test else 0 for one, mean in zip(shown, means, strict=True)
            ]
            style = {**plots.series_style(index, method), "linestyle": "none", "capsize": 2.5, "markersize": 5}
            axes.errorbar(means, places, xerr=reach, **style)
        axes.grid(False, axis="y")
        lower = " (lower is better)" if panel[1] in LOWER_IS_BETTER else ""
        subject = methods[0] if len(methods) == 1 else "method"
        axes.set_xlabel(plots.plain(f"{subject} − {baseline}, {panel[1]}{lower}"))
    all_axes[0].set(ylim=(len(settings) - 0.4, -0.6))
    all_axes[0].set_yticks(range(len(settings)), list(map(plots.plain, settings)))
    for metric in {metric for _, metric in panels}:
        # One scale for each metric.
        alike = [axes for axes, panel in zip(all_axes, panels, strict=True) if panel[1] == metric]
        ends = [end for axes in alike for end in axes.get_xlim()]
        for axes in alike:
            axes.set_xlim(min(ends), max(ends))
    return plots.save(figure, path, all_axes[0].get_legend_handles_labels()[0] if len(methods) > 1 else [])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python examples/figures/differences.py",
        description="Draws the difference between methods and their baseline in every setting of result files, with "
        "the 95 %% interval of a paired t-test, and prints the same.",
    )
    common_options(parser)
    parser.add_argument("--methods", nargs="+", required=True, help="what to compare with the baseline")
    parser.add_argument("--baseline", default="erm", help="what to compare with (default: %(default)s)")
    parser.add_argument("--mark", type=float, help="a difference to draw a dashed line at")
    parser.add_argument("--output", type=Path, default=Path("differences.png"), help="default: %(default)s")
    options = vars(parser.parse_args(arguments))
    output, mark = options.pop("output"), options.pop("mark")
    try:
        found = find_differences(**options)
        path = plot_differences(found, output, options["baseline"], mark)
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))
    lines = [[*one[:4], one.found.text(interval=True) if one.found.n else "no seed has all targets"] for one in found]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    rows = [row for file in options["files"] for row in read_results(file)["rows"]]
    for data, metric in dict.fromkeys((one.data, one.metric) for one in found):
        lacking = sorted({row["target"] for row in without_metric([r for r in rows if r["data"] == data], metric)})
        if lacking:
            print(f"`{metric}` of {data} is without {', '.join(lacking)}")
    print(path)


if __name__ == "__main__":
    main()
