# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""A stage as a revision of a repository on the hub."""

from pathlib import Path

from hf_memaug.hub.publishing import complete_folder
from hf_memaug.training.continual.record import ContinualRecord
from hf_memaug.training.model_cards import is_family


def push_stage(model, folder: Path, record: ContinualRecord, repo_id: str, token: str | None = None) -> None:
    """
    Puts the weights of a stage, and what goes on from them, on the branch `stage-<number>-<domain>`. Rows of the data,
    optimizers and checkpoints on the way stay here.
    """
    from huggingface_hub import create_branch, upload_folder

    if is_family(model) and not hasattr(model, "peft_config"):
        complete_folder(model, folder, repo_id, token=token)
    branch = f"stage-{folder.name}"
    create_branch(repo_id, branch=branch, exist_ok=True, token=token)
    upload_folder(
        repo_id=repo_id,
        folder_path=folder,
        revision=branch,
        commit_message=f"After training on {record.row_names[-1]}",
        # A branch begins with all that is on main.
        delete_patterns=["*"],
        ignore_patterns=["_*", "checkpoint-*", "*.bin"],
        token=token,
    )
