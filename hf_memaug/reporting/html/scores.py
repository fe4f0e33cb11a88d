# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Sections about scores: the methods side by side, each domain, and what the methods cost."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from hf_memaug.evaluation.statistics import FEWEST_PAIRS, paired_t_test, summarise
from hf_memaug.reporting.html import charts
from hf_memaug.reporting.html.blocks import (
    Cell,
    Content,
    Details,
    Note,
    Table,
    byte_count,
    count,
    duration,
    facts,
    is_number,
    listed,
    mean_cell,
    number,
)
from hf_memaug.reporting.results import Comparison, Scores, compare, p_text, scores_of
from hf_memaug.runs.results import NUMBERS, Result, Run

_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
_METRIC_NAMES = {"macro_f1": "macro-F1", "micro_f1": "micro-F1", "f1": "F1", "mcc": "MCC", "auroc": "AUROC"}


class Methods(NamedTuple):
    """The methods of one backbone by one metric, all tested against one baseline."""

    backbone: str
    targets: list[str]
    baseline: str
    scores: Scores
    overall: dict[str, Comparison]


def metric_name(metric: str, first: bool = False) -> str:
    name = _METRIC_NAMES.get(metric, metric.replace("_", " "))
    return name[:1].upper() + name[1:] if first else name


def has_shots(run: Run) -> bool:
    """Whether models were adapted to rows of the domain left out."""
    return any("shots" in job.settings for job in run.jobs)


def metrics_of(run: Run) -> list[str]:
    """The metrics of the run, its main metric first."""
    found = dict.fromkeys(name for job in run.jobs for of_domain in job.scores.values() for name in of_domain)
    return sorted(found, key=lambda name: name != run.metric)


def methods_by_backbone(run: Run, metric: str, baseline: str | None, old: bool = False) -> list[Methods]:
    """
    Each job counts on its target, or on every domain it was scored on where no domain was left out. With `old`, its
    score is the mean over the other domains.
    """
    rows = []
    for job in run.selected():
        for target in [job.target] if job.target is not None else job.scores:
            value = job.tested_on_old(metric) if old else job.scores.get(target, {}).get(metric)
            if value is not None and target.strip():
                row = {"method": job.method, "data": "", "target": target, "backbone": job.backbone}
                rows.append({**row, "seed": job.seed, "metric": metric, "value": value})
    found = []
    for backbone in dict.fromkeys(row["backbone"] for row in rows):
        scores = scores_of(row for row in rows if row["backbone"] == backbone)
        targets = sorted({target for of_method in scores.values() for target in of_method})
        base = next((name for name in (baseline, "erm") if name in scores), next(iter(scores)))
        overall = {name: compare(scores, name, base, targets) for name in scores}
        found.append(Methods(backbone, targets, base, scores, overall))
    return found


def comparison_section(run: Run, baseline: str | None) -> Content:
    found = {metric: several for metric in metrics_of(run) if (several := methods_by_backbone(run, metric, baseline))}
    if not found:
        return "No job has finished with a score yet: there is nothing to compare."
    first, *others = found
    blocks = [Note(_headline(found[first][0], run, first), "lead")]
    blocks += [_comparison_table(one, first, run.methods) for one in found[first]]
    if has_shots(run):
        of_old = methods_by_backbone(run, first, baseline, old=True)
        blocks += [_comparison_table(one, first, run.methods, " on the old domains") for one in of_old]
    blocks += [Note(note) for note in run.info.get("notes", ())]
    blocks.append(Note(_explanation(found[first], run)))
    if others:
        tables = [_comparison_table(one, metric, run.methods) for metric in others for one in found[metric]]
        blocks.append(Details(f"By {listed([metric_name(name) for name in others])}", tables))
    blocks += [Details(f"Settings of {method}", _settings(run, method)) for method in run.methods]
    return blocks


def _headline(found: Methods, run: Run, metric: str) -> str:
    """The result in a sentence that claims no more than the test allows."""
    summaries = {name: summarise(list(one.averages.values())) for name, one in found.overall.items() if one.averages}
    if not summaries:
        return "No method has been scored on every domain yet."
    top = max(one.mean for one in summaries.values())
    best = [name for name, one in summaries.items() if one.mean == top]
    score, overall = summaries[best[0]], found.overall[best[0]]
    verb = "was run alone:" if len(found.scores) == 1 else "scores highest:" if len(best) == 1 else "score highest:"
    unseen = "unseen " if any(job.target is not None for job in run.jobs) and not has_shots(run) else ""
    where = f"{len(found.targets)} {unseen}domain{'s' * (len(found.targets) > 1)}"
    spread = "" if score.std is None else f" ± {number(score.std)}, {score.n} seeds"
    said = f"{listed(best)} {verb} {number(score.mean)}{spread}, {metric_name(metric)} on average over {where}."
    if found.baseline in best:
        return f"{said} {found.baseline} is the baseline." if len(summaries) > 1 else said
    if overall.test is not None:
        sure = "significant" if overall.test.p_value < _STARS[-1][0] else "not significant"
        against = f"{number(overall.difference, sign=True)} against {found.baseline}"
        return f"{said} That is {against}, {sure} (paired t-test, {p_text(overall.test.p_value)})."
    return f"{said} Fewer than three seeds allow no test: run more."


def _comparison_table(found: Methods, metric: str, order: Sequence[str], where: str = "") -> Table:
    several, compared = len(found.targets) > 1, len(found.scores) > 1
    headers = ["method", *found.targets, *["average"] * several, *[f"− {found.baseline}"] * compared]
    most = max(len(values) for of_method in found.scores.values() for values in of_method.values())
    rows = []
    for method in sorted(found.scores, key=order.index):
        cells, overall = [method], found.overall[method]
        for target in found.targets:
            values = list(found.scores[method].get(target, {}).values())
            tested = compare(found.scores, method, found.baseline, [target])
            cells.append(_score_cell(values, tested, most))
        if several:
            cells.append(_score_cell(list(overall.averages.values()), overall, 0))
        if compared and method == found.baseline:
            cells.append(Cell("baseline", style="quiet"))
        elif compared:
            small = "" if overall.test is None else f" {p_text(overall.test.p_value)}"
            cells.append(Cell(number(overall.difference, sign=True), overall.difference, small))
        rows.append(cells)
    for column in range(1, 1 + len(found.targets) + several):
        best = max((row[column].order for row in rows if row[column].order is not None), default=None)
        for row in rows:
            if best is not None and row[column].order == best:
                row[column] = row[column]._replace(style="best")
    backbone = f", {found.backbone}" if found.backbone else ""
    left_out = " left out" * bool(where)
    title = f"{metric_name(metric, first=True)} in points{where} by method and domain{left_out}{backbone}"
    return Table(title, headers, rows)


def _score_cell(values: list[float], tested: Comparison, most: int) -> Cell:
    if not values:
        return Cell("–")
    p_value = 1.0 if tested.test is None else tested.test.p_value
    stars = next((sign for level, sign in _STARS if p_value < level), "") if tested.difference else ""
    mark = f"{'↑' if tested.difference > 0 else '↓'}{stars}" if stars else ""
    tip = f"by seed: {', '.join(number(value, 2) for value in values)}"
    tip += f"; {number(tested.difference, sign=True)} against the baseline, {p_text(p_value)}" if stars else ""
    cell = mean_cell(values, mark=mark, tip=tip)
    return cell._replace(small=f"{cell.small} n = {len(values)}") if len(values) < most else cell


def _explanation(found: list[Methods], run: Run) -> str:
    said = "Mean ± standard deviation over seeds, in points; bold is the highest of a column. Click a heading to sort."
    if len(run.methods) > 1:
        baselines = listed(list(dict.fromkeys(one.baseline for one in found)), "or")
        said += (
            f" ↑ and ↓: above and below {baselines} by a two-sided paired t-test over seeds, * p < 0.05, ** p < 0.01, "
            "*** p < 0.001, not corrected for the number of comparisons."
        )
    tried = len(run.jobs) - len(run.selected())
    if tried:
        settings = "One more setting was" if tried == 1 else f"{tried} more settings were"
        said += f" {settings} tried; each model shown was selected by its score on source development data."
    return said


def _settings(run: Run, method: str) -> list:
    """The settings that all jobs of a method share, and a table of those that differ."""
    jobs = [job for job in run.selected() if job.method == method]
    settings = [{"backbone": job.backbone or None, **job.settings} for job in jobs]
    names = list(dict.fromkeys(name for one in settings for name in one))
    differing = [name for name in names if len({_setting(one.get(name)) for one in settings}) > 1]
    shared = facts((name, _setting(settings[0][name])) for name in names if name not in differing)
    rows = []
    for job, one in zip(jobs, settings, strict=True):
        values = [_setting(one.get(name)) or "–" for name in differing]
        rows.append([job.target or "all domains", Cell(str(job.seed), job.seed), *values])
    return [shared, *([Table(f"Jobs of {method}", ["target", "seed", *differing], rows)] if differing else [])]


def _setting(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def domains_section(run: Run, baseline: str | None) -> Content:
    metric = next(iter(metrics_of(run)), "")
    found = methods_by_backbone(run, metric, baseline)
    if not found:
        return []
    said = ""
    if any(job.target is not None for job in run.jobs):
        said = "Each domain was left out of training and selection when it was scored. "
    if has_shots(run):
        said = "Each domain is scored where it was left out: by erm, and after adapting to K labelled rows of it. "
    if any(job.dev_scores for job in run.jobs):
        said = "Selected on the dev rows that the data brings, scored on its test rows. "
    said += (
        f"{metric_name(metric, first=True)} in points. Line: 95 % confidence interval of the mean over seeds "
        "(Student's t); small dots: single seeds. All panels have the same scale, though not the same middle."
    )
    blocks: list[Any] = [Note(said)]
    for one in found:
        blocks += [Note(one.backbone, "lead")] * (len(found) > 1)
        values = {name: {key: list(of[key].values()) for key in of} for name, of in one.scores.items()}
        label = f"Scores per domain {one.backbone}".strip()
        least = {"mcc": -100.0, "pearson": -100.0, "r2": -math.inf}.get(metric, 0.0)
        blocks.append(interval_chart(label, run.methods, values, least, 100.0))
    return [*blocks, *_source_domains(run, metric)]


def interval_chart(label: str, methods: Sequence[str], values: Mapping, least: float, most: float, digits: int = 1):
    """A panel for each target of `values`, method -> target -> values; `least` and `most` are what a score can be."""
    panels: dict[str, dict[str, charts.Spread]] = {target: {} for target in sorted(set().union(*values.values()))}
    for name, target in product(methods, panels):
        if target in values.get(name, {}):
            panels[target][name] = _spread(values[name][target], name, least, most, digits)
    return charts.chart(label, charts.interval_panels, methods, panels)


def _spread(values: list[float], method: str, least: float, most: float, digits: int = 1) -> charts.Spread:
    """A mean over seeds with its interval."""
    mean, low, high = summarise(values).mean, None, None
    if len(values) >= FEWEST_PAIRS:
        # The interval of a mean is that of its difference to zero.
        test = paired_t_test(values, [0.0] * len(values))
        low, high = max(test.low, least), min(test.high, most)
    interval = "" if low is None else f" [{number(low, digits)}, {number(high, digits)}]"
    tip = f"{method}: {number(mean, digits)}{interval}; by seed {', '.join(number(value, 2) for value in values)}"
    return charts.Spread(mean, low, high, values, tip)


def _source_domains(run: Run, metric: str) -> list[Details]:
    """Scores on the domains that were trained on, beside those on the target."""
    jobs = [job for job in run.selected() if job.target is not None]
    domains = sorted({domain for job in jobs for domain in job.scores})
    groups: dict[tuple[str, str], list[Result]] = {}
    for job in sorted(jobs, key=lambda job: job.target):
        groups.setdefault((job.method, job.target), []).append(job)
    rows = []
    for (method, target), several in groups.items():
        if any(domain != target for job in several for domain in job.scores):
            cells = [method, target]
            for domain in domains:
                values = [job.scores[domain][metric] for job in several if metric in job.scores.get(domain, {})]
                cells.append(mean_cell(values, style="target" if domain == target else ""))
            rows.append(cells)
    caption = f"{metric_name(metric, first=True)} on the target (marked) and on the domains trained on"
    shown = Table(caption, ["method", "left out", *domains], rows)
    return [Details("Scores on the domains that were trained on", [shown])] if rows else []


def cost_section(run: Run, baseline: str | None) -> Content:
    recorded = {
        method: {
            field: [getattr(job, field) for job in run.jobs if job.method == method and is_number(getattr(job, field))]
            for field in NUMBERS
        }
        for method in run.methods
    }
    recorded = {method: found for method, found in recorded.items() if any(found.values())}
    if not recorded:
        return "Time, memory and parameters were not recorded: no cost is shown."
    base = next((name for name in (baseline, "erm") if name in recorded), next(iter(recorded)))
    times = {method: summarise(found["seconds"]) for method, found in recorded.items() if found["seconds"]}
    base_time, rows = times[base].mean if base in times else 0.0, []
    for method, found in recorded.items():
        time, mean, spread_of_time = times.get(method), None, ""
        if time is not None:
            mean, spread_of_time = time.mean, "" if time.std is None else f" ± {duration(time.std)}"
        ratio = mean / base_time if mean is not None and base_time > 0 else None
        jobs, total = sum(job.method == method for job in run.jobs), sum(found["seconds"]) if time else None
        cells = [Cell(str(jobs), jobs), Cell(duration(mean), mean, spread_of_time)]
        cells += [Cell("–" if ratio is None else f"{ratio:.2f} ×", ratio), Cell(duration(total), total)]
        for field, shown in (("peak_memory_bytes", byte_count), ("parameters", count), ("trainable", count)):
            largest = max(found[field], default=None)
            cells.append(Cell(shown(largest), largest))
        rows.append([method, *cells])
    headers = ["method", "jobs", "time per job", f"against {base}", "total", "peak memory", "parameters", "trainable"]
    on = f" on {run.info['device']}" if "device" in run.info else ""
    note = Note(f"Measured{on} during the run: jobs that run at the same time share the device and its time.")
    return [Table("Cost by method", headers, rows), note]
