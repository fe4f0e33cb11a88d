# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The answer without the memory: of a plain model that was given, or of the same weights with the memory off."""

from collections.abc import Callable
from contextlib import contextmanager

import torch
from transformers.modeling_outputs import SequenceClassifierOutput

from hf_memaug.app.checkpoints import Checkpoint
from hf_memaug.layers.memory_rnn import MemoryBank
from hf_memaug.reporting import memory_maps

_SAME = "No `baseline` was given, so this is the same checkpoint with its memory switched off: "
_CAUTION = " It was trained with the memory: a model that was trained without one may say something else."
# What is switched off in which family, in words.
SWITCHED_OFF = {
    "roberta_kv_memory": "the weight λ of the memory is 0, and the encoder's own feature goes to the head.",
    "bert_kv_memory": "the weight λ of the memory is 0, and the encoder's own feature goes to the head.",
    "gmap": "all of the general encoder's memory is masked, and the domain encoder reads its own tokens alone.",
    "hma": "the row reads itself alone, no stored datapoint and no synthetic slot.",
    "memory_rnn": "the values of all slots are zero, and the network reads its words alone.",
}


def has_memory(config) -> bool:
    """Whether anything is read that could be switched off: some of HMA's ablations have readers and no memory."""
    if config.model_type == "hma":
        return config.has("real") or config.has("synthetic")
    return getattr(config, "reads_memory", True)


def what_stands_beside(checkpoint: Checkpoint, baseline: Checkpoint | None) -> tuple[str, bool]:
    """What the plain answer is, in words, and whether there is one."""
    if baseline is not None:
        return f"The plain model given as `baseline`: `{baseline.name}` ({type(baseline.model).__name__}).", True
    kind = checkpoint.config.model_type
    if not has_memory(checkpoint.config):
        return (
            "This checkpoint reads no memory: its answer is a plain one already. Give a `baseline` to compare.",
            False,
        )
    if kind in SWITCHED_OFF:
        return _SAME + SWITCHED_OFF[kind] + _CAUTION, True
    if kind == "vit_gmoe":
        return (
            "There is no plain answer: the experts of a GMoE stand in the place of the network that a plain ViT has, "
            "and cannot be switched off. Give a `baseline`, such as the ViT it was made of, trained on the same data."
        ), False
    return "There is no plain answer: this family's memory cannot be switched off. Give a `baseline`.", False


@torch.no_grad()
def plain_output(checkpoint: Checkpoint, inputs: dict):
    """What the checkpoint puts out with its memory off."""
    return _SWITCHES[checkpoint.config.model_type](checkpoint.model, inputs)


def _kv_memory(model, inputs: dict):
    with memory_maps.evaluating(model, memory_weight=0.0):
        return model(**inputs)


def _gmap(model, inputs: dict):
    return model(**inputs, memory_mask=torch.zeros_like(inputs["input_ids"]))


def _hma(model, inputs: dict) -> SequenceClassifierOutput:
    features, head = model.features(**inputs), model.head
    rows = head.memory.aggregate(features.to(head.classifier.weight.dtype))
    for reader in (head.memory.real_reader, head.memory.synthetic_reader):
        if reader is not None:
            rows, _ = reader(rows, rows[:0])
    return SequenceClassifierOutput(logits=head.classifier(rows))


def _memory_rnn(model, inputs: dict):
    with without_content(model):
        return model(**inputs)


@contextmanager
def without_content(model):
    """Slots of a memory RNN that say nothing; whatever happens, they have their values again afterwards."""
    banks = [module for module in model.modules() if isinstance(module, MemoryBank)]
    kept = [bank.slot_values.data for bank in banks]
    try:
        for bank in banks:
            bank.slot_values.data = torch.zeros_like(bank.slot_values.data)
        yield
    finally:
        for bank, values in zip(banks, kept, strict=True):
            bank.slot_values.data = values


_SWITCHES: dict[str, Callable] = {
    "roberta_kv_memory": _kv_memory,
    "bert_kv_memory": _kv_memory,
    "gmap": _gmap,
    "hma": _hma,
    "memory_rnn": _memory_rnn,
}
