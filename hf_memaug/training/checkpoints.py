# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that a run can go on from: written by the right names, and found whole."""

import json
import os
import re
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial

import torch
from transformers import PreTrainedModel
from transformers.trainer_callback import TrainerState

from hf_memaug.training.state_files import saved_states, unpack

# In `output_dir`: what was saved to go on from, between the checkpoints of `Trainer`.
LAST = "_last"


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


def last_complete_checkpoint(
    folder: str | os.PathLike, accept: Callable[[str], bool] = lambda checkpoint: True
) -> str | None:
    """
    The latest `checkpoint-<step>` in `folder`, or in its `_last`, whose last file, the trainer's state, was written to
    its end, and that `accept` accepts. A state that was saved later than any of them is made a checkpoint first.
    """
    # Of one step, the checkpoint comes first.
    found = [(step, False, path) for step, path in saved_states(os.path.join(folder, LAST))]
    for place in (os.fspath(folder), os.path.join(folder, LAST)):
        names = os.listdir(place) if os.path.isdir(place) else ()
        steps = [int(match[1]) for name in names if (match := re.fullmatch(r"checkpoint-(\d+)", name))]
        found += [(step, True, os.path.join(place, f"checkpoint-{step}")) for step in steps]
    for step, is_checkpoint, path in sorted(found, reverse=True):
        checkpoint = path if is_checkpoint else unpack(path)
        if checkpoint is None:
            continue
        try:
            state = TrainerState.load_from_json(os.path.join(checkpoint, "trainer_state.json"))
            if state.global_step == step and accept(checkpoint):
                return checkpoint
        except (OSError, TypeError, json.JSONDecodeError):
            continue
    return None
