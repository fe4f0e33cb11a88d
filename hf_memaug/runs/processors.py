# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What makes a model's inputs of the rows of a command."""

from collections.abc import Mapping
from typing import Any

from hf_memaug.data import DomainDataset
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.rows import kind_of
from hf_memaug.runs.tasks import TAGS


def processor_of(
    one,
    backbone: str,
    rows: DomainDataset,
    general: str | None = None,
    settings: Mapping[str, Any] | None = None,
):
    """
    The backbone's tokenizer or image processor, or one of the rows' own words; graphs need none. With a `template` in
    the settings of the model it asks that of every text.

    Args:
        one (`Chosen`): the method.
    """
    kind = kind_of(rows)
    if one.method.words is not None:
        return one.method.words(rows)
    if kind == "graph":
        return None
    name, option = (general, "--general") if one.row == "fine-tuning" else (backbone, "--backbone")
    if kind == TAGS:
        from hf_memaug.data.spans import reading_words

        return reading_words(load_processor(kind, name, option, add_prefix_space=True))
    found = load_processor(kind, name, option)
    template = (settings or {}).get("template") if one.method.family == "roberta_kv_memory" else None
    return found if template is None else prompted_by(found, template)


def prompted_by(tokenizer, template: str):
    from hf_memaug.data import prompt_tokenizer

    try:
        return prompt_tokenizer(tokenizer, template)
    except ValueError as error:
        raise UsageError(
            str(error).replace("`template`", "`--template`").replace("`tokenizer`", "The tokenizer")
        ) from None


def load_processor(kind: str, name: str, option: str, **how):
    """The tokenizer or image processor of a checkpoint that `option` names."""
    from transformers import AutoImageProcessor, AutoTokenizer

    auto_class, what = (AutoImageProcessor, "image processor") if kind == "image" else (AutoTokenizer, "tokenizer")
    error = None
    try:
        found = auto_class.from_pretrained(name, **how)
        # Beside some models without its files, transformers makes a tokenizer that knows no words.
        if kind == "image" or len(found) > len(set(found.all_special_ids)):
            return found
    except (OSError, ValueError, KeyError) as cause:
        error = cause
    raise UsageError(
        f"`{option}` {name!r} has no {what} that can be read. Save that of the model it was made from there: "
        f"`{auto_class.__name__}.from_pretrained(...).save_pretrained({name!r})`."
    ) from error
