# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a job costs: time, memory and parameters."""

import contextlib
import os
import sys
import threading
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
        self._file, self._start, self._before = folder / "seconds", time.perf_counter(), 0.0
        with contextlib.suppress(OSError, ValueError):
            self._before = float(self._file.read_text())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._start

    def __enter__(self) -> "JobClock":
        # The first of several processes writes.
        if os.environ.get("RANK", "0") == "0":
            self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        if self._end():
            self._write()

    def forget(self) -> None:
        """The job is done and has reported its time."""
        self._end()
        self._file.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            self._write()

    def _write(self) -> None:
        # If the disk is full, the job itself raises an error.
        with contextlib.suppress(OSError):
            write_atomically(self._file, str(self.seconds))

    def _end(self) -> bool:
        """Whether it was still running."""
        was_running = self._thread.is_alive()
        if was_running:
            self._stop.set()
            self._thread.join()
        return was_running


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
