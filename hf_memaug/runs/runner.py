# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs of a folder: in this process, several at once in processes of their own, or each under torchrun."""

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hf_memaug.files import FULL, write_atomically
from hf_memaug.runs.errors import Interrupted, UsageError
from hf_memaug.runs.folder import JOB, RunFolder
from hf_memaug.runs.progress import Stop

# Seconds that a job has to save its step before it is killed.
GRACE = 60.0

Spec = Mapping[str, Any]


def run_jobs(specs: Sequence[Spec], folder: RunFolder, display, at_once: int = 1, processes: int = 1) -> list[Spec]:
    """
    Runs what is not done yet, and returns the jobs that failed. Each that is done becomes a line of runs.jsonl at once.
    Raises `Interrupted` when the process is asked to end, after every running job has saved its step.
    """
    done = folder.check_jobs(specs)
    todo = [spec for spec in specs if spec["name"] not in done]
    display.begin(len(specs), len(done), len(todo), folder.records())
    # Whoever keeps the best has to know what was there before.
    keeper = _Keeper(folder, specs)
    with Stop() as stop, display:
        if at_once == 1 and processes == 1:
            return _run_here(todo, folder, display, stop, keeper)
        return _run_in_processes(todo, folder, display, stop, keeper, at_once, processes)


def _run_here(todo: Sequence[Spec], folder: RunFolder, display, stop: Stop, keeper: "_Keeper") -> list[Spec]:
    from hf_memaug.runs.job import guarded

    failed = []
    for spec in todo:
        outcome: list[dict] = []

        def say(event: dict, spec=spec, outcome=outcome) -> None:
            if event["event"] in ("done", "failed", "interrupted"):
                outcome.append(event)
            else:
                display.event(spec, event)

        display.start(spec)
        guarded(spec, folder.path, say, stop)
        if not _take(outcome[0], spec, folder, display, keeper):
            failed.append(spec)
        if stop.asked:
            raise Interrupted(display.interrupted())
    return failed


def _take(event: dict, spec: Spec, folder: RunFolder, display, keeper: "_Keeper") -> bool:
    """Deals with the end of a job. Whether it is done, or at least not failed."""
    if event["event"] == "done":
        folder.append(event["record"])
        display.done(spec, event["record"])
        keeper.keep(event["record"])
        return True
    if event.get("errno") in FULL:
        raise OSError(event["errno"], event["why"])
    if event["event"] == "interrupted":
        return True
    display.failed(spec, event["why"], folder.job_folder(spec["name"]) / "log.txt")
    return False


class _Keeper:
    """With `keep: best`, of each method and target the weights of the seed that validates best stay."""

    def __init__(self, folder: RunFolder, specs: Sequence[Spec]):
        self.folder = folder
        self.is_on = any(spec.get("keep") == "best" for spec in specs)
        self.best: dict[tuple, tuple[float, str]] = {}
        for record in folder.records() if self.is_on else ():
            self.keep(record)

    def keep(self, record: Mapping[str, Any]) -> None:
        if not self.is_on:
            return
        key = (record["job"].get("method"), record["job"].get("target"))
        rival = (record["validation"], record["name"])
        loser = self.best.get(key)
        if loser is None:
            self.best[key] = rival
        elif loser[1] != rival[1]:
            # Of equals the first stays.
            self.best[key] = max(loser, rival, key=lambda one: one[0])
            lost = rival if self.best[key] is loser else loser
            shutil.rmtree(self.folder.job_folder(lost[1]) / "checkpoint", ignore_errors=True)


def _run_in_processes(todo, folder: RunFolder, display, stop: Stop, keeper, at_once: int, processes: int) -> list[Spec]:
    from hf_memaug.training.sweep.runner import environments, library_path

    # Several processes of one job share the devices among themselves.
    slots = environments(at_once) if processes == 1 else [{**os.environ, "PYTHONPATH": library_path()}] * at_once
    waiting, running, failed = list(todo), {}, []
    events: queue.Queue = queue.Queue()
    try:
        while (waiting and not stop.asked) or running:
            free = [slot for slot in range(at_once) if slot not in {one.slot for one in running.values()}]
            while waiting and free and not stop.asked:
                one = _Running(waiting.pop(0), free.pop(0), folder, slots, processes, events)
                running[one.spec["name"]] = one
                display.start(one.spec)
            if stop.asked:
                for one in running.values():
                    one.ask_to_end()
            with contextlib.suppress(queue.Empty):
                name, event = events.get(timeout=0.1)
                one = running[name]
                if event["event"] == "ended":
                    del running[name]
                    one.close()
                    event = one.outcome or {"event": "interrupted" if stop.asked else "failed", "why": one.last_words()}
                    if not _take(event, one.spec, folder, display, keeper):
                        failed.append(one.spec)
                elif event["event"] in ("done", "failed", "interrupted"):
                    one.outcome = event
                else:
                    display.event(one.spec, event)
    finally:
        for one in running.values():
            one.kill()
    if stop.asked:
        raise Interrupted(display.interrupted())
    return failed


class _Running:
    """A job in a process of its own, and a thread that passes its events on."""

    def __init__(self, spec: Spec, slot: int, folder: RunFolder, slots, processes: int, events: queue.Queue):
        self.spec, self.slot, self.events = spec, slot, events
        self.outcome: dict | None = None
        self.asked_at: float | None = None
        self.place = folder.job_folder(spec["name"])
        write_atomically(self.place / JOB, json.dumps(spec, indent=2, ensure_ascii=False) + "\n")
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = [*(launcher if processes > 1 else ()), "-m", "hf_memaug.runs.job", str(self.place)]
        self.log = open(self.place / "log.txt", "ab")
        self.process = subprocess.Popen(
            [sys.executable, *command],
            # Never written to: its end tells the job that the command is gone.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=slots[slot],
            # The keyboard interrupts the command, and that ends its jobs.
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        from hf_memaug.runs.job import EVENT

        for raw in self.process.stdout:
            line = raw.decode("utf-8", errors="replace")
            if line.startswith(EVENT):
                self.events.put((self.spec["name"], json.loads(line.removeprefix(EVENT))))
            else:
                self.log.write(raw)
        self.process.wait()
        self.events.put((self.spec["name"], {"event": "ended"}))

    def ask_to_end(self) -> None:
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            self._signal(signal.SIGTERM)
        elif time.monotonic() - self.asked_at > GRACE:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self) -> None:
        self.process.stdin.close()
        self.log.close()

    def last_words(self) -> str:
        lines = (self.place / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with {self.process.returncode} and said nothing"

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def check_counts(jobs: int, processes: int) -> None:
    for name, value in (("jobs", jobs), ("processes", processes)):
        if value < 1:
            raise UsageError(f"`--{name}` is {value}; it must be 1 or more.")
