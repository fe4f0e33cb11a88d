# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Prompt tokens: learned tokens beside those of the input (Sandler et al., 2022; p-tuning and p-tuning v2)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


class PromptTokens(nn.Embedding):
    """
    The tokens of one layer, which every row gets. A table of embeddings, which the model that it is put into therefore
    initialises as it does its others.
    """

    def forward(self, states: torch.Tensor, replace: bool = False) -> torch.Tensor:
        """`(rows, length, width)`: the tokens go behind the states, or take the place of the prompts behind them."""
        if not isinstance(states, torch.Tensor) or states.ndim != 3 or states.shape[-1] != self.embedding_dim:
            found = tuple(states.shape) if isinstance(states, torch.Tensor) else type(states).__name__
            raise ValueError(
                f"`prompt_tokens` go behind states of shape (rows, length, {self.embedding_dim}), and the backbone "
                f"gives {found}. Leave `prompt_tokens` out for this backbone."
            )
        kept = states[:, : -self.num_embeddings] if replace else states
        return torch.cat([kept, self.weight.to(states.dtype).expand(len(states), -1, -1)], dim=1)


# Hooks find the tokens through the module that they are called for: a copy of it has its own, and an adapter may have
# exchanged them.
def _behind_what_comes_out(module: Any, args: tuple, states: torch.Tensor) -> torch.Tensor:
    return module.prompt_tokens(states)


def _in_place_of_the_last(module: Any, args: tuple) -> tuple:
    return module.prompt_tokens(args[0], replace=True), *args[1:]


def add_prompt_tokens(embeddings: nn.Module, layers: Iterable[nn.Module], count: int, width: int) -> None:
    """
    Puts `count` tokens behind what `embeddings` give. Each of `layers` gets tokens of its own, which take the place of
    those that come in: the sequence stays as long as it is, and so does an attention mask that was made for it.
    """
    embeddings.prompt_tokens = PromptTokens(count, width)
    embeddings.register_forward_hook(_behind_what_comes_out)
    for layer in layers:
        layer.prompt_tokens = PromptTokens(count, width)
        layer.register_forward_pre_hook(_in_place_of_the_last)
