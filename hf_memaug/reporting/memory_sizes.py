# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The score of HMA against the sizes of its memories (Qiu et al., 2023, Figure 5), from an accuracy file:

    python -m hf_memaug.reporting.memory_sizes FILE.json --output FILE.png
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hf_memaug.evaluation.checks import check_name
from hf_memaug.reporting import plots
from hf_memaug.reporting.results import FIELDS, read_results

SIZES = ("synthetic_slots", "real_memory_size")
SELECTION = ("data", "target", "backbone", "metric")


def memory_size_curves(rows: Iterable[Mapping], **selection: str | None) -> dict[int, dict[int, list[float]]]:
    """
    `real_memory_size` -> `synthetic_slots` -> the score of each seed, in the order of the sizes.

    Args:
        rows: rows of an accuracy file. Those with neither of the two sizes, such as a backbone's, are passed over.
        selection (*optional*): `data`, `target`, `backbone` and `metric`, each needed where the rows have several.
    """
    rows = [row for row in rows if any(size in row for size in SIZES)]
    if not rows:
        raise ValueError("`rows` have no `synthetic_slots` and no `real_memory_size`: pass runs of different sizes.")
    for field in SELECTION:
        found = list(dict.fromkeys(row[field] for row in rows))
        wanted = selection.pop(field, None)
        if wanted is not None:
            check_name(field, wanted, found)
            rows = [row for row in rows if row[field] == wanted]
        elif len(found) > 1:
            raise ValueError(f"`rows` have several values of {field!r}, {found}: pass `{field}`.")
    if selection:
        check_name("selection", next(iter(selection)), SELECTION)
    curves: dict[int, dict[int, dict[int, float]]] = {}
    for row in rows:
        for size in SIZES:
            value = row.get(size)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"`{size}` is {value!r} in `rows` entry {dict(row)}: write a number, 0 for none.")
        slots, real = (row[size] for size in SIZES)
        of_seeds = curves.setdefault(real, {}).setdefault(slots, {})
        if row["seed"] in of_seeds:
            settings = sorted(set(row) - set(FIELDS) - set(SIZES))
            hint = f" They also differ in {settings}." if settings else ""
            raise ValueError(
                f"`rows` have several values for seed {row['seed']} of `synthetic_slots` {slots} and "
                f"`real_memory_size` {real}: pass only the rows of one setting.{hint}"
            )
        of_seeds[row["seed"]] = row["value"]
    return {
        real: {slots: list(curves[real][slots].values()) for slots in sorted(curves[real])} for real in sorted(curves)
    }


def plot_memory_sizes(rows: Iterable[Mapping], path: str | Path, **selection: str | None) -> Path:
    """
    The score against the number of synthetic slots, a line for each size of the real memory, where 0 means none of the
    kind. Lines are means over the seeds, bands standard deviations.

    Args:
        rows, selection: as in `memory_size_curves`.
        path: the PNG file to write, in a folder that is made if need be.
    """
    rows = list(rows)
    curves = memory_size_curves(rows, **selection)
    metrics = {row["metric"] for row in rows if any(size in row for size in SIZES)}
    named = {f"real memory of {real:,}" if real else "no real memory": curve for real, curve in curves.items()}
    ylabel = selection.get("metric") or metrics.pop()
    log_x = any(slots > 0 for curve in curves.values() for slots in curve)
    return plots.plot_curve(named, path, "synthetic slots of each class", plots.plain(ylabel), log_x=log_x)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m hf_memaug.reporting.memory_sizes",
        description="Draws the score against the number of synthetic slots, a line for each size of the real memory.",
    )
    parser.add_argument("file", help="the JSON file that `write_results` wrote, whose rows have both sizes")
    parser.add_argument("--output", type=Path, default=Path("memory_sizes.png"), help="the PNG file to write")
    for field in SELECTION:
        parser.add_argument(f"--{field}", help=f"only the rows of this {field}, where there are several")
    options = vars(parser.parse_args(arguments))
    file, output = options.pop("file"), options.pop("output")
    try:
        print(plot_memory_sizes(read_results(file)["rows"], output, **options))
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
