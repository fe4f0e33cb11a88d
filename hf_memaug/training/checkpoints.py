# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that a run can go on from: written by the right names, and found whole."""

import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import PreTrainedModel
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerState

from hf_memaug.training.state_files import is_readable, saved_states, unpack

# In `output_dir`: what was saved to go on from, between the checkpoints of `Trainer`.
LAST = "_last"
# Where `note_of` lies among the states of callbacks, which `Trainer` saves as they are.
NOTE = "hf_memaug"
# In place of a path, of a process that lets another of its machine make the checkpoint.
WAITS = ""

Accept = Callable[[str], bool]
T = TypeVar("T")


@contextmanager
def own_names(model):
    """
    Within, `model.save_pretrained` keeps the weights' names. transformers (5.22) gives some the names that they had in
    its first versions, a ViT's for one, and its `Trainer` does not find them when it resumes: it goes on with what the
    model has, and a warning.
    """
    if not isinstance(model, PreTrainedModel) or "save_pretrained" in vars(model):
        yield
        return
    model.save_pretrained = partial(model.save_pretrained, save_original_format=False)
    try:
        yield
    finally:
        del model.save_pretrained


def load_state(path: str | os.PathLike, device: torch.device):
    """What `torch.save` has written, on a device."""
    # Of several processes on a CPU each has one with a number, which torch (2.13) does not know again.
    return torch.load(path, map_location="cpu" if device.type == "cpu" else device, weights_only=True)


def note_of(state: TrainerState) -> dict[str, Any]:
    """Of a run, in the state of its trainer, and so in each of its checkpoints: `run`, `seconds`, `domains`."""
    return state.stateful_callbacks.setdefault(NOTE, {"args": {}, "attributes": {}})["attributes"]


def last_complete_checkpoint(folder: str | os.PathLike, accept: Accept = lambda checkpoint: True) -> str | None:
    """
    The latest `checkpoint-<step>` in `folder`, or in its `_last`, whose last file, the trainer's state, was written to
    its end, and that `accept` accepts. A state that was saved later than any of them is made a checkpoint first.

    The processes of a run call it together. The first one chooses, and all go on from the same step of the same run:
    from the latest that each of them can read. One process of each machine makes the checkpoint, for all of them.
    """
    # Made with the arguments of a trainer; whoever has none is alone.
    processes = PartialState() if PartialState._shared_state else None
    if processes is None or processes.num_processes == 1:
        return last_checkpoint_here(folder, accept)
    return _agreed(folder, accept, processes)


def last_checkpoint_here(folder: str | os.PathLike, accept: Accept = lambda checkpoint: True) -> str | None:
    """The same, for this process alone."""
    return next((path for path, _ in _complete(folder, accept)), None)


def _complete(
    folder: str | os.PathLike, accept: Accept, only: int | None = None
) -> Iterator[tuple[str, tuple[int, str | None]]]:
    """The complete checkpoints, the latest first, or those of one step: path, and the step with its run."""
    # Of one step, the checkpoint comes first.
    found = [(step, False, path) for step, path in saved_states(os.path.join(folder, LAST))]
    for place in (os.fspath(folder), os.path.join(folder, LAST)):
        names = os.listdir(place) if os.path.isdir(place) else ()
        steps = [int(match[1]) for name in names if (match := re.fullmatch(r"checkpoint-(\d+)", name))]
        found += [(step, True, os.path.join(place, f"checkpoint-{step}")) for step in steps]
    for step, is_checkpoint, path in sorted(found, reverse=True):
        if only not in (None, step):
            continue
        checkpoint = path if is_checkpoint else unpack(path)
        if checkpoint is None or not is_readable(checkpoint):
            continue
        try:
            state = TrainerState.load_from_json(os.path.join(checkpoint, TRAINER_STATE_NAME))
            is_taken = state.global_step == step and accept(checkpoint)
        except (OSError, TypeError, UnicodeDecodeError, json.JSONDecodeError):
            continue
        if is_taken:
            yield checkpoint, (step, note_of(state).get("run"))


def _agreed(folder: str | os.PathLike, accept: Accept, processes: PartialState) -> str | None:
    """What `last_complete_checkpoint` does in several processes. Each gets its own path to what all have."""
    rank, is_first_here = processes.process_index, processes.is_local_main_process
    offers = _complete(folder, accept) if processes.is_main_process else iter(())
    refused: list[tuple[int, int]] = []
    while (offer := together(lambda: next(offers, None))[0]) is not None:
        step = offer[1][0]

        def read(offer: tuple = offer, step: int = step) -> str | None:
            if processes.is_main_process:
                return offer[0]
            return next((path for path, one in _complete(folder, accept, step) if one == offer[1]), None)

        # One of each machine makes the checkpoint; the others wait, and then find it there.
        paths = together(lambda read=read: read() if is_first_here else WAITS)
        if None not in paths:
            paths = together(lambda read=read, path=paths[rank]: read() if path == WAITS else path)
        if None not in paths:
            if refused and processes.is_main_process:
                warnings.warn(f"{_unread(refused[0])}; all go on from that of step {step}.", stacklevel=3)
            return paths[rank]
        refused.append((step, paths.index(None)))
    mend = (
        "let `output_dir` lie on a disk that all machines share, save with `save_on_each_node=True`, or begin anew in "
        "an empty folder."
    )
    if refused:
        raise ValueError(f"{_unread(refused[0])}, nor is there another that all can, in `{folder}`: {mend}")
    for has_turn in (is_first_here, not is_first_here):
        has = together(lambda has_turn=has_turn: has_turn and any(True for _ in _complete(folder, accept)))
        if any(has):
            raise ValueError(f"Process {has.index(True)} has a checkpoint in `{folder}`, and process 0 none: {mend}")
    return None


def _unread(refused: tuple[int, int]) -> str:
    return f"Process {refused[1]} cannot read the checkpoint of step {refused[0]} that process 0 has"


def together(work: Callable[[], T]) -> list[T]:
    """What each process gets from `work`. An error of one is one of all, so that nobody waits for a process gone."""
    value = error = told = None
    try:
        value = work()
    except Exception as caught:
        error = caught
        number = getattr(error, "errno", None)
        told = RuntimeError(f"{type(error).__name__}: {error}")
        if number is not None:
            told = OSError(number, error.strerror, error.filename)
    found = gather_object([(value, told)])
    error = error or next((one for _, one in found if one is not None), None)
    if error is not None:
        raise error
    return [one for one, _ in found]
