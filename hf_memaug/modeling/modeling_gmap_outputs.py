# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the models of G-MAP return."""

from dataclasses import dataclass

import torch

from hf_memaug.modeling.modeling_utils import MemoryOutput


@dataclass
class GMAPOutput(MemoryOutput):
    r"""
    last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, hidden_size)`):
        `H` of Eq. 2, the domain encoder's last layer.
    memory_weights (`torch.FloatTensor` of shape `(batch_size, sequence_length, num_hidden_layers)`, *optional*):
        The gates' weights of the general encoder's layers (Eq. 10), with `output_memory_weights=True`. Those of one
        gate add up to 1. Strategies without a gate have none.
    """

    last_hidden_state: torch.FloatTensor | None = None
    memory_weights: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class GMAPHeadOutput(MemoryOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned when `labels` is provided):
        The task's loss.
    logits (`torch.FloatTensor`):
        Scores before the softmax: of the labels, of each token's labels, or of the vocabulary.
    memory_weights:
        As in [`GMAPOutput`].
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    memory_weights: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class GMAPQuestionAnsweringOutput(MemoryOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned when the positions are provided):
        Mean of the losses of the two ends.
    start_logits, end_logits (`torch.FloatTensor` of shape `(batch_size, sequence_length)`):
        Scores of each token as the answer's first and as its last.
    memory_weights:
        As in [`GMAPOutput`].
    """

    loss: torch.FloatTensor | None = None
    start_logits: torch.FloatTensor | None = None
    end_logits: torch.FloatTensor | None = None
    memory_weights: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
