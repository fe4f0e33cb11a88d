# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The output of a command: a live table on a terminal, lines elsewhere, JSON lines with `--json`, or errors only."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from hf_memaug.runs.job import NONE, Job

# Seconds between two progress lines of a job where there is no live table.
EVERY = 30.0


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


@dataclass
class RunningJob:
    """
    Args:
        since, first_step: when this process began the phase of training, and at which step.
        printed: when its last line was printed.
        event: its last step.
    """

    title: str
    since: float = field(default_factory=time.monotonic)
    printed: float = field(default_factory=time.monotonic)
    first_step: int = 0
    phase: str | None = None
    event: dict[str, Any] = field(default_factory=dict)

    def update(self, event: dict[str, Any]) -> None:
        if event["event"] == "resumed" or self.phase not in (None, event["phase"]):
            self.since = time.monotonic()
            self.first_step = event["step"] - (event["event"] == "step")
        self.phase = event["phase"]
        if event["event"] == "step":
            self.event = event

    @property
    def progress(self) -> str:
        if not self.event:
            return "starting"
        step, total = self.event["step"], self.event["of"]
        rate = (step - self.first_step) / max(time.monotonic() - self.since, 1e-6)
        left = duration((total - step) / rate) if rate > 0 else "?"
        return f"step {step}/{total}{in_phase(self.event)}, {rate:.1f} steps/s, {left} left"


class Display:
    """
    Args:
        metric: the score to show.
        quiet, as_json: the options `--quiet` and `--json`.
        rows, columns: of the live table: the methods, and the targets or the figures of a matrix.
    """

    def __init__(self, metric: str, quiet: bool, as_json: bool, rows: Sequence[str] = (), columns: Sequence[str] = ()):
        self.metric, self.quiet, self.as_json = metric, quiet, as_json
        self.rows, self.columns = list(rows), list(columns)
        # A job redirects `sys.stdout` to its log.
        self.out = sys.stdout
        self.is_live = not quiet and not as_json and self.out.isatty()
        self.records: list[dict] = []
        self.running: dict[str, RunningJob] = {}
        self.total = self.before = self.todo = self.finished = 0
        self.begun = time.monotonic()
        self._live = None

    # Events of a run

    def begin(self, total: int, before: int, todo: int, records: Sequence[dict]) -> None:
        self.total, self.before, self.todo, self.records = total, before, todo, list(records)
        self.begun = time.monotonic()
        if before:
            self.line(f"{before} of {total} jobs are already done.", event="continued", done=before)

    def start(self, job: Job) -> None:
        self.running[job.name] = RunningJob(title(job.identity))
        self.refresh()

    def event(self, job: Job, event: dict) -> None:
        if event["event"] not in ("resumed", "step"):
            return
        one = self.running[job.name]
        one.update(event)
        if event["event"] == "resumed":
            text = f"{one.title}: resumed from step {event['step']}{in_phase(event)}."
            self.line(text, event="resumed", name=job.name, step=event["step"], phase=event["phase"])
        elif not self.is_live and time.monotonic() - one.printed > EVERY:
            one.printed = time.monotonic()
            self.text(f"  {one.title}: {one.progress}")
        self.refresh()

    def done(self, job: Job, record: Mapping[str, Any]) -> None:
        self.running.pop(job.name, None)
        self.finished += 1
        self.records.append(dict(record))
        took = "" if record.get("seconds") is None else f" ({duration(record['seconds'])})"
        text = f"[{self.overall}] {title(job.identity)}: {outcome(record, self.metric)}{took}"
        self.line(text, event="done", **record)
        self.refresh()

    def failed(self, job: Job, why: str, log) -> None:
        self.running.pop(job.name, None)
        self.finished += 1
        text = f"[{self.overall}] FAILED {title(job.identity)}: {why} (see {log})"
        self.line(text, event="failed", name=job.name, why=why, log=str(log))
        if self.quiet or self.as_json:
            print(text, file=sys.stderr, flush=True)
        self.refresh()

    def interrupted(self) -> str:
        left = self.total - self.before - self.finished
        return f"Interrupted with {left} of {self.total} jobs left. To resume, rerun the same command."

    # Output

    def line(self, text: str, event: str | None = "said", **content: Any) -> None:
        """A line of text, or with `--json` an event."""
        if self.as_json:
            if event is not None:
                print(json.dumps({"event": event, **content}, ensure_ascii=False), file=self.out, flush=True)
        elif self._live is not None:
            self._live.console.print(text, highlight=False, markup=False)
        elif not self.quiet:
            print(text, file=self.out, flush=True)

    def text(self, text: str) -> None:
        """Text that `--json` leaves out, such as a table."""
        self.line(text, event=None)

    def __enter__(self) -> "Display":
        if self.is_live and self.todo:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self.out), refresh_per_second=4, redirect_stdout=False)
            self._live.start()
            self.refresh()
        return self

    def __exit__(self, *error) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def refresh(self) -> None:
        if self._live is None:
            return
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        scores, jobs = Table(box=None, pad_edge=False), Table.grid(padding=(0, 1))
        for number, name in enumerate(["", *self.columns]):
            scores.add_column(name, justify="right" if number else "left")
        for row in self.rows:
            scores.add_row(row, *(self._cell(row, column) for column in self.columns))
        for one in self.running.values():
            bar = ProgressBar(total=one.event.get("of", 1), completed=one.event.get("step", 0), width=20)
            jobs.add_row(one.title, bar, one.progress)
        self._live.update(Group(scores, jobs, self.overall))

    def _cell(self, row: str, column: str) -> str:
        found = [cell_value(record, row, column, self.metric) for record in self.records]
        values = [value for value in found if value is not None]
        spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
        return f"{fmean(values):.1f}{spread}" if values else "-"

    @property
    def overall(self) -> str:
        count = f"{self.before + self.finished}/{self.total}"
        if not self.finished:
            return count
        each = max(time.monotonic() - self.begun, 1e-6) / self.finished
        return f"{count}, {60 / each:.1f} jobs/min, {duration(each * (self.todo - self.finished))} left"


def in_phase(event: Mapping[str, Any]) -> str:
    return "" if event["phase"] == "train" else f" of {event['phase']}"


def title(job: Mapping[str, Any]) -> str:
    target = job.get("target")
    return " ".join([job["method"], *([target] if target not in (None, NONE) else []), f"seed {job['seed']}"])


def outcome(record: Mapping[str, Any], metric: str) -> str:
    if "matrix" in record:
        figures = {name: record["matrix"].get(name) for name in ("acc", "bwt", "fwt", "forgetting")}
        return ", ".join(f"{name} {value:.1f}" for name, value in figures.items() if value is not None) or "done"
    target = record["job"].get("target")
    # Whoever watches a sweep should not choose by the target.
    is_hidden = target in (None, NONE) or "draw" in record["job"]
    shown = "" if is_hidden else f", {target} {record['scores'][target][metric]:.1f}"
    if "dev_scores" in record:
        shown = f", test {fmean(one[metric] for one in record['scores'].values()):.1f}"
    return f"validation {record['validation']:.1f}{shown}"


def cell_value(record: Mapping[str, Any], row: str, column: str, metric: str) -> float | None:
    job = record["job"]
    if job["method"] != row:
        return None
    if "matrix" in record:
        return record["matrix"].get(column)
    if job.get("target") not in (column, None, NONE):
        return None
    return record["scores"].get(column, {}).get(metric)
