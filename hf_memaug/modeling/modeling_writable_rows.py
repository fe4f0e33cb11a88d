# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Rows for a writable memory: reads and checks them before anything is written."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers.utils import cached_file, find_adapter_config_file

from hf_memaug.configuration.configuration_writable_memory import GUARD_FILE
from hf_memaug.modeling.modeling_utils import located

# What the rows that protect the old domains are called.
GUARD_NAME = "guard"


@dataclass
class Rows:
    """
    Args:
        inputs: texts, pairs of texts, or images.
        labels: class ids of the model, those of new classes included.
        ids: hashes of domain, input and label, as signed 64-bit integers.
        new_names: the names of classes that the model has not had.
    """

    inputs: list[Any]
    labels: list[int]
    ids: list[int]
    new_names: list[str]


def read_rows(source: Any, config, domain: str, columns: Mapping[str, Any], new_labels: bool = False) -> Rows:
    """
    Args:
        source: whatever `load_domains` takes.
        config: of the model. Its `label2id` gives the class ids.
        domain: the name of the domain; part of the rows' ids.
        columns: the names of the columns `text`, `text_pair` and `label`.
        new_labels: whether labels may be unknown.
    """
    from hf_memaug.data import load_domains

    if isinstance(source, Sequence) and not isinstance(source, str) and not len(source):
        raise ValueError("`rows` is empty. Pass at least one labelled row.")
    if isinstance(source, Iterator):
        source = list(source)
    known = [str(config.id2label[label]) for label in range(config.num_labels)]
    strangers = [
        name
        for name in _label_names(source, columns)
        if name not in known and not (name.isdecimal() and int(name) < len(known))
    ]
    is_named = known != [f"LABEL_{label}" for label in range(len(known))]
    if len(strangers) == len(known) and is_named and not new_labels:
        # `load_domains` would take them for other words for the same classes, in this order.
        raise ValueError(
            f"`rows` have the labels {', '.join(strangers)}, and the classifier has {', '.join(known)}. Rename them, "
            "or pass `new_labels=True` to add these classes."
        )
    unknown = strangers if new_labels else []
    try:
        # All rows are of one domain, whatever their own column says.
        rows = load_domains(source, domain=None, labels=[*known, *unknown], **columns)
    except ValueError as error:
        add = " To add a class to the model, pass `new_labels=True`."
        more = " New classes need names, not ids." if new_labels else add
        raise ValueError(f"{error}{more if 'which is unknown' in str(error) else ''}") from None
    labels = rows.labels
    if labels is None:
        raise ValueError("`rows` have no single label each. Name the column with `label=`.")
    inputs = _inputs_of(rows)
    places: dict[int, int] = {}
    for place, (one, label) in enumerate(zip(inputs, labels, strict=True)):
        # By its name, because the number of a new class depends on the others.
        places.setdefault(row_id(domain, one, rows.label_names[label], "image" in rows.column_names), place)
    kept = places.values()
    return Rows([inputs[one] for one in kept], [labels[one] for one in kept], list(places), unknown)


def _label_names(source: Any, columns: Mapping[str, Any]) -> list[str]:
    """The names of the labels that rows have, or that they bring with them."""
    from hf_memaug.data import load_domains

    try:
        return load_domains(source, domain=None, **columns).label_names
    except ValueError:
        # Ids with gaps, say. What is wrong is said when the rows are read with the names of the classes.
        return []


def _inputs_of(rows) -> list[Any]:
    if "image" in rows.column_names:
        return rows["image"]
    if "text" not in rows.column_names:
        raise ValueError(f"`rows` have no `text` and no `image`, but {', '.join(rows.column_names)}.")
    if "text_pair" not in rows.column_names:
        return rows["text"]
    return list(zip(rows["text"], rows["text_pair"], strict=True))


def row_id(domain: str, one: Any, label: str, is_image: bool) -> int:
    """The same for the same row, in every process."""
    from hf_memaug.data.hashing import feed, image_bytes

    digest = hashlib.sha256()
    for value in (domain, image_bytes(one) if is_image else one, label):
        feed(digest, value)
    return int.from_bytes(digest.digest()[:8], "big", signed=True)


def name_of(identity: int) -> str:
    """The id of a row as a text."""
    return f"{identity & (2**64 - 1):016x}"


def readable(one: Any) -> str:
    return one if isinstance(one, str) else " / ".join(one) if isinstance(one, tuple) else "image"


def encoded(inputs: Sequence[Any], processor: Any, max_length: int | None, is_image: bool) -> dict[str, torch.Tensor]:
    """One batch, as the model takes it."""
    if is_image:
        from hf_memaug.data.images import decode_image

        return dict(processor([decode_image(one) for one in inputs], return_tensors="pt"))
    texts, pairs = (list(inputs), None) if isinstance(inputs[0], str) else map(list, zip(*inputs, strict=True))
    length = {"truncation": max_length is not None, "max_length": max_length}
    return dict(processor(texts, pairs, **length, padding=len(inputs) > 1, return_tensors="pt"))


def fingerprint(classifier: nn.Module) -> str:
    """Hashes of the weights as bfloat16 and as float16, so that a model that was rounded has one of them."""
    BF16, FP16 = torch.bfloat16, torch.float16
    weights = {name: value for name, value in sorted(classifier.state_dict().items()) if value.is_floating_point()}
    # Few transfers from the device, not one for each weight. The model may be spread over several devices.
    place = next(iter(weights.values())).device
    few = [one.detach().flatten()[:: max(1, one.numel() // 4096)].to(place, torch.float32) for one in weights.values()]
    values, names, found = torch.cat(few), " ".join(weights).encode(), []
    for casts in ((BF16,), (FP16,), (FP16, BF16), (BF16, FP16)):
        rounded = values
        for dtype in casts:
            rounded = rounded.to(dtype)
        found.append(hashlib.sha256(names + rounded.view(torch.int16).cpu().numpy().tobytes()).hexdigest()[:16])
    return "-".join(found)


def check_processor(model: Any, processor: Any) -> str | None:
    """A hash of the tokenizer's words. All rows must be read by one tokenizer."""
    if model.main_input_name == "pixel_values":
        if not callable(processor):
            raise TypeError(f"`image_processor` is a `{type(processor).__name__}`. Pass an image processor.")
        return None
    if not hasattr(processor, "get_vocab"):
        raise TypeError(f"`tokenizer` is a `{type(processor).__name__}`. Pass a tokenizer.")
    words = processor.get_vocab()
    try:
        known = len(model.get_input_embeddings().weight)
    except NotImplementedError:
        # CANINE hashes characters.
        known = max(words.values()) + 1
    if max(words.values()) >= known:
        raise ValueError(
            f"`tokenizer` has {max(words.values()) + 1:,} words and the classifier {known:,}. Pass the tokenizer that "
            "the classifier was trained with."
        )
    found = vocabulary_hash(words)
    if model.config.vocabulary not in (None, found):
        raise ValueError("`tokenizer` is not the one that the rows in the memory were read with. Pass that one.")
    return found


def vocabulary_hash(words: Mapping[str, int]) -> str:
    return hashlib.sha256(repr(sorted(words.items())).encode()).hexdigest()[:16]


def read_guard(name_or_path: Any, how: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]] | None:
    """The guard rows that a checkpoint carries, and their facts. `how` has arguments of `from_pretrained`."""
    try:
        path = cached_file(name_or_path, GUARD_FILE, _raise_exceptions_for_missing_entries=False, **located(how))
    except (OSError, ValueError):
        return None
    if path is None:
        return None
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def load_classifier(auto_class: Any, name_or_path: Any, how: dict) -> Any:
    """Loads a classifier. Adapters of PEFT are merged."""
    where = located(how)
    if find_adapter_config_file(name_or_path, **where) is None:
        return auto_class.from_pretrained(name_or_path, **how)
    from peft import PeftConfig, PeftModel

    base = PeftConfig.from_pretrained(name_or_path, **where)
    own = {name: value for name, value in how.items() if name not in ("revision", "subfolder")}
    model = auto_class.from_pretrained(base.base_model_name_or_path, **own)
    return PeftModel.from_pretrained(model, name_or_path, **where).merge_and_unload()
