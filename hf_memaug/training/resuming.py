# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Finding the checkpoint to resume from."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR


def last_complete_checkpoint(
    folder: str | os.PathLike, accept: Callable[[str], bool] = lambda checkpoint: True
) -> str | None:
    """
    The latest `checkpoint-<step>` in `folder`, or `None`. Unlike `transformers.trainer_utils.get_last_checkpoint`, it
    skips checkpoints that a kill left incomplete.

    Args:
        folder (`str`): the `output_dir` of the run.
        accept (`Callable`, *optional*): further condition on the path of a checkpoint.
    """
    found = {}
    for path in Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        step = path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        if step.isdigit():
            found[int(step)] = path
    for number in sorted(found, reverse=True):
        if _is_complete(found[number], number) and accept(str(found[number])):
            return str(found[number])
    return None


def _is_complete(checkpoint: Path, step: int) -> bool:
    """Whether the last file that `Trainer` writes is there and no file is cut off. Does not read the weights."""
    try:
        if json.loads((checkpoint / TRAINER_STATE_NAME).read_text())["global_step"] != step:
            return False
        for file in checkpoint.iterdir():
            if file.suffix == ".safetensors":
                with safe_open(file, "pt"):
                    pass
            elif file.suffix in (".pt", ".pth") and not zipfile.is_zipfile(file):
                return False
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return False
    # Each process writes its own, and process 0 may be ahead of the others.
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    has_random_states = any(checkpoint.glob("rng_state*.pth"))
    return (
        not has_random_states
        or processes == 1
        or all((checkpoint / f"rng_state_{rank}.pth").is_file() for rank in range(processes))
    )
