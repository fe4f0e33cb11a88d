# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What a run goes on from after a kill: `output_dir/_last`, beside the checkpoints of `Trainer`. It has the weights, the
optimizer and the random numbers, and neither tokenizer nor arguments. A copy is made between two steps, into a file
that is mapped into memory (`StateFiles`); whoever goes on makes a checkpoint of it.
"""

import errno
import math
import random
import shutil
import threading
import time
import uuid
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerState
from transformers.trainer import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_pt_utils import safe_globals
from transformers.training_args import ParallelMode
from transformers.utils import SAFE_WEIGHTS_NAME

from hf_memaug.files import FULL
from hf_memaug.training.checkpoints import LAST, last_complete_checkpoint, note_of
from hf_memaug.training.guard import check_same_domains
from hf_memaug.training.state_files import FILES, StateFiles, clear

# What saving may take of the time of training, and the seconds that a run may take in advance. A CPU, whose steps are
# long, saves each of them by this; on a GPU that would cost more than a kill now and then.
SAVE_SHARES, SPARE_SECONDS = {"cpu": 0.15, "cuda": 0.05}, 0.25
# Seconds until a state is brought to the disk, for the day that the machine falls rather than the process.
KEEP_SECONDS = 60.0
# Several processes agree as often as this, in seconds: to ask at each step would cost more than it saves. With a
# `save_share` of 1 they do.
MEET_SECONDS = 0.25
# The files may take this part of the memory and of the disk that is free; else `Trainer` writes its own checkpoint.
ROOM_SHARE = 0.5
# What training ends for. With any other error the files are not for this disk, and `Trainer` writes its own.
DISK_ERRORS = (*FULL, errno.EIO)
# Beside the `cuda` of `Trainer`, in the random numbers of a process that has several devices.
ALL_DEVICES = "cuda_devices"


class SnapshotTrainer:
    """Beside a `Trainer` class: tells the callbacks that have an `after_step` when a step is logged and scored."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        asked = getattr(self.args, "save_share", None) is not None
        if asked and not any(isinstance(one, Snapshots) for one in self.callback_handler.callbacks):
            self.add_callback(Snapshots())

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs):
        """As in `Trainer`; `resume_from_checkpoint=True` passes over a checkpoint that was only half written."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_complete_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(
                    f"`resume_from_checkpoint=True`, but `output_dir` ({self.args.output_dir}) has no complete "
                    "checkpoint. Leave it out to start from the beginning."
                )
        state = Path(resume_from_checkpoint, TRAINER_STATE_NAME) if resume_from_checkpoint else None
        if state is not None and state.is_file() and getattr(self, "domains", None):
            check_same_domains(TrainerState.load_from_json(str(state)), self.domains)
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def _maybe_log_save_evaluate(self, *args, **kwargs):
        super()._maybe_log_save_evaluate(*args, **kwargs)
        for callback in self.callback_handler.callbacks:
            if hasattr(callback, "after_step"):
                callback.after_step(self)

    def _load_rng_state(self, checkpoint) -> None:
        super()._load_rng_state(checkpoint)
        file = Path(checkpoint) / "rng_state.pth" if checkpoint is not None else None
        if self.args.n_gpu > 1 and file is not None and file.is_file():
            with safe_globals():
                numbers = torch.load(file, weights_only=True)
            for device, state in enumerate(numbers.get(ALL_DEVICES, ())[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(state, device)

    def more_states(self) -> dict[str, Any]:
        """What a checkpoint has beside model, optimizer and scheduler, by the name of its file."""
        return {}

    @property
    def can_be_left(self) -> bool:
        """Whether a run could go on from the step that was just made."""
        return True


class Snapshots(TrainerCallback):
    """
    Saves after every step, or as often as `save_share` of the time allows. For trainers that are a `SnapshotTrainer`;
    all processes of a run save at the same step, that the first one chooses.
    """

    def __init__(self):
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._forget()

    def _forget(self, folder: Path = Path(LAST), step: int = 0) -> None:
        self._files = StateFiles(folder)
        self._fits: bool | None = None
        self._by_trainer: Path | None = None
        self._spare = SPARE_SECONDS
        self._counted = self._since = self._kept_at = time.monotonic()
        self._saved_step = self._since_step = step
        self._meets_at = 0
        self._epoch_is_over = False

    def asks_to_end(self) -> bool:
        """Whether the run is to save the step under way and end."""
        return False

    def end(self, state) -> None:
        """Ends the run, whose last step is saved."""

    # Of `Trainer`

    def on_train_begin(self, args, state, control, **kwargs):
        self._wait()
        folder = Path(args.output_dir) / LAST
        self._forget(folder, state.global_step)
        _agree_on_the_run(args, state)
        # The one that saves: with `save_on_each_node`, one of each machine.
        if args.should_save:
            # What an earlier run left there must not be taken for this one's.
            clear(folder, lambda name: name == f"checkpoint-{state.global_step}")

    def on_save(self, args, state, control, **kwargs):
        self._saved_step = state.global_step

    def on_step_begin(self, args, state, control, **kwargs):
        self._epoch_is_over = False

    def on_epoch_end(self, args, state, control, **kwargs):
        self._epoch_is_over = True

    def on_train_end(self, args, state, control, **kwargs):
        self._wait()
        # It may be gone again: with a limit, `Trainer` keeps the best one at the end and not the last.
        own = Path(args.output_dir) / f"checkpoint-{state.global_step}" / TRAINER_STATE_NAME
        if not own.is_file():
            self._files.close()
        elif args.should_save:
            shutil.rmtree(self._files.folder, ignore_errors=True)
            if self._by_trainer != own.parent:
                _remove(self._by_trainer, args, state)
        self._files = StateFiles(self._files.folder)

    # When

    def after_step(self, trainer) -> None:
        """Between two steps, when what is to be logged and scored of the first is done."""
        self._raise()
        args, state = trainer.args, trainer.state
        if state.global_step < self._meets_at or not trainer.can_be_left or self._is_to_be_scored(args, state, trainer):
            return
        is_due, ends, by_files = self._agreed(trainer)
        if (is_due or ends) and self._saved_step != state.global_step:
            start = time.monotonic()
            spent = self._save(trainer) if by_files else self._save_by_trainer(trainer)
            self._spare -= time.monotonic() - start - spent
        if ends:
            self._wait()
            self._files.hold()
            self._files.keep()
            self.end(state)

    def _is_to_be_scored(self, args, state, trainer) -> bool:
        """Whether it is the last step of an epoch, and what is done at an epoch's end is still to be done."""
        if self._epoch_is_over or "epoch" not in (args.eval_strategy, args.save_strategy, args.logging_strategy):
            return False
        control = trainer.control
        return float(state.epoch).is_integer() or control.should_epoch_stop or control.should_training_stop

    def _agreed(self, trainer) -> tuple[bool, bool, bool]:
        """Whether to save, whether to end, and whether it is saved by the files."""
        args, state, now = trainer.args, trainer.state, time.monotonic()
        share = save_share(args)
        self._spare = min(SPARE_SECONDS, self._spare + share * (now - self._counted))
        self._counted = now
        due, ends, fits = self._spare >= 0, self.asks_to_end(), self._can_map(trainer)
        if args.world_size > 1:
            # The processes have other clocks, and hear of an end at other steps; each that saves must have room.
            a_step = (now - self._since) / max(1, state.global_step - self._since_step)
            self._since, self._since_step = now, state.global_step
            wait = 1 if share >= 1 else max(1, math.floor(MEET_SECONDS / max(a_step, 1e-6)))
            words = gather_object([(due, ends, fits, wait)])
            due, ends, _, steps = words[0]
            fits = all(word[2] for word in words)
            self._meets_at = state.global_step + steps
        return due, ends, fits

    # What

    def _save_by_trainer(self, trainer) -> float:
        # Nobody else asked for it; of those, the last is enough.
        args, state, before = trainer.args, trainer.state, self._by_trainer
        trainer._save_checkpoint(trainer.model, trial=None)
        trainer.control = trainer.callback_handler.on_save(args, state, trainer.control)
        self._by_trainer = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        _remove(before, args, state)
        return 0.0

    def _save(self, trainer) -> float:
        args, state = trainer.args, trainer.state
        trainer.store_flos()
        # Each process has its own.
        numbers = [_random_numbers(args)]
        if args.world_size > 1:
            numbers = gather_object(numbers)
        if not args.should_save:
            self._saved_step = state.global_step
            return 0.0
        try:
            spent = self._files.save(state.global_step, {**_states(trainer, self._model), **_by_name(numbers)})
        except Exception as error:
            if getattr(error, "errno", None) in DISK_ERRORS:
                raise
            if not isinstance(error, OSError):
                warnings.warn(
                    f"A state could not be copied ({error}): `Trainer` saves its own checkpoints.", stacklevel=2
                )
            self._fits = False
            # Several processes must do it together, when they meet next.
            return self._save_by_trainer(trainer) if args.world_size == 1 else 0.0
        self._saved_step = state.global_step
        if not self._is_keeping and time.monotonic() - self._kept_at >= KEEP_SECONDS:
            self._wait()
            self._files.hold()
            self._thread = threading.Thread(target=self._keep, args=(self._files,), daemon=True)
            self._thread.start()
        return spent

    def _can_map(self, trainer) -> bool:
        if self._fits is None and trainer.args.should_save:
            self._model = trainer.accelerator.unwrap_model(trainer.model)
            plain = not (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or trainer.args.save_only_model)
            # An adapter is a checkpoint of another kind, and small.
            plain = plain and not hasattr(self._model, "peft_config") and trainer.args.device.type in ("cpu", "cuda")
            size = _bytes(_states(trainer, self._model)) if plain else 0
            room = shutil.disk_usage(trainer.args.output_dir).free
            # The system can take back the memory of all but the two that are written in turns.
            self._fits = plain and 2 * size < ROOM_SHARE * _free_memory() and FILES * size < ROOM_SHARE * room
        return self._fits is not False

    def _keep(self, files: StateFiles) -> None:
        try:
            files.keep()
        except BaseException as error:
            self._error = error
        self._kept_at = time.monotonic()

    @property
    def _is_keeping(self) -> bool:
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


def _remove(checkpoint: Path | None, args, state) -> None:
    if checkpoint is not None and args.should_save and checkpoint.name != Path(state.best_model_checkpoint or "").name:
        shutil.rmtree(checkpoint, ignore_errors=True)


def save_share(args) -> float:
    """The part of the time that may go into saves."""
    given = getattr(args, "save_share", None)
    return SAVE_SHARES.get(args.device.type, SAVE_SHARES["cuda"]) if given is None else given


def _agree_on_the_run(args, state) -> None:
    """A run has one name, by which its checkpoints on several machines are known, and one step that it goes on from."""
    note = note_of(state)
    runs = [(note.get("run") or uuid.uuid4().hex, state.global_step)]
    if args.world_size > 1:
        runs = gather_object(runs)
    steps = [step for _, step in runs]
    if len(set(steps)) > 1:
        raise ValueError(
            f"The processes would go on from different steps ({', '.join(map(str, steps))}). Give all of them the same "
            "`resume_from_checkpoint`, or `True`, by which they find the last that all can read."
        )
    note["run"] = runs[0][0]


def _states(trainer, model) -> dict[str, Any]:
    """For each file of a checkpoint what is in it, but for the random numbers."""
    state, more = trainer.state, {}
    scaler = getattr(trainer.accelerator, "scaler", None)
    if scaler is not None:
        more[SCALER_NAME] = scaler.state_dict()
    callbacks = dict(state.stateful_callbacks)
    for one in [*trainer.callback_handler.callbacks, trainer.control]:
        if isinstance(one, ExportableState):
            name = type(one).__name__
            before = callbacks.get(name)
            callbacks[name] = [*before, one.state()] if isinstance(before, list) else one.state()
    return {
        # The parameters themselves: of tied ones there is one.
        SAFE_WEIGHTS_NAME: dict(model.state_dict(keep_vars=True)),
        OPTIMIZER_NAME: trainer.optimizer.state_dict(),
        SCHEDULER_NAME: trainer.lr_scheduler.state_dict(),
        **more,
        **trainer.more_states(),
        TRAINER_STATE_NAME: {one.name: getattr(state, one.name) for one in fields(state)}
        | {"stateful_callbacks": callbacks},
    }


def _random_numbers(args) -> dict[str, Any]:
    """As `Trainer` saves them."""
    numbers = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        cuda = torch.cuda.random
        is_one_of_several = args.parallel_mode == ParallelMode.DISTRIBUTED
        numbers["cuda"] = cuda.get_rng_state_all() if is_one_of_several else cuda.get_rng_state()
        if not is_one_of_several and args.n_gpu > 1:
            # Of the devices that share a batch, `Trainer` (5.22) has the numbers of the first alone.
            numbers[ALL_DEVICES] = cuda.get_rng_state_all()
    return numbers


def _by_name(numbers: list[dict]) -> dict[str, dict]:
    names = ["rng_state.pth"] if len(numbers) == 1 else [f"rng_state_{one}.pth" for one in range(len(numbers))]
    return dict(zip(names, numbers, strict=True))


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
