# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Finding the checkpoint to resume from."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers.trainer import TRAINER_STATE_NAME


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
    found = {path.name.removeprefix("checkpoint-"): path for path in Path(folder).glob("checkpoint-*")}
    for step in sorted(map(int, filter(str.isdigit, found)), reverse=True):
        path = found[str(step)]
        if _is_complete(path, step) and accept(str(path)):
            return str(path)
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
    return processes == 1 or len(list(checkpoint.glob("rng_state*.pth"))) in (0, processes)
