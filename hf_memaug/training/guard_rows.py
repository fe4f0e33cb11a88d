# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Guard rows that a checkpoint carries: features of rows of the domains that it was trained on."""

import os
import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from hf_memaug.configuration.configuration_writable_memory import GUARD_FILE
from hf_memaug.layers.writable_memory import GUARD
from hf_memaug.modeling.modeling_writable_memory import WritableMemoryForClassification, memory_class_of
from hf_memaug.modeling.modeling_writable_rows import GUARD_NAME, fingerprint, row_id, vocabulary_hash


def check_guard_rows(trainer) -> None:
    """Refuses models and rows that a writable memory cannot take."""
    if isinstance(trainer.model, WritableMemoryForClassification):
        raise ValueError("`guard_rows` is for classifiers, and `model` has a writable memory. Pass `guard` to `write`.")
    memory_class_of(trainer.model, "`guard_rows`")
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise ValueError("`guard_rows` does not support FSDP or DeepSpeed. Leave it out.")
    row = trainer.train_dataset[0] if trainer.train_dataset else {}
    label: Any = row.get("label", row.get("labels"))
    is_id = hasattr(label, "__index__") and getattr(label, "ndim", 0) == 0
    if not is_id:
        raise ValueError("`guard_rows` needs a `train_dataset` with one `label` for each row. Leave it out.")


def save_guard_rows(trainer, folder: str | os.PathLike) -> None:
    """Stores what a writable memory needs of `guard_rows` source rows: of `eval_dataset`, else of `train_dataset`."""
    model: Any = memory_class_of(trainer.model, "`guard_rows`").from_classifier(trainer.model)
    held_out = trainer.eval_dataset
    parts = held_out.values() if isinstance(held_out, dict) else [] if held_out is None else [held_out]
    places = _source_rows(parts, trainer.domains) or _source_rows([trainer.train_dataset], trainer.domains)
    draw = random.Random(f"guard {trainer.args.seed}")
    chosen = [rows[place] for rows, place in draw.sample(places, min(trainer.args.guard_rows, len(places)))]
    labels: list[int] = []

    def batches():
        for start in range(0, len(chosen), trainer.args.eval_batch_size):
            inputs = trainer.data_collator(chosen[start : start + trainer.args.eval_batch_size])
            labels.extend(inputs.pop("labels").tolist())
            inputs.pop("domain_ids", None)
            yield inputs

    rows = model.features(batches())
    names, source = model.config.id2label, "image" if "image" in chosen[0] else model.main_input_name
    ids = [
        row_id(GUARD_NAME, row[source], names.get(label, ""), source == "image")
        for row, label in zip(chosen, labels, strict=True)
    ]
    rows |= {"labels": torch.tensor(labels), "domains": torch.full((len(ids),), GUARD), "row_ids": torch.tensor(ids)}
    kept = torch.tensor(labels) >= 0
    facts = {"fingerprint": fingerprint(model.classifier)}
    if hasattr(trainer.processing_class, "get_vocab"):
        facts["vocabulary"] = vocabulary_hash(trainer.processing_class.get_vocab())
    Path(folder).mkdir(parents=True, exist_ok=True)
    save_file({name: value.cpu()[kept] for name, value in rows.items()}, Path(folder, GUARD_FILE), facts)


def _source_rows(datasets, domains: list[str]) -> list[tuple[Any, int]]:
    """The rows of domains that were trained on: each as a dataset and a place in it."""
    return [
        (rows, place)
        for rows in datasets
        if "domain" in (getattr(rows, "column_names", None) or ())
        for place, domain in enumerate(rows["domain"])
        if domain in domains
    ]
