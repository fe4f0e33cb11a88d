# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
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
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hf_memaug.files import FULL
from hf_memaug.runs.display import Display
from hf_memaug.runs.errors import Interrupted
from hf_memaug.runs.folder import RunFolder
from hf_memaug.runs.job import EVENT, Job, run_guarded
from hf_memaug.runs.progress import Stop

# Seconds that a job has to save a checkpoint before it is killed.
GRACE = 60.0
LAST_EVENTS = ("done", "failed", "interrupted")


def run_jobs(
    jobs: Sequence[Job], folder: RunFolder, display: Display, at_once: int = 1, processes: int = 1
) -> list[Job]:
    """
    Runs the jobs that are not done yet, and writes a line of runs.jsonl as soon as one is done.

    Args:
        at_once: how many jobs run at a time.
        processes: how many processes train one job, with torchrun.

    Returns:
        The jobs that failed.

    Raises:
        Interrupted: on SIGTERM or Ctrl-C, after every running job has saved a checkpoint.
    """
    done = folder.check_jobs(jobs)
    # A job runs again for its checkpoint, if that is needed and was not kept.
    needed = {job.start for job in jobs if job.start is not None and job.name not in done} & done
    again = {name for name in needed if not (folder.job_folder(name) / "checkpoint").is_dir()}
    done -= again
    todo = [job for job in jobs if job.name not in done]
    with Stop() as stop, contextlib.closing(display):
        display.begin(len(jobs), len(done))
        runner = _Runner(folder, display, stop, _Checkpoints(folder, jobs), again)
        if at_once == 1 and processes == 1:
            runner.run_here(todo)
        else:
            runner.run_in_processes(todo, at_once, processes)
        if stop.asked:
            raise Interrupted(display.interrupted())
    return runner.failed


class _Runner:
    def __init__(
        self, folder: RunFolder, display: Display, stop: Stop, checkpoints: "_Checkpoints", again: Collection[str]
    ):
        self.folder, self.display, self.stop, self.checkpoints = folder, display, stop, checkpoints
        self.again = again
        self.failed: list[Job] = []

    def run_here(self, todo: Sequence[Job]) -> None:
        for job in todo:
            self.display.start(job)
            run_guarded(job, self.folder.path, partial(self.handle, job), self.stop)
            if self.stop.asked:
                return

    def run_in_processes(self, todo: Sequence[Job], at_once: int, processes: int) -> None:
        environments = _environments(at_once, processes)
        waiting, free = list(todo), list(range(at_once))
        running: dict[str, _Process] = {}
        events: queue.Queue = queue.Queue()
        try:
            while (waiting and not self.stop.asked) or running:
                while free and not self.stop.asked:
                    unfinished = {*running, *(job.name for job in waiting)}
                    job = next((job for job in waiting if job.start not in unfinished), None)
                    if job is None:
                        break
                    waiting.remove(job)
                    slot = free.pop(0)
                    place = self.folder.job_folder(job.name)
                    running[job.name] = _Process(job, slot, place, environments[slot], processes, events)
                    self.display.start(job)
                if self.stop.asked:
                    for one in running.values():
                        one.ask_to_end()
                with contextlib.suppress(queue.Empty):
                    name, event = events.get(timeout=0.1)
                    one = running[name]
                    if event["event"] == "ended":
                        free.append(running.pop(name).slot)
                        one.close()
                        if not one.is_over:
                            self.handle(one.job, one.died(self.stop.asked))
                    else:
                        one.is_over = event["event"] in LAST_EVENTS
                        self.handle(one.job, event)
        finally:
            for one in running.values():
                one.kill()

    def handle(self, job: Job, event: dict) -> None:
        if event["event"] == "done":
            if job.name not in self.again:
                self.folder.append(event["record"])
            self.display.done(job, event["record"])
            self.checkpoints.add(event["record"])
        elif event.get("errno") in FULL:
            raise OSError(event["errno"], event["why"])
        elif event["event"] == "failed":
            self.display.failed(job, event["why"], self.folder.job_folder(job.name) / "log.txt")
            self.failed.append(job)
        elif event["event"] in ("resumed", "step"):
            self.display.event(job, event)


class _Checkpoints:
    """
    Deletes checkpoints once no job starts from them any more: with `keep="best"` all of a method and target but that of
    the seed that validates best, and those with `keep="start"`.
    """

    def __init__(self, folder: RunFolder, jobs: Sequence[Job]):
        self.folder = folder
        self.is_on = any(job.keep == "best" for job in jobs)
        self.best: dict[tuple, tuple[float, str]] = {}
        self.unfinished = {job.name: job.start for job in jobs if job.start is not None}
        self.surplus = {job.name for job in jobs if job.keep == "start"}
        for record in folder.records():
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        self.unfinished.pop(record["name"], None)
        if self.is_on and record.get("validation") is not None:
            key = (record["job"].get("method"), record["job"].get("target"))
            new = (record["validation"], record["name"])
            old = self.best.setdefault(key, new)
            if old[1] != new[1]:
                # The first of equals stays.
                winner, loser = (new, old) if new[0] > old[0] else (old, new)
                self.best[key] = winner
                self.surplus.add(loser[1])
        for name in self.surplus.difference(self.unfinished.values()):
            shutil.rmtree(self.folder.job_folder(name) / "checkpoint", ignore_errors=True)
            self.surplus.remove(name)


class _Process:
    """A job in a process of its own, and a thread that passes its events on."""

    def __init__(self, job: Job, slot: int, folder: Path, environment: dict, processes: int, events: queue.Queue):
        self.job, self.slot, self.folder, self.events = job, slot, folder, events
        self.is_over = False
        self.asked_at: float | None = None
        job.write(folder)
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        self.log = open(folder / "log.txt", "ab")
        self.process = subprocess.Popen(
            [sys.executable, *(launcher if processes > 1 else ()), "-m", "hf_memaug.runs.job", str(folder)],
            # Never written to: when it closes, the job knows that the command is gone.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            # Ctrl-C reaches the command alone, which then ends its jobs.
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for raw in self.process.stdout or ():
            line = raw.decode("utf-8", errors="replace")
            if line.startswith(EVENT):
                self.events.put((self.job.name, json.loads(line.removeprefix(EVENT))))
            else:
                self.log.write(raw)
        self.process.wait()
        self.events.put((self.job.name, {"event": "ended"}))

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
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.log.close()

    def died(self, was_asked: bool) -> dict:
        """The event of a process that ended without one."""
        lines = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"exit code {self.process.returncode}, no output"
        return {"event": "interrupted" if was_asked else "failed", "why": why}

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def _environments(at_once: int, processes: int) -> list[dict[str, str]]:
    """One for each job at a time: a share of the cores, and one of the GPUs where a job is one process."""
    import torch

    here = str(Path(__file__).resolve().parents[2])
    # The same code in processes that start elsewhere, installed or not.
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    shared = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if processes > 1:
        return [shared] * at_once
    shared.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // at_once)))
    shared.setdefault("TOKENIZERS_PARALLELISM", "false")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    if not devices:
        return [shared] * at_once
    return [{**shared, "CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]} for slot in range(at_once)]
