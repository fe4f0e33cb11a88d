# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A kind of job without training: seed 7 fails, seed 8 runs until it is asked to stop. It needs its `start`."""

import os
import time

from hf_memaug.runs import job as jobs
from hf_memaug.runs.errors import Interrupted


def quick_job(job, run, steps) -> dict:
    folder = run / "jobs" / job.name
    with (folder / "times.txt").open("a") as file:
        file.write(f"{time.time()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}\n")
    if job.seed == 7:
        raise ValueError("no such luck")
    while job.seed == 8:
        time.sleep(0.05)
        if steps.stop.asked:
            raise Interrupted("stopped")
    if job.start is not None and not (run / "jobs" / job.start / "checkpoint").is_dir():
        raise ValueError(f"no checkpoint of {job.start}")
    (folder / "checkpoint").mkdir(exist_ok=True)
    return {"validation": float(job.seed), "scores": {"a": {"f1": 50.0}}, "checkpoint": "checkpoint"}


jobs.KINDS["quick"] = f"{__name__}:quick_job"
