# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Accuracy files, one row per trained model so that anybody can recompute means and tests, and their tables.

`python -m hf_memaug.reporting.results FILE.json --output FILE.md` makes the tables. A second file's rows stand beside
those of the first, under the names of their methods and of their folder.
"""

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from numbers import Integral, Real
from pathlib import Path
from statistics import fmean

from hf_memaug import __version__
from hf_memaug.evaluation.checks import check_name
from hf_memaug.evaluation.continual import LOWER_IS_BETTER
from hf_memaug.evaluation.per_domain import score_table
from hf_memaug.evaluation.statistics import paired_t_test
from hf_memaug.files import write_atomically
from hf_memaug.hub.provenance import library_versions

FIELDS = ("method", "data", "target", "backbone", "seed", "metric", "value")
MADE_WITH = ("device", "python", "torch", "transformers", "hf_memaug")
# Test sets of their own: no domains of the data that was trained on, hence no part of the average over its domains.
CROSS = ("imdb", "sst2", "snli", "sick")
# What a test pairs.
PAIRED = ("seeds", "targets")


def write_results(
    path: str | os.PathLike,
    *,
    table: str,
    command: str,
    rows: Iterable[Mapping],
    made_with: Sequence[Mapping[str, str]] | None = None,
) -> dict:
    """
    Writes rows into an accuracy file, beside those that are there, and returns what the file holds now.

    A row that has the same fields as an older one, all but `value`, replaces it. Command and date are those of the last
    call, and commands of older rows that are left stand in "earlier_commands"; device and versions name all that the
    rows were made with. The file is replaced in one step; let one process write at a time, or rows of the others are
    lost.

    Args:
        table, command: name of the table, which the file keeps, and the command that gives its rows.
        rows: each with `FIELDS`, the value in points (0-100; differences may be negative). More fields, such as "head",
            tell settings apart; what differs between runs of one setting, such as the time, does not belong there.
        made_with (*optional*): what `here()` gave where the rows were made. Default: this process.
    """
    for name, text in (("table", table), ("command", command)):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"`{name}` is {text!r}: say where the numbers come from.")
    new = {_identity(row): row for row in map(_checked_row, rows)}
    if not new:
        raise ValueError("`rows` is empty: pass one row per trained model.")
    old = read_results(path) if Path(path).exists() else {"table": table, "rows": []}
    if old["table"] != table:
        raise ValueError(f"`table` is {table!r}, but {path} holds {old['table']!r}: choose another `path`.")
    before = {_identity(row): row for row in old["rows"]}
    found = [here()] if made_with is None else list(made_with)
    if before.keys() - new.keys():
        found.insert(0, {"device": old["device"], **old["versions"]})
    versions = {name: [part for one in found for part in one.get(name, "").split("; ") if part] for name in MADE_WITH}
    versions = {name: "; ".join(dict.fromkeys(parts)) for name, parts in versions.items()}
    date = datetime.now(timezone.utc).date().isoformat()
    result = {"table": table, "command": command}
    if before.keys() - new.keys():
        earlier = dict.fromkeys([*old.get("earlier_commands", []), old["command"]])
        earlier.pop(command, None)
        result |= {"earlier_commands": list(earlier)} if earlier else {}
    result |= {"device": versions.pop("device"), "versions": versions, "date": date}
    head = json.dumps(result, ensure_ascii=False, indent=2).removesuffix("\n}")
    result["rows"] = _sorted_rows([*{**before, **new}.values()])
    # A row a line: a new seed is a new line in the diff.
    lines = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in result["rows"])
    write_atomically(Path(path), f'{head},\n  "rows": [\n{lines}\n  ]\n}}\n')
    return result


def read_results(path: str | os.PathLike) -> dict:
    """The content of an accuracy file, every row checked."""
    fields = {"table": str, "command": str, "device": str, "versions": dict, "date": str, "rows": list}
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
        found = result if isinstance(result, dict) else {}
        wrong = [name for name, kind in fields.items() if not isinstance(found.get(name), kind)]
        if wrong:
            raise ValueError(f"{wrong} missing, or of another type.")
        result["rows"] = [_checked_row(row) for row in result["rows"]]
    except ValueError as error:
        raise ValueError(f"`path` {path} is no accuracy file: {error} Restore it, or write it anew.") from error
    return result


def compare_rows(
    rows,
    method: str,
    baseline="erm",
    *,
    data: str,
    backbone=None,
    head=None,
    metric=None,
    targets=None,
    cross=CROSS,
    over: str = "seeds",
) -> dict:
    """
    A method against the baseline, by Student's paired t-test over the seeds of the averages over targets.

    Args:
        rows (`Iterable[Mapping]`): rows of an accuracy file.
        backbone (`str`, *optional*): may be left out if the rows of `data` have only one, as may `head` and `metric`.
        targets (`Sequence[str]`, *optional*): what to average. Default: all targets of `data` but those in `cross`.
        cross (`Sequence[str]`, *optional*): targets that are no domains of `data`.
        over (`str`, *optional*): "targets" pairs the targets instead, each by its mean over the seeds that both have in
            full: for the folds of a cross-validation, which are as many tests of the same.

    Returns:
        `{"method", "baseline", "difference", "low", "high", "p_value", "n", "seeds", "averages", "baseline_averages"}`.
        Averages are seed -> mean over the targets, for each seed that has all targets; `seeds` are those that both
        methods have, and `n` is how many pairs there are. The difference is None where n is 0, the p-value and the ends
        of the 95 % interval of the difference, `low` and `high`, where it is below 2.
    """
    scores, targets, _ = _select(rows, data, backbone, head, metric, targets, cross)
    check_name("method", method, scores)
    check_name("baseline", baseline, scores)
    averages, baseline_averages = _averages(scores[method], targets), _averages(scores[baseline], targets)
    seeds = [seed for seed in averages if seed in baseline_averages]
    a, b = [averages[seed] for seed in seeds], [baseline_averages[seed] for seed in seeds]
    check_name("over", over, PAIRED)
    if over == "targets" and seeds:
        a, b = (
            [fmean(of[target][seed] for seed in seeds) for target in targets]
            for of in (scores[method], scores[baseline])
        )
    test = paired_t_test(a, b) if len(a) > 1 else None
    return {
        "method": method,
        "baseline": baseline,
        "difference": fmean(a) - fmean(b) if seeds else None,
        **{name: None if test is None else getattr(test, name) for name in ("low", "high", "p_value")},
        "n": len(a),
        "seeds": seeds,
        "averages": averages,
        "baseline_averages": baseline_averages,
    }


def results_table(
    rows,
    *,
    data: str,
    methods=None,
    columns=None,
    baseline: str | None = "erm",
    style="markdown",
    interval: bool = False,
    **selection,
) -> str:
    """
    A row per method: mean ± std over seeds on each target, their average, the `cross` targets, and the difference of
    the averages to the baseline with its p-value, over the seeds that both have in full.

    Args:
        methods (`Sequence[str]`, *optional*): methods to show, in order. Default: all, in order of appearance.
        columns (`Sequence[str]`, *optional*): columns to show, in order. The average stays that over all targets.
        baseline (`str`, *optional*): the method to compare with; None leaves the last column out.
        style (`str`, *optional*): "markdown", "text" or "latex".
        interval (`bool`, *optional*): shows the 95 % interval of the difference as well: what it may still be.
        selection (*optional*): `backbone`, `head`, `metric`, `targets`, `cross` and `over` of `compare_rows`.
    """
    rows = list(rows)
    scores, targets, cross = _select(rows, data, **{name: one for name, one in selection.items() if name != "over"})
    cells, differences = {}, []
    for method in scores if methods is None else methods:
        check_name("methods", method, scores)
        comparison = compare_rows(rows, method, method if baseline is None else baseline, data=data, **selection)
        values = {target: list(by_seed.values()) for target, by_seed in scores[method].items()}
        values["average"] = list(comparison["averages"].values())
        cells[method] = {name: values.get(name) for name in (*targets, "average", *cross)}
        differences.append(_difference(comparison, interval))
    if baseline is not None:
        # `score_table` lays out numbers. It gets an empty column, as wide as the texts that then take the place of "-".
        last = f"− {baseline}".rjust(max(map(len, differences)))
        cells = {method: {**of_method, last: None} for method, of_method in cells.items()}
        columns = None if columns is None else [*columns, last]
    shown = columns or dict.fromkeys(name for of_method in cells.values() for name in of_method)
    metric = selection.get("metric") or next(row["metric"] for row in rows if row["data"] == data)
    lower = shown if metric in LOWER_IS_BETTER else ()
    table = score_table(cells, columns, points=False, style=style, lower_is_better=lower, header="method")
    lines = table.split("\n")
    for line, text in enumerate(() if baseline is None else differences, start=4 if style == "latex" else 2):
        before, _, after = lines[line].rpartition("-")
        lines[line] = before[: len(before) - len(text) + 1] + text + after
    # pdfTeX has these signs only in formulas.
    return "\n".join(lines).translate({ord("−"): "$-$", ord("<"): "$<$"} if style == "latex" else {})


def _difference(comparison: dict, interval: bool) -> str:
    p_value = comparison["p_value"]
    if comparison["method"] == comparison["baseline"] or comparison["difference"] is None:
        return "-"
    if p_value is None:
        # One pair has a difference, and no chance to tell it from.
        return f"{comparison['difference']:+.1f} (n = 1)".replace("-", "−")
    shown = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    if interval:
        shown = f"{comparison['low']:+.1f} to {comparison['high']:+.1f}, {shown}"
    return f"{comparison['difference']:+.1f} ({shown})".replace("-", "−")


def _filtered(rows: list[dict], **wanted: str | None) -> list[dict]:
    for field, name in wanted.items():
        if name is not None:
            check_name(field, name, dict.fromkeys(row[field] for row in rows if row.get(field) is not None))
            rows = [row for row in rows if row.get(field) == name]
    return rows


def _of_seeds(rows: list[dict], seeds: Sequence[int] | None) -> list[dict]:
    known = sorted({row["seed"] for row in rows})
    for seed in seeds or ():
        if seed not in known:
            raise ValueError(f"`seeds` {seed} is not known: choose one of {known}.")
    return rows if seeds is None else [row for row in rows if row["seed"] in seeds]


def _select(rows, data: str, backbone=None, head=None, metric=None, targets=None, cross=CROSS):
    """method -> target -> seed -> value, of rows that differ in nothing else; the targets to average; the others."""
    rows = _filtered([_checked_row(row) for row in rows], data=data, backbone=backbone, head=head, metric=metric)
    for field in ("backbone", "head", "metric"):
        found = list(dict.fromkeys(row.get(field) for row in rows))
        if len(found) > 1:
            raise ValueError(f"`rows` of {data!r} have several values of {field!r}, {found}: pass `{field}`.")
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        by_seed = scores.setdefault(row["method"], {}).setdefault(row["target"], {})
        if row["seed"] in by_seed:
            raise ValueError(
                f"`rows` hold another value for {_identity(row)}: pass only the rows of one setting, or tell settings "
                "apart with `--by FIELD` of `python -m hf_memaug.reporting.results`."
            )
        by_seed[row["seed"]] = row["value"]
    targets = _domains(rows, data, cross) if targets is None else list(targets)
    found = {row["target"] for row in rows}
    return scores, targets, [name for name in cross if name in found and name != data and name not in targets]


def _domains(rows: list[dict], data: str, cross: Sequence[str]) -> list[str]:
    return sorted({row["target"] for row in rows if row["target"] == data or row["target"] not in cross})


def _averages(of_method: dict[str, dict[int, float]], targets: Sequence[str]) -> dict[int, float]:
    # The mean of some of the targets is another quantity: a seed counts once it has all.
    seeds = set.intersection(*(set(of_method.get(target, ())) for target in targets)) if targets else ()
    return {seed: fmean(of_method[target][seed] for target in targets) for seed in sorted(seeds)}


def _checked_row(row: Mapping) -> dict:
    lacking = [field for field in FIELDS if not isinstance(row, Mapping) or field not in row]
    if lacking:
        raise ValueError(f"`rows` entry {row} lacks `{lacking[0]}`: every row has {list(FIELDS)}.")
    seed, value, where = row["seed"], row["value"], f"in `rows` entry {dict(row)}"
    for field in ("method", "data", "target", "backbone", "metric"):
        name = row[field]
        if not isinstance(name, str) or not name.strip() or (field, name) == ("target", "average"):
            raise ValueError(f'`{field}` is {name!r} {where}: name it ("average" is kept for the mean over targets).')
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise ValueError(f"`seed` is {seed!r} {where}: pass a whole number.")
    if isinstance(value, bool) or not isinstance(value, Real) or not abs(value) <= 100:
        raise ValueError(f"`value` is {value!r} {where}: pass a finite number in points (0-100).")
    checked = {**{field: row[field] for field in FIELDS}, **row, "seed": int(seed), "value": float(value)}
    try:
        json.dumps(checked, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`rows` entry {dict(row)} is no JSON ({error}): use texts and finite numbers.") from error
    return checked


def _identity(row: dict) -> str:
    return json.dumps({field: content for field, content in row.items() if field != "value"}, sort_keys=True)


def _table_of(row: dict) -> tuple[str, str, str, str]:
    return row["data"], row["backbone"], str(row.get("head") or ""), row["metric"]


def _sorted_rows(rows: Sequence[dict]) -> list[dict]:
    """By name, but the methods of each table as they came: a baseline that was written first stays first."""
    came = {method: place for place, method in enumerate(dict.fromkeys((_table_of(r), r["method"]) for r in rows))}
    return sorted(rows, key=lambda r: (_table_of(r), came[_table_of(r), r["method"]], r["target"], r["seed"]))


def here() -> dict[str, str]:
    """The device and the versions that rows of this process are made with."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    # A checkout that is on the path but not installed has a version too.
    found = {**library_versions(), "hf_memaug": __version__, "device": device}
    return {name: found[name] for name in MADE_WITH}


def _with_others(rows: list[dict], metric: str | None, other: str) -> tuple[list[dict], str]:
    """The rows of a metric, with another in its place for the targets that lack it, and a sentence that says so."""
    if metric is None:
        raise ValueError("`--or-metric` stands in for a metric: give `--metric` as well.")
    for name in (metric, other):
        check_name("metric", name, dict.fromkeys(row["metric"] for row in rows))
    having = {(row["data"], row["target"]) for row in rows if row["metric"] == metric}
    lacking = [row for row in rows if row["metric"] == other and (row["data"], row["target"]) not in having]
    targets = ", ".join(sorted({row["target"] for row in lacking})) or "none"
    said = f" Targets without `{metric}` have `{other}` in its place: {targets}."
    return [*(row for row in rows if row["metric"] == metric), *({**row, "metric": metric} for row in lacking)], said


def _split_by(rows: list[dict], field: str) -> list[dict]:
    """The rows with a further field, where they have it, as a part of their method's name."""
    further = dict.fromkeys(name for row in rows for name in row if name not in {*FIELDS, "head"})
    if not further:
        raise ValueError("`--by` tells rows apart by a further field, and these rows have none: leave it out.")
    check_name("--by", field, further)

    def place(row: dict) -> tuple:
        # Those without it first, then by size.
        value = row.get(field)
        is_number = isinstance(value, Real)
        return value is not None, not is_number, value if is_number else str(value)

    named = []
    for row in sorted(rows, key=place):
        rest = {name: value for name, value in row.items() if name != field}
        value = row.get(field)
        shown = f"{value:g}" if isinstance(value, float) else value
        named.append(rest if value is None else {**rest, "method": f"{row['method']}, {field} {shown}"})
    return named


def _lacking(rows: list[dict], metric: str) -> list[str]:
    """Targets that have other metrics alone."""
    having = {(row["data"], row["target"]) for row in rows if row["metric"] == metric}
    return sorted({row["target"] for row in rows if (row["data"], row["target"]) not in having})


def _without(rows: list[dict], metric: str) -> str:
    """A sentence that says which targets a table of this metric lacks, if any."""
    lacking = _lacking(rows, metric)
    if not lacking:
        return ""
    return f" Targets without `{metric}` are left out (`--or-metric` puts another in its place): {', '.join(lacking)}."


def _read_side_by_side(files: Sequence[str]) -> dict:
    """The first file, and the rows of the others for the settings that it has, under names of their own."""
    result, *others = map(read_results, files)
    settings = set(map(_table_of, result["rows"]))
    commands = [*result.get("earlier_commands", []), result.pop("command")]
    for file, other in zip(files[1:], others, strict=True):
        folder = Path(file).resolve().parent.name
        beside = [
            {**row, "method": f"{row['method']}, {folder}"} for row in other["rows"] if _table_of(row) in settings
        ]
        if not beside:
            raise ValueError(f"`{file}` has no row of the data, backbone, head and metric of a row of `{files[0]}`.")
        result["rows"] = [*result["rows"], *beside]
        commands += [*other.get("earlier_commands", []), other["command"]]
    return {**result, "commands": commands}


def _report(
    files: Sequence[str],
    baseline: str | None,
    cross: Sequence[str],
    over: str = "seeds",
    or_metric: str | None = None,
    interval: bool = False,
    by: str | None = None,
    seeds: Sequence[int] | None = None,
    **wanted,
) -> str:
    result = _read_side_by_side(files)
    if not result["rows"]:
        raise ValueError(f"`{files[0]}` has no rows: there is nothing to show.")
    if by is not None:
        result["rows"] = _split_by(result["rows"], by)
    said = ""
    if or_metric is not None:
        result["rows"], said = _with_others(result["rows"], wanted.get("metric"), or_metric)
    elif wanted.get("metric") is not None:
        said = _without(_filtered(result["rows"], **{**wanted, "metric": None}), wanted["metric"])
    paths = [Path(file).resolve() for file in files]
    named = [f"`{path.name}`" if len(paths) == 1 else f"`{path.parent.name}/{path.name}`" for path in paths]
    paired = " over the targets" if over == "targets" else ""
    tested = "95 % interval and p-value" if interval else "p-value"
    methods = dict.fromkeys(row["method"] for row in result["rows"])
    baseline = baseline or ("erm" if "erm" in methods else next(iter(methods)))
    check_name("--baseline", baseline, methods)
    sections = [
        f"# {result['table']}\n\nMean ± standard deviation over seeds, in points, the best in bold. − {baseline}: "
        f"difference of the averages over common seeds, and {tested} of a paired t-test{paired}.{said} Made by "
        f"`python -m hf_memaug.reporting.results` from {', '.join(named)}, and that by",
        "\n".join(["```bash", *dict.fromkeys(result["commands"]), "```"]),
    ]
    chosen = _of_seeds(_filtered(result["rows"], **wanted), seeds)
    for table in dict.fromkeys(map(_table_of, chosen)):
        (data, _, _, metric), rows = table, [row for row in chosen if _table_of(row) == table]
        # A table that lacks a target everywhere must not pass the average of the rest off as that of the data.
        targets = _domains([r for r in result["rows"] if (r["data"], r["metric"]) == (data, metric)], data, cross)
        scores, _, _ = _select(rows, data)
        in_full = [", ".join(map(str, _averages(of, targets or list(of)))) or "none in full" for of in scores.values()]
        if len(set(in_full)) > 1:
            in_full = [f"{method} {seeds}" for method, seeds in zip(scores, in_full, strict=True)]
        against = baseline if baseline in scores else None
        sections += [
            f"## {', '.join(filter(None, table))}",
            results_table(
                rows, data=data, baseline=against, targets=targets, cross=cross, over=over, interval=interval
            ),
            f"Seeds: {'; '.join(dict.fromkeys(in_full))}. {result['device']}, {result['date']}.",
        ]
    return "\n\n".join(sections) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m hf_memaug.reporting.results", description="Tables of an accuracy file.")
    parser.add_argument(
        "files",
        nargs="+",
        metavar="file",
        help="the JSON file that `write_results` wrote; methods of a second one stand beside, named with its folder",
    )
    for field in ("data", "backbone", "head", "metric"):
        parser.add_argument(f"--{field}", help=f"only the tables of this {field} (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, help="only the models of these seeds (default: all)")
    parser.add_argument("--or-metric", metavar="METRIC", help="stands in where a target has no --metric")
    parser.add_argument("--baseline", help="the method to compare with (default: erm, or else the first)")
    parser.add_argument(
        "--by", metavar="FIELD", help="a setting that rows differ in, such as memory_slots: a row of the table for each"
    )
    parser.add_argument(
        "--cross", nargs="*", default=CROSS, help=f"targets outside the data (default: {' '.join(CROSS)})"
    )
    parser.add_argument(
        "--over", default="seeds", choices=PAIRED, help="what the test pairs; targets are folds (default: %(default)s)"
    )
    parser.add_argument("--interval", action="store_true", help="show the 95 %% interval of each difference as well")
    parser.add_argument("--output", type=Path, help="write the Markdown here (default: print it)")
    options = vars(parser.parse_args(arguments))
    output = options.pop("output")
    try:
        text = _report(**options)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)


if __name__ == "__main__":
    main()
