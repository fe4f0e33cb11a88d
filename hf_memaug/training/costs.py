# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a job leaves besides its weights: lines of what was logged, TensorBoard's files, time, memory and parameters."""

import contextlib
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import TrainerCallback

from hf_memaug.files import write_atomically

TENSORBOARD = "TENSORBOARD_LOGGING_DIR"
# How often a job writes what it has taken so far, in seconds: all that a kill leaves uncounted.
BEAT_SECONDS = 1.0


class JobClock:
    """
    The seconds that a job has taken, including runs that were killed: the file `seconds` in its folder, which is
    written once a second.
    """

    def __init__(self, folder: Path):
        self._file, self._start = folder / "seconds", time.perf_counter()
        self._before, self._stop = 0.0, threading.Event()
        with contextlib.suppress(OSError, ValueError):
            self._before = float(self._file.read_text())
        self._thread = threading.Thread(target=self._beat, daemon=True)

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._start

    def forget(self) -> None:
        """The job is done, and has said what it took."""
        self._end()
        self._file.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            # Of a full disk the job itself will tell.
            with contextlib.suppress(OSError):
                write_atomically(self._file, str(self.seconds))

    def _end(self) -> bool:
        """Whether it was still running."""
        was_running = self._thread.is_alive()
        if was_running:
            self._stop.set()
            self._thread.join()
        return was_running


@contextlib.contextmanager
def clock_in(folder: Path) -> Iterator[JobClock]:
    """The clock of a job that is run within; its folder keeps the time unless `forget` is called."""
    clock = JobClock(folder)
    # Of several processes the first one writes.
    if os.environ.get("RANK", "0") == "0":
        clock._thread.start()
    try:
        yield clock
    finally:
        if clock._end():
            with contextlib.suppress(OSError):
                write_atomically(clock._file, str(clock.seconds))


class MetricLines(TrainerCallback):
    """
    Writes what `Trainer` logs to a file, a line of JSON each time.

    Args:
        metrics (`Path`): the file. A run that resumes drops the lines after its checkpoint and writes them again.
    """

    def __init__(self, metrics: Path):
        super().__init__()
        self.metrics = metrics

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        if state.is_world_process_zero:
            phase = phase_of(args)
            # What a run that was broken off has logged after the checkpoint is logged again.
            kept = [
                line
                for line in _lines(self.metrics)
                if line.get("phase") != phase or line.get("step", 0) <= state.global_step
            ]
            write_atomically(self.metrics, "".join(json.dumps(line) + "\n" for line in kept))

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not state.is_world_process_zero or not logs:
            return
        numbers = {name: value for name, value in logs.items() if isinstance(value, (int, float))}
        line = {"phase": phase_of(args), "step": state.global_step, **numbers}
        self.metrics.parent.mkdir(parents=True, exist_ok=True)
        with open(self.metrics, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def phase_of(args) -> str:
    """`train`, or the folder of a part of a run: `meta_train`, `1-books`."""
    name = Path(args.output_dir).name
    return "train" if name == "run" else name


def _lines(path: Path) -> list[dict]:
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def has_tensorboard() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


@contextlib.contextmanager
def tensorboard_in(folder: Path) -> Iterator[list[str]]:
    """`report_to`, for a trainer that is made and run within; its files go into `folder`."""
    before = os.environ.get(TENSORBOARD)
    os.environ[TENSORBOARD] = str(folder)
    try:
        yield ["tensorboard"] if has_tensorboard() else []
    finally:
        if before is None:
            os.environ.pop(TENSORBOARD, None)
        else:
            os.environ[TENSORBOARD] = before


def parameter_counts(model) -> dict[str, int]:
    """`parameters`, and how many of them are `trainable`."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return {"parameters": sum(size for size, _ in sizes), "trainable": sum(size for size, learns in sizes if learns)}


def peak_memory() -> int:
    """Bytes: of the GPU, where there is one, else of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
