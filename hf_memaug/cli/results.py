# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The end of a command that runs jobs: results.json, the card, the table and the report."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from hf_memaug.cli.display import Display
from hf_memaug.files import write_atomically
from hf_memaug.reporting.results import results_table, write_results
from hf_memaug.runs.cards import metric_name, run_card
from hf_memaug.runs.errors import FAILED, OK
from hf_memaug.runs.folder import DATA_FILE, RESULTS_FILE, RUN_FILE, RunFolder
from hf_memaug.runs.job import NONE, Job
from hf_memaug.runs.tasks import TASKS

STYLES = ("text", "markdown")
# Follows the metric of rows with the scores on the domains that were trained on.
OLD = "on the old domains"


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


def list_jobs(jobs: Sequence[Job], folder: RunFolder, display: Display) -> int:
    """`--dry-run`."""
    done = folder.check_jobs(jobs)
    for job in jobs:
        state = "done" if job.name in done else "to do"
        display.line(f"{state:<5}  {job.name}", event="job", state=state, name=job.name, job=job.identity)
    display.text(f"{len(jobs)} jobs, {len(done)} of them done")
    return OK


def finish(call, folder: RunFolder, display: Display, rows: list[dict], baseline: str, selection: str) -> None:
    """Writes results.json and the card, and prints the table of all jobs that are done."""
    if not rows:
        return
    name, task = rows[0]["data"], getattr(call.options, "task", None)
    write_results(folder.path / RESULTS_FILE, table=f"{call.command} on {name}", command=call.line, rows=rows)
    methods = {row["method"] for row in rows}
    against = baseline if len(methods) > 1 and baseline in methods else None
    tables = {
        metric: {
            style: results_table(
                [row for row in rows if row["metric"] == metric], data=name, baseline=against, style=style, cross=()
            )
            for style in STYLES
        }
        for metric in dict.fromkeys(row["metric"] for row in rows)
    }
    test = f"− {baseline}: difference of the averages, and p-value of a paired t-test over the seeds."
    notes = [test] * bool(against) + ([f"{TASKS[task].what}."] if task in TASKS else [])
    notes += folder.read(RUN_FILE).get("notes", [])
    (_, table), *more = ((metric, of["markdown"]) for metric, of in tables.items())
    titled = [f"{metric}, by the domain left out:\n\n{one}" for metric, one in more]
    write_card(folder, "\n\n".join([table, *titled]), notes, selection)
    for metric, of in tables.items():
        display.text(f"\n{metric} in points, * the highest of a column\n{of['text']}")
    if against:
        display.text(test)


def write_card(folder: RunFolder, table: str, notes: Sequence[str] = (), selection: str = "") -> None:
    card = run_card(folder.read(RUN_FILE), folder.read(DATA_FILE), table, notes, selection)
    write_atomically(folder.path / "README.md", card)


def end_run(
    folder: RunFolder,
    display: Display,
    failed: Sequence[Job],
    rows: Sequence[Mapping],
    checkpoints: Sequence[Path] = (),
) -> int:
    """Writes the report and prints where everything is. Returns the exit code."""
    done = len(folder.records())
    for message in folder.warnings:
        _warn(message)
    if not failed:
        folder.finish()
    report = _write_report(folder)
    if report:
        display.text(f"report: {report}")
    display.line(
        f"run folder: {folder.path}",
        event="finished",
        folder=str(folder.path),
        done=done,
        failed=len(failed),
        checkpoints=[str(path) for path in checkpoints],
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
        _warn(f"{said} `hf-memaug report {folder.path}`.")
        return None


def _warn(message: str) -> None:
    print(f"Warning: {message}", file=sys.stderr, flush=True)
