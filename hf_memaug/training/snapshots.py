# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What a run goes on from after a kill: `output_dir/_last/checkpoint-<step>`, beside the checkpoints of `Trainer`. It has
the weights, the optimizer and the random numbers, and neither tokenizer nor arguments. A copy is made between two
steps, into memory that is kept, and a thread writes it while training goes on.
"""

import contextlib
import copy
import math
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors.torch import save_file
from transformers import TrainerCallback
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.utils import SAFE_WEIGHTS_NAME

from hf_memaug.files import told_plainly
from hf_memaug.training.checkpoints import LAST

# What saving may take of the time of training, and how much of the time the disk may be written to.
SAVE_SHARE, WRITE_SHARE = 0.05, 0.25
# Several processes agree as often as this, in seconds: to ask at each step would cost more than it saves.
MEET_SECONDS = 0.25
# Seconds that the writer keeps Python to itself for each tensor.
HOLDS_LOCK = 1e-4
# A copy may take this part of the memory that is free; else `Trainer` writes its own checkpoint.
MEMORY_SHARE = 0.5


class SnapshotTrainer:
    """Beside a `Trainer` class: tells the callbacks that have an `after_step` when a step is logged and scored."""

    def _maybe_log_save_evaluate(self, *args, **kwargs):
        super()._maybe_log_save_evaluate(*args, **kwargs)
        for callback in self.callback_handler.callbacks:
            if hasattr(callback, "after_step"):
                callback.after_step(self)

    def more_states(self) -> dict[str, Any]:
        """What a checkpoint has beside model, optimizer and scheduler, by the name of its file."""
        return {}


class Snapshots(TrainerCallback):
    """
    Saves as often as `SAVE_SHARE` of the time allows: after every step, where steps are long. For trainers that are a
    `SnapshotTrainer`; all processes of a run save at the same step, that the first one chooses.
    """

    def __init__(self):
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._kept: dict[tuple, torch.Tensor] = {}
        self._forget()

    def _forget(self) -> None:
        self._kept.clear()
        self._last_save = self._since = time.monotonic()
        self._stall = self._processor_seconds = self._wall = 0.0
        self._saved_step = self._since_step = self._meets_at = 0

    def asks_to_end(self) -> bool:
        """Whether the run is to save the step under way and end."""
        return False

    def end(self, state) -> None:
        """Ends the run, whose last step is saved."""

    # Of `Trainer`

    def on_train_begin(self, args, state, control, **kwargs):
        self._wait()
        self._forget()
        self._saved_step = self._since_step = state.global_step
        if state.global_step == 0 and state.is_world_process_zero:
            # What an earlier run left there must not be taken for this one's.
            shutil.rmtree(Path(args.output_dir) / LAST, ignore_errors=True)

    def on_save(self, args, state, control, **kwargs):
        self._saved_step, self._last_save = state.global_step, time.monotonic()

    def on_train_end(self, args, state, control, **kwargs):
        self._wait()
        self._kept.clear()

    # When

    @property
    def patience(self) -> float:
        """Seconds from one save to the next, by what the last one took."""
        # Beside a GPU, the thread is in the way only while it holds Python's lock, which it does tensor by tensor.
        holds = HOLDS_LOCK * len(self._kept) if torch.cuda.is_available() else math.inf
        cost = self._stall + min(self._processor_seconds, holds)
        return max(cost / SAVE_SHARE, self._wall / WRITE_SHARE)

    def after_step(self, trainer) -> None:
        """Between two steps, when what is to be logged and scored of the first is done."""
        self._raise()
        args, state = trainer.args, trainer.state
        # Between the steps that lead to one step of MIL's memory there is nothing to go on from.
        if state.global_step < self._meets_at or state.global_step % getattr(args, "inner_steps", 1):
            return
        is_due, ends = self._agreed(args, state)
        if (is_due or ends) and self._saved_step != state.global_step:
            self._save(trainer)
        if ends:
            self._wait()
            self.end(state)

    def _agreed(self, args, state) -> tuple[bool, bool]:
        now = time.monotonic()
        is_due = now - self._last_save >= self.patience and not self._is_writing
        if args.world_size == 1:
            return is_due, self.asks_to_end()
        # The processes have other clocks, and hear of an end at other steps.
        a_step = (now - self._since) / max(1, state.global_step - self._since_step)
        self._since, self._since_step = now, state.global_step
        word = [(is_due, self.asks_to_end(), max(1, math.floor(MEET_SECONDS / max(a_step, 1e-6))))]
        broadcast_object_list(word)
        is_due, ends, steps = word[0]
        self._meets_at = state.global_step + steps
        return is_due, ends

    # What

    def _save(self, trainer) -> None:
        self._wait()
        start = time.monotonic()
        args, state = trainer.args, trainer.state
        if not self._can_copy(trainer):
            trainer._save_checkpoint(trainer.model, trial=None)
            trainer.control = trainer.callback_handler.on_save(args, state, trainer.control)
            self._stall = time.monotonic() - start
            return
        trainer.store_flos()
        folder = Path(args.output_dir) / LAST
        half = folder / f"half-{state.global_step}"
        half.mkdir(parents=True, exist_ok=True)
        # Each process has its own; small, and not worth a thread.
        trainer._save_rng_state(str(half))
        if args.world_size > 1:
            trainer.accelerator.wait_for_everyone()
        if args.should_save:
            trainer._save_scaler(str(half))
            torch.save(trainer.lr_scheduler.state_dict(), half / SCHEDULER_NAME)
            for one in [*trainer.callback_handler.callbacks, trainer.control]:
                if isinstance(one, ExportableState):
                    before = state.stateful_callbacks.get(type(one).__name__)
                    if isinstance(before, list):
                        before.append(one.state())
                    else:
                        state.stateful_callbacks[type(one).__name__] = one.state()
            state.save_to_json(str(half / TRAINER_STATE_NAME))
            began = time.monotonic()
            is_first = not self._kept
            states = _big_states(trainer)
            copies = self._copy(states, ())
            if is_first:
                # That one also paid for the memory; the next will not.
                start += time.monotonic() - began
                copies = self._copy(states, ())
            whole = folder / f"checkpoint-{state.global_step}"
            self._thread = threading.Thread(target=self._write, args=(copies, half, whole), daemon=True)
            self._thread.start()
        self._saved_step, self._last_save = state.global_step, time.monotonic()
        self._stall = self._last_save - start

    def _can_copy(self, trainer) -> bool:
        model = trainer.accelerator.unwrap_model(trainer.model)
        plain = not (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or trainer.args.save_only_model)
        # An adapter is a checkpoint of another kind, and small.
        if not plain or hasattr(model, "peft_config"):
            return False
        if self._kept or not trainer.args.should_save:
            return True
        return _bytes(_big_states(trainer)) < MEMORY_SHARE * _free_memory()

    def _copy(self, value, key: tuple):
        if isinstance(value, dict):
            return {name: self._copy(one, (*key, name)) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._copy(one, (*key, place)) for place, one in enumerate(value))
        if not isinstance(value, torch.Tensor):
            return copy.deepcopy(value)
        kept = self._kept.get(key)
        if kept is None or kept.shape != value.shape or kept.dtype != value.dtype:
            kept = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
            self._kept[key] = kept
        return kept.copy_(value.detach())

    def _write(self, states: dict, half: Path, whole: Path) -> None:
        start, processor = time.monotonic(), time.thread_time()
        try:
            for name, state in states.items():
                if name == SAFE_WEIGHTS_NAME:
                    save_file(state, half / name, metadata={"format": "pt"})
                else:
                    with _no_checksums():
                        torch.save(state, half / name)
            shutil.rmtree(whole, ignore_errors=True)
            os.replace(half, whole)
            for other in whole.parent.iterdir():
                if other != whole:
                    shutil.rmtree(other, ignore_errors=True)
        except BaseException as error:
            self._error = told_plainly(error, whole.parent)
            # Room for what is left to be said.
            shutil.rmtree(half, ignore_errors=True)
        self._wall, self._processor_seconds = time.monotonic() - start, time.thread_time() - processor

    @property
    def _is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


@contextlib.contextmanager
def _no_checksums():
    """They are half of the work of `torch.save`, and nothing reads a file that was not renamed whole."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


def _big_states(trainer) -> dict[str, Any]:
    return {
        SAFE_WEIGHTS_NAME: dict(trainer.accelerator.unwrap_model(trainer.model).state_dict()),
        OPTIMIZER_NAME: trainer.optimizer.state_dict(),
        **trainer.more_states(),
    }


def _bytes(value) -> int:
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def _free_memory() -> float:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(1024.0 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return math.inf
