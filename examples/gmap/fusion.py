# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The baselines of G-MAP's section 3.2 that read a general encoder too, but not as a memory."""

import torch
from torch import nn


class LogitsFusion(nn.Module):
    """The logits of a head on the frozen general encoder, added to those of the domain encoder's classifier."""

    def __init__(self, domain: nn.Module):
        super().__init__()
        self.domain = domain
        config = domain.config
        self.general_classifier = nn.Sequential(
            nn.Dropout(config.hidden_dropout_prob),
            nn.Linear(config.hidden_size, config.hidden_size),
            nn.Tanh(),
            nn.Dropout(config.hidden_dropout_prob),
            nn.Linear(config.hidden_size, config.num_labels),
        )
        for module in self.general_classifier.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=config.initializer_range)
                nn.init.zeros_(module.bias)

    def set_attn_implementation(self, name: str) -> None:
        self.domain.set_attn_implementation(name)

    def forward(self, general_hidden_states: torch.Tensor, **inputs):
        outputs = self.domain(**inputs)
        first = general_hidden_states[:, -1, 0].to(self.domain.dtype)
        outputs.logits = outputs.logits + self.general_classifier(first)
        return outputs


def ensemble(logits: list[torch.Tensor]) -> torch.Tensor:
    """The mean of the predicted probabilities."""
    return torch.stack([one.float().softmax(dim=-1) for one in logits]).mean(dim=0)
