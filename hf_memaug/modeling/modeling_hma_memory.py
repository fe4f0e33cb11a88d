# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""HMA's two memories (Qiu et al., 2023, section 4), and what its models give back."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from transformers.utils import ModelOutput

from hf_memaug.configuration.configuration_hma import HMAConfig
from hf_memaug.layers.datapoint_reader import DatapointReader
from hf_memaug.layers.real_memory import RealMemory


@dataclass
class HMAOutput(ModelOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned when `labels` is provided):
        Cross entropy.
    logits (`torch.FloatTensor` of shape `(batch_size, num_labels)`):
        Scores before the softmax.
    features (`torch.FloatTensor` of shape `(batch_size, feature_size)`):
        `h^1`, what the backbone gives.
    augmented_features (`torch.FloatTensor` of shape `(batch_size, feature_size + label_embedding_size)`):
        `C^3`, what the head reads.
    memory_weights (`torch.FloatTensor`, *optional*, returned with `output_memory_weights=True`):
        How much each row reads of what, for each head, of shape `(batch_size, memory_heads, n)`. First the real memory
        and the row itself, which add up to 1; then the synthetic slots, the support and the rows of the batch (or the
        row itself), which add up to 1 again. Parts that the augmentation does not have are missing.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    features: torch.Tensor | None = None
    augmented_features: torch.Tensor | None = None
    memory_weights: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class HeterogenousMemory(nn.Module):
    """Section 4: RMA, then SMA. Takes features `(rows, d_1)` and gives rows `(rows, d_1 + d_2)`."""

    def __init__(self, config: HMAConfig):
        super().__init__()
        self.config = config
        # Set by `without_memory`: rows then read neither slots nor each other.
        self.is_off = False
        num_labels = cast(int, config.num_labels)
        width, self.unknown = config.memory_width, num_labels
        intermediate = config.memory_intermediate_size or 4 * width
        reader = (width, config.memory_heads, intermediate, config.memory_dropout, config.layer_norm_eps)
        # A row for each class, and one for rows whose class is to be found.
        self.label_embedding = nn.Embedding(num_labels + 1, config.label_embedding_size)
        self.real_reader = DatapointReader(*reader) if config.has("real reader") else None
        self.queue = RealMemory(config.real_memory_size, width) if config.has("real") else None
        self.synthetic_reader = DatapointReader(*reader) if config.has("synthetic reader") else None
        shape = (num_labels, config.synthetic_slots, config.hidden_size)
        self.synthetic_slots = nn.Parameter(torch.empty(shape)) if config.has("synthetic") else None

    def aggregate(self, features: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """`C^1 = [h^1; e]` (section 4.1). Without `labels` they are unknown, as they are of every row that asks."""
        if labels is None:
            labels = torch.full(features.shape[:1], self.unknown, device=features.device)
        return torch.cat([features, self.label_embedding(labels).to(features.dtype)], dim=-1)

    def synthetic_memory(self, rows: torch.Tensor) -> torch.Tensor:
        """`M_SMA` (section 4.3): all slots, each with its label as the embedding has it now."""
        if self.synthetic_slots is None or self.is_off:
            return rows[:0]
        labels = torch.arange(self.unknown, device=rows.device).repeat_interleave(self.config.synthetic_slots)
        return self.aggregate(self.synthetic_slots.flatten(0, 1), labels).to(rows.dtype)

    def after_real_memory(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`C^2` of rows `C^1` as `aggregate` makes them, and what they read; where nothing reads, `C^1` and None."""
        if self.real_reader is None:
            return rows, None
        memory = None if self.is_off else self.queue
        slots, filled = (rows[:0], None) if memory is None else (memory.slots, memory.filled)
        return self.real_reader(rows, slots, filled)  # Eq. 5

    def forward(self, features: torch.Tensor, between_rows: bool = True) -> tuple[torch.Tensor, list[torch.Tensor]]:
        rows, real_weights = self.after_real_memory(self.aggregate(features))
        weights = [] if real_weights is None else [real_weights]
        if self.synthetic_reader is not None:
            between_rows = between_rows and self.config.has("between rows") and not self.is_off
            slots = self.synthetic_memory(rows)
            rows, synthetic_weights = self.synthetic_reader(rows, slots, between_rows=between_rows)  # Eq. 6
            weights.append(synthetic_weights)
        return rows, weights


def check_labels(labels: torch.Tensor, rows: int, num_labels: int, wait: bool = False) -> None:
    """On a CPU; with `wait` on a GPU too, which has to be waited for. Unasked it stops by itself, and says little."""
    if labels.is_floating_point() or labels.numel() != rows:
        raise ValueError(
            f"`labels` of {rows} rows have the shape {tuple(labels.shape)} and the type {labels.dtype}. Give one class "
            "for each row, a whole number: of scores of all classes, their `argmax(-1)`."
        )
    if not labels.numel() or not (wait or labels.device.type == "cpu"):
        return
    wrong = labels[(labels < 0) | (labels >= num_labels)]
    if len(wrong):
        more = f"Build it with `num_labels={int(wrong.max()) + 1}`, or fix the labels."
        raise ValueError(
            f"`labels` has the label {int(wrong[0])}, and the model embeds the labels 0 to {num_labels - 1}. "
            f"{more if wrong.max() >= 0 else 'Every row has a class here: leave rows without one out.'}"
        )
