# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
How far methods are from their baseline in every setting of several accuracy files, in one picture:

    python -m hf_memaug.reporting.differences FILE.json FOLDER/FILE.json --methods mil --mark 1 --output differences.png
"""

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path

from hf_memaug.evaluation.checks import check_name
from hf_memaug.evaluation.continual import LOWER_IS_BETTER
from hf_memaug.reporting import plots
from hf_memaug.reporting.results import (
    CROSS,
    PAIRED,
    _difference,
    _domains,
    _filtered,
    _lacking,
    _of_seeds,
    _table_of,
    compare_rows,
    read_results,
)

PANELS_A_ROW = 3


def find_differences(
    files: Sequence[str | os.PathLike],
    methods: Sequence[str],
    baseline: str = "erm",
    *,
    metric: str | None = None,
    seeds: Sequence[int] | None = None,
    cross: Sequence[str] = CROSS,
    over: str = "seeds",
) -> list[dict]:
    """
    What `compare_rows` finds for each method in each setting that it was trained in, in the order of the files, and
    beside it "data", "metric" and "setting": backbone and head, and what tells a file's folder from the others', or the
    file itself where another of its folder has the same; and "lacking", targets that have other metrics alone.

    The difference is None, and n is 0, where no seed of the method and of the baseline has all targets: those that any
    of the files has for the data.

    Args:
        methods: what to compare with the baseline.
        metric (*optional*): only this one. Default: all that are there.
        seeds (*optional*): only the models of these seeds.
        cross, over (*optional*): as in `compare_rows`.
    """
    methods = [methods] if isinstance(methods, str) else list(dict.fromkeys(methods))
    if not methods or baseline in methods:
        raise ValueError(f"`methods` is {methods}: name what is compared with the baseline, {baseline!r}.")
    read = {Path(file).resolve(): read_results(file)["rows"] for file in files}
    every = [row for rows in read.values() for row in rows]
    if len(read) < len(files) or not every:
        raise ValueError(f"`files` are {list(map(str, files))}: name files with rows, each once.")
    for argument, name in (("baseline", baseline), *(("methods", method) for method in methods)):
        check_name(argument, name, dict.fromkeys(row["method"] for row in every))
    _of_seeds(_filtered(every, metric=metric), seeds)
    targets = {
        (data, measured): _domains([r for r in every if (r["data"], r["metric"]) == (data, measured)], data, cross)
        for data, measured in {(row["data"], row["metric"]) for row in every}
    }
    found = []
    for place, rows in zip(_places(read), read.values(), strict=True):
        for table in dict.fromkeys(_table_of(row) for row in rows if metric in (None, row["metric"])):
            data, backbone, head, measured = table
            named = {"data": data, "metric": measured, "setting": ", ".join(filter(None, (backbone, head, place)))}
            named["lacking"] = _lacking([row for row in every if row["data"] == data], measured)
            of_table = [row for row in rows if _table_of(row) == table]
            chosen = [row for row in of_table if seeds is None or row["seed"] in seeds]
            trained, ever = ({row["method"] for row in some} for some in (chosen, of_table))
            selection = {"data": data, "targets": targets[data, measured], "cross": cross, "over": over}
            for method in methods:
                if {method, baseline} <= trained:
                    found.append({**named, **compare_rows(chosen, method, baseline, **selection)})
                elif method in ever:
                    found.append({**named, "method": method, "baseline": baseline, "difference": None, "n": 0})
    if not any(one["n"] for one in found):
        both = f"{' or '.join(f'`{method}`' for method in methods)} and `{baseline}`"
        asked = "; ".join(f"{', '.join(of)}: {', '.join(names) or 'none'}" for of, names in sorted(targets.items()))
        raise ValueError(
            f"`files` have no seed that {both} both have with all targets ({asked}): train both on all, leave out a "
            f"file of other targets, or say by `cross` which are outside the data (now: {', '.join(cross) or 'none'})."
        )
    return found


def _places(read: dict[Path, list[dict]]) -> list[str]:
    """What tells each file from the others: its folder, as seen from the one that they share, or its own name too."""
    shared = Path(os.path.commonpath([path.parent for path in read]))
    tables = {path: {(_table_of(row), row["method"]) for row in rows} for path, rows in read.items()}

    def place(path: Path) -> str:
        beside = [other for other in read if other != path and other.parent == path.parent]
        is_alone = not any(tables[path] & tables[other] for other in beside)
        folder = path.parent.relative_to(shared)
        return (folder if is_alone else folder / path.stem).as_posix().removeprefix(".")

    return list(map(place, read))


def plot_differences(differences: Sequence[dict], path: str | Path, *, mark: float | None = None) -> Path:
    """
    A line for each setting and a panel for each data set: the difference, and its 95 % interval where there is one.

    Args:
        differences: what `find_differences` gave.
        path: the PNG file to write, in a folder that is made if need be.
        mark (*optional*): a difference to draw a dashed line at, such as the one that was hoped for.
    """
    path = plots._png_path(path)
    differences = [one for one in differences if one["difference"] is not None]
    if not differences:
        raise ValueError("`differences` is empty: pass what `find_differences` gave.")
    if mark is not None and not math.isfinite(mark):
        raise ValueError(f"`mark` is {mark}: a line is drawn at a number of points, such as 1.0.")
    panels, settings, methods = (
        list(dict.fromkeys(of(one) for one in differences))
        for of in (lambda one: (one["data"], one["metric"]), lambda one: one["setting"], lambda one: one["method"])
    )
    measured = {metric for _, metric in panels}
    titles = [f"{data}, {metric}" if len(measured) > 1 else data for data, metric in panels]
    columns = min(len(panels), PANELS_A_ROW)
    rows = math.ceil(len(panels) / columns)
    width = 2.2 + 3.2 * columns + 0.07 * max(map(len, settings))
    height = rows * (1.1 + 0.2 * len(settings) * (len(methods) + 0.5)) + 0.3
    figure, all_axes = plots._new_figure(width, height, titles + [""] * (rows * columns - len(panels)), rows=rows)
    for axes in all_axes[len(panels) :]:
        axes.set_axis_off()
    # The lines of a setting lie around its name, however many there are.
    trained = {(one["setting"], one["method"]) for one in differences}
    beside = {setting: [method for method in methods if (setting, method) in trained] for setting in settings}
    handles = {}
    for column, (axes, panel) in enumerate(zip(all_axes, panels, strict=False)):
        axes.axvline(0, color=plots._DARK, linewidth=1)
        if mark is not None:
            axes.axvline(mark, color=plots._GREY, linewidth=1, linestyle="--")
        for index, method in enumerate(methods):
            shown = [one for one in differences if (one["data"], one["metric"], one["method"]) == (*panel, method)]
            if not shown:
                continue
            others = [beside[one["setting"]] for one in shown]
            shifts = [(those.index(method) - (len(those) - 1) / 2) * 0.8 / len(methods) for those in others]
            places = [settings.index(one["setting"]) + shift for one, shift in zip(shown, shifts, strict=True)]
            # A single pair has no interval.
            reach = [
                [0.0 if one["low"] is None else abs(one[end] - one["difference"]) for one in shown]
                for end in ("low", "high")
            ]
            style = {**plots._series_style(index, plots._text(method)), "linestyle": "none", "capsize": 2.5}
            drawn = axes.errorbar([one["difference"] for one in shown], places, xerr=reach, markersize=5, **style)
            handles.setdefault(method, drawn)
        axes.grid(False, axis="y")
        axes.set_ylim(len(settings) - 0.4, -0.6)
        axes.set_yticks(
            range(len(settings)), map(plots._text, settings) if column % columns == 0 else [""] * len(settings)
        )
        axes.locator_params(axis="x", nbins=7)
        subject = methods[0] if len(methods) == 1 else "method"
        lower = " (lower is better)" if panel[1] in LOWER_IS_BETTER else ""
        axes.set_xlabel(plots._text(f"{subject} − {differences[0]['baseline']}, {panel[1]}{lower}"))
    for metric in measured:
        # One scale for what is measured alike.
        alike = [axes for axes, panel in zip(all_axes, panels, strict=False) if panel[1] == metric]
        ends = [end for axes in alike for end in axes.get_xlim()]
        for axes in alike:
            axes.set_xlim(min(ends), max(ends))
    ordered = [handles[method] for method in methods]
    return plots._save(figure, path, ordered if len(methods) > 1 else [])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m hf_memaug.reporting.differences",
        description="Draws how far methods are from their baseline in every setting of accuracy files, with the 95 %% "
        "interval of a paired t-test, and prints the same.",
    )
    parser.add_argument("files", nargs="+", metavar="file", help="JSON files that `write_results` wrote")
    parser.add_argument("--methods", nargs="+", required=True, help="what to compare with the baseline")
    parser.add_argument("--baseline", default="erm", help="what to compare with (default: %(default)s)")
    parser.add_argument("--metric", help="only this metric (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, help="only the models of these seeds (default: all)")
    parser.add_argument(
        "--cross", nargs="*", default=CROSS, help=f"targets outside the data (default: {' '.join(CROSS)})"
    )
    parser.add_argument(
        "--over", default="seeds", choices=PAIRED, help="what the test pairs; targets are folds (default: %(default)s)"
    )
    parser.add_argument("--mark", type=float, help="a difference to draw a dashed line at")
    parser.add_argument(
        "--output", type=Path, default=Path("differences.png"), help="the PNG file to write (default: %(default)s)"
    )
    options = vars(parser.parse_args(arguments))
    output, mark = options.pop("output"), options.pop("mark")
    try:
        found = find_differences(**options)
        path = plot_differences(found, output, mark=mark)
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))
    columns = {name: max(len(one[name]) for one in found) for name in ("data", "metric", "setting", "method")}
    for one in found:
        said = _difference(one, interval=True) if one["n"] else "not drawn: no seed has all targets of both"
        print("  ".join([*(one[name].ljust(width) for name, width in columns.items()), said]))
    lacking = (
        f"`{one['metric']}` of {one['data']} is without {', '.join(one['lacking'])}" for one in found if one["lacking"]
    )
    for line in dict.fromkeys(lacking):
        print(line)
    print(path)


if __name__ == "__main__":
    main()
