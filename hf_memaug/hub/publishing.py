# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What a repository of the hub holds beside the weights."""

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import HfApi, ModelCard, ModelCardData, list_repo_files
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import logging

from hf_memaug.configuration.configuration_writable_memory import GUARD_FILE
from hf_memaug.configuration.prompting import prompt_tokenizer
from hf_memaug.hub.card import is_ours_to_write, model_card, processor_of

logger = logging.get_logger(__name__)

# What is published of a checkpoint's folder: the card, and what loading needs.
PUBLISHED = (
    *("README.md", "config.json", "generation_config.json", "adapter_config.json", "continual.json"),
    *("*.safetensors", "*.safetensors.index.json"),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.json", "chat_template.jinja", "vocab.json", "vocab.txt", "merges.txt", "bpe.codes"),
    *("tokenizer.model", "spiece.model", "spm.model", "sentencepiece.bpe.model", "source.spm", "target.spm"),
)


def published_files(folder: str | os.PathLike) -> tuple[list[Path], list[Path]]:
    """What is published of a checkpoint's folder, and what is not: links, folders and all files of other names."""
    published: list[Path] = []
    left_out: list[Path] = []
    names = [*PUBLISHED, *code_files(folder)]
    for path in sorted(Path(folder).iterdir()):
        is_wanted = path.is_file() and not path.is_symlink() and any(fnmatch(path.name, name) for name in names)
        (published if is_wanted else left_out).append(path)
    return published, left_out


def code_files(folder: str | os.PathLike) -> set[str]:
    """The names of the modules that the configuration of a checkpoint names in `auto_map`, and of those they import."""
    config = Path(folder, "config.json")
    auto_map = json.loads(config.read_text(encoding="utf-8")).get("auto_map") if config.is_file() else None
    modules = [Path(folder, f"{str(name).split('.')[0]}.py") for name in (auto_map or {}).values()]
    modules = [module for module in modules if module.is_file()]
    return {Path(path).name for module in modules for path in (str(module), *get_relative_import_files(module))}


def push_model(
    model,
    repo_id: str,
    *,
    commit_message: str | None = None,
    private: bool | None = None,
    token: bool | str | None = None,
    max_shard_size: int | str = "50GB",
    tags: list[str] | str | None = None,
    folder: str | os.PathLike | None = None,
    **upload: Any,
) -> str:
    """
    `PreTrainedModel.push_to_hub` with a model card and the tokenizer or image processor, in one commit.

    Args:
        folder (*optional*): where the model has been saved already. Of its files, `published_files` are pushed.
        upload (*optional*): further arguments of `HfApi.upload_folder`.
    """
    api = HfApi(token=token)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    tags = [*(model.model_tags or ()), *([tags] if isinstance(tags, str) else tags or ())]
    with TemporaryDirectory() if folder is None else nullcontext(folder) as saved:
        if folder is None:
            model.save_pretrained(saved, max_shard_size=max_shard_size)
        with suppress(EntryNotFoundError, RepositoryNotFoundError):
            card = ModelCard.load(repo_id, token=token)  # type: ignore[arg-type]  # it takes a bool as well
            card.save(Path(saved, "README.md"))
        complete_folder(model, saved, repo_id, tags, token)
        return api.upload_folder(
            repo_id=repo_id,
            folder_path=Path(saved),
            allow_patterns=None if folder is None else [path.name for path in published_files(folder)[0]],
            commit_message=commit_message or "Upload model",
            **upload,
        )


def complete_folder(
    model, folder, repo_id: str, tags: list[str] | None = None, token: bool | str | None = None
) -> None:
    """
    Adds the model card, and the tokenizer or image processor, to a folder with a model. A card that a person wrote and
    a tokenizer that is there already are left alone.
    """
    folder = Path(folder)
    write_card(model.config, type(model).__name__, folder, repo_id, tags or ())
    copy_guard(model, folder)
    kind = processor_of(model.config, type(model).__name__)
    if kind is None:
        return
    file = {"image_processor": "preprocessor_config", "tokenizer": "tokenizer"}[kind["name"]]
    if not list(folder.glob(f"{file}*")) and not _has_file(repo_id, file, token):
        processor = _processor_of(model, kind)
        if processor is not None:
            processor.save_pretrained(folder)


def write_card(config, architecture: str, folder: Path, repo_id: str, tags: Iterable[str] = ()) -> None:
    """Writes the card of a repository into a folder, unless there is one that a person wrote."""
    readme = folder / "README.md"
    if is_ours_to_write(readme):
        known = ModelCard.load(readme).data if readme.exists() else ModelCardData()
        model_card(
            config,
            architecture,
            repo_id,
            tags=[*(known.tags or ()), *tags],
            carries_code=bool(code_files(folder)),
            **{name: getattr(known, name) for name in ("base_model", "license", "language", "datasets")},
        ).save(readme)


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


def _processor_of(model, kind: dict[str, str]):
    """The tokenizer or image processor of the checkpoint that the model came from."""
    import transformers

    words = kind["name"].replace("_", " ")
    name_or_path = model.config._name_or_path
    if not name_or_path:
        logger.warning(
            f"This model was not loaded from a checkpoint, so no {words} is pushed with it. Push it yourself."
        )
        return None
    try:
        processor = getattr(transformers, kind["auto_class"]).from_pretrained(name_or_path)
    except (OSError, ValueError) as error:
        logger.warning(f"No {words} could be loaded from `{name_or_path}` ({error}). Push it yourself.")
        return None
    template = getattr(model.config, "template", None)
    if template is None:
        return processor
    # The tokenizer of a prompted checkpoint holds the template already; that of a backbone does not.
    is_prompted = processor("", add_special_tokens=True)["input_ids"].count(processor.mask_token_id)
    return processor if is_prompted else prompt_tokenizer(processor, template)
