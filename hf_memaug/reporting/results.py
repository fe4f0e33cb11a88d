# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Result files: one row per trained model, so that means and tests can be recomputed, and the tables made from them.

    python -m hf_memaug.reporting.results FILE.json --interval --output FILE.md
"""

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from numbers import Real
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from hf_memaug import __version__
from hf_memaug.evaluation.checks import check_name
from hf_memaug.evaluation.continual import LOWER_IS_BETTER
from hf_memaug.evaluation.per_domain import score_table
from hf_memaug.evaluation.statistics import PairedTest, paired_t_test
from hf_memaug.files import write_atomically
from hf_memaug.hub.provenance import library_versions

FIELDS = ("method", "data", "target", "backbone", "seed", "metric", "value")
MADE_WITH = ("device", "python", "torch", "transformers", "hf_memaug")
# Test sets that are not domains of the training data: they have columns, but no part in the average over domains.
CROSS = ("imdb", "sst2", "snli", "sick")
PAIRED = ("seeds", "targets")
Scores = dict[str, dict[str, dict[int, float]]]


# The file


def write_results(path: str | os.PathLike, *, table: str, command: str, rows: Iterable[Mapping]) -> dict:
    """
    Adds rows to a result file and returns its content. A row replaces an older one that differs in `value` alone.

    Args:
        table: name of the table.
        command: the command that produced the rows.
        rows: each with `FIELDS`, the value in points (0-100). Further fields, such as "head", tell settings apart.
    """
    new = {_identity(row): row for row in map(_checked_row, rows)}
    if not new:
        raise ValueError("`rows` is empty: pass one row per trained model.")
    old = read_results(path) if Path(path).exists() else {"table": table, "rows": []}
    if old["table"] != table:
        raise ValueError(f"`table` is {table!r}, but {path} holds {old['table']!r}: choose another `path`.")
    before = {_identity(row): row for row in old["rows"]}
    found, result = [here()], {"table": table, "command": command}
    if before.keys() - new.keys():
        found.insert(0, {"device": old["device"], **old["versions"]})
        earlier = dict.fromkeys([*old.get("earlier_commands", []), old["command"]])
        earlier.pop(command, None)
        result |= {"earlier_commands": list(earlier)} if earlier else {}
    parts = {name: [part for one in found for part in one.get(name, "").split("; ") if part] for name in MADE_WITH}
    versions = {name: "; ".join(dict.fromkeys(several)) for name, several in parts.items()}
    result |= {"device": versions.pop("device"), "versions": versions}
    result["date"] = datetime.now(timezone.utc).date().isoformat()
    head = json.dumps(result, ensure_ascii=False, indent=2).removesuffix("\n}")
    result["rows"] = _sorted_rows([*{**before, **new}.values()])
    # One row a line: a new seed is a new line in the diff.
    lines = ",\n".join(f"    {json.dumps(row, ensure_ascii=False, allow_nan=False)}" for row in result["rows"])
    write_atomically(Path(path), f'{head},\n  "rows": [\n{lines}\n  ]\n}}\n')
    return result


def read_results(path: str | os.PathLike) -> dict:
    """The content of a result file, every row checked."""
    fields = {"table": str, "command": str, "device": str, "versions": dict, "date": str, "rows": list}
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
        wrong = [name for name, kind in fields.items() if not isinstance(result.get(name), kind)]
        if wrong:
            raise ValueError(f"missing or of another type: {wrong}.")
        result["rows"] = [_checked_row(row) for row in result["rows"]]
    except (AttributeError, ValueError) as error:
        raise ValueError(f"`path` {path} is not a result file: {error}") from error
    return result


def here() -> dict[str, str]:
    """The device and the versions of this process."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    found = {**library_versions(), "hf_memaug": __version__, "device": device}
    return {name: found[name] for name in MADE_WITH}


def _checked_row(row: Mapping) -> dict:
    missing = [field for field in FIELDS if field not in row]
    if missing:
        raise ValueError(f"`rows` entry {row} lacks `{missing[0]}`: every row has {list(FIELDS)}.")
    value = row["value"]
    if isinstance(value, bool) or not isinstance(value, Real) or not abs(value) <= 100:
        raise ValueError(f"`value` is {value!r} in `rows` entry {dict(row)}: pass a finite number in points (0-100).")
    if row["target"] == "average":
        raise ValueError(
            f'`target` is "average" in `rows` entry {dict(row)}: the name is kept for the mean over targets.'
        )
    return {**{field: row[field] for field in FIELDS}, **row, "seed": int(row["seed"]), "value": float(value)}


def _identity(row: dict) -> str:
    return json.dumps({field: content for field, content in row.items() if field != "value"}, sort_keys=True)


def table_of(row: Mapping) -> tuple[str, str, str, str]:
    """The table that a row belongs to: data, backbone, head and metric."""
    return row["data"], row["backbone"], str(row.get("head") or ""), row["metric"]


def _sorted_rows(rows: Sequence[dict]) -> list[dict]:
    """By table and name; the methods of a table stay in the order they came in."""
    came = {method: place for place, method in enumerate(dict.fromkeys((table_of(r), r["method"]) for r in rows))}
    return sorted(rows, key=lambda r: (table_of(r), came[table_of(r), r["method"]], r["target"], r["seed"]))


# Comparing


class Comparison(NamedTuple):
    """
    A method against a baseline.

    Attributes:
        averages: seed -> mean over the targets, of the seeds that have all targets.
        difference: difference of the means over the pairs; None without a pair.
        test: the paired t-test; None with fewer than two pairs.
        n: number of pairs.
    """

    averages: dict[int, float]
    difference: float | None
    test: PairedTest | None
    n: int

    def text(self, interval: bool = False) -> str:
        if self.difference is None:
            return "-"
        shown = f"n = {self.n}"
        if self.test is not None:
            shown = "p < 0.001" if self.test.p_value < 0.001 else f"p = {self.test.p_value:.3f}"
        if interval and self.test is not None:
            shown = f"{self.test.low:+.1f} to {self.test.high:+.1f}, {shown}"
        return f"{self.difference:+.1f} ({shown})".replace("-", "−")


def scores_of(rows: Iterable[Mapping]) -> Scores:
    """method -> target -> seed -> value. The rows must be of one table."""
    rows = list(rows)
    if len(tables := dict.fromkeys(map(table_of, rows))) > 1:
        raise ValueError(f"`rows` are of several tables, {list(tables)}: select data, backbone, head and metric.")
    scores: Scores = {}
    for row in rows:
        by_seed = scores.setdefault(row["method"], {}).setdefault(row["target"], {})
        if row["seed"] in by_seed:
            raise ValueError(
                f"`rows` hold several values for {_identity(dict(row))}: select the rows of one setting, or tell them "
                "apart with `--by FIELD`."
            )
        by_seed[row["seed"]] = row["value"]
    return scores


def averages(of_method: Mapping[str, Mapping[int, float]], targets: Sequence[str]) -> dict[int, float]:
    """seed -> mean over the targets, of the seeds that have all of them."""
    seeds = set.intersection(*(set(of_method.get(target, ())) for target in targets)) if targets else ()
    return {seed: fmean(of_method[target][seed] for target in targets) for seed in sorted(seeds)}


def compare(scores: Scores, method: str, baseline: str, targets: Sequence[str], over: str = "seeds") -> Comparison:
    """
    A method against the baseline, by Student's paired t-test over the seeds of the averages over targets.

    Args:
        scores: what `scores_of` returns.
        targets: the targets to average.
        over: "targets" pairs the targets instead, each by its mean over the common seeds, for the folds of a
            cross-validation.
    """
    check_name("over", over, PAIRED)
    check_name("baseline", baseline, scores)
    mine, theirs = (averages(scores[name], targets) for name in (method, baseline))
    seeds = [seed for seed in mine if seed in theirs]
    if not seeds or method == baseline:
        return Comparison(mine, None, None, 0)
    a, b = [mine[seed] for seed in seeds], [theirs[seed] for seed in seeds]
    if over == "targets":
        a, b = ([fmean(scores[name][t][s] for s in seeds) for t in targets] for name in (method, baseline))
    return Comparison(mine, fmean(a) - fmean(b), paired_t_test(a, b) if len(a) > 1 else None, len(a))


def domains_of(rows: Iterable[Mapping], data: str, cross: Sequence[str]) -> list[str]:
    """The targets to average: those of the data, without other test sets."""
    return sorted({row["target"] for row in rows if row["target"] == data or row["target"] not in cross})


def results_table(
    rows: Iterable[Mapping],
    *,
    data: str,
    baseline: str | None = "erm",
    targets: Sequence[str] | None = None,
    cross: Sequence[str] = CROSS,
    over: str = "seeds",
    style: str = "markdown",
    interval: bool = False,
) -> str:
    """
    A row per method: mean ± std over seeds on each target, their average, the `cross` targets, and the difference of
    the averages to the baseline with its p-value.

    Args:
        rows: rows of one backbone, head and metric.
        baseline (*optional*): the method to compare with; None leaves the last column out.
        targets (*optional*): what to average. Default: all targets of `data` that are not in `cross`.
        cross: targets that are not domains of `data`.
        over: see `compare`.
        style: "markdown", "text" or "latex".
        interval: whether to show the 95 % interval of the difference.
    """
    rows = [row for row in rows if row["data"] == data]
    scores = scores_of(rows)
    targets = domains_of(rows, data, cross) if targets is None else list(targets)
    others = [name for name in cross if name not in targets and any(row["target"] == name for row in rows)]
    cells = {}
    for method, by_target in scores.items():
        found = compare(scores, method, method if baseline is None else baseline, targets, over)
        values = {target: list(by_seed.values()) for target, by_seed in by_target.items()}
        values["average"] = list(found.averages.values())
        cells[method] = {name: values.get(name) for name in (*targets, "average", *others)}
        if baseline is not None:
            cells[method][f"− {baseline}"] = found.text(interval)
    lower = [*targets, "average", *others] if rows and rows[0]["metric"] in LOWER_IS_BETTER else ()
    table = score_table(cells, points=False, style=style, lower_is_better=lower, header="method")
    # pdfTeX has these signs only in formulas.
    return table.translate({ord("−"): "$-$", ord("<"): "$<$"} if style == "latex" else {})


# The command


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
        f"Made by `python -m hf_memaug.reporting.results` from {', '.join(sources)}, and that by",
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
    """The options that `results` and `differences` share."""
    parser.add_argument("files", nargs="+", metavar="file", help="JSON files that `write_results` wrote")
    parser.add_argument("--metric", help="only this metric (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, help="only the models of these seeds (default: all)")
    parser.add_argument("--cross", nargs="*", default=CROSS, help="targets outside the data (default: %(default)s)")
    parser.add_argument("--over", default="seeds", choices=PAIRED, help="what the test pairs; targets are folds")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m hf_memaug.reporting.results", description="Tables of result files.")
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
