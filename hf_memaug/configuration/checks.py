# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks shared by the configurations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from transformers import PreTrainedConfig

from hf_memaug.suggestions import nearest


def choices_of(annotation: Any) -> list[Any]:
    """The values of a `Literal` type, and of unions of them; otherwise an empty list."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) not in (Union, UnionType):
        return []
    parts = [[None] if part is NoneType else choices_of(part) for part in get_args(annotation)]
    found = [choice for part in parts for choice in part]
    return found if all(parts) and found != [None] else []


def refuse_misspelt_fields(config_class: type, kwargs: Iterable[str], own_prefixes: tuple[str, ...]) -> None:
    """
    Raises an error for unknown keywords that resemble a field or have the prefix of the family's own fields.
    transformers would store them as attributes and ignore them. Other keys of old checkpoints pass.
    """
    known = {field.name for field in fields(config_class)} | {"num_labels", "attn_implementation", "torch_dtype"}
    own = sorted(name for name in known if name.startswith(own_prefixes))
    for name in kwargs:
        if name in known or name.startswith("_"):
            continue
        # Stricter for inherited fields: `layer_norm_epsilon` is the name in another model, not a misspelling.
        suggestion = nearest(name, own, cutoff=0.75) or nearest(name, known, cutoff=0.9)
        if suggestion is None and not name.startswith(own_prefixes):
            continue
        fix = f"Did you mean `{suggestion}`?" if suggestion else f"There are {', '.join(f'`{n}`' for n in own)}."
        raise TypeError(f"`{config_class.__name__}` has no field `{name}`. {fix}")


def check_at_least(config: PreTrainedConfig, least: int, *names: str, fix: str = "") -> None:
    """Raises an error for a field below `least`. None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < least:
            raise ValueError(f"`{name}` must be at least {least}; got {value}.{fix}")


def check_not_negative(config: PreTrainedConfig, *names: str, fix: str = "") -> None:
    """Raises an error for a negative or infinite field. None passes."""
    for name in names:
        if not 0 <= (getattr(config, name) or 0) < float("inf"):
            raise ValueError(f"`{name}` cannot be negative or infinite; got {getattr(config, name)}.{fix}")


def check_share(config: PreTrainedConfig, *names: str, below_one: bool = False) -> None:
    """Raises an error for a field that does not lie between 0 and 1; with `below_one`, for 1 too."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value <= 1 or (below_one and value == 1):
            raise ValueError(f"`{name}` lies between 0 and 1{', 1 excluded' * below_one}; got {value}.")


def check_layers(name: str, layers: Sequence[int], of: str, first: int, last: int, fix: str) -> None:
    """Raises an error for a list of layers that is empty, names one twice, or names one that is not there."""
    if not layers:
        raise ValueError(f"`{name}` is empty. {fix}")
    wrong = [layer for layer in layers if not first <= layer <= last]
    if wrong:
        raise ValueError(
            f"`{name}` names layer {wrong[0]}, and {of} layers {first} to {last}. Layers are counted from {first}."
        )
    if len(set(layers)) < len(layers):
        raise ValueError(f"`{name}` names a layer twice: {layers}.")


def inherited_fields(backbone: PreTrainedConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a plain checkpoint's configuration; its labels only if none are given."""
    dropped = {"model_type", "architectures", "transformers_version", "auto_map", "run_facts"}
    if {"num_labels", "id2label", "verbalizer"} & set(given):
        # The old head's labels, and what kind they were of, would otherwise win over the new ones.
        dropped |= {"id2label", "label2id", "problem_type"}
    return {name: value for name, value in backbone.to_dict().items() if name not in dropped}
