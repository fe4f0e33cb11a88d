# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs jobs, several at a time, each in a process of its own; what is done is not done again."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_memaug.evaluation.domain_selection import training_score
from hf_memaug.evaluation.records import read_records
from hf_memaug.files import has_room, no_room
from hf_memaug.training.sweep.plan import Job

# What runs the job of a folder.
COMMAND = (sys.executable, "-m", "hf_memaug.training.sweep.job")
# Seconds that a run has to end by itself before it is killed.
GRACE = 5.0


@dataclass
class _Running:
    job: Job
    slot: int
    process: subprocess.Popen


def job_folder(folder: str | Path, job: Job) -> Path:
    return Path(folder) / "jobs" / job.name


def is_done(folder: str | Path, job: Job) -> bool:
    return (job_folder(folder, job) / "done").is_file()


@contextlib.contextmanager
def lock(folder: str | Path) -> Iterator[None]:
    """Refuses a second sweep on one folder. The lock goes with the process, however that ends."""
    import fcntl

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise RuntimeError(
                f"`output` {folder} is in use by another sweep (process {file.read().strip() or 'unknown'}). Wait for "
                "it, end it, or give another `output`."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def run_jobs(
    jobs: Sequence[Job], folder: str | Path, at_once: int = 1, say: Callable[[str], None] | None = None
) -> list[Job]:
    """
    Runs what is not done yet and returns the jobs that failed. Their logs are kept, and the next call tries them again.
    An interruption ends the processes of all jobs before it is passed on. When a job finds the disk full, no more are
    begun, and once those that run have ended, an `OSError` says so.

    Args:
        jobs: in the order in which to begin.
        folder: where `jobs/<name>/` are.
        at_once: how many run at a time.
        say: gets a line at the end of each job. Default: prints it.
    """
    if at_once < 1:
        raise ValueError(f"`at_once` is {at_once}; it must be 1 or more.")
    say = say or (lambda line: print(line, flush=True))
    todo = [job for job in jobs if not is_done(folder, job)]
    if len(todo) < len(jobs):
        say(f"{len(jobs) - len(todo)} of {len(jobs)} jobs are done already.")
    of_slot = environments(at_once)
    failed, running, start, finished, full = [], [], time.monotonic(), 0, False
    waiting = list(todo)
    try:
        while waiting or running:
            free = [slot for slot in range(at_once) if slot not in {one.slot for one in running}]
            for slot in free[: len(waiting)]:
                job = waiting.pop(0)
                running.append(_Running(job, slot, _start(job, job_folder(folder, job), of_slot[slot])))
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                one.process.stdin.close()
                finished += 1
                said = _outcome(job_folder(folder, one.job))
                if not is_done(folder, one.job):
                    failed.append(one.job)
                    if one.process.returncode == errno.ENOSPC or not has_room(folder):
                        full, waiting = True, []
                say(f"[{_progress(finished, len(todo), time.monotonic() - start)}] {one.job.name}: {said}")
            time.sleep(0.05)
    finally:
        _end([one.process for one in running])
    if full:
        raise no_room(folder)
    return failed


def environments(at_once: int) -> list[dict[str, str]]:
    """One for each job at a time: a share of the cores, and one of the GPUs, which would otherwise all be taken."""
    import torch

    shared = dict(os.environ)
    shared.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // at_once)))
    shared.setdefault("TOKENIZERS_PARALLELISM", "false")
    shared["PYTHONPATH"] = library_path()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    if not devices:
        return [shared] * at_once
    return [{**shared, "CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]} for slot in range(at_once)]


def library_path() -> str:
    """`PYTHONPATH` with this library first: a process that begins elsewhere runs the same code, installed or not."""
    here = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join([here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])


def _start(job: Job, folder: Path, environment: dict[str, str]) -> subprocess.Popen:
    folder.mkdir(parents=True, exist_ok=True)
    job.write(folder)
    with open(folder / "log.txt", "ab") as log:
        return subprocess.Popen(
            [*COMMAND, str(folder)],
            # Never written to: its end tells the job that the sweep is gone.
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            # The keyboard interrupts the sweep, and that ends its jobs.
            start_new_session=True,
        )


def _end(processes: Sequence[subprocess.Popen]) -> None:
    for process in processes:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        # Also what the job has started, such as readers of data.
        _signal(process, signal.SIGKILL)
        process.wait()
        process.stdin.close()


def _signal(process: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _outcome(folder: Path) -> str:
    if not (folder / "done").is_file():
        log = (folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"FAILED ({log[-1] if log else 'it said nothing'}; see {folder / 'log.txt'})"
    # Not what the test domain says: whoever watches a sweep should not choose by it.
    score = max(training_score(record) for record in read_records(folder / "records.jsonl"))
    return f"validation {100 * score:.1f}"


def _progress(finished: int, total: int, seconds: float) -> str:
    left = seconds / finished * (total - finished)
    return f"{finished}/{total}, {60 * finished / max(seconds, 1e-9):.1f} a minute, {_duration(left)} left"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
