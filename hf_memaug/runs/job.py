# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
A job trains, selects and scores one model. `python -m hf_memaug.runs.job FOLDER` runs the job of a folder:

    job.json        what to train
    run/            the trainer's checkpoints, to resume from; removed at the end
    checkpoint/     the selected weights, ready for `from_pretrained`
    metrics.jsonl   a line for each log
    logs/           TensorBoard
    log.txt         output of the job
"""

import contextlib
import importlib
import json
import os
import pkgutil
import sys
import traceback
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from accelerate.utils import patch_environment

from hf_memaug.files import readable_error, write_atomically
from hf_memaug.runs.errors import CommandError, UsageError
from hf_memaug.runs.progress import Say, Steps, Stop, end_with_the_parent

JOB_FILE = "job.json"
# Stands for "no domain is left out" as a target, and for "all rows are of one domain" as a column.
NONE = "none"
# Marks the lines of a job's output that are events.
EVENT = "\x1ehf-memaug "
# The functions that run each kind of job.
KINDS = {"train": "hf_memaug.runs.training:train_job", "continual": "hf_memaug.runs.continual:continual_job"}


@dataclass(kw_only=True)
class Job:
    """
    Args:
        name: the folder of the job, in `jobs/` of the run folder.
        method: the row of the tables: a method, or the strategy of a continual job.
        seed: of the weights and the batches; in a sweep the trial, which also says how each domain is split.
        source: where the rows come from, see `hf_memaug.runs.rows`.
        data: the fingerprint of the rows.
        kind: `"train"` or `"continual"`.
        target: the domain left out.
        backbone, general, vectors: checkpoints, and a file of word vectors.
        settings: fields of the model's configuration and of the trainer's arguments.
        protocol: how the rows are split, how often the model is scored and by what it is selected.
        start: the job whose checkpoint it starts from.
        keep: `"best"`, `"all"` or `"none"`: whether the job keeps a checkpoint; `"start"`: for the jobs that start from
            it, until they are done.
        processes: how many processes train the model.
        imports: modules to import first, such as one that registers a family.
    """

    name: str
    method: str
    seed: int
    source: dict[str, Any]
    data: str = ""
    kind: str = "train"
    target: str = NONE
    backbone: str = "small"
    general: str | None = None
    vectors: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    start: str | None = None
    keep: str = "best"
    processes: int = 1
    imports: list[str] = field(default_factory=list)

    @property
    def identity(self) -> dict[str, Any]:
        """What the result depends on. It stands in job.json and in the line of runs.jsonl."""
        places = {name: getattr(self, name) for name in ("backbone", "general", "vectors")}
        return {
            "method": self.method,
            "target": self.target,
            "seed": self.seed,
            **{name: os.path.basename(os.path.abspath(place)) for name, place in places.items() if place},
            "data": self.data,
            "processes": self.processes,
            **({"start": self.start} if self.start else {}),
            **self.protocol,
            **self.settings,
        }

    def write(self, folder: Path) -> None:
        content = {"job": self.identity, **asdict(self)}
        write_atomically(folder / JOB_FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Job":
        found = json.loads((folder / JOB_FILE).read_text(encoding="utf-8"))
        return cls(**{one.name: found[one.name] for one in fields(cls) if one.name in found})


def job_folder(run: Path, name: str) -> Path:
    """The folder of a job. Raises an error for a name that leads out of the run folder `run`."""
    folder = run / "jobs" / str(name)
    if run.resolve() / "jobs" not in folder.resolve().parents:
        raise UsageError(f"{run} has a job {name!r}, which is not a folder in {run / 'jobs'}. Use another run folder.")
    return folder


def peak_memory() -> int:
    """Bytes of the GPU if there is one, otherwise of the process."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run_job(job: Job, run: Path, say: Say, stop: Stop) -> dict[str, Any]:
    """
    Runs a job, or resumes it from its last checkpoint.

    Args:
        run: the run folder.
        say: is called with each event.
        stop: when it is asked, the job saves a checkpoint and raises `Interrupted`.

    Returns:
        The record for runs.jsonl.
    """
    import torch
    from transformers import logging

    for module in job.imports:
        importlib.import_module(module)
    folder = job_folder(run, job.name)
    job.write(folder)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    steps = Steps(say, stop, folder / "metrics.jsonl")
    with patch_environment(TENSORBOARD_LOGGING_DIR=folder / "logs"):
        record = pkgutil.resolve_name(KINDS[job.kind])(job, run, steps)
    record |= {"seconds": round(steps.seconds, 2), "peak_memory_bytes": peak_memory()}
    return {"job": job.identity, "name": job.name, **record}


def run_guarded(job: Job, run: Path, say: Say, stop: Stop) -> None:
    """Runs a job with its output in log.txt. The last event is `done`, `failed` or `interrupted`."""
    folder = job_folder(run, job.name)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "log.txt", "a", encoding="utf-8") as log:
        try:
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                record = run_job(job, run, say, stop)
        except CommandError as error:
            say({"event": "interrupted" if stop.asked else "failed", "why": str(error)})
        except KeyboardInterrupt:
            say({"event": "interrupted", "why": "at once"})
        except Exception as error:  # the other jobs still run
            traceback.print_exc(file=log)
            plain = readable_error(error, folder)
            if isinstance(plain, OSError) and plain.errno is not None:
                say({"event": "failed", "why": str(plain), "errno": plain.errno})
            else:
                # The first line often says only that something is wrong.
                said = " ".join(line.strip() for line in str(plain).strip().splitlines()[:3])
                say({"event": "failed", "why": f"{type(plain).__name__}: {said}"})
        else:
            say({"event": "done", "record": record})


def main(folder: str) -> None:
    """Runs the job of a folder in this process. Its events are lines on stdout."""
    end_with_the_parent()
    is_first = os.environ.get("RANK", "0") == "0"
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def say(event: dict) -> None:
        if is_first:
            out.write(EVENT + json.dumps(event) + "\n")
            out.flush()

    with Stop() as stop:
        run_guarded(Job.read(Path(folder)), Path(folder).parents[1], say, stop)


if __name__ == "__main__":
    # Under its own name, so that modules in `imports` can add to `KINDS`.
    importlib.import_module("hf_memaug.runs.job").main(sys.argv[1])
