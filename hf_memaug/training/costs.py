# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a job leaves besides its weights: lines of what was logged, TensorBoard's files, memory and parameters."""

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import TrainerCallback

from hf_memaug.files import write_atomically

TENSORBOARD = "TENSORBOARD_LOGGING_DIR"


class MetricLines(TrainerCallback):
    """
    Writes what `Trainer` logs to a file, a line of JSON each time.

    Args:
        metrics (`Path`): the file. A run that goes on has its lines of later steps in it once.
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


def seconds_before(folder: Path) -> float:
    """What earlier processes have spent on a job, by their own account."""
    try:
        return float((folder / "seconds").read_text())
    except (OSError, ValueError):
        return 0.0
