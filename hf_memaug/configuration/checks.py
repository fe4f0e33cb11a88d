# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Checks shared by the configurations."""

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from numbers import Integral
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from transformers import BertConfig, PreTrainedConfig, RobertaConfig, ViTConfig

from hf_memaug.messages import nearest

# The encoders whose fields are checked against each other, and ours that inherit from them.
ENCODERS = (BertConfig, RobertaConfig, ViTConfig)
# What fields may hold, in our configurations and in those of encoders: the least value, the largest, and the names.
_LIMITS: list[tuple[float, float, str]] = [
    (0, 2**20, "num_labels"),
    (1, 2**12, "num_hidden_layers num_attention_heads num_channels memory_heads num_experts num_experts_per_tok"),
    (1, 2**18, "hidden_size intermediate_size image_size patch_size pooler_output_size embedding_size feature_size"),
    (1, 2**18, "classifier_size label_embedding_size memory_intermediate_size memory_key_size memory_value_size"),
    (1, 2**18, "router_dim synthetic_slots"),
    (0, 2**18, "prompt_tokens key_layers key_shape"),
    (1, 2**24, "vocab_size max_position_embeddings memory_slots memory_slots_per_domain real_memory_size"),
    (1, 2**24, "node_vocab_sizes edge_vocab_sizes"),
    (2, 2**24, "max_landmarks"),
    (0, 2**24, "type_vocab_size memory_rows memory_landmarks mask_token_id decoder_start_token_id"),
    (-1, 2**24, "pad_token_id"),
    (0, 1, "momentum memory_weight"),
    (0, 0.999, "dropout memory_dropout hidden_dropout_prob attention_probs_dropout_prob classifier_dropout"),
    (0, 1000, "initializer_range memory_initializer_range memory_key_initializer_range router_noise aux_loss_weight"),
    (1e-6, 1e6, "router_scale router_max_scale"),
    (1e-20, 1, "layer_norm_eps"),
]
_RANGES = {name: (least, most) for least, most, names in _LIMITS for name in names.split()}


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
    if isinstance(kwargs, Mapping) and "num_labels" in kwargs:
        if not isinstance(kwargs["num_labels"], Integral):
            raise TypeError(f"`num_labels` must be a whole number; got {kwargs['num_labels']!r}.")
        check_fields(kwargs)
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


def check_fields(fields: Mapping[str, Any], part: str = "") -> None:
    """Raises an error for a number that its field cannot hold, in a configuration and in the configurations it has."""
    for name, value in fields.items():
        if isinstance(value, PreTrainedConfig):
            check_fields(vars(value), f"{part}{name}.")
        if name not in _RANGES:
            continue
        least, most = _RANGES[name]
        for number in value if isinstance(value, list | tuple) else [value]:
            # NaN is in no range.
            if isinstance(number, int | float) and not least <= number <= most:
                raise ValueError(f"`{part}{name}` must be between {least} and {most}; got {value}.")


def check_encoder(config: PreTrainedConfig, part: str = "") -> None:
    """
    Raises an error if no model can be built of a configuration and its parts. Called when a model is built, because
    fields of a configuration may be set one by one.
    """
    if not part:
        check_fields(vars(config))
    for name in config.sub_configs:
        if getattr(config, name) is not None:
            check_encoder(getattr(config, name), f"{name}.")
    # Fields of other encoders may mean something else.
    for name, reason in _misfits(config) if not part or isinstance(config, ENCODERS) else ():
        raise ValueError(f"`{part}{name}` is {getattr(config, name)!r}. {reason}")


def _misfits(config: Any) -> Iterator[tuple[str, str]]:
    """Fields that do not fit the others, and why."""
    from transformers.activations import ACT2FN  # takes long

    for name in ("pad_token_id", "mask_token_id", "decoder_start_token_id"):
        if vars(config).get("vocab_size", math.inf) <= (vars(config).get(name) or 0):
            yield name, f"Choose a token below `vocab_size` ({config.vocab_size})."
    if not isinstance(config, ENCODERS):
        return
    if config.hidden_size % config.num_attention_heads:
        yield "num_attention_heads", f"It must divide `hidden_size` ({config.hidden_size})."
    for name in ("hidden_act", "pooler_act"):
        if getattr(config, name, "gelu") not in ACT2FN:
            yield name, f"Choose one of {', '.join(ACT2FN)}."
    if isinstance(config, ViTConfig):
        sizes = {"image_size": config.image_size, "patch_size": config.patch_size}
        pairs = {name: [size] * 2 if isinstance(size, int) else size for name, size in sizes.items()}
        for name in pairs:
            if len(pairs[name]) != 2:
                yield name, "Give one number, or a height and a width."
        if not config.initializer_range:
            yield "initializer_range", "It must be more than 0."
        if any(map(operator.gt, pairs["patch_size"], pairs["image_size"])):
            yield "patch_size", f"It must not be larger than `image_size` ({config.image_size})."
        return
    if config.type_vocab_size < 1:
        yield "type_vocab_size", "It must be at least 1."
    if config.add_cross_attention and not config.is_decoder:
        yield "add_cross_attention", "It is for decoders: leave it out."
    if isinstance(config, RobertaConfig):
        if config.pad_token_id is None:
            yield "pad_token_id", "RoBERTa counts positions from it: give a token."
        elif config.max_position_embeddings < config.pad_token_id + 2:
            yield "max_position_embeddings", f"It must be more than `pad_token_id` + 1 ({config.pad_token_id + 1})."


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
