# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What the commands that run jobs share: options, the jobs, the run folder from its first to its last file."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from hf_memaug.data import DomainDataset
from hf_memaug.files import write_atomically
from hf_memaug.messages import did_you_mean
from hf_memaug.reporting.results import results_table, write_results
from hf_memaug.runs import rows as data
from hf_memaug.runs.arguments import training_arguments
from hf_memaug.runs.building import check_checkpoints, check_model, has_history
from hf_memaug.runs.cards import metric_name, run_card
from hf_memaug.runs.display import Display
from hf_memaug.runs.errors import FAILED, OK, CommandError, DataRefused, UsageError
from hf_memaug.runs.folder import DATA_FILE, RESULTS_FILE, RUN_FILE, RunFolder
from hf_memaug.runs.job import NONE, Job
from hf_memaug.runs.runner import run_jobs
from hf_memaug.runs.settings import in_options
from hf_memaug.runs.tasks import TASKS

# The default first.
METRICS = ("f1", "accuracy", "mcc", "auroc")
# Follows the metric of rows with the scores on the domains that were trained on.
OLD = "on the old domains"


def metrics_of(task: str) -> tuple[str, ...]:
    return TASKS[task].metrics if task in TASKS else METRICS


def check_metric(task: str, metric: str) -> None:
    metrics = metrics_of(task)
    if metric not in metrics and metric in (*METRICS, "exact_match"):
        raise UsageError(f"`--metric` is {metric!r}, which is not a metric of {task}. Choose {', '.join(metrics)}.")
    if metric not in metrics:
        raise UsageError(f"`--metric` is {metric!r}. {did_you_mean(metric, metrics)}")


def check_two_classes(splits: Mapping[str, Mapping[str, Any]]) -> None:
    """AUROC needs rows of two classes."""
    for parts in splits.values():
        for name in ("dev", "test"):
            for domain, counts in parts[name].counts().items() if parts.get(name) is not None else ():
                if len(counts) != 2 or not all(counts.values()):
                    found = ", ".join(f"{count} of {label}" for label, count in counts.items())
                    raise DataRefused(
                        f"`--metric auroc` needs two classes, and rows of both: the {name} rows of {domain} are "
                        f"{found}. Choose another metric, such as mcc."
                    )


def seeds_of(given: Sequence[str]) -> list[int]:
    """`5` means 0 to 4, `0,3,7` means these three."""
    try:
        numbers = [int(one) for one in given]
    except ValueError:
        raise UsageError(f"`--seeds` is {','.join(map(str, given))}. Use a number, or numbers with commas.") from None
    found = list(range(numbers[0])) if len(numbers) == 1 else list(dict.fromkeys(numbers))
    if not found or min(numbers) < 0 or max(found) >= 2**32:
        raise UsageError(f"`--seeds` is {','.join(map(str, given))}. Use 1 or more, or seeds from 0 to 2**32 - 1.")
    return found


def targets_of(given: Sequence[str], domains: Sequence[str]) -> list[str]:
    if list(given) == ["all"]:
        return list(domains)
    for name in given:
        if name not in (*domains, NONE):
            raise UsageError(f"`--target` is {name!r}, which is no domain of the data. {did_you_mean(name, domains)}")
    return list(dict.fromkeys(given))


def make_job(options: Any, source: Mapping[str, Any], **fields: Any) -> Job:
    """A job with what all jobs of a command share: the rows, the checkpoints, and how it runs."""
    given = {name: getattr(options, name, None) for name in ("backbone", "general", "vectors", "keep", "processes")}
    given = {name: value for name, value in given.items() if value is not None}
    return Job(source=dict(source), data=data.fingerprint(source)[:16], **{**given, **fields})


def run(
    call,
    jobs: Sequence[Job],
    display: Display,
    rows: DomainDataset,
    facts: Mapping[str, Any],
    splits: Mapping[str, Mapping[str, Any]],
    write_tables: Callable[[RunFolder, Sequence[dict]], list[dict]],
) -> int:
    """
    Runs the jobs that are not done yet, writes everything else that the run folder holds, and returns the exit code.

    Args:
        rows: all rows to train on.
        facts: what run.json says besides the methods, seeds, metric and labels.
        splits: the parts of the rows that data.json counts.
        write_tables: writes and prints the tables of the records, and returns the rows of results.json.
    """
    options, source = call.options, jobs[0].source
    folder = RunFolder(options.output or f"runs/{call.command}")
    if options.dry_run:
        for job in {job.method: job for job in jobs}.values():
            check_checkpoints(job, rows)
        return _list_jobs(jobs, folder, display)
    with folder.locked():
        if len(folder.check_jobs(jobs)) < len(jobs):
            _check_jobs(jobs, rows, folder)
        named = {"methods": [job.method for job in jobs], "seeds": [job.seed for job in jobs]}
        named |= {"metric": display.metric, "labels": rows.label_names}
        folder.begin(call.line, {**call.resolved.recipe(call.command), "data": source["data"]}, **named, **facts)
        folder.write(DATA_FILE, data.describe(source, splits))
        failed = run_jobs(jobs, folder, display, options.jobs, getattr(options, "processes", 1))
        order = folder.read(RUN_FILE)["methods"]
        records = sorted(folder.records(), key=lambda record: order.index(record["job"]["method"]))
        return _end(folder, display, failed, records, write_tables(folder, records) if records else [])


def _list_jobs(jobs: Sequence[Job], folder: RunFolder, display: Display) -> int:
    """`--dry-run`."""
    done = folder.check_jobs(jobs)
    for job in jobs:
        state = "done" if job.name in done else "to do"
        display.line(f"{state:<5}  {job.name}", event="job", state=state, name=job.name, job=job.identity)
    display.text(f"{len(jobs)} jobs, {len(done)} of them done")
    return OK


def _check_jobs(jobs: Sequence[Job], rows: DomainDataset, folder: RunFolder) -> None:
    """Raises an error for backbones and settings that no job can be trained with."""
    first = {job.method: job for job in reversed(jobs)}
    for method, job in reversed(first.items()):
        if job.kind != "continual" or not has_history(job.backbone):
            check_model(job, rows)
        try:
            training_arguments(job, folder.job_folder(job.name), rows)
        except CommandError as error:
            said = in_options(str(error), job.settings)
            hint = " To set an option for one method, write `--METHOD.OPTION`."
            raise UsageError(f"`{method}`: {said}{hint if len(first) > 1 else ''}") from None


def _end(
    folder: RunFolder, display: Display, failed: Sequence[Job], records: Sequence[Mapping], rows: Sequence[Mapping]
) -> int:
    """Writes the report and prints where everything is."""
    for message in folder.warnings:
        warnings.warn(message, stacklevel=2)
    if not failed:
        folder.finish()
    kept = [folder.job_folder(record["name"]) / "checkpoint" for record in records if record.get("checkpoint")]
    kept = [path for path in kept if path.is_dir()]
    for path in kept if len(kept) < 4 else ():
        display.text(f"checkpoint: {path}")
    report = _write_report(folder)
    if report:
        display.text(f"report: {report}")
    display.line(
        f"run folder: {folder.path}",
        event="finished",
        folder=str(folder.path),
        done=len(records),
        failed=len(failed),
        checkpoints=[str(path) for path in kept],
        report=report,
        results=list(rows),
    )
    if failed:
        what = "1 job failed. To retry it" if len(failed) == 1 else f"{len(failed)} jobs failed. To retry them"
        display.text(f"{what}, rerun the same command.")
    return FAILED if failed else OK


def _write_report(folder: RunFolder) -> str | None:
    from hf_memaug.reporting.html_report import write_report

    try:
        return str(write_report(folder.path))
    except Exception as error:  # the results are kept, and the report can be written again
        said = f"report.html was not written ({type(error).__name__}: {error}). Rerun"
        warnings.warn(f"{said} `hf-memaug report {folder.path}`.", stacklevel=2)
        return None


def result_rows(records: Sequence[Mapping], name: str, metric: str, task: str) -> list[dict]:
    """
    The rows of `results.json`: one for each trained model and each domain that it was tested on. With `--shots`, one
    more for each model has the mean over the domains that were trained on.
    """
    rows = [
        {
            "method": record["job"]["method"],
            "data": name,
            "target": target,
            "backbone": record["job"]["backbone"],
            "seed": record["job"]["seed"],
            "metric": metric_name(metric, task),
            "value": round(record["scores"][target][metric], 4),
        }
        for record in records
        for target in ([record["job"]["target"]] if record["job"]["target"] != NONE else record["scores"])
    ]
    # All records of a folder have shots, or none.
    for record, row in zip(records, list(rows), strict=False):
        if "shots" in record["job"]:
            old = fmean(of[metric] for name, of in record["scores"].items() if name != row["target"])
            rows.append({**row, "metric": f"{row['metric']} {OLD}", "value": round(old, 4)})
    return rows


def write_tables(call, folder: RunFolder, display: Display, rows: list[dict], baseline: str, selection: str) -> None:
    """Writes results.json and the card, and prints the table of all jobs that are done."""
    name, task = rows[0]["data"], getattr(call.options, "task", None)
    write_results(folder.path / RESULTS_FILE, table=f"{call.command} on {name}", command=call.line, rows=rows)
    methods = {row["method"] for row in rows}
    against = baseline if len(methods) > 1 and baseline in methods else None
    test = f"− {baseline}: difference of the averages, and p-value of a paired t-test over the seeds."
    notes = [test] * bool(against) + ([f"{TASKS[task].what}."] if task in TASKS else [])
    notes += folder.read(RUN_FILE).get("notes", [])
    tables: list[str] = []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        found = [row for row in rows if row["metric"] == metric]
        table = results_table(found, data=name, baseline=against, cross=())
        tables.append(f"{metric}, by the domain left out:\n\n{table}" if tables else table)
        table = results_table(found, data=name, baseline=against, cross=(), style="text")
        display.text(f"\n{metric} in points, * the highest of a column\n{table}")
    write_card(folder, "\n\n".join(tables), notes, selection)
    if against:
        display.text(test)


def write_card(folder: RunFolder, table: str, notes: Sequence[str] = (), selection: str = "") -> None:
    card = run_card(folder.read(RUN_FILE), folder.read(DATA_FILE), table, notes, selection)
    write_atomically(folder.path / "README.md", card)
