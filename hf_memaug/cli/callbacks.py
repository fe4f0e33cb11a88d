# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a job says of itself while it trains, and how it ends when it is asked to."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from hf_memaug.cli.errors import Interrupted
from hf_memaug.files import write_atomically
from hf_memaug.training.snapshots import Snapshots

Say = Callable[[dict], None]


class Stop:
    """Whether somebody has asked the process to end. A second time ends it where it stands."""

    def __init__(self):
        self.asked = False
        self._before: dict[int, object] = {}

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


class Steps(Snapshots):
    """Says how far a job is, writes its logs, and saves the step under way before it gives way to a `Stop`."""

    def __init__(self, say: Say, stop: Stop, metrics: Path):
        super().__init__()
        self.say, self.stop, self.metrics = say, stop, metrics

    def asks_to_end(self) -> bool:
        return self.stop.asked

    def end(self, state) -> None:
        raise Interrupted(f"Interrupted; the checkpoint of step {state.global_step} is kept.")

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        phase = _phase(args)
        if state.global_step and state.is_world_process_zero:
            self.say({"event": "resumed", "phase": phase, "step": state.global_step})
        if state.is_world_process_zero:
            # What a run that was broken off has logged after the checkpoint is logged again.
            kept = [
                line for line in _lines(self.metrics) if line.get("phase") != phase or _step(line) <= state.global_step
            ]
            write_atomically(self.metrics, "".join(json.dumps(line) + "\n" for line in kept))

    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.say({"event": "step", "phase": _phase(args), "step": state.global_step, "of": state.max_steps})

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not state.is_world_process_zero or not logs:
            return
        numbers = {name: value for name, value in logs.items() if isinstance(value, (int, float))}
        line = {"phase": _phase(args), "step": state.global_step, **numbers}
        self.metrics.parent.mkdir(parents=True, exist_ok=True)
        with open(self.metrics, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _phase(args) -> str:
    """`train`, or the folder of a part of a run: `meta_train`, `1-books`."""
    name = Path(args.output_dir).name
    return "train" if name == "run" else name


def _step(line: dict) -> int:
    return line.get("step", 0)


def _lines(path: Path) -> list[dict]:
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def end_with_the_parent() -> None:
    """The command holds the other end of this pipe: when it is gone, however it went, so is this process."""

    def wait():
        # Not by `sys.stdin`, whose lock the interpreter wants when it ends.
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
