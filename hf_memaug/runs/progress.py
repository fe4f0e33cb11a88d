# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What a job reports while it trains, and how it ends when it is asked to."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from hf_memaug.files import read_json_lines, write_atomically
from hf_memaug.runs.errors import Interrupted

Say = Callable[[dict], None]


class Stop:
    """Whether SIGTERM or Ctrl-C asked the process to end. The second signal ends it at once."""

    def __init__(self):
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number, frame) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class Steps(TrainerCallback):
    """
    Reports the steps of a job, and writes a line of `metrics` for each log. When it is asked to stop, it saves a
    checkpoint and raises.
    """

    def __init__(self, say: Say, stop: Stop, metrics: Path):
        self.say, self.stop, self.metrics = say, stop, metrics
        self.before = max((line.get("seconds", 0.0) for line in read_json_lines(metrics)[0]), default=0.0)
        self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """What the job has taken, including processes that were killed, as far as they had logged."""
        return self.before + time.perf_counter() - self.began

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        phase = phase_of(args)
        # Lines after the checkpoint are logged again.
        kept = [
            line
            for line in read_json_lines(self.metrics)[0]
            if line.get("phase") != phase or line.get("step", 0) <= state.global_step
        ]
        write_atomically(self.metrics, "".join(json.dumps(line) + "\n" for line in kept))
        if state.global_step:
            self.say({"event": "resumed", "phase": phase, "step": state.global_step})

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs:
            numbers = {name: value for name, value in logs.items() if isinstance(value, (int, float))}
            line = {"phase": phase_of(args), "step": state.global_step, "seconds": round(self.seconds, 2), **numbers}
            with open(self.metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.say({"event": "step", "phase": phase_of(args), "step": state.global_step, "of": state.max_steps})
        if self.stop.asked:
            # Several processes may hear of it at different steps, and saving takes all of them.
            if args.world_size > 1:
                raise Interrupted("Interrupted. The last checkpoint is kept.")
            control.should_save = True

    def on_save(self, args, state, control, **kwargs):
        if self.stop.asked:
            raise Interrupted(f"Interrupted. The checkpoint of step {state.global_step} is kept.")


def phase_of(args) -> str:
    """`train`, or the folder of a part of a run: `meta_train`, `1-books`."""
    name = Path(args.output_dir).name
    return "train" if name == "run" else name


def end_with_the_parent() -> None:
    """Ends this process when the command that started it is gone: the command holds the other end of stdin."""

    def wait():
        # `sys.stdin` has a lock that the interpreter needs when it exits.
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
