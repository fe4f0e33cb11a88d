# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The output of a command: progress bars on a terminal, lines elsewhere, JSON lines with `--json`, or errors only."""

import json
import sys
import time
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from tqdm import tqdm

from hf_memaug.runs.job import NONE, Job

# Without a terminal, seconds of silence until a line says how far a job is.
EVERY = 30.0


class Display:
    """
    Args:
        metric: the score to show.
        quiet, as_json: the options `--quiet` and `--json`.
    """

    def __init__(self, metric: str, quiet: bool, as_json: bool):
        self.metric, self.quiet, self.as_json = metric, quiet, as_json
        # A job redirects `sys.stdout` to its log.
        self.out = sys.stdout
        self.is_live = not quiet and not as_json and self.out.isatty()
        self.bars: dict[str, tqdm] = {}
        self.total = self.done_jobs = 0
        self.spoke = time.monotonic()

    # Events of a run

    def begin(self, total: int, done: int) -> None:
        self.total, self.done_jobs = total, done
        if done:
            self.line(f"{done} of {total} jobs are already done.", event="continued", done=done)
        self._add_bar("", "jobs", total=total, initial=done, unit="job")

    def start(self, job: Job) -> None:
        self._add_bar(job.name, title(job.identity), unit="step", leave=False)

    def event(self, job: Job, event: dict) -> None:
        bar, step, name = self.bars[job.name], event["step"], title(job.identity)
        if event["event"] == "resumed":
            self.line(f"{name}: resumed from step {step}{in_phase(event)}.", **event, name=job.name)
            return
        if bar.total != event["of"] or step < bar.n:
            # A phase begins, or resumes after this many steps.
            bar.reset(event["of"])
            bar.initial = bar.n = step - 1
        bar.set_description(name + in_phase(event), refresh=False)
        bar.update(step - bar.n)
        if not self.is_live and time.monotonic() - self.spoke > EVERY:
            self.text(f"  {name}: step {step}/{event['of']}{in_phase(event)}")

    def done(self, job: Job, record: Mapping[str, Any]) -> None:
        took = "" if record.get("seconds") is None else f" ({tqdm.format_interval(record['seconds'])})"
        self._end(job, f"{title(job.identity)}: {outcome(record, self.metric)}{took}", event="done", **record)

    def failed(self, job: Job, why: str, log) -> None:
        text = f"FAILED {title(job.identity)}: {why} (see {log})"
        self._end(job, text, event="failed", name=job.name, why=why, log=str(log))
        if self.quiet or self.as_json:
            print(text, file=sys.stderr, flush=True)

    def interrupted(self) -> str:
        left = self.total - self.done_jobs
        return f"Interrupted with {left} of {self.total} jobs left. To resume, rerun the same command."

    def close(self) -> None:
        while self.bars:
            self.bars.popitem()[1].close()

    # Output

    def line(self, text: str, event: str | None = "said", **content: Any) -> None:
        """A line of text, or with `--json` an event."""
        self.spoke = time.monotonic()
        if self.as_json:
            if event is not None:
                print(json.dumps({"event": event, **content}, ensure_ascii=False), file=self.out, flush=True)
        elif not self.quiet:
            tqdm.write(text, file=self.out)
            self.out.flush()

    def text(self, text: str) -> None:
        """Text that `--json` leaves out, such as a table."""
        self.line(text, event=None)

    def _add_bar(self, name: str, title: str, **kwargs: Any) -> None:
        self.bars[name] = tqdm(desc=title, file=self.out, disable=not self.is_live, dynamic_ncols=True, **kwargs)

    def _end(self, job: Job, text: str, /, **content: Any) -> None:
        self.bars.pop(job.name).close()
        self.done_jobs += 1
        self.line(f"[{self.done_jobs}/{self.total}] {text}", **content)
        self.bars[""].update()


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
