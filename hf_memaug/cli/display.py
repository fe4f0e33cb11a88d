# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a command says: a live table on a terminal, plain lines elsewhere, JSON lines for scripts, or nothing."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from hf_memaug.runs.rows import NO_TARGET

# Seconds between two lines about a job that is under way, where no bar shows it.
EVERY = 30.0


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


class Display:
    """
    Args:
        metric: the score that is shown.
        quiet, as_json: as the options say.
        rows, columns: of the live table: the methods, and the targets, or the figures of a matrix.
    """

    def __init__(self, metric: str, quiet: bool, as_json: bool, rows: Sequence[str] = (), columns: Sequence[str] = ()):
        self.metric, self.quiet, self.as_json = metric, quiet, as_json
        self.rows, self.columns = list(rows), list(columns)
        # Kept, because what a job prints goes elsewhere.
        self.out = sys.stdout
        self.is_live = not quiet and not as_json and self.out.isatty()
        self.records: list[dict] = []
        self.running: dict[str, dict[str, Any]] = {}
        self.total = self.before = self.todo = self.finished = 0
        self.begun = time.monotonic()
        self._live = None

    # What a run tells

    def begin(self, total: int, before: int, todo: int, records: Sequence[dict]) -> None:
        self.total, self.before, self.todo, self.records = total, before, todo, list(records)
        self.begun = time.monotonic()
        if before:
            self.line(f"{before} of {total} jobs are done already, and not done again.", event="continued", done=before)

    def start(self, spec: Mapping[str, Any]) -> None:
        now = time.monotonic()
        self.running[spec["name"]] = {"title": title(spec["job"]), "since": now, "said": now, "from": 0, "event": {}}
        self._refresh()

    def event(self, spec: Mapping[str, Any], event: dict) -> None:
        one, now = self.running[spec["name"]], time.monotonic()
        if event["event"] == "resumed":
            one.update(since=now, **{"from": event["step"]}, phase=event["phase"])
            where = "" if event["phase"] == "train" else f" of {event['phase']}"
            text = f"{one['title']}: goes on from step {event['step']}{where}."
            self.line(text, event="resumed", name=spec["name"], step=event["step"], phase=event["phase"])
        elif event["event"] == "step":
            if one.get("phase", event["phase"]) != event["phase"]:
                one.update(since=now, **{"from": event["step"] - 1})
            one.update(phase=event["phase"], event=event)
            if not self.is_live and now - one["said"] > EVERY:
                one["said"] = now
                self.line(f"  {one['title']}: {self._progress(one)}", event=None)
        self._refresh()

    def done(self, spec: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        self.running.pop(spec["name"], None)
        self.finished += 1
        self.records.append(dict(record))
        text = (
            f"[{self._overall()}] {title(spec['job'])}: {outcome(record, self.metric)} ({duration(record['seconds'])})"
        )
        self.line(text, event="done", **record)
        self._refresh()

    def failed(self, spec: Mapping[str, Any], why: str, log) -> None:
        one = self.running.pop(spec["name"], None)
        self.finished += 1
        text = f"[{self._overall()}] FAILED {one['title'] if one else spec['name']}: {why} (see {log})"
        self.line(text, event="failed", name=spec["name"], why=why, log=str(log))
        if self.quiet or self.as_json:
            print(text, file=sys.stderr, flush=True)
        self._refresh()

    def interrupted(self) -> str:
        left = self.total - self.before - self.finished
        return f"Interrupted with {left} of {self.total} jobs to do. The same command goes on from here."

    # How it is told

    def line(self, text: str, event: str | None = "said", **content: Any) -> None:
        """A line of text; with `--json`, an event."""
        if self.as_json:
            if event is not None:
                print(json.dumps({"event": event, **content}, ensure_ascii=False), file=self.out, flush=True)
        elif not self.quiet:
            if self._live is not None:
                self._live.console.print(text, highlight=False, markup=False)
            else:
                print(text, file=self.out, flush=True)

    def text(self, text: str) -> None:
        """Something for readers alone, such as a table."""
        self.line(text, event=None)

    def __enter__(self) -> "Display":
        if self.is_live and self.todo:
            from rich.console import Console
            from rich.live import Live

            # The output as it was: a job's own goes into its log.
            self._live = Live(console=Console(file=self.out), refresh_per_second=4, redirect_stdout=False)
            self._live.start()
            self._refresh()
        return self

    def __exit__(self, *error) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _refresh(self) -> None:
        if self._live is None:
            return
        from rich.console import Group
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for number, name in enumerate(["", *self.columns]):
            table.add_column(name, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(row, *(self._cell(row, column) for column in self.columns))
        bars = [f"{one['title']}  {self._bar(one)} {self._progress(one)}" for one in self.running.values()]
        self._live.update(Group(table, *bars, self._overall()))

    def _cell(self, row: str, column: str) -> str:
        values = [
            value for record in self.records if (value := cell_value(record, row, column, self.metric)) is not None
        ]
        if not values:
            return "-"
        return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")

    def _bar(self, one: Mapping[str, Any], width: int = 20) -> str:
        event = one["event"]
        part = event["step"] / event["of"] if event.get("of") else 0
        return "█" * int(part * width) + "░" * (width - int(part * width))

    def _progress(self, one: Mapping[str, Any]) -> str:
        event = one["event"]
        if not event:
            return "begins"
        done, seconds = event["step"] - one["from"], max(time.monotonic() - one["since"], 1e-6)
        rate = done / seconds
        left = duration((event["of"] - event["step"]) / rate) if rate > 0 else "?"
        where = "" if event["phase"] == "train" else f" of {event['phase']}"
        return f"step {event['step']}/{event['of']}{where}, {rate:.1f} steps/s, {left} left"

    def _overall(self) -> str:
        seconds = max(time.monotonic() - self.begun, 1e-6)
        count = f"{self.before + self.finished}/{self.total}"
        if not self.finished:
            return count
        left = seconds / self.finished * (self.todo - self.finished)
        return f"{count}, {60 * self.finished / seconds:.1f} jobs/min, {duration(left)} left"


def title(job: Mapping[str, Any]) -> str:
    target = job.get("target")
    return " ".join([job["method"], *([target] if target not in (None, NO_TARGET) else []), f"seed {job['seed']}"])


def outcome(record: Mapping[str, Any], metric: str) -> str:
    if "matrix" in record:
        figures = {name: record["matrix"].get(name) for name in ("acc", "bwt", "fwt", "forgetting")}
        return ", ".join(f"{name} {value:.1f}" for name, value in figures.items() if value is not None) or "done"
    target = record["job"].get("target")
    shown = "" if target in (None, NO_TARGET) else f", {target} {record['scores'][target][metric]:.1f}"
    if "dev_scores" in record:
        shown = f", test {fmean(one[metric] for one in record['scores'].values()):.1f}"
    return f"validation {record['validation']:.1f}{shown}"


def cell_value(record: Mapping[str, Any], row: str, column: str, metric: str) -> float | None:
    job = record["job"]
    if job["method"] != row:
        return None
    if "matrix" in record:
        return record["matrix"].get(column)
    if job.get("target") not in (column, None, NO_TARGET):
        return None
    return record["scores"].get(column, {}).get(metric)
