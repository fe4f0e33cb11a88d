# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a job reports while it trains, and how it ends when it is asked to."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from hf_memaug.runs.errors import Interrupted
from hf_memaug.training.costs import MetricLines, phase_of

Say = Callable[[dict], None]


class Stop:
    """Whether SIGTERM or Ctrl-C asked the process to end. The second signal ends it at once."""

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


class Steps(MetricLines):
    """Reports the steps of a job and writes its logs. When it is asked to stop, it saves a checkpoint and raises."""

    def __init__(self, say: Say, stop: Stop, metrics: Path):
        super().__init__(metrics)
        self.say, self.stop = say, stop

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        if state.global_step and state.is_world_process_zero:
            self.say({"event": "resumed", "phase": phase_of(args), "step": state.global_step})

    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.say({"event": "step", "phase": phase_of(args), "step": state.global_step, "of": state.max_steps})
        if self.stop.asked:
            # Several processes may hear of it at different steps, and saving takes all of them.
            if args.world_size > 1:
                raise Interrupted("Interrupted. The last checkpoint is kept.")
            control.should_save = True
        return control

    def on_save(self, args, state, control, **kwargs):
        if self.stop.asked:
            raise Interrupted(f"Interrupted. The checkpoint of step {state.global_step} is kept.")


def end_with_the_parent() -> None:
    """Ends this process when the command that started it is gone: the command holds the other end of stdin."""

    def wait():
        # `sys.stdin` has a lock that the interpreter needs when it exits.
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
