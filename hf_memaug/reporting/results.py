# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Result files: one row per trained model, so that means and tests can be recomputed, and the tables made from them."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from numbers import Real
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from hf_memaug.evaluation.checks import check_name
from hf_memaug.evaluation.continual import LOWER_IS_BETTER
from hf_memaug.evaluation.per_domain import score_table
from hf_memaug.evaluation.statistics import FEWEST_PAIRS, PairedTest, paired_t_test
from hf_memaug.files import write_atomically
from hf_memaug.hub.provenance import MADE_WITH, here

FIELDS = ("method", "data", "target", "backbone", "seed", "metric", "value")
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


def _checked_row(row: Mapping) -> dict:
    missing = [field for field in FIELDS if field not in row]
    if missing:
        raise ValueError(f"`rows` entry {row} lacks `{missing[0]}`: every row has {list(FIELDS)}.")
    value = row["value"]
    if isinstance(value, bool) or not isinstance(value, Real) or not -math.inf < value <= 100:
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
        test: the paired t-test, in points; None with fewer than three pairs.
        n: number of pairs.
    """

    averages: dict[int, float]
    difference: float | None
    test: PairedTest | None
    n: int

    def text(self, interval: bool = False) -> str:
        if self.difference is None:
            return "-"
        shown = f"n = {self.n}" if self.test is None else p_text(self.test.p_value)
        if interval and self.test is not None:
            shown = f"{self.test.low:+.1f} to {self.test.high:+.1f}, {shown}"
        return f"{self.difference:+.1f} ({shown})".replace("-", "−")


def p_text(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


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
    test = paired_t_test(a, b) if len(a) >= FEWEST_PAIRS else None
    if test is not None and min(*a, *b) >= -100:
        # Two scores differ by 100 points at most. Only r2 has no lower end.
        test = replace(test, low=max(test.low, -100.0), high=min(test.high, 100.0))
    return Comparison(mine, fmean(a) - fmean(b), test, len(a))


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
