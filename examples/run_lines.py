# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of JSON lines, one for each trained model, beside the tables that are made of them."""

import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def read_runs(path: Path) -> list[dict]:
    """All runs; a kill may have cut the last line, which is then left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            if line.endswith("\n"):
                raise ValueError(
                    f"Line {number} of {path} is no run. Delete that line: its model runs again."
                ) from None
            print(f"{path} ends in the middle of a run, which is left out and runs again.", file=sys.stderr)
    return found


def _without_cut_line(path: Path) -> None:
    """What is written next begins a line."""
    whole = path.read_bytes() if path.is_file() else b""
    if whole and not whole.endswith(b"\n"):
        # A last line without its end is whole all the same, if it can be read.
        last = whole[whole.rfind(b"\n") + 1 :]
        try:
            json.loads(last)
            path.write_bytes(whole + b"\n")
        except ValueError:
            path.write_bytes(whole[: len(whole) - len(last)])


def keep_runs(path: Path, runs: Iterable[dict]) -> None:
    """Writes runs beside those that are there; one of the same `job` takes the place of the older."""

    def identity(run: dict) -> str:
        # A setting that is not given is the same as one that there was not yet.
        return json.dumps({name: value for name, value in run["job"].items() if value is not None}, sort_keys=True)

    every = {identity(run): run for run in [*read_runs(path), *runs]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(run) + "\n" for run in every.values()), encoding="utf-8")


def run_in_processes(jobs: list, work: Callable, arguments: tuple, processes: int, record: Path) -> Iterator[tuple]:
    """
    Runs `work(job, *arguments)` for each job, so many at a time. As each is done, its result becomes a line of the
    record, so that a kill loses none that is done, and `(job, result, what to say of the progress)` is yielded. Where
    one fails, the others run to their end before that is said.
    """
    from hf_memaug.reporting.results import here

    record.parent.mkdir(parents=True, exist_ok=True)
    _without_cut_line(record)
    begin, made_with, number, failed = time.time(), here(), 0, {}
    pool = multiprocessing.get_context("spawn").Pool(processes)
    with pool, open(record, "a", encoding="utf-8") as file:
        waiting = {pool.apply_async(_one, (work, job, *arguments)): job for job in jobs}
        while waiting:
            ready = [one for one in waiting if one.ready()]
            for one in ready:
                job, number = waiting.pop(one), number + 1
                try:
                    result = {**one.get(), "made_with": made_with}
                except Exception as error:
                    failed[job] = error
                    continue
                file.write(json.dumps(result) + "\n")
                file.flush()
                left = (time.time() - begin) / number * (len(jobs) - number)
                yield job, result, f"[{number}/{len(jobs)}, {left / 60:.0f} min left]"
            if not ready:
                time.sleep(0.1)
    for job, error in failed.items():
        raise RuntimeError(
            f"{len(failed)} of {len(jobs)} models failed, of which the first is {job}. The same command tries them "
            "again."
        ) from error


def _one(work: Callable, job, *arguments) -> dict:
    try:
        return work(job, *arguments)
    finally:
        free_memory()


def free_memory() -> None:
    """After a model and before the next: graphs on a GPU and what they were made for point at each other."""
    gc.collect()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()
