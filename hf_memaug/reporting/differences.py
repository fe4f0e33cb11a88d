# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
How far methods are from their baseline in every setting of several accuracy files, in one picture:

    python -m hf_memaug.reporting.differences FILE.json OTHER/FILE.json --methods mil --mark 1 --output differences.png
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from hf_memaug.evaluation.checks import check_name
from hf_memaug.reporting import plots
from hf_memaug.reporting.results import (
    CROSS,
    _difference,
    _domains,
    _filtered,
    _of_seeds,
    _table_of,
    compare_rows,
    read_results,
)


def find_differences(
    files: Sequence[str | os.PathLike],
    methods: Sequence[str],
    baseline: str = "erm",
    *,
    metric: str | None = None,
    seeds: Sequence[int] | None = None,
) -> list[dict]:
    """
    What `compare_rows` finds for each method in each setting of each file, in their order, and beside it "data",
    "metric" and "setting": backbone and head, and the folder of a file that lies in another one than the first.

    A setting in which no seed of the method and of the baseline has all targets is passed over.

    Args:
        methods: what to compare with the baseline, where it was trained.
        metric (*optional*): only this one. Default: all that are there.
        seeds (*optional*): only the models of these seeds.
    """
    if baseline in methods:
        raise ValueError(f"`methods` holds the baseline, {baseline!r}, which is compared with: leave it out.")
    read = [(Path(file).resolve().parent, read_results(file)["rows"]) for file in files]
    every = [row for _, rows in read for row in rows]
    for argument, name in (("baseline", baseline), *(("methods", method) for method in methods)):
        check_name(argument, name, dict.fromkeys(row["method"] for row in every))
    _filtered(_of_seeds(every, seeds), metric=metric)
    found: dict[tuple, dict] = {}
    for folder, rows in read:
        of_metric = [row for row in rows if metric in (None, row["metric"])]
        for table in dict.fromkeys(map(_table_of, of_metric)):
            data, backbone, head, measured = table
            # As in the tables: the average of some targets is not that of the data.
            targets = _domains([r for r in of_metric if (r["data"], r["metric"]) == (data, measured)], data, CROSS)
            chosen = [r for r in of_metric if _table_of(r) == table and (seeds is None or r["seed"] in seeds)]
            named = {"data": data, "metric": measured}
            named["setting"] = ", ".join(filter(None, (backbone, head, folder.name if folder != read[0][0] else "")))
            trained = {row["method"] for row in chosen}
            for method in methods:
                if not {method, baseline} <= trained:
                    continue
                comparison = compare_rows(chosen, method, baseline, data=data, targets=targets)
                if (key := (*named.values(), method)) in found:
                    raise ValueError(f"`files` both have {method!r} of {', '.join(named.values())}: draw one of them.")
                if comparison["n"]:
                    found[key] = {**named, **comparison}
    if not found:
        both = f"{' or '.join(f'`{method}`' for method in methods)} and `{baseline}`"
        raise ValueError(f"`files` have no seed that {both} both have in full: train both on all targets.")
    return list(found.values())


def plot_differences(
    differences: Sequence[dict], path: str | Path, *, baseline: str, mark: float | None = None
) -> Path:
    """
    A line for each setting and a panel for each data set: the difference, and its 95 % interval where there is one.

    Args:
        differences: what `find_differences` gave.
        path: the PNG file to write, in a folder that is made if need be.
        baseline: what zero stands for.
        mark (*optional*): a difference to draw a dashed line at, such as the one that was hoped for.
    """
    path = plots._png_path(path)
    panels, settings, methods = (
        list(dict.fromkeys(of(one) for one in differences))
        for of in (lambda one: (one["data"], one["metric"]), lambda one: one["setting"], lambda one: one["method"])
    )
    several = len({metric for _, metric in panels}) > 1
    titles = [f"{data}, {metric}" if several else data for data, metric in panels]
    height = 1.4 + 0.2 * len(settings) * (len(methods) + 0.5)
    width = 2.2 + 3.2 * len(panels) + 0.07 * max(map(len, settings))
    figure, all_axes = plots._new_figure(width, height, titles, sharex=True)
    # The lines of a setting lie around its name, however many there are.
    beside = {
        one: [m for m in methods if any((d["setting"], d["method"]) == (one, m) for d in differences)]
        for one in settings
    }
    handles = {}
    for axes, panel in zip(all_axes, panels, strict=True):
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
            middles = [one["difference"] for one in shown]
            # A single seed has no interval.
            reach = [
                [0.0 if one["low"] is None else abs(one[end] - one["difference"]) for one in shown]
                for end in ("low", "high")
            ]
            style = {**plots._series_style(index, plots._text(method)), "linestyle": "none", "capsize": 2.5}
            handles[method] = axes.errorbar(middles, places, xerr=reach, markersize=5, linewidth=1.4, **style)
        axes.grid(False, axis="y")
        axes.set_ylim(len(settings) - 0.4, -0.6)
        axes.set_yticks(range(len(settings)), [""] * len(settings))
        measured = "points" if several else plots._text(panel[1])
        axes.set_xlabel(
            f"{plots._text(methods[0]) if len(methods) == 1 else 'method'} − {plots._text(baseline)}, {measured}"
        )
    all_axes[0].set_yticklabels(map(plots._text, settings))
    return plots._save(figure, path, list(handles.values()) if len(methods) > 1 else [])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m hf_memaug.reporting.differences",
        description="Draws how far methods are from their baseline in every setting of accuracy files, with the 95 %% "
        "interval of the paired t-test over seeds, and prints the same.",
    )
    parser.add_argument("files", nargs="+", metavar="file", help="JSON files that `write_results` wrote")
    parser.add_argument("--methods", nargs="+", required=True, help="what to compare with the baseline")
    parser.add_argument("--baseline", default="erm", help="what to compare with (default: %(default)s)")
    parser.add_argument("--metric", help="only this metric (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, help="only the models of these seeds (default: all)")
    parser.add_argument("--mark", type=float, help="a difference to draw a dashed line at")
    parser.add_argument(
        "--output", type=Path, default=Path("differences.png"), help="the PNG file to write (default: %(default)s)"
    )
    options = vars(parser.parse_args(arguments))
    output, mark = options.pop("output"), options.pop("mark")
    try:
        found = find_differences(**options)
        path = plot_differences(found, output, baseline=options["baseline"], mark=mark)
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))
    columns = [max(len(one[name]) for one in found) for name in ("data", "setting", "method")]
    for one in found:
        names = (one[name].ljust(width) for name, width in zip(("data", "setting", "method"), columns, strict=True))
        print("  ".join([*names, _difference(one, interval=True)]))
    print(path)


if __name__ == "__main__":
    main()
