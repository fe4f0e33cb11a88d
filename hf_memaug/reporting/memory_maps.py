# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What is in the memories of an HMA model and what rows read of them, as arrays (Qiu et al., 2023, section 5.3).

Models are asked in evaluation, and left as they were. Weights are means over the heads.
"""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.graphs import GraphCollator
from hf_memaug.data.images import ImageCollator
from hf_memaug.data.messages import listed
from hf_memaug.evaluation.checks import as_numpy, check_same_length

if TYPE_CHECKING:
    import torch


class Slots(NamedTuple):
    """
    Args:
        features: of shape (slots, feature_size), without the label embedding.
        labels: the class of each slot.
    """

    features: np.ndarray
    labels: np.ndarray


class DatapointAttention(NamedTuple):
    """
    What the rows of one batch read in the synthetic memory (Eq. 6): the numbers of a row add up to 1 over both arrays.

    Args:
        rows: of shape (rows, rows), what each reads of each.
        slots: of shape (rows, slots), what each reads of the synthetic slots. Without a synthetic memory no columns.
        slot_labels: the class of each slot.
    """

    rows: np.ndarray
    slots: np.ndarray
    slot_labels: np.ndarray


class RealAttention(NamedTuple):
    """
    What rows read in the real memory (Eq. 5): the numbers of a row and its own add up to 1.

    Args:
        slots: of shape (rows, filled slots).
        own: of shape (rows,), what each reads of itself.
        slot_labels: the class of each filled slot.
    """

    slots: np.ndarray
    own: np.ndarray
    slot_labels: np.ndarray


def synthetic_slots(model) -> Slots:
    """The slots of the synthetic memory, class after class. Refuses a model that has none."""
    memory = head_with(model, "synthetic").memory
    classes, per_class, _ = memory.synthetic_slots.shape
    return Slots(as_numpy(memory.synthetic_slots.flatten(0, 1)), np.repeat(np.arange(classes), per_class))


def features_of(
    model, processor, dataset: DomainDataset, batch_size: int = 32, max_length: int | None = None
) -> "torch.Tensor":
    """
    `h^1`, what the backbone gives for each row, of shape (rows, feature_size).

    Args:
        model: an HMA model with a backbone.
        processor: the image processor or the tokenizer of its checkpoint; for graphs None.
        dataset: rows with `image`, `text` or `graph`, whichever the model reads.
        batch_size: rows at a time.
        max_length: longest text in tokens. Default: the tokenizer's.
    """
    import torch

    if batch_size < 1:
        raise ValueError(f"`batch_size` is {batch_size}: pass at least 1.")
    hma = hma_of(model)
    if not hasattr(hma, "backbone"):
        raise ValueError(
            f"`model` is a {type(hma).__name__} without a backbone: pass an `HMAForImageClassification` or one of its "
            "siblings, or give your features to the functions that take them."
        )
    rows, collator = _rows_and_collator(hma, processor, dataset, max_length)
    found = []
    with evaluating(hma):
        for start in range(0, len(rows), batch_size):
            batch = collator([rows[row] for row in range(start, min(start + batch_size, len(rows)))])
            inputs = {name: _placed(value, hma) for name, value in batch.items() if name != "labels"}
            # By the backbone's own names: what a text model is fed with depends on its tokenizer.
            found.append(hma.features(**inputs).float())
    return torch.cat(found)


def after_real_memory(model, features: Any) -> np.ndarray:
    """
    `C^2` of features `h^1`, what rows are once they have read the real memory, without the part of the label; where
    the augmentation has no real memory, the features as they are.
    """
    head = _head(hma_of(model))
    features = _on(head, features)
    if head.memory is None:
        return as_numpy(features)
    with evaluating(head):
        rows, _ = head.memory.after_real_memory(head.memory.aggregate(features))
    return as_numpy(rows[:, : features.shape[1]])


def datapoint_attention(model, features: Any) -> DatapointAttention:
    """What rows read of each other, as one batch, and of the synthetic slots; whatever `inference` says."""
    head = head_with(model, "between rows")
    features = _on(head, features)
    with evaluating(head, inference="batch"):
        weights = head(features, output_memory_weights=True).memory_weights.mean(dim=1)
    labels = synthetic_slots(head).labels if head.config.has("synthetic") else np.zeros(0, dtype=np.int64)
    own = len(labels) + len(features)
    weights = as_numpy(weights[:, -own:])
    return DatapointAttention(weights[:, len(labels) :], weights[:, : len(labels)], labels)


def real_attention(model, features: Any) -> RealAttention:
    """What rows read of the real memory, as far as it is filled, and of themselves."""
    head = head_with(model, "real")
    features, queue = _on(head, features), head.memory.queue
    filled = queue.filled
    if not filled.any():
        raise ValueError(
            "`model` has an empty real memory: train it first. In a loop of your own, call `model.update_memory()` "
            "after each `optimizer.step()`."
        )
    with evaluating(head):
        _, weights = head.memory.after_real_memory(head.memory.aggregate(features))
    weights = weights.mean(dim=1)
    return RealAttention(
        as_numpy(weights[:, :-1][:, filled]), as_numpy(weights[:, -1]), as_numpy(queue.slot_labels[filled])
    )


def read_by_class(weights: Any, labels: Any, slot_labels: Any, num_classes: int) -> np.ndarray:
    """
    How much the rows of each class read of all slots of each class, of shape (classes, classes): the mean over the
    rows, the sum over the slots. A class without rows has nan.

    Args:
        weights: of shape (rows, slots).
        labels, slot_labels: the class of each row, and of each slot.
        num_classes: how many classes there are.
    """
    weights, labels, slot_labels = (as_numpy(values) for values in (weights, labels, slot_labels))
    check_same_length(weights=weights, labels=labels)
    check_same_length(**{"slot_labels": slot_labels, "weights' columns": weights.T})
    masses = np.stack([weights[:, slot_labels == label].sum(axis=1) for label in range(num_classes)], axis=1)
    missing = np.full(num_classes, np.nan)
    rows = [labels == label for label in range(num_classes)]
    return np.stack([masses[of_class].mean(axis=0) if of_class.any() else missing for of_class in rows])


def hma_of(model, name: str = "model"):
    """The HMA model itself, where it has adapters too."""
    # PEFT puts adapters into the model itself; what it wraps around it answers otherwise.
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    # By its type rather than its class: a checkpoint that carries its code has a class of its own.
    if getattr(getattr(inner, "config", None), "model_type", None) != "hma":
        raise ValueError(
            f"`{name}` is a {type(inner).__name__}, which has no real or synthetic memory: pass an HMA model, such as "
            "`HMAForImageClassification.from_backbone` makes one."
        )
    return inner


def head_with(model, part: str):
    """The head of an HMA model, refused where its augmentation lacks a part, by its name in `AUGMENTATIONS`."""
    from hf_memaug.configuration.configuration_hma import AUGMENTATIONS

    head = _head(hma_of(model))
    if not head.config.has(part):
        lacks = {"synthetic": "synthetic slots", "real": "real memory", "between rows": "attention between datapoints"}
        having = [name for name, parts in AUGMENTATIONS.items() if part in parts]
        raise ValueError(
            f'`model` has the `augmentation` "{head.config.augmentation}", which has no {lacks[part]}: pass one that '
            f"was trained with {listed(having)}."
        )
    return head


@contextmanager
def evaluating(model, **fields):
    """Evaluation without gradients and with these fields of the configuration; then all is as it was before."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    before = {name: getattr(model.config, name) for name in fields}
    try:
        model.eval()
        for name, value in fields.items():
            setattr(model.config, name, value)
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        for name, value in before.items():
            setattr(model.config, name, value)


def _head(hma):
    return getattr(hma, "head", hma)


def _on(head, features: Any) -> "torch.Tensor":
    import torch

    weight = head.classifier.weight
    features = torch.as_tensor(features).to(device=weight.device, dtype=weight.dtype)
    width = head.config.hidden_size
    if features.ndim != 2 or features.shape[1] != width:
        raise ValueError(
            f"`features` has shape {tuple(features.shape)}: pass (rows, {width}), what `model.features` gives."
        )
    return features


def _rows_and_collator(
    hma, processor, dataset: DomainDataset, max_length: int | None = None
) -> tuple[Sequence[dict], Callable]:
    from hf_memaug.data.collators import PaddingCollator

    column = {"pixel_values": "image", "node_features": "graph"}.get(hma.main_input_name, "text")
    columns = dataset.column_names
    if column not in columns and not (column == "text" and "tokens" in columns):
        raise ValueError(
            f"`dataset` has the columns {listed(columns)} and no '{column}', which a {type(hma).__name__} reads: pass "
            "rows of its kind."
        )
    if column == "image":
        return dataset, ImageCollator(processor)
    if column == "graph":
        return dataset, GraphCollator()
    tokens = dataset.tokenize(processor, max_length)
    rows = [{name: value for name, value in row.items() if name != "domain"} for row in tokens]
    return rows, PaddingCollator(processor)


def _placed(value: Any, model) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return value.to(model.device, model.dtype if value.is_floating_point() else None)
