# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Sections about how a run went: curves, continual training, its data, and how to reproduce it."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from hf_memaug.evaluation.continual import DEFINITIONS
from hf_memaug.files import without_folders
from hf_memaug.reporting.html import charts
from hf_memaug.reporting.html.blocks import (
    Cell,
    Code,
    Content,
    Details,
    Note,
    Table,
    count,
    duration,
    facts,
    integer,
    is_number,
    listed,
    mean_cell,
    number,
)
from hf_memaug.reporting.html.scores import metric_name
from hf_memaug.runs.results import Result, Run

MOST_POINTS, MOST_LINES, MOST_CURVES = 120, 40, 12
FIGURES = {"acc": "ACC", "bwt": "BWT", "fwt": "FWT", "forgetting": "forgetting"}
# What `Trainer` logs besides losses, scores and rates.
_BOOKKEEPING = ("step", "seconds", "epoch", "total_flos", "num_input_tokens_seen", "train_loss")
_BOOKKEEPING_ENDS = ("_runtime", "_per_second", "_time", "_flops")


def curves_section(run: Run) -> Content:
    """What `Trainer` logged: a line for each job, and a strong one for the mean of a method."""
    found: dict[str, dict[str, list[tuple[Result, dict]]]] = {}
    for job in run.selected():
        for name, points in logged(run.log(job)).items():
            found.setdefault(name, {}).setdefault(job.method, []).append((job, points))
    if not found:
        return "No training curves: no job has a metrics.jsonl."
    metric = run.metric or ""
    wanted = ("loss", "eval_loss", f"eval_{metric}", f"eval_{metric.removeprefix('macro_')}")
    first = [name for name in dict.fromkeys(wanted) if name in found] or list(found)[:3]
    others = [name for name in found if name not in first][:MOST_CURVES]
    note = Note("Faint lines are single jobs; where a method has several, the strong line is their mean.")
    blocks = [note, _curves("Training curves", run, {name: found[name] for name in first})]
    if others:
        more = _curves("More training curves", run, {name: found[name] for name in others})
        blocks.append(Details("More of what was logged", [more]))
    return blocks


def logged(entries: list[dict]) -> dict[str, dict[float, float]]:
    """
    name -> step -> value. After a resumed run some steps are logged twice: the last counts. Phases of a run, such as
    its domains, count their steps from 1 and are laid end to end.
    """
    ends: dict[str, float] = {}
    for entry in entries:
        if entry.get("phase") not in (None, "train") and is_number(entry.get("step")):
            ends[entry["phase"]] = max(ends.get(entry["phase"], 0), entry["step"])
    begins = dict(zip(ends, accumulate(ends.values(), initial=0), strict=False))
    # What is logged of the whole run has steps of the whole; MIL's training begins after its meta-training.
    begins["train"] = ends.get("meta_train", 0)
    found: dict[str, dict[float, float]] = {}
    for entry in entries:
        if is_number(step := entry.get("step")):
            for name, value in entry.items():
                if name not in _BOOKKEEPING and not name.endswith(_BOOKKEEPING_ENDS) and is_number(value):
                    found.setdefault(name, {})[step + begins.get(entry.get("phase"), 0)] = value
    return {name: dict(sorted(points.items())) for name, points in found.items()}


def _curves(label: str, run: Run, found: dict[str, dict[str, list[tuple[Result, dict]]]]):
    panels = {}
    for name, by_method in found.items():
        lines = panels[name.replace("_", " ")] = []
        for method, several in by_method.items():
            place, alone = run.methods.index(method), len(several) == 1
            for job, points in several[: max(MOST_LINES // len(by_method), 1)]:
                lines.append(charts.Line(job.title, place, _thinned(points), quiet=not alone))
            # A mean over some of the jobs would jump where one ends.
            steps = sorted(set.intersection(*(set(points) for _, points in several)))
            if steps and not alone:
                mean = {step: sum(points[step] for _, points in several) / len(several) for step in steps}
                lines.append(charts.Line(f"{method}, mean of {len(several)}", place, _thinned(mean)))
    return charts.chart(label, charts.line_panels, panels, "step", legend=run.methods)


def _thinned(points: dict[float, float]) -> list[tuple[float, float]]:
    pairs = list(points.items())
    chosen = np.linspace(0, len(pairs) - 1, min(len(pairs), MOST_POINTS)).round().astype(int)
    return [pairs[place] for place in chosen]


class _Continual(NamedTuple):
    """The matrix R of one method: `values` of shape (seeds, stages, domains), in points."""

    method: str
    stages: list[str]
    domains: list[str]
    values: np.ndarray
    figures: dict[str, list[float]]


def continual_section(run: Run) -> Content:
    """The matrix R of each method, its figures, and a curve for each domain."""
    found = [one for method in run.methods if (one := _continual(run, method)) is not None]
    if not found:
        missing = "No continual matrix: the run is continual, and no job has one."
        return missing if run.info.get("task") == "continual" else []
    said = (
        "Rows: after training on a domain; columns: scored on. A frame marks the domain just trained, italics domains "
        "before their turn. Means over seeds."
    )
    blocks: list[Any] = [Note(said)]
    names = [name for name in FIGURES if any(one.figures[name] for one in found)]
    if names:
        rows = [[one.method, *(mean_cell(one.figures[name]) for name in names)] for one in found]
        blocks.append(Table("What was kept and gained", ["method", *(FIGURES[name] for name in names)], rows))
        blocks.append(Details("Definitions", [facts((FIGURES[name], DEFINITIONS[name]) for name in names)]))
    for one in found:
        panel, style = f"{one.method} by domain", {"ticks": one.stages, "legend": one.domains}
        lines = []
        for column, values in enumerate(one.values.mean(axis=0).T.tolist()):
            points = [(stage, value) for stage, value in enumerate(values) if is_number(value)]
            lines += [charts.Line(one.domains[column], column, points)] if points else []
        drawn = charts.chart(panel, charts.line_panels, {panel: lines}, "after training on", **style)
        blocks += [_matrix_table(one, run.metric or "score"), drawn]
    return blocks


def _continual(run: Run, method: str) -> _Continual | None:
    """The seeds that have the same stages as the first."""
    found = [job.matrix for job in run.selected() if job.method == method and job.matrix]
    alike = [one for one in found if all(one[name] == found[0][name] for name in ("trained_on", "domains"))]
    if not alike:
        return None
    figures = {name: [one[name] for one in alike if one.get(name) is not None] for name in FIGURES}
    # A domain that was not scored has None.
    values = np.array([one["rows"] for one in alike], dtype=float)
    return _Continual(method, alike[0]["trained_on"], alike[0]["domains"], values, figures)


def _matrix_table(one: _Continual, metric: str) -> Table:
    mean, rows = one.values.mean(axis=0), []
    low, span = np.nanmin(mean), np.nanmax(mean) - np.nanmin(mean) or 1.0
    for stage, name in enumerate(one.stages):
        cells: list[Any] = [name]
        for column, domain in enumerate(one.domains):
            value = float(mean[stage, column])
            tip = f"after {name}, on {domain}: {', '.join(number(v, 2) for v in one.values[:, stage, column].tolist())}"
            # One stage of another name trains all domains at once.
            is_own = name == domain or name not in one.domains
            style = "own" if is_own else "early" if domain not in one.stages[:stage] else ""
            heat = float((value - low) / span) if is_number(value) else 0.0
            cells.append(Cell(number(value), value if is_number(value) else None, tip=tip, style=style, heat=heat))
        rows.append(cells)
    caption = f"{metric_name(metric, first=True)} of {one.method} on each domain after each stage"
    return Table(caption, ["after", *one.domains], rows)


def data_section(run: Run) -> Content:
    """The domains, their labels, and whether test rows are in the training data."""
    if not {"domains", "overlap"} <= run.data.keys():
        return "The run has no whole data.json: its data and overlaps are not known."
    blocks: list[Any] = [facts([("source", run.data.get("source")), ("fingerprint", run.data.get("hash"))])]
    domains, splits = run.data["domains"], ("train", "dev", "test")
    rows = [[name, *(Cell(integer(of[split]), of[split]) for split in splits)] for name, of in domains.items()]
    blocks.append(Table("Rows by domain and split", ["domain", *splits], rows))
    labels = list(dict.fromkeys(label for of in domains.values() for label in of["labels"]))
    if labels:
        counts = {name: [of["labels"].get(label, 0) for label in labels] for name, of in domains.items()}
        blocks.append(charts.chart("Labels by domain", charts.stack_panels, {"labels": counts}, labels))
    return [*blocks, *_overlap(run)]


def _overlap(run: Run) -> Iterator[Any]:
    """What the overlap check found: rows of one domain that are also in another, and rows of both splits."""
    found = run.data["overlap"]
    leaks = [(listed(pair["domains"]), pair["rows"]) for pair in found["between_domains"]]
    leaks += [("both splits", found["in_both_splits"])] if found.get("in_both_splits") else []
    if leaks:
        said = "Rows stand in more than one domain or split. "
        if run.jobs and all(job.settings.get("on_overlap") == "drop" for job in run.jobs):
            said += "They were taken out of the training data wherever they were also to be tested on."
        else:
            said += "Leakage: where one is tested on and the other trained on, scores are too high."
        yield Note(said, "warning")
        yield Table("Rows in two places", ["where", "rows"], [[name, Cell(integer(n), n)] for name, n in leaks])
    else:
        yield Note("✓ Leakage check: no row stands in more than one domain or split.", "good")
    if found["repeated_rows"]:
        yield Note(f"Rows that repeat an earlier one: {integer(found['repeated_rows'])}.")


def reproduce_section(run: Run) -> Content:
    """The command, the recipe, versions, and every job."""
    info, blocks = run.info, []
    if info.get("command"):
        blocks.append(Details("Command", [Code(without_folders(info["command"]))], is_open=True))
    if run.recipe is not None:
        blocks.append(Details("The recipe with every option (recipe.yaml)", [Code(without_folders(run.recipe))]))
    git, versions = (info.get(name) or {} for name in ("git", "versions"))
    pairs = [("seeds", ", ".join(map(str, info.get("seeds", ())))), *((f"git {name}", git[name]) for name in git)]
    blocks.append(facts([*pairs, ("data", run.data.get("hash")), ("finished", _minute(info.get("finished")))]))
    if versions:
        blocks.append(Details("Versions", [facts(versions.items())]))
    rows = []
    for job in run.jobs:
        tested, digits = job.tested(run.metric), 1 if abs(job.validation or 0) > 1 else 3
        # Some trainers select by a fraction, some by points or a loss.
        validation = Cell(number(job.validation, digits), job.validation)
        cells = [Cell(str(job.seed), job.seed), validation, Cell(number(tested), tested)]
        cells.append(Cell(duration(job.seconds), job.seconds))
        rows.append([job.name or "–", job.method, job.target or "–", *cells, job.checkpoint or "not kept"])
    if rows:
        headers = ["job", "method", "target", "seed", "validation", "test", "time", "checkpoint"]
        blocks.append(Details(f"All jobs ({count(len(rows))})", [Table("Finished jobs", headers, rows)]))
    return blocks


def summary(run: Run) -> list:
    """The top of the report: the facts of the run, and whether it has finished."""
    pairs = [
        ("task", run.info.get("task")),
        ("methods", listed(run.methods)),
        ("targets", listed(run.info.get("targets", ()))),
        ("backbone", listed(list(dict.fromkeys(job.backbone for job in run.jobs if job.backbone)))),
        ("seeds", len({job.seed for job in run.jobs}) or None),
        ("jobs", len(run.jobs) or None),
        ("device", run.info.get("device")),
        ("begun", _minute(run.info.get("begun"))),
    ]
    if not run.info or run.info.get("finished"):
        return [facts(pairs)]
    said = f"This run has not finished: {len(run.jobs)} jobs so far. To resume it, rerun the same command."
    return [facts(pairs), Note(said, "warning")]


def _minute(value: str | None) -> str | None:
    """An ISO date to the minute."""
    return value and value[:16].replace("T", " ")
