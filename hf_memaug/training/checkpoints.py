# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Finding a checkpoint that is whole: a run that was killed may have left half of one."""

import json
import os
import re
from collections.abc import Callable

from transformers.trainer_callback import TrainerState


def last_complete_checkpoint(
    folder: str | os.PathLike, accept: Callable[[str], bool] = lambda checkpoint: True
) -> str | None:
    """
    The latest `checkpoint-<step>` in `folder` whose last file, the trainer's state, was written to its end, and that
    `accept` accepts.
    """
    if not os.path.isdir(folder):
        return None
    steps = [int(match[1]) for name in os.listdir(folder) if (match := re.fullmatch(r"checkpoint-(\d+)", name))]
    for step in sorted(steps, reverse=True):
        checkpoint = os.path.join(folder, f"checkpoint-{step}")
        try:
            state = TrainerState.load_from_json(os.path.join(checkpoint, "trainer_state.json"))
            if state.global_step == step and accept(checkpoint):
                return checkpoint
        except (OSError, TypeError, json.JSONDecodeError):
            continue
    return None
