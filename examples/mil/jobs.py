# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Many jobs, several at a time, each result written as it comes; what is in the file already is not run again."""

import argparse
import dataclasses
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

from experiment import Job

sys.path.insert(0, str(Path(__file__).parents[1]))  # run_lines.py

from run_lines import free_memory, read_runs


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """How many models are trained at a time, and in which way."""
    parser.add_argument("--workers", type=int, default=1, help="processes, each with a trainer (default: %(default)s)")
    parser.add_argument(
        "--together",
        type=int,
        metavar="N",
        help="train up to N models on top of each other instead, for a large GPU (together.py)",
    )
    parser.add_argument(
        "--compile", action="store_true", help="with --together: compile the encoder's layers, for a GPU"
    )


def run_jobs(options, jobs: list[Job], backbones: dict[str, str], record: Path, **kwargs) -> list[dict]:
    """`jobs` in the way that the options of `add_run_options` say."""
    if options.compile:
        import torch

        if not options.together:
            raise SystemExit("`--compile` is for stacks of models: add `--together N`.")
        if not torch.cuda.is_available():
            raise SystemExit("`--compile` is for a GPU, and there is none here: leave it out.")
    if options.together:
        fused = "inductor" if options.compile else None
        return run_together(jobs, options.data, backbones, record, options.together, fused=fused, **kwargs)
    return run_all(jobs, options.data, backbones, record, options.workers, **kwargs)


def run_all(
    jobs: list[Job], root: str, backbones: dict[str, str], record: Path, workers: int = 1, **kwargs
) -> list[dict]:
    """
    Args:
        jobs: what to train, in the order in which to begin.
        root: the folder of the data sets.
        backbones: name of a backbone to its checkpoint.
        record: a file of JSON lines, one for each finished job.
        workers: jobs at a time, each in a process of its own.
        kwargs: arguments of `experiment.run`.
    """
    done, todo = _recorded(jobs, record)
    start = time.time()
    arguments = [(job, root, backbones[job.backbone], kwargs) for job in todo]
    with open(record, "a") as file:
        for number, result in enumerate(_results(arguments, workers), start=1):
            if "error" in result:
                named = {name: result["job"][name] for name in ("data", "target", "method", "backbone", "seed")}
                print(f"FAILED {named}: {result['error']}", file=sys.stderr, flush=True)
                if number == 1:
                    raise SystemExit("The first job failed: mend that before the others follow.")
                continue
            done[Job(**result["job"])] = result
            file.write(json.dumps(result) + "\n")
            file.flush()
            _report(number, len(todo), result, time.time() - start)
    return [done[job] for job in jobs if job in done]


def run_together(
    jobs: list[Job],
    root: str,
    backbones: dict[str, str],
    record: Path,
    at_once: int,
    fused: str | None = None,
    **kwargs,
) -> list[dict]:
    """As `run_all`, but jobs that differ in target and seed only are trained on top of each other (together.py)."""
    from together import Together

    from hf_memaug.reporting.results import here

    done, todo = _recorded(jobs, record)
    groups: dict[tuple, list[Job]] = {}
    for job in todo:
        # All domains and all but one are different numbers of domains.
        groups.setdefault((dataclasses.replace(job, target="", seed=0), job.target == "cross"), []).append(job)
    parts = [group[start : start + at_once] for group in groups.values() for start in range(0, len(group), at_once)]
    start, number = time.time(), 0
    with open(record, "a") as file:
        for part in parts:
            for result in Together(part, root, backbones[part[0].backbone], fused=fused).run(**kwargs):
                number += 1
                result["made_with"] = here()
                done[Job(**result["job"])] = result
                file.write(json.dumps(result) + "\n")
                _report(number, len(todo), result, time.time() - start)
            file.flush()
            free_memory()
    return [done[job] for job in jobs if job in done]


def _recorded(jobs: list[Job], record: Path) -> tuple[dict[Job, dict], list[Job]]:
    """What the record holds, and what is still to do."""
    record.parent.mkdir(parents=True, exist_ok=True)
    done = {Job(**result["job"]): result for result in read_runs(record)}
    todo = [job for job in dict.fromkeys(jobs) if job not in done]
    if len(todo) < len(jobs):
        print(f"{len(jobs) - len(todo)} of {len(jobs)} jobs are in {record} already.", flush=True)
    return done, todo


def _results(arguments: list[tuple], workers: int):
    if workers == 1:
        yield from map(_work, arguments)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, initializer=_prepare, initargs=(workers,)) as pool:
        yield from pool.imap_unordered(_work, arguments)


def _prepare(workers: int) -> None:
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))


def _work(arguments: tuple) -> dict:
    import torch
    from experiment import run

    from hf_memaug.reporting.results import here

    # The tables compare methods trained alike; TF32 is exact enough for that and twice as fast.
    torch.set_float32_matmul_precision("high")
    job, root, backbone, kwargs = arguments
    start = time.time()
    try:
        result = run(job, root, backbone, **kwargs)
        return {**result, "seconds": round(time.time() - start, 1), "made_with": here()}
    except Exception as error:  # one broken job must not lose the others
        return {"job": dataclasses.asdict(job), "error": f"{type(error).__name__}: {error}"}


def _report(number: int, total: int, result: dict, elapsed: float) -> None:
    job = result["job"]
    scores = " ".join(f"{target} {value:.1f}" for target, value in result["scores"].items())
    left = elapsed / number * (total - number)
    print(
        f"[{number}/{total}, {left / 60:.0f} min left] {job['data']} {job['target']} {job['method']} {job['backbone']} "
        f"{job['head']} seed {job['seed']}: dev {result['dev']:.1f} {scores} ({result['seconds']:.0f} s)",
        flush=True,
    )
