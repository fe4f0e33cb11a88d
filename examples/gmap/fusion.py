# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What G-MAP is compared with in the classification of texts, all with G-MAP's own head (section 3.2)."""

import torch
from torch import nn
from transformers import AutoModel
from transformers.modeling_outputs import SequenceClassifierOutput


def head(config, num_labels: int) -> nn.Sequential:
    """That of `GMAPForSequenceClassification` with two layers. BERT's own has a dropout less."""
    layers = nn.Sequential(
        nn.Dropout(config.hidden_dropout_prob),
        nn.Linear(config.hidden_size, config.hidden_size),
        nn.Tanh(),
        nn.Dropout(config.hidden_dropout_prob),
        nn.Linear(config.hidden_size, num_labels),
    )
    for module in layers:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=config.initializer_range)
            nn.init.zeros_(module.bias)
    return layers


class PlainClassifier(nn.Module):
    """An encoder and a head on its first token."""

    def __init__(self, encoder: nn.Module, num_labels: int):
        super().__init__()
        self.encoder, self.classifier = encoder, head(encoder.config, num_labels)

    @classmethod
    def from_pretrained(cls, folder: str, num_labels: int, dtype: str = "float32"):
        return cls(AutoModel.from_pretrained(folder, dtype=dtype, add_pooling_layer=False), num_labels)

    def set_attn_implementation(self, name: str) -> None:
        self.encoder.set_attn_implementation(name)

    def forward(self, labels: torch.Tensor | None = None, **inputs) -> SequenceClassifierOutput:
        return self.scored(self.classifier(self.encoder(**inputs).last_hidden_state[:, 0]), labels)

    @staticmethod
    def scored(logits: torch.Tensor, labels: torch.Tensor | None) -> SequenceClassifierOutput:
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class LogitsFusion(PlainClassifier):
    """The logits of a head on the frozen general encoder, added to those of the domain encoder's classifier."""

    def __init__(self, encoder: nn.Module, num_labels: int):
        super().__init__(encoder, num_labels)
        self.general_classifier = head(encoder.config, num_labels)

    def forward(
        self, general_hidden_states: torch.Tensor, labels: torch.Tensor | None = None, **inputs
    ) -> SequenceClassifierOutput:
        first = general_hidden_states[:, -1, 0].to(self.encoder.dtype)
        return self.scored(super().forward(**inputs).logits + self.general_classifier(first), labels)


def ensemble(logits: list[torch.Tensor]) -> torch.Tensor:
    """The mean of the predicted probabilities."""
    return torch.stack([one.float().softmax(dim=-1) for one in logits]).mean(dim=0)
