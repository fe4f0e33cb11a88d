# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The memory-augmented layer of G-MAP (Wan et al., 2022, section 2.2), and the two it is compared with (4.2)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert.modeling_bert import BertAttention, BertLayer, BertSelfAttention
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention, GPT2Block
from transformers.models.gpt2.modeling_gpt2 import eager_attention_forward as gpt2_eager_attention
from transformers.models.roberta.modeling_roberta import (
    RobertaAttention,
    RobertaLayer,
    RobertaSelfAttention,
    eager_attention_forward,
)


def _attend(
    module: Any, query, key, value, mask, dropout: nn.Dropout, eager: Callable = eager_attention_forward, **kwargs
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The attention of a module of transformers, in the implementation that its configuration names."""
    attend = ALL_ATTENTION_FUNCTIONS.get_interface(module.config._attn_implementation, eager)
    rate = dropout.p if module.training else 0.0
    found, weights = attend(module, query, key, value, mask, dropout=rate, scaling=module.scaling, **kwargs)
    return found.reshape(*found.shape[:2], -1).contiguous(), weights


def _heads(states: torch.Tensor, size: int) -> torch.Tensor:
    return states.unflatten(-1, (-1, size)).transpose(1, 2)


class MemoryAttention:
    """Eq. 3 to 8: keys and values of the memory, from the layer's own projections, follow those of the tokens."""

    def forward(
        self, hidden_states, attention_mask=None, past_key_values=None, memory=None, memory_mask=None, **kwargs
    ):
        # Eq. 4 to 7, in one projection.
        both = torch.cat([hidden_states, memory.to(hidden_states.dtype)], dim=1)
        parts = (self.query(hidden_states), self.key(both), self.value(both))
        query, key, value = (_heads(part, self.attention_head_size) for part in parts)
        if past_key_values is not None:
            # A tuned prefix comes before the tokens.
            split = [hidden_states.shape[1], memory.shape[1]]
            (own_key, memory_key), (own_value, memory_value) = key.split(split, dim=2), value.split(split, dim=2)
            own_key, own_value = past_key_values.update(own_key, own_value, self.layer_idx)
            key, value = torch.cat([own_key, memory_key], dim=2), torch.cat([own_value, memory_value], dim=2)
        mask = _both_masks(attention_mask, memory_mask, key.shape[2] - memory.shape[1], memory.shape[1])
        return _attend(self, query, key, value, mask, self.dropout, **kwargs)  # Eq. 8


class GateAttention:
    """Reads tokens and memory separately; a gate for each head mixes the two (Wu et al., 2022)."""

    def forward(
        self,
        hidden_states,
        attention_mask=None,
        past_key_values=None,
        memory=None,
        memory_mask=None,
        head_gates=None,
        **kwargs,
    ):
        own, weights = super().forward(hidden_states, attention_mask, past_key_values=past_key_values, **kwargs)
        memory = memory.to(hidden_states.dtype)
        parts = (self.query(hidden_states), self.key(memory), self.value(memory))
        query, key, value = (_heads(part, self.attention_head_size) for part in parts)
        mask = _memory_mask(attention_mask, memory_mask, memory)
        found, _ = _attend(self, query, key, value, mask, self.dropout, **kwargs)
        found = _or_own(found.to(own.dtype), own, memory_mask)
        gate = head_gates[self.layer_idx + 1].sigmoid().to(own.dtype).repeat_interleave(self.attention_head_size)
        return torch.lerp(own, found, gate), weights


class CrossAttention:
    """A separate attention reads the memory, between self-attention and feed-forward network."""

    def __init__(self, config, is_causal=False, layer_idx=None):
        super().__init__(config, is_causal=is_causal, layer_idx=layer_idx)
        self.memory_reader = self.block(config, layer_idx=layer_idx, is_cross_attention=True)

    def forward(
        self, hidden_states, attention_mask=None, past_key_values=None, memory=None, memory_mask=None, **kwargs
    ):
        own, weights = super().forward(hidden_states, attention_mask, past_key_values=past_key_values, **kwargs)
        memory = memory.to(hidden_states.dtype)
        mask = _memory_mask(attention_mask, memory_mask, memory)
        found, _ = self.memory_reader(own, encoder_hidden_states=memory, encoder_attention_mask=mask, **kwargs)
        return _or_own(found, own, memory_mask), weights


def _memory_mask(attention_mask, memory_mask, memory: torch.Tensor) -> torch.Tensor | None:
    """The mask of the memory. Without one of its own, it is that of the tokens."""
    if memory_mask is not None or attention_mask is None:
        return memory_mask
    # A tuned prefix comes before the tokens, and has no memory.
    return attention_mask[..., -memory.shape[1] :]


def _or_own(found: torch.Tensor, own: torch.Tensor, memory_mask: torch.Tensor | None) -> torch.Tensor:
    """`found`, except for rows whose memory is all hidden: they keep `own`."""
    if memory_mask is None:
        return found
    seen = memory_mask == 0 if memory_mask.is_floating_point() else memory_mask.bool()
    return torch.where(seen.any(dim=-1).reshape(len(seen), -1, 1), found, own)


def _both_masks(attention_mask, memory_mask, own: int, length: int) -> torch.Tensor | None:
    """The mask of the tokens' keys, followed by that of the memory's."""
    if memory_mask is None:
        return None if attention_mask is None else torch.cat([attention_mask, attention_mask[..., -length:]], dim=-1)
    if attention_mask is None:
        # No token is hidden: zero in masks that are added to the scores.
        shape = (*memory_mask.shape[:-1], own)
        attention_mask = memory_mask.new_full(shape, 0 if memory_mask.is_floating_point() else 1)
    return torch.cat([attention_mask, memory_mask], dim=-1)


class RobertaMemoryAttention(MemoryAttention, RobertaSelfAttention):
    pass


class RobertaGateAttention(GateAttention, RobertaSelfAttention):
    pass


class RobertaMemoryCrossAttention(CrossAttention, RobertaAttention):  # type: ignore[misc]
    block = RobertaAttention


class BertMemoryAttention(MemoryAttention, BertSelfAttention):
    pass


class BertGateAttention(GateAttention, BertSelfAttention):
    pass


class BertMemoryCrossAttention(CrossAttention, BertAttention):  # type: ignore[misc]
    block = BertAttention


class MemoryLayer(nn.Module):
    """
    A base before a layer of transformers, whose weights keep their names.

    The memory comes as `encoder_hidden_states`: the memories of all layers in the last axis, this layer's at `place`.
    """

    attentions: dict[str, type[nn.Module]]

    def __init__(self, config, layer_idx: int, fusion: str, place: int):
        super().__init__(config, layer_idx=layer_idx)
        self.place = place
        attention = self.attentions[fusion](config, layer_idx=layer_idx)
        if fusion == "cross_attention":
            self.attention = attention
        else:
            self.attention.self = attention

    def forward(
        self,
        hidden_states,
        attention_mask=None,
        encoder_hidden_states=None,
        encoder_attention_mask=None,
        past_key_values=None,
        **kwargs,
    ):
        width = hidden_states.shape[-1]
        return super().forward(
            hidden_states,
            attention_mask,
            past_key_values=past_key_values,
            memory=encoder_hidden_states[..., self.place * width : (self.place + 1) * width],
            memory_mask=encoder_attention_mask,
            **kwargs,
        )


class RobertaMemoryLayer(MemoryLayer, RobertaLayer):
    attentions = {
        "memory_attention": RobertaMemoryAttention,
        "gate_attention": RobertaGateAttention,
        "cross_attention": RobertaMemoryCrossAttention,
    }


class BertMemoryLayer(MemoryLayer, BertLayer):
    attentions = {
        "memory_attention": BertMemoryAttention,
        "gate_attention": BertGateAttention,
        "cross_attention": BertMemoryCrossAttention,
    }


class GPT2MemoryAttention(GPT2Attention):
    """Eq. 3 to 8 for a decoder: a token reads the memory up to its own position."""

    def forward(
        self, hidden_states, past_key_values=None, attention_mask=None, memory=None, memory_mask=None, **kwargs
    ):
        if past_key_values is not None:
            raise ValueError("`past_key_values` (prefix tuning) is not supported for a GPT-2 with memory.")
        if "flash" in self.config._attn_implementation:
            raise ValueError('Flash attention is not supported for a GPT-2 with memory. Use "sdpa" or "eager".')
        tokens = hidden_states.shape[1]
        both = torch.cat([hidden_states, memory.to(hidden_states.dtype)], dim=1)
        query, key, value = (_heads(part, self.head_dim) for part in self.c_attn(both).split(self.split_size, dim=2))
        if attention_mask is None:
            # No padding: only later tokens are hidden.
            attention_mask = torch.ones(tokens, tokens, dtype=torch.bool, device=query.device).tril()[None, None]
            attention_mask = attention_mask.expand(query.shape[0], 1, -1, -1)
        seen = attention_mask
        if memory_mask is not None:
            # The smaller value in masks that are added to the scores.
            is_added = memory_mask.is_floating_point()
            seen = torch.minimum(attention_mask, memory_mask) if is_added else attention_mask & memory_mask
        query, mask = query[:, :, :tokens], torch.cat([attention_mask, seen], dim=-1)
        found, weights = _attend(self, query, key, value, mask, self.attn_dropout, gpt2_eager_attention, **kwargs)
        return self.resid_dropout(self.c_proj(found)), weights


class GPT2MemoryLayer(GPT2Block):
    """As `MemoryLayer`; without a `place` it is the plain layer, and ignores the memory."""

    attentions = {"memory_attention": GPT2MemoryAttention}

    def __init__(self, config, layer_idx: int, fusion: str, place: int | None):
        super().__init__(config, layer_idx=layer_idx)
        self.place = place
        if place is not None:
            self.attn = self.attentions[fusion](config, layer_idx=layer_idx)

    def forward(
        self,
        hidden_states,
        past_key_values=None,
        attention_mask=None,
        encoder_hidden_states=None,
        encoder_attention_mask=None,
        **kwargs,
    ):
        if self.place is not None:
            width = hidden_states.shape[-1]
            memory = encoder_hidden_states[..., self.place * width : (self.place + 1) * width]
            # The layer normalises its input, so it normalises the memory too.
            kwargs |= {"memory": self.ln_1(memory.to(hidden_states.dtype)), "memory_mask": encoder_attention_mask}
        return super().forward(hidden_states, past_key_values, attention_mask, **kwargs)


# By the domain encoder's `model_type`.
MEMORY_LAYERS: dict[str, Any] = {"roberta": RobertaMemoryLayer, "bert": BertMemoryLayer, "gpt2": GPT2MemoryLayer}
