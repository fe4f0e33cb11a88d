# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows for a writable memory: reads and checks them before anything is written."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers.utils import cached_file

from hf_memaug.configuration.configuration_writable_memory import GUARD_FILE

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
    known = [str(config.id2label[label]) for label in range(config.num_labels)]
    unknown: list[str] = []
    if new_labels:
        found = load_domains(source, domain=None, **columns).label_names
        unknown = [name for name in found if name not in known and not (name.isdigit() and int(name) < len(known))]
    try:
        # All rows are of one domain, whatever their own column says.
        rows = load_domains(source, domain=None, labels=[*known, *unknown], **columns)
    except ValueError as error:
        hint = " To add a class to the model, pass `new_labels=True`." if "which is unknown" in str(error) else ""
        raise ValueError(f"{error}{hint}") from None
    labels = rows.labels
    if labels is None:
        raise ValueError("`rows` have no single label each. Name the column with `label=`.")
    inputs = _inputs_of(rows)
    kept, seen = [], set()
    for place, (one, label) in enumerate(zip(inputs, labels, strict=True)):
        # By its name, because the number of a new class depends on the others.
        identity = row_id(domain, one, rows.label_names[label], "image" in rows.column_names)
        if identity not in seen:
            seen.add(identity)
            kept.append((place, identity))
    return Rows(
        [inputs[place] for place, _ in kept], [labels[place] for place, _ in kept], [one for _, one in kept], unknown
    )


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
    length = {"truncation": True, "max_length": max_length}
    return dict(processor(texts, pairs, **length, padding=len(inputs) > 1, return_tensors="pt"))


def fingerprint(classifier: nn.Module) -> str:
    """A hash of the weights, rounded to bfloat16, so that a model in half precision has the same."""
    digest = hashlib.sha256()
    for name, value in sorted(classifier.state_dict().items()):
        if value.is_floating_point():
            few = value.detach().flatten()[:: max(1, value.numel() // 4096)].to(torch.bfloat16).cpu()
            digest.update(name.encode() + few.view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]


def vocabulary_hash(words: Mapping[str, int]) -> str:
    return hashlib.sha256(repr(sorted(words.items())).encode()).hexdigest()[:16]


def read_guard(name_or_path: Any, how: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]] | None:
    """The guard rows that a checkpoint carries, and their facts. `how` has arguments of `from_pretrained`."""
    hub = {
        name: how[name] for name in ("revision", "token", "cache_dir", "local_files_only", "subfolder") if name in how
    }
    try:
        path = cached_file(name_or_path, GUARD_FILE, _raise_exceptions_for_missing_entries=False, **hub)
    except (OSError, ValueError):
        return None
    if path is None:
        return None
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def is_adapter(name_or_path: Any) -> bool:
    return os.path.isfile(os.path.join(os.fspath(name_or_path), "adapter_config.json"))
