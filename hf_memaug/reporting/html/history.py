# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Sections about how a run went: curves, domain after domain, its data, and how to run it again."""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from hf_memaug.evaluation.continual import DEFINITIONS
from hf_memaug.evaluation.statistics import summarise
from hf_memaug.hub.provenance import FRACTIONS
from hf_memaug.reporting.html import charts
from hf_memaug.reporting.html.markup import (
    Cell,
    Html,
    Section,
    code,
    count_text,
    details,
    duration,
    facts,
    in_box,
    joined,
    mean_and_std,
    number,
    paragraph,
    table,
    tag,
    words,
)
from hf_memaug.reporting.html.scores import metric_name
from hf_memaug.runs.results import FinishedRun, Job

MOST_POINTS, MOST_LINES, MOST_CURVES, MOST_LABELS = 120, 60, 12, 12
_FIGURES = {"acc": "ACC", "bwt": "BWT", "fwt": "FWT", "forgetting": "forgetting"}
# What `Trainer` logs beside what is learned.
_BOOKKEEPING = ("step", "epoch", "total_flos", "num_input_tokens_seen", "train_loss")
_BOOKKEEPING_ENDS = ("_runtime", "_per_second", "_time", "_flops")
# How many numbers in an overlap say how much was compared, and not how much was found.
_LOOKED_AT = ("checked", "compared", "total", "rows_checked")


def curves_section(run: FinishedRun) -> Section:
    """What `Trainer` logged, a line for each job and a bold one for the mean of a method."""
    title = "Training curves"
    found: dict[str, dict[str, list[tuple[Job, list]]]] = {}
    for job in run.selected():
        for name, points in _logged(run.log(job)).items():
            found.setdefault(name, {}).setdefault(job.method, []).append((job, points))
    if not found:
        return Section("curves", title, missing="No training curves: no job has left a metrics.jsonl.")
    metric = run.metric or ""
    wanted = ("loss", "eval_loss", f"eval_{metric}", f"eval_{metric.removeprefix('macro_')}")
    first = [name for name in dict.fromkeys(wanted) if name in found] or list(found)[:3]
    others = [name for name in found if name not in first]
    body = [charts.legend(run.methods), charts.panels([_curve_panel(run, name, found[name]) for name in first])]
    if others:
        shown = [_curve_panel(run, name, found[name]) for name in others[:MOST_CURVES]]
        left = f" ({MOST_CURVES} of {len(others)})" if len(others) > MOST_CURVES else ""
        body.append(details(f"More of what was logged{left}", charts.panels(shown)))
    note = "Faint lines are single jobs; where a method has several, the strong line is their mean."
    return Section("curves", title, joined([paragraph(note, class_="note"), *body]))


def _logged(entries: list[dict]) -> dict[str, list[tuple[float, float]]]:
    """
    name -> its steps and values. After a kill some steps are logged again: the last counts. Parts of a run, such as its
    domains, count their steps from 1: they are laid one after another.
    """
    ends: dict[str, float] = {}
    for entry in entries:
        if entry.get("phase") not in (None, "train") and _finite(entry.get("step")):
            ends[entry["phase"]] = max(ends.get(entry["phase"], 0), entry["step"])
    begins = dict(zip(ends, accumulate(ends.values(), initial=0), strict=False))
    found: dict[str, dict[float, float]] = {}
    for entry in entries:
        step = entry.get("step")
        if not _finite(step):
            continue
        step += begins.get(entry.get("phase"), 0)
        for name, value in entry.items():
            if name not in _BOOKKEEPING and not name.endswith(_BOOKKEEPING_ENDS) and _finite(value):
                found.setdefault(name, {})[step] = value
    return {name: sorted(points.items()) for name, points in found.items()}


def _curve_panel(run: FinishedRun, name: str, by_method: dict[str, list[tuple[Job, list]]]) -> Html:
    lines = []
    most = max(MOST_LINES // max(len(by_method), 1), 1)
    for method, several in by_method.items():
        place = run.methods.index(method)
        if len(several) == 1:
            lines.append(charts.Series(several[0][0].title, place, _thinned(several[0][1])))
            continue
        lines += [charts.Series(job.title, place, _thinned(points), quiet=True) for job, points in several[:most]]
        # A mean over some of the jobs would jump where one ends.
        steps = sorted(set.intersection(*({step for step, _ in points} for _, points in several)))
        if steps:
            values = [dict(points) for _, points in several]
            mean = [(step, sum(one[step] for one in values) / len(values)) for step in steps]
            lines.append(charts.Series(f"{method}, mean of {len(several)}", place, _thinned(mean)))
    return charts.line_chart(name.replace("_", " "), lines, "step")


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= MOST_POINTS:
        return list(points)
    return [points[round(place)] for place in np.linspace(0, len(points) - 1, MOST_POINTS)]


class _Way(NamedTuple):
    """R of one method: mean and spread over seeds, in points where it can be."""

    method: str
    rows: list[str]
    domains: list[str]
    mean: np.ndarray
    values: np.ndarray
    figures: dict[str, list[float]]
    left_out: int


def continual_section(run: FinishedRun) -> Section:
    """The matrix R of each method, its figures, and a curve for each domain."""
    title = "Domain after domain"
    ways = [way for method in run.methods if (way := _way(run, method)) is not None]
    if not ways:
        missing = "No continual matrix: the run was to be continual, and no job has left one."
        return Section("continual", title, missing=missing if run.info.get("task") == "continual" else None)
    rows = []
    names = [name for name in _FIGURES if any(way.figures.get(name) for way in ways)]
    for way in ways:
        summaries = [summarise(way.figures[name]) if way.figures.get(name) else None for name in names]
        cells = [Cell(mean_and_std(one.mean, one.std) if one else "–", one and one.mean) for one in summaries]
        rows.append([way.method, *cells])
    body = []
    if names:
        shown = table(["method", *(_FIGURES[name] for name in names)], rows, caption="What was kept and gained")
        meanings = facts((_FIGURES[name], DEFINITIONS[name]) for name in names)
        body += [shown, details("What these figures are", meanings)]
    for way in ways:
        body += [tag("h3", way.method), tag("div", _matrix_table(way, run), _way_panel(way), class_="side")]
        if way.left_out:
            said = "seed has" if way.left_out == 1 else "seeds have"
            body.append(
                paragraph(f"{way.left_out} {said} the domains in another order, and no part in this.", class_="note")
            )
    note = (
        "Rows: after training on a domain; columns: scored on. A frame is the domain just trained, italics are domains "
        "before their turn. Means over seeds. In the curves a domain is dotted before its turn."
    )
    return Section("continual", title, joined([paragraph(note, class_="note"), *body]))


def _way(run: FinishedRun, method: str) -> _Way | None:
    jobs = [(job, found) for job in run.selected() if job.method == method and (found := _matrix(job)) is not None]
    if not jobs:
        return None
    first = jobs[0][1]
    alike = [(job, found) for job, found in jobs if found[:2] == first[:2] and found[2].shape == first[2].shape]
    values = np.stack([found[2] for _, found in alike])
    points = run.metric in FRACTIONS and np.nanmax(np.abs(values)) <= 1
    scale = 100 if points else 1
    figures = {
        name: [scale * job.matrix[name] for job, _ in alike if _finite(job.matrix.get(name))] for name in _FIGURES
    }
    return _Way(method, *first[:2], scale * values.mean(axis=0), scale * values, figures, len(jobs) - len(alike))


def _matrix(job: Job) -> tuple[list[str], list[str], np.ndarray] | None:
    """The names of R's rows and columns, and R; None where it is none."""
    matrix = job.matrix or {}
    domains, rows = matrix.get("domains"), matrix.get("rows")
    if not isinstance(domains, list) or not isinstance(rows, list) or not rows or not domains:
        return None
    if any(not isinstance(row, list) or len(row) != len(domains) for row in rows):
        return None
    values = np.array([[value if _finite(value) else math.nan for value in row] for row in rows], dtype=float)
    if not np.isfinite(values).any():
        return None
    named = matrix.get("trained_on")
    if not isinstance(named, list) or len(named) != len(rows):
        named = domains if len(rows) <= len(domains) else [f"stage {place}" for place in range(1, len(rows) + 1)]
    return [str(name) for name in named[: len(rows)]], [str(name) for name in domains], values


def _turn(way: _Way, domain: str) -> int:
    """The row after which a domain is trained on. One row of another name is that of all domains at once."""
    if domain in way.rows:
        return way.rows.index(domain)
    return 0 if len(way.rows) == 1 and way.rows[0] not in way.domains else len(way.rows)


def _matrix_table(way: _Way, run: FinishedRun) -> Html:
    known = way.mean[np.isfinite(way.mean)]
    low, span = known.min(), np.ptp(known) or 1.0
    body = []
    for row, name in enumerate(way.rows):
        cells = [tag("th", name, scope="row")]
        for column, domain in enumerate(way.domains):
            value = way.mean[row, column]
            turn = _turn(way, domain)
            strength = 0.0 if math.isnan(value) else float((value - low) / span)
            classes = ["heat-cell", "own" if row == turn else "", "early" if row < turn else ""]
            of_seeds = way.values[:, row, column]
            tip = f"after {name}, on {domain}: {', '.join(number(one, 2) for one in of_seeds)}"
            look = {"class_": " ".join(filter(None, classes)), "style": f"--v:{strength:.3f}", "data_tip": tip}
            cells.append(tag("td", number(value), **look))
        body.append(tag("tr", cells))
    caption = f"{metric_name(run.metric or 'score', first=True)} of {way.method} on each domain after each stage"
    head = tag(
        "thead", tag("tr", tag("th", "after", scope="col"), [tag("th", name, scope="col") for name in way.domains])
    )
    return in_box(tag("table", head, tag("tbody", body), class_="matrix", aria_label=caption), caption)


def _way_panel(way: _Way) -> Html:
    lines = []
    for column, domain in enumerate(way.domains):
        points = [(row, float(way.mean[row, column])) for row in range(len(way.rows)) if _finite(way.mean[row, column])]
        turn = _turn(way, domain)
        before, after = [one for one in points if one[0] <= turn], [one for one in points if one[0] >= turn]
        if len(before) > 1:
            lines.append(charts.Series(f"{domain}, before its turn", column, before, quiet=True, dotted=True))
        if after:
            lines.append(charts.Series(domain, column, after))
    drawn = charts.line_chart(f"{way.method}, by domain", lines, "after training on", names=way.rows, marked=True)
    return tag("div", drawn, charts.legend(way.domains))


def data_section(run: FinishedRun) -> Section:
    """The domains, their labels, and whether test rows are in the training data."""
    title, domains = "Data and leakage", run.data.get("domains")
    if not run.data:
        return Section("data", title, missing="The run has left no data.json: its data and overlaps are not known.")
    source, fingerprint = run.data.get("source"), run.data.get("hash")
    body = [facts([("source", _plain(source)), ("fingerprint", _plain(fingerprint))])]
    if isinstance(domains, dict) and domains:
        body.append(_domain_table({str(name): of for name, of in domains.items() if isinstance(of, dict)}))
    body.append(_overlap(run))
    return Section("data", title, joined(body))


def _domain_table(domains: dict[str, dict]) -> Html:
    splits = [name for name in ("train", "dev", "test") if any(_finite(of.get(name)) for of in domains.values())]
    labels = list(dict.fromkeys(label for of in domains.values() for label in _counts(of)))
    rows = []
    for name, of in domains.items():
        counts, total = _counts(of), sum(_counts(of).values())
        cells: list[Any] = [name, *(Cell(count_text(of.get(split)), of.get(split)) for split in splits)]
        if labels:
            parts = []
            for place, label in enumerate(labels):
                share = 100 * counts.get(label, 0) / (total or 1)
                said = f"{label}: {counts.get(label, 0):,} ({share:.0f} %)"
                parts.append(
                    tag("span", class_=f"{charts.colour(place)} fill", style=f"width:{share:.2f}%", data_tip=said)
                )
            largest = max(counts.values(), default=0) / (total or 1)
            cells.append(Cell(tag("span", parts, class_="track wide"), largest))
        rows.append(cells)
    headers = ["domain", *splits, *(["labels"] if labels else [])]
    shown = [table(headers, rows, caption="Rows by domain and split")]
    if labels:
        shown.append(charts.legend(labels[:MOST_LABELS]))
    if len(labels) > MOST_LABELS:
        shown.append(paragraph(f"{len(labels) - MOST_LABELS} more labels: point at a bar.", class_="note"))
    return joined(shown)


def _counts(of: dict) -> dict[str, int]:
    labels = of.get("labels")
    return {str(name): count for name, count in labels.items() if _finite(count)} if isinstance(labels, dict) else {}


def _overlap(run: FinishedRun) -> Html:
    """What the overlap check said: rows between domains and splits, or counts and lists at any depth."""
    found = run.data.get("overlap")
    if found is None:
        return paragraph("Whether rows to test on are in the training data was not recorded.", class_="warning")
    found = dict(found) if isinstance(found, dict) else {"": found}
    repeated, body = found.pop("repeated_rows", 0), []
    leaks = [(name, count) for name, count in _flat("", found) if count]
    leaks = [(name, count) for name, count in leaks if name.rsplit(" › ", 1)[-1] not in _LOOKED_AT]
    if leaks:
        rows = [[name.replace("_", " ") or "rows", Cell(count_text(count), count)] for name, count in leaks]
        dropped = run.jobs and all(job.settings.get("on_overlap") == "drop" for job in run.jobs)
        said = "Rows stand in more than one domain or split. "
        if dropped:
            said += "They were taken out of the training data wherever they were also to be tested on."
        else:
            said += "Leakage: where one is tested on and the other trained on, scores say less than they seem to."
        body += [paragraph(said, class_="warning"), table(["where", "rows"], rows, caption="Rows in two places")]
    else:
        body.append(paragraph("✓ Leakage check: no row stands in more than one domain or split.", class_="good"))
    if _finite(repeated) and repeated > 0:
        several = "row repeats" if repeated == 1 else "rows repeat"
        body.append(paragraph(f"In all, {count_text(repeated)} {several} an earlier one.", class_="note"))
    return joined(body)


def _flat(name: str, found: Any):
    if isinstance(found, dict) and isinstance(found.get("domains"), list) and _finite(found.get("rows")):
        yield words(found["domains"]), found["rows"]
    elif isinstance(found, dict):
        for key, value in found.items():
            yield from _flat(f"{name} › {key}" if name else str(key), value)
    elif isinstance(found, list) and any(isinstance(one, dict) for one in found):
        for one in found:
            yield from _flat(name, one)
    elif isinstance(found, list):
        yield name, len(found)
    elif _finite(found) or isinstance(found, bool):
        yield name, int(found)


def reproduce_section(run: FinishedRun) -> Section:
    """The command, the recipe, versions, and every job."""
    info, body = run.info, []
    if isinstance(info.get("command"), str):
        body += [tag("h3", "Command"), code(info["command"])]
    if run.recipe is not None:
        body += [details("The recipe with every option (recipe.yaml)", code(run.recipe))]
    git = info.get("git") if isinstance(info.get("git"), dict) else {}
    seeds = info.get("seeds") if isinstance(info.get("seeds"), list) else []
    pairs = [("device", _plain(info.get("device"))), ("seeds", ", ".join(map(str, seeds)))]
    pairs += [(f"git {name}", _plain(value)) for name, value in git.items()]
    pairs += [("data", _plain(run.data.get("hash"))), ("begun", _moment(info.get("begun")))]
    pairs += [("finished", _moment(info.get("finished")))]
    versions = info.get("versions") if isinstance(info.get("versions"), dict) else {}
    body.append(facts(pairs))
    if versions:
        body += [tag("h3", "Versions"), facts((name, _plain(version)) for name, version in versions.items())]
    if run.jobs:
        rows = []
        for job in run.jobs:
            own = job.tested(run.metric)
            numbers = [
                (job.validation, number(job.validation, 2)),
                (own, number(own)),
                (job.seconds, duration(job.seconds)),
            ]
            cells = [Cell(text, value) for value, text in numbers]
            rows.append([job.name or "–", job.method, job.target or "–", Cell(str(job.seed), job.seed), *cells])
            rows[-1].append(job.checkpoint or "not kept")
        headers = ["job", "method", "target", "seed", "validation", "test", "time", "checkpoint"]
        body.append(
            details(
                f"All {len(run.jobs)} jobs" if len(run.jobs) > 1 else "Its one job",
                table(headers, rows, caption="Finished jobs"),
            )
        )
    return Section("reproduce", "How to reproduce", joined(body))


def status(run: FinishedRun) -> Html | None:
    """Whether the run has come to its end."""
    if not run.info or run.info.get("finished"):
        return None
    done = f"{len(run.jobs)} {'job has' if len(run.jobs) == 1 else 'jobs have'} finished"
    return paragraph(
        f"This run has not come to its end: {done} so far. The same command goes on with it.", class_="warning"
    )


def summary_facts(run: FinishedRun) -> Html:
    targets = run.info.get("targets") if isinstance(run.info.get("targets"), list) else []
    backbones = list(dict.fromkeys(job.backbone for job in run.jobs if job.backbone))
    seeds = sorted({job.seed for job in run.jobs})
    return facts(
        [
            ("task", _plain(run.info.get("task"))),
            ("methods", words(run.methods)),
            ("targets", words(targets)),
            ("backbone", words(backbones)),
            ("seeds", str(len(seeds)) if seeds else None),
            ("jobs", str(len(run.jobs)) if run.jobs else None),
            ("device", _plain(run.info.get("device"))),
            ("begun", _moment(run.info.get("begun"))),
        ]
    )


def _moment(value: Any) -> str | None:
    """An ISO date to the minute."""
    return value[:16].replace("T", " ") if isinstance(value, str) else None


def _plain(value: Any) -> str | None:
    return None if value is None else str(value)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
