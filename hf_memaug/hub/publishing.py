# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a repository of the hub holds beside the weights."""

import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import HfApi, ModelCard, list_repo_files
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError
from transformers.utils import logging

from hf_memaug.configuration.configuration_writable_memory import GUARD_FILE
from hf_memaug.configuration.prompting import prompt_tokenizer
from hf_memaug.hub.card import is_ours_to_write, model_card, processor_of

logger = logging.get_logger(__name__)


def push_model(
    model,
    repo_id: str,
    *,
    commit_message: str | None = None,
    commit_description: str | None = None,
    private: bool | None = None,
    token: bool | str | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    max_shard_size: int | str = "50GB",
    tags: list[str] | str | None = None,
    folder: str | os.PathLike | None = None,
) -> str:
    """
    `PreTrainedModel.push_to_hub` with a model card and the tokenizer or image processor, in one commit.

    Args:
        folder (*optional*):
            Where the model has been saved already.
    """
    api = HfApi(token=token)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    tags = [*(model.model_tags or ()), *([tags] if isinstance(tags, str) else tags or ())]
    with TemporaryDirectory() if folder is None else nullcontext(folder) as saved:
        if folder is None:
            model.save_pretrained(saved, max_shard_size=max_shard_size)
        try:
            ModelCard.load(repo_id, token=token).save(  # type: ignore[arg-type]  # it takes a bool as well
                Path(saved, "README.md")
            )
        except (EntryNotFoundError, RepositoryNotFoundError):
            pass
        complete_folder(model, saved, repo_id, tags, token)
        return api.upload_folder(
            repo_id=repo_id,
            folder_path=Path(saved),
            commit_message=commit_message or "Upload model",
            commit_description=commit_description,
            revision=revision,
            create_pr=create_pr,
        )


def complete_folder(
    model, folder, repo_id: str, tags: list[str] | None = None, token: bool | str | None = None
) -> None:
    """
    Adds the model card, and the tokenizer or image processor, to a folder with a model. A card that a person wrote and
    a tokenizer that is there already are left alone.
    """
    folder = Path(folder)
    readme = folder / "README.md"
    if is_ours_to_write(readme):
        known = ModelCard.load(readme).data.tags or [] if readme.exists() else []
        model_card(model.config, type(model).__name__, repo_id, tags=[*known, *(tags or ())]).save(readme)
    copy_guard(model, folder)
    kind = processor_of(model.config, type(model).__name__)
    if kind is None:
        return
    file = {"image_processor": "preprocessor_config", "tokenizer": "tokenizer"}[kind]
    if not list(folder.glob(f"{file}*")) and not _has_file(repo_id, file, token):
        processor = _processor_of(model, kind)
        if processor is not None:
            processor.save_pretrained(folder)


def copy_guard(model, folder: Path) -> None:
    """Copies the guard rows of the checkpoint that the model came from, unless there are some already."""
    source = Path(model.config._name_or_path or "", GUARD_FILE)
    if source.is_file() and not (folder / GUARD_FILE).exists():
        shutil.copy(source, folder)


def _has_file(repo_id: str, start: str, token) -> bool:
    try:
        return any(name.startswith(start) for name in list_repo_files(repo_id, token=token))
    except (OSError, ValueError):  # no such repository, or no access to it
        return False


def _processor_of(model, kind: str):
    """The tokenizer or image processor of the checkpoint that the model came from."""
    from transformers import AutoImageProcessor, AutoTokenizer

    auto_class: Any = AutoTokenizer if kind == "tokenizer" else AutoImageProcessor
    words = kind.replace("_", " ")
    name_or_path = model.config._name_or_path
    if not name_or_path:
        logger.warning(
            f"This model was not loaded from a checkpoint, so no {words} is pushed with it. Push it yourself."
        )
        return None
    try:
        processor = auto_class.from_pretrained(name_or_path)
    except (OSError, ValueError) as error:
        logger.warning(f"No {words} could be loaded from `{name_or_path}` ({error}). Push it yourself.")
        return None
    template = getattr(model.config, "template", None)
    if template is None:
        return processor
    # The tokenizer of a prompted checkpoint holds the template already; that of a backbone does not.
    is_prompted = processor("", add_special_tokens=True)["input_ids"].count(processor.mask_token_id)
    return processor if is_prompted else prompt_tokenizer(processor, template)
