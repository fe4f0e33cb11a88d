# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What belongs into a repository beside the weights."""

from pathlib import Path

from huggingface_hub import ModelCard, list_repo_files
from transformers.utils import logging

from hf_memaug.reporting.model_card import is_ours_to_write, model_card, processor_of

logger = logging.get_logger(__name__)


def complete_folder(model, folder, repo_id: str) -> None:
    """
    Adds the model card and the tokenizer, or the image processor, to a folder that is about to be pushed. A card that
    a person has written, and a tokenizer that is there already, stay as they are.
    """
    folder = Path(folder)
    readme = folder / "README.md"
    if is_ours_to_write(readme):
        # transformers has written the tags of `push_to_hub(tags=...)` into its template.
        tags = ModelCard.load(readme).data.tags if readme.exists() else None
        model_card(model.config, type(model).__name__, repo_id, tags=tags).save(readme)
    processor = processor_of(model.config, type(model).__name__)
    if processor is None:
        return
    kind = "preprocessor_config" if processor == "image_processor" else "tokenizer"
    if not list(folder.glob(f"{kind}*")) and not _has_file(repo_id, kind):
        processor = _processor_of(model)
        if processor is not None:
            processor.save_pretrained(folder)


def _has_file(repo_id: str, start: str) -> bool:
    try:
        return any(name.startswith(start) for name in list_repo_files(repo_id))
    except (OSError, ValueError):  # not there yet, or not for us to see
        return False


def _processor_of(model):
    """
    The tokenizer, or the image processor, that lies where the model came from; with the template, if the model is
    prompted.
    """
    from transformers import AutoImageProcessor, AutoTokenizer

    is_of_images = processor_of(model.config, type(model).__name__) == "image_processor"
    auto_class, kind = (AutoImageProcessor, "image processor") if is_of_images else (AutoTokenizer, "tokenizer")
    name_or_path = model.config._name_or_path
    if not name_or_path:
        logger.warning(f"This model came from no checkpoint, so no {kind} is pushed with it. Push it yourself.")
        return None
    try:
        tokenizer = auto_class.from_pretrained(name_or_path)
    except (OSError, ValueError) as error:
        logger.warning(f"No {kind} could be loaded from `{name_or_path}` ({error}). Push it yourself.")
        return None
    template = getattr(model.config, "template", None)
    if template is None:
        return tokenizer
    from hf_memaug.data.prompts import prompt_tokenizer

    # A prompted checkpoint's tokenizer holds the template already; a backbone's does not.
    asks_already = tokenizer("", add_special_tokens=True)["input_ids"].count(tokenizer.mask_token_id)
    return tokenizer if asks_already else prompt_tokenizer(tokenizer, template)
