# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Sections about scores: methods beside each other, domain by domain, and what they cost."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from hf_memaug.evaluation.statistics import Summary, paired_t_test, summarise
from hf_memaug.reporting.html import charts
from hf_memaug.reporting.html.markup import (
    Cell,
    Html,
    Section,
    bytes_text,
    code,
    count_text,
    details,
    duration,
    facts,
    joined,
    mean_and_std,
    number,
    p_text,
    paragraph,
    table,
    tag,
    words,
)
from hf_memaug.reporting.results import compare_rows
from hf_memaug.runs.results import FinishedRun, Job

LEVELS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
# The rows of one run are rows of one set of data.
_DATA = "run"


class Standing(NamedTuple):
    """One method in one table: what it scored on each target and on average, and how that compares."""

    method: str
    by_target: dict[str, list[float]]
    average: Summary | None
    difference: float | None
    p_value: float | None
    p_by_target: dict[str, tuple[float | None, float | None]]
    seeds: int


class Comparison(NamedTuple):
    """The methods of one backbone by one metric."""

    metric: str
    backbone: str
    targets: list[str]
    baseline: str
    standings: list[Standing]


def result_rows(jobs: Sequence[Job], metric: str) -> list[dict]:
    """One row per trained model and domain that it is compared on: its target, or all that it was scored on."""
    rows = []
    for job in jobs:
        for domain in [job.target] if job.target is not None else job.scores:
            value = job.scores.get(domain, {}).get(metric)
            # `compare_rows` takes points, and keeps "average" for the mean.
            if value is not None and abs(value) <= 100 and domain.strip() and domain != "average":
                fields = {"method": job.method, "data": _DATA, "target": domain, "backbone": job.backbone or "model"}
                rows.append({**fields, "seed": job.seed, "metric": metric, "value": value})
    return rows


def metrics_of(run: FinishedRun) -> list[str]:
    """The metrics that jobs were scored by, that of the run first."""
    found = dict.fromkeys(name for job in run.jobs for of_domain in job.scores.values() for name in of_domain)
    return sorted(found, key=lambda name: name != run.metric)


def comparisons(run: FinishedRun, metric: str, baseline: str | None = None) -> list[Comparison]:
    rows = result_rows(run.selected(), metric)
    found = []
    for backbone in dict.fromkeys(row["backbone"] for row in rows):
        of_backbone = [row for row in rows if row["backbone"] == backbone]
        methods = list(dict.fromkeys(row["method"] for row in of_backbone))
        base = next((name for name in (baseline, "erm") if name in methods), methods[0])
        targets = sorted({row["target"] for row in of_backbone})
        standings = [_standing(of_backbone, method, base, targets) for method in methods]
        found.append(Comparison(metric, "" if backbone == "model" else backbone, targets, base, standings))
    return found


def _standing(rows: list[dict], method: str, baseline: str, targets: list[str]) -> Standing:
    by_target: dict[str, list[float]] = {}
    for row in rows:
        if row["method"] == method:
            by_target.setdefault(row["target"], []).append(row["value"])
    overall = compare_rows(rows, method, baseline, data=_DATA, targets=targets, cross=())
    averages = list(overall["averages"].values())
    p_by_target = {}
    for target in targets:
        one = compare_rows(rows, method, baseline, data=_DATA, targets=[target], cross=())
        p_by_target[target] = (one["difference"], one["p_value"]) if method != baseline else (None, None)
    return Standing(
        method,
        by_target,
        summarise(averages) if averages else None,
        overall["difference"] if method != baseline else None,
        overall["p_value"] if method != baseline else None,
        p_by_target,
        len(averages),
    )


def mark(difference: float | None, p_value: float | None) -> Html | None:
    """How sure it is that a score differs from the baseline's."""
    stars = next((sign for level, sign in LEVELS if p_value is not None and p_value < level), None)
    if stars is None or not difference:
        return None
    up = difference > 0
    said = f"{'above' if up else 'below'} the baseline by {number(abs(difference))}, {p_text(p_value)}"
    shown = f"{'↑' if up else '↓'}{stars}"
    return tag("sup", shown, class_="up" if up else "down", data_tip=said, aria_label=said)


def comparison_section(run: FinishedRun, baseline: str | None) -> Section:
    title = "Comparison"
    metrics = metrics_of(run)
    found = {metric: comparisons(run, metric, baseline) for metric in metrics}
    found = {metric: several for metric, several in found.items() if several}
    if not found:
        return Section(
            "comparison", title, missing="No job has finished with a score yet: there is nothing to compare."
        )
    first, *others = found
    body = [headline(found[first][0], run), *(_comparison_table(one, run) for one in found[first])]
    body.append(paragraph(_explanation(found[first], run), class_="note"))
    if others:
        inside = [_comparison_table(one, run) for metric in others for one in found[metric]]
        body.append(details(f"By {words([metric_name(name) for name in others])}", inside))
    body.append(_configurations(run, first))
    return Section("comparison", title, joined(body))


def headline(comparison: Comparison, run: FinishedRun) -> Html:
    """What came out, in a sentence that claims no more than the test allows."""
    complete = [one for one in comparison.standings if one.average is not None]
    if not complete:
        return paragraph("No method has been scored on every domain yet.", class_="lead")
    best = max(complete, key=lambda one: one.average.mean)
    unseen = any(job.target is not None for job in run.jobs)
    where = f"{len(comparison.targets)} {'unseen ' if unseen else ''}domain{'s' * (len(comparison.targets) > 1)}"
    score = mean_and_std(best.average.mean, best.average.std)
    tied = [one.method for one in complete if one.average.mean == best.average.mean]
    verb = "score highest:" if len(tied) > 1 else "scores highest:"
    verb = "was run alone:" if len(comparison.standings) == 1 else verb
    parts = [tag("strong", words(tied)), f" {verb} ", tag("strong", score)]
    parts.append(f" {metric_name(comparison.metric)} on average over {where}")
    if best.seeds > 1:
        parts.append(f", {best.seeds} seeds")
    parts.append(". ")
    if comparison.baseline in tied and len(complete) > 1:
        parts.append(f"{comparison.baseline} is the baseline.")
    elif best.p_value is not None:
        sure = "significant" if best.p_value < LEVELS[-1][0] else "not significant"
        test = f"paired t-test, {p_text(best.p_value)}"
        parts.append(f"That is {number(best.difference, sign=True)} against {comparison.baseline}, {sure} ({test}).")
    elif len(complete) > 1:
        parts.append("One seed says nothing about the next: run several for a test.")
    parts += [" ", _configuration_button(run, best.method, "Its configuration")]
    return paragraph(parts, class_="lead")


def _comparison_table(comparison: Comparison, run: FinishedRun) -> Html:
    headers = ["method", *comparison.targets]
    # Of one domain the average is the domain.
    several = len(comparison.targets) > 1
    compared = len(comparison.standings) > 1
    headers += ["average"] * several + [f"− {comparison.baseline}"] * compared + ["settings"]
    top = {
        target: max(_mean(one.by_target.get(target)) for one in comparison.standings) for target in comparison.targets
    }
    best = max((one.average.mean for one in comparison.standings if one.average), default=None)
    most = max(len(values) for one in comparison.standings for values in one.by_target.values())
    places, rows = {name: place for place, name in enumerate(run.methods)}, []
    for one in comparison.standings:
        cells: list[Any] = [Cell([_key(places[one.method]), one.method], one.method)]
        for target in comparison.targets:
            values = one.by_target.get(target)
            cells.append(_score_cell(values, one.p_by_target[target], top[target], most))
        if several:
            shown = "–" if one.average is None else mean_and_std(one.average.mean, one.average.std)
            order, is_best = one.average and one.average.mean, one.average is not None and one.average.mean == best
            cells.append(Cell([shown, mark(one.difference, one.p_value)], order, "best" if is_best else ""))
        cells += [_difference_cell(one, comparison.baseline)] * compared
        cells.append(Cell(_configuration_button(run, one.method, "Show"), one.method))
        rows.append(cells)
    caption = f"{metric_name(comparison.metric, first=True)} in points by method and domain"
    caption += f", {comparison.backbone}" if comparison.backbone else ""
    return table(headers, rows, caption=caption, fixed=["settings"])


def _score_cell(values: list[float] | None, test: tuple, top: float, most: int) -> Cell:
    if not values:
        return Cell("–")
    summary = summarise(values)
    # Fewer seeds than others have: that must be seen.
    fewer = tag("span", f" n = {summary.n}", class_="std") if summary.n < most else None
    listed = ", ".join(number(value, 2) for value in values)
    shown = [mean_and_std(summary.mean, summary.std), fewer, mark(*test)]
    return Cell(shown, summary.mean, "best" if summary.mean == top else "", f"by seed: {listed}")


def _difference_cell(one: Standing, baseline: str) -> Cell:
    if one.method == baseline:
        return Cell(tag("span", "baseline", class_="std"))
    if one.difference is None:
        return Cell("–")
    said = tag("span", f" {p_text(one.p_value)}" if one.p_value is not None else "", class_="std")
    return Cell([number(one.difference, sign=True), said], one.difference)


def _explanation(found: list[Comparison], run: FinishedRun) -> Html:
    tried = len(run.jobs) - len(run.selected())
    parts = [
        "Mean ± standard deviation over seeds, in points; bold is the highest of a column. Click a heading to sort."
    ]
    if len(run.methods) > 1:
        baselines = words(list(dict.fromkeys(one.baseline for one in found)), "or")
        parts.append(
            f" ↑ and ↓ stand for above and below {baselines} by a two-sided paired t-test over seeds: * p < 0.05, "
            "** p < 0.01, *** p < 0.001, not corrected for the number of comparisons."
        )
    if tried:
        several = "One more setting was" if tried == 1 else f"{tried} more settings were"
        parts.append(f" {several} tried; each model shown was selected by its score on source development data.")
    return joined(parts)


def _configuration_button(run: FinishedRun, method: str, text: str) -> Html:
    opened = f"configuration-{run.methods.index(method)}"
    return tag(
        "button", text, type="button", class_="open", data_dialog=opened, aria_label=f"{text}: settings of {method}"
    )


def _configurations(run: FinishedRun, metric: str) -> Html:
    """For each method what it was trained with, in a box that a click opens."""
    dialogs = []
    for place, method in enumerate(run.methods):
        jobs = [job for job in run.selected() if job.method == method]
        close = tag("form", tag("button", "Close", class_="close"), method="dialog")
        heading = tag("h3", f"{method}: what it was trained with")
        parts = [
            close,
            heading,
            _configuration(jobs, metric),
            _how_to_load(jobs, run.info.get("rows", run.info.get("task"))),
        ]
        dialogs.append(tag("dialog", parts, id=f"configuration-{place}", aria_label=f"Settings of {method}"))
    return joined(dialogs)


def _configuration(jobs: list[Job], metric: str) -> Html:
    """The settings that all jobs share, then a row for each job with those that differ."""
    settings = [{"backbone": job.backbone or None, **job.settings} for job in jobs]
    names = list(dict.fromkeys(name for one in settings for name in one))
    differing = [name for name in names if len({_setting(one.get(name)) for one in settings}) > 1]
    shared = facts((name, _setting(settings[0][name])) for name in names if name not in differing)
    rows = []
    for job, one in zip(jobs, settings, strict=True):
        own = job.tested(metric)
        cells: list[Any] = [job.target or "all domains", Cell(str(job.seed), job.seed)]
        cells += [_setting(one.get(name)) or "–" for name in differing]
        rows.append(
            [*cells, Cell(_validation(job), job.validation), Cell(number(own), own), job.checkpoint or "not kept"]
        )
    headers = ["target", "seed", *differing, "validation", "test", "checkpoint"]
    caption = "Its jobs, and the settings in which they differ" if differing else "Its jobs, all with these settings"
    nothing = paragraph("The run has recorded no settings for it.") if not any(job.settings for job in jobs) else None
    return joined([shared, nothing, table(headers, rows, caption=caption, sortable=False)])


def _setting(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# What rows of each kind are loaded for; all others are texts with a class.
_HEADS = {
    "image": "ImageClassification",
    "tags": "TokenClassification",
    "questions": "QuestionAnswering",
    "replies": "Seq2SeqLM",
}


def _how_to_load(jobs: list[Job], task: Any) -> Html | None:
    kept = [job for job in jobs if job.checkpoint]
    if not kept:
        return None
    best = max(kept, key=lambda job: float("-inf") if job.validation is None else job.validation)
    name = f"AutoModelFor{_HEADS.get(str(task), 'SequenceClassification')}"
    start = f"import hf_memaug\nfrom transformers import {name}"
    if task == "graph":
        name = "HMAForGraphClassification"
        start = f"from hf_memaug import {name}"
    text = f"{start}\n\nmodel = {name}.from_pretrained({best.checkpoint!r})"
    return joined([tag("h4", "Load it, from the folder of the run"), code(text)])


def domains_section(run: FinishedRun, baseline: str | None) -> Section:
    """For each domain a dot per method with its 95 % interval, and what was scored on domains trained on."""
    title = "Scores per domain"
    metric = next(iter(metrics_of(run)), None)
    found = comparisons(run, metric, baseline) if metric else []
    if not found:
        return Section("domains", title)
    body = []
    for comparison in found:
        groups = {
            target: [
                _interval(one.method, run, one.by_target[target])
                for one in comparison.standings
                if target in one.by_target
            ]
            for target in comparison.targets
        }
        # The same points to the inch in all panels, so that intervals can be compared. Not less than one point: what
        # differs in its last bits alone is equal.
        span = max(1.0, *(1.15 * (_ends(group)[1] - _ends(group)[0]) for group in groups.values()))
        drawn = []
        for target, group in groups.items():
            low, high = _ends(group)
            middle = (low + high) / 2
            drawn.append(charts.interval_chart(target, group, middle - span / 2, middle + span / 2))
        body += [tag("h3", comparison.backbone) if len(found) > 1 else None, charts.panels(drawn)]
    unseen = "Each domain was left out of training and selection when it was scored. " if _has_targets(run) else ""
    if any(job.dev_scores for job in run.jobs):
        unseen = "Selected on the dev rows that the data brings, scored on its test rows. "
    note = (
        f"{unseen}{metric_name(metric, first=True)} in points. Line: 95 % confidence interval of the mean over seeds "
        "(Student's t); small dots: single seeds. All panels have the same scale, though not the same middle."
    )
    body = [paragraph(note, class_="note"), *body, _seen_table(run, metric)]
    return Section("domains", title, joined(body))


def _interval(method: str, run: FinishedRun, values: list[float]) -> charts.Interval:
    summary = summarise(values)
    low = high = None
    if summary.n > 1:
        # The interval of a mean is that of its difference to nothing.
        test = paired_t_test(values, [0.0] * len(values))
        low, high = test.low, test.high
    text = number(summary.mean) if low is None else f"{number(summary.mean)} [{number(low)}, {number(high)}]"
    tip = f"{method}: {text}; by seed {', '.join(number(value, 2) for value in values)}"
    return charts.Interval(method, run.methods.index(method), summary.mean, low, high, values, text, tip)


def _ends(group: list[charts.Interval]) -> tuple[float, float]:
    """What must be in sight. An interval of two seeds can be wider than the scale of scores: it is cut off."""
    spread = max(max(one.values) for one in group) - min(min(one.values) for one in group)
    room = max(3 * spread, 1.0)
    low = min(max(one.low if one.low is not None else one.mean, min(one.values) - room) for one in group)
    high = max(min(one.high if one.high is not None else one.mean, max(one.values) + room) for one in group)
    return min(low, *(min(one.values) for one in group)), max(high, *(max(one.values) for one in group))


def _seen_table(run: FinishedRun, metric: str) -> Html | None:
    """Scores on domains that were trained on, beside those on the target."""
    jobs = [job for job in run.selected() if job.target is not None]
    domains = sorted({domain for job in jobs for domain in job.scores})
    rows = []
    for target in sorted({job.target for job in jobs}):
        for method in run.methods:
            of = [job for job in jobs if (job.target, job.method) == (target, method)]
            if not any(domain != target for job in of for domain in job.scores):
                continue
            cells: list[Any] = [method, target]
            for domain in domains:
                values = [job.scores[domain][metric] for job in of if metric in job.scores.get(domain, {})]
                summary = summarise(values) if values else None
                shown = mean_and_std(summary.mean, summary.std) if summary else "–"
                cells.append(Cell(shown, summary and summary.mean, "target-cell" if domain == target else ""))
            rows.append(cells)
    if not rows:
        return None
    caption = f"{metric_name(metric, first=True)} on the target (marked) and on the domains trained on"
    return details(
        "Beside the domains that were trained on", table(["method", "left out", *domains], rows, caption=caption)
    )


def cost_section(run: FinishedRun, baseline: str | None) -> Section:
    """Time, memory and parameters by method."""
    title, rows = "Cost", []
    measured = [job for job in run.jobs if any(getattr(job, name) is not None for name in _COSTS)]
    if not measured:
        return Section("cost", title, missing="Neither time nor memory nor parameters were recorded: no cost is shown.")
    methods = [name for name in run.methods if any(job.method == name for job in measured)]
    base = next((name for name in (baseline, "erm") if name in methods), methods[0])
    base_time = _mean([job.seconds for job in measured if job.method == base and job.seconds is not None])
    longest = max(
        _mean([j.seconds for j in measured if j.method == name and j.seconds is not None]) for name in methods
    )
    places = {name: place for place, name in enumerate(run.methods)}
    for name in methods:
        jobs = [job for job in measured if job.method == name]
        times = [job.seconds for job in jobs if job.seconds is not None]
        summary = summarise(times) if times else None
        peak, size, trained = (
            max((getattr(job, one) for job in jobs if getattr(job, one) is not None), default=None)
            for one in _COSTS[1:]
        )
        shown: Any = "–"
        if summary:
            width = f"width:{100 * summary.mean / (longest or 1):.1f}%"
            spread = "" if summary.std is None else f" ± {duration(summary.std)}"
            bar = tag("span", tag("span", class_=f"{charts.colour(places[name])} fill", style=width), class_="track")
            shown = [duration(summary.mean), tag("span", spread, class_="std"), bar]
        ratio = summary.mean / base_time if summary and base_time > 0 else None
        rows.append(
            [
                Cell([_key(places[name]), name], name),
                Cell(str(len(jobs)), len(jobs)),
                Cell(shown, summary and summary.mean),
                Cell("–" if ratio is None else f"{ratio:.2f} ×", ratio),
                Cell(duration(sum(times)) if times else "–", sum(times) if times else None),
                Cell(bytes_text(peak), peak),
                Cell(count_text(size), size),
                Cell(count_text(trained), trained),
            ]
        )
    headers = ["method", "jobs", "time per job", f"against {base}", "in all", "peak memory", "parameters", "trainable"]
    device = run.info.get("device")
    on = f" on {device}" if isinstance(device, str) else ""
    note = f"Measured{on} while the run went: jobs that ran at once share a device, and share its time."
    return Section(
        "cost", title, joined([table(headers, rows, caption="Cost by method"), paragraph(note, class_="note")])
    )


_COSTS = ("seconds", "peak_memory_bytes", "parameters", "trainable")


def _validation(job: Job) -> str:
    # Some trainers select by a fraction, some by a loss: it is shown as it is.
    return number(job.validation, 1 if job.validation is not None and abs(job.validation) > 1 else 3)


def _has_targets(run: FinishedRun) -> bool:
    return any(job.target is not None for job in run.jobs)


def _mean(values: Sequence[float] | None) -> float:
    return sum(values) / len(values) if values else float("-inf")


def metric_name(metric: str, first: bool = False) -> str:
    """As it is written; `first` in a sentence, with a capital."""
    known = {"macro_f1": "macro-F1", "micro_f1": "micro-F1", "f1": "F1", "mcc": "MCC", "auroc": "AUROC"}
    name = known.get(metric, metric.replace("_", " "))
    return name[:1].upper() + name[1:] if first else name


def _key(place: int) -> Html:
    return tag("svg", charts.marker(7, 7, place, 5), viewBox="0 0 14 14", class_="key", aria_hidden="true")
