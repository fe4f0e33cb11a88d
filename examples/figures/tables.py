# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The tables of result files, as a Markdown page:

    python examples/figures/tables.py FILE.json --interval --output FILE.md
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from hf_memaug.evaluation.checks import check_name
from hf_memaug.files import write_atomically
from hf_memaug.reporting.results import (
    CROSS,
    FIELDS,
    PAIRED,
    averages,
    domains_of,
    read_results,
    results_table,
    scores_of,
    table_of,
)


def select(rows: list[dict], seeds: Sequence[int] | None = None, **wanted: str | None) -> list[dict]:
    """The rows with these values, which must be known."""
    for field, name in wanted.items():
        if name is not None:
            check_name(field, name, dict.fromkeys(row[field] for row in rows if row.get(field) is not None))
            rows = [row for row in rows if row.get(field) == name]
    known = sorted({row["seed"] for row in rows})
    if unknown := set(seeds or ()) - set(known):
        raise ValueError(f"`seeds` {sorted(unknown)} are not known: choose among {known}.")
    return [row for row in rows if seeds is None or row["seed"] in seeds]


def without_metric(rows: list[dict], metric: str) -> list[dict]:
    """The rows of targets that have other metrics only."""
    having = {(row["data"], row["target"]) for row in rows if row["metric"] == metric}
    return [row for row in rows if (row["data"], row["target"]) not in having]


def _named_by(rows: list[dict], field: str) -> list[dict]:
    """The rows with the value of a further field in the name of their method, in the order of the values."""
    check_name("--by", field, dict.fromkeys(name for row in rows for name in row if name not in {*FIELDS, "head"}))
    named = []
    for row in sorted(rows, key=lambda row: (field in row, str(type(row.get(field))), row.get(field) or 0)):
        rest = {name: value for name, value in row.items() if name != field}
        value = f"{row[field]:g}" if isinstance(row.get(field), float) else row.get(field)
        named.append({**rest, "method": f"{row['method']}, {field} {value}"} if field in row else rest)
    return named


def _read_side_by_side(files: Sequence[str]) -> dict:
    """The first file, with the rows of the others that belong to its tables, named with their folder."""
    result, *others = map(read_results, files)
    tables = set(map(table_of, result["rows"]))
    commands = [*result.get("earlier_commands", []), result["command"]]
    for file, other in zip(files[1:], others, strict=True):
        folder = Path(file).resolve().parent.name
        beside = [{**row, "method": f"{row['method']}, {folder}"} for row in other["rows"] if table_of(row) in tables]
        if not beside:
            raise ValueError(f"`{file}` has no row of the data, backbone, head and metric of a row of `{files[0]}`.")
        result["rows"] += beside
        commands += [*other.get("earlier_commands", []), other["command"]]
    return {**result, "commands": list(dict.fromkeys(commands))}


def report(
    files, baseline=None, cross=CROSS, over="seeds", or_metric=None, interval=False, by=None, seeds=None, **wanted
):
    """The Markdown page of the command: one table for each data, backbone, head and metric."""
    result = _read_side_by_side(files)
    rows, metric, said = result["rows"], wanted.get("metric"), ""
    if by is not None:
        rows = _named_by(rows, by)
    if metric is not None:
        for name in filter(None, (metric, or_metric)):
            check_name("metric", name, dict.fromkeys(row["metric"] for row in rows))
        lacking = without_metric(select(rows, **{**wanted, "metric": None}), metric)
        names = ", ".join(sorted({row["target"] for row in lacking}))
        if or_metric is not None:
            rows = [*rows, *({**row, "metric": metric} for row in lacking if row["metric"] == or_metric)]
            said = f" Targets without `{metric}` have `{or_metric}` in its place: {names or 'none'}."
        elif names:
            said = f" Targets without `{metric}` are left out (`--or-metric` replaces it): {names}."
    elif or_metric is not None:
        raise ValueError("`--or-metric` replaces a missing metric: pass `--metric` as well.")
    methods = dict.fromkeys(row["method"] for row in rows)
    baseline = baseline or ("erm" if "erm" in methods else next(iter(methods)))
    check_name("--baseline", baseline, methods)
    tested = f"{'95 % interval and p-value' if interval else 'p-value'} of a paired t-test"
    paths = [Path(file).resolve() for file in files]
    sources = [f"`{path.name}`" if len(paths) == 1 else f"`{path.parent.name}/{path.name}`" for path in paths]
    sections = [
        f"# {result['table']}\n\nMean ± standard deviation over seeds, in points, the best in bold. − {baseline}: "
        f"difference of the averages over common seeds, and {tested}{' over the targets' * (over == 'targets')}.{said} "
        f"Made by `python examples/figures/tables.py` from {', '.join(sources)}, and that by",
        "\n".join(["```bash", *result["commands"], "```"]),
    ]
    chosen = select(rows, seeds, **wanted)
    for table in dict.fromkeys(map(table_of, chosen)):
        (data, _, _, measured), of_table = table, [row for row in chosen if table_of(row) == table]
        # The targets of all tables of the data: an average over some of them would pass for that of the data.
        targets = domains_of([r for r in rows if (r["data"], r["metric"]) == (data, measured)], data, cross)
        scores = scores_of(of_table)
        full = {
            name: ", ".join(map(str, averages(of, targets or list(of)))) or "none in full"
            for name, of in scores.items()
        }
        same = len(set(full.values())) == 1
        against = baseline if baseline in scores else None
        options = {"targets": targets, "cross": cross, "over": over, "interval": interval}
        sections += [
            f"## {', '.join(filter(None, table))}",
            results_table(of_table, data=data, baseline=against, **options),
            f"Seeds: {next(iter(full.values())) if same else '; '.join(f'{name} {of}' for name, of in full.items())}. "
            f"{result['device']}, {result['date']}.",
        ]
    return "\n\n".join(sections) + "\n"


def common_options(parser: argparse.ArgumentParser) -> None:
    """The options that `tables.py` and `differences.py` share."""
    parser.add_argument("files", nargs="+", metavar="file", help="JSON files that `write_results` wrote")
    parser.add_argument("--metric", help="only this metric (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, help="only the models of these seeds (default: all)")
    parser.add_argument("--cross", nargs="*", default=CROSS, help="targets outside the data (default: %(default)s)")
    parser.add_argument("--over", default="seeds", choices=PAIRED, help="what the test pairs; targets are folds")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python examples/figures/tables.py", description="Tables of result files.")
    common_options(parser)
    for field in ("data", "backbone", "head"):
        parser.add_argument(f"--{field}", help=f"only the tables of this {field} (default: all)")
    parser.add_argument("--or-metric", metavar="METRIC", help="replaces --metric where a target lacks it")
    parser.add_argument("--baseline", help="the method to compare with (default: erm, or else the first)")
    parser.add_argument(
        "--by", metavar="FIELD", help="a row of the table for each value of FIELD, such as memory_slots"
    )
    parser.add_argument("--interval", action="store_true", help="show the 95 %% interval of each difference")
    parser.add_argument("--output", type=Path, help="write the Markdown here (default: print it)")
    options = vars(parser.parse_args(arguments))
    output = options.pop("output")
    try:
        text = report(**options)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)


if __name__ == "__main__":
    main()
