# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Outputs of the models with a key-value memory."""

from dataclasses import dataclass

import torch

from hf_memaug.modeling.modeling_utils import MemoryOutput


@dataclass
class KVMemoryOutput(MemoryOutput):
    r"""
    last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, hidden_size)`):
        The encoder's last layer, before the memory.
    pooler_output (`torch.FloatTensor` of shape `(batch_size, hidden_size)`, *optional*):
        The backbone's pooler, applied to the augmented features.
    augmented_features (`torch.FloatTensor` of shape `(batch_size, hidden_size)`):
        `g_m(x)`, the weighted mean of the next two. The pooler and the heads read it.
    features (`torch.FloatTensor` of shape `(batch_size, hidden_size)`):
        `g(x)`, the encoder's feature at the pooled position.
    memory_features (`torch.FloatTensor` of shape `(batch_size, hidden_size)`):
        `m(g(x))`, what is read from the memory.
    memory_weights (`torch.FloatTensor` of shape `(batch_size, memory_heads, memory_slots)`, *optional*):
        The attention of each head over the slots, with `output_memory_weights=True`.
    """

    last_hidden_state: torch.FloatTensor | None = None
    pooler_output: torch.FloatTensor | None = None
    augmented_features: torch.FloatTensor | None = None
    features: torch.FloatTensor | None = None
    memory_features: torch.FloatTensor | None = None
    memory_weights: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class KVMemoryClassifierOutput(MemoryOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned when `labels` is provided):
        Classification (or regression) loss.
    logits (`torch.FloatTensor` of shape `(batch_size, num_labels)`):
        Scores before the softmax.
    augmented_features, features, memory_features, memory_weights:
        As in [`KVMemoryOutput`].
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    augmented_features: torch.FloatTensor | None = None
    features: torch.FloatTensor | None = None
    memory_features: torch.FloatTensor | None = None
    memory_weights: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
