# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a job costs: time, memory and parameters."""

import contextlib
import sys
import time
from pathlib import Path

import torch

from hf_memaug.files import write_atomically

# Seconds between two writes of the clock: what a kill leaves uncounted.
BEAT_SECONDS = 1.0


class JobClock:
    """
    The seconds that a job has taken, including processes that were killed. The file `seconds` in its folder keeps them
    until `forget` is called.

    Args:
        folder: the folder of the job.
    """

    def __init__(self, folder: Path):
        self._file, self._start, self._before, self._written = folder / "seconds", time.perf_counter(), 0.0, 0.0
        with contextlib.suppress(OSError, ValueError):
            self._before = float(self._file.read_text())

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._start

    def tick(self) -> None:
        """Writes the file if the last time is long ago."""
        if self.seconds - self._written > BEAT_SECONDS:
            self._written = self.seconds
            write_atomically(self._file, str(self._written))

    def forget(self) -> None:
        """The job is done and has reported its time."""
        self._file.unlink(missing_ok=True)


def parameter_counts(model) -> dict[str, int]:
    """`parameters`, and how many of them are `trainable`."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return {"parameters": sum(size for size, _ in sizes), "trainable": sum(size for size, learns in sizes if learns)}


def peak_memory() -> int:
    """Bytes of the GPU if there is one, otherwise of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
