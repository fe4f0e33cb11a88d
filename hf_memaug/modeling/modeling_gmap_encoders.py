# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The two encoders of G-MAP: building, checking and storing them, and reading their hidden states."""

import copy

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from hf_memaug.modeling.modeling_gmap_attention import MEMORY_LAYERS
from hf_memaug.modeling.modeling_utils import located

DECODERS = ("gpt2",)
# Upper case, an accent, spaces and a number, which tokenizers with one vocabulary may treat differently.
_PROBE = " A Café of 1,000 TEAS,  isn't it?"


def make_encoder(config) -> PreTrainedModel:
    """A new encoder without head and pooler."""
    return AutoModel.from_config(config, **_without_pooler(config))


def load_encoder(name_or_path, how: dict) -> PreTrainedModel:
    """A pre-trained encoder without head and pooler."""
    config = AutoConfig.from_pretrained(name_or_path, **located(how))
    return AutoModel.from_pretrained(name_or_path, **how, **_without_pooler(config))


def _without_pooler(config) -> dict:
    return {"add_pooling_layer": False} if config.model_type in ("bert", "roberta") else {}


def check_config(config) -> None:
    """Raises an error for two encoders that cannot be paired."""
    for name in ("general", "domain"):
        found = getattr(config, name).model_type
        if found == config.model_type:
            raise ValueError(
                f"`{name}` is a G-MAP model, which has both encoders. Load it with `from_pretrained`, or pass a plain "
                "encoder."
            )
        if found not in MEMORY_LAYERS:
            known = ", ".join(MEMORY_LAYERS)
            raise ValueError(f"`{name}` is a `{found}` encoder. Supported: {known}.")
        if found not in DECODERS and getattr(config, name).is_decoder:
            raise ValueError(f"`{name}` is a `{found}` with `is_decoder=True`. Load it with `is_decoder=False`.")
    other, kind = config.general.model_type, config.domain.model_type
    if other != kind:
        raise ValueError(f"`general` is a `{other}` and `domain` a `{kind}`. Pair two encoders of one kind.")
    config.check_encoders()
    known = MEMORY_LAYERS[kind].attentions
    if config.fusion not in known:
        raise ValueError(f'`fusion="{config.fusion}"` is not supported for `{kind}`. Use {", ".join(known)}.')


def check_pair(general, domain, config_class: type, fields: dict, where: dict):
    """Checks two checkpoints before their weights are loaded. Returns the configuration of the pair."""
    check_tokenizers(general, domain, where)
    configs = {
        name: one.config if isinstance(one, PreTrainedModel) else AutoConfig.from_pretrained(one, **where)
        for name, one in (("general", general), ("domain", domain))
    }
    config = config_class(**copy.deepcopy(configs), **fields)
    check_config(config)
    return config


def check_tokenizers(general, domain, where: dict) -> None:
    """Raises an error if the encoders have different vocabularies. Skipped where a tokenizer is missing."""
    tokenizers = [_tokenizer_of(one, where) for one in (general, domain)]
    if None in tokenizers:
        return
    words = [tokenizer.get_vocab() for tokenizer in tokenizers]
    read = [tokenizer(_PROBE, add_special_tokens=False)["input_ids"] for tokenizer in tokenizers]
    if words[0] != words[1] or read[0] != read[1]:
        names = [getattr(one, "name_or_path", one) for one in (general, domain)]
        raise ValueError(
            f"`general` ({names[0]}) and `domain` ({names[1]}) have different tokenizers. Choose two encoders with one "
            "tokenizer."
        )


def _tokenizer_of(encoder, where: dict):
    """The tokenizer of a checkpoint, or of the checkpoint that a model was loaded from, if there is one."""
    name, is_model = encoder, isinstance(encoder, PreTrainedModel)
    if is_model:
        name = encoder.name_or_path
        where = {key: value for key, value in where.items() if key not in ("revision", "subfolder")}
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **where)
        # The model was resized after loading: the tokenizer no longer fits.
        if is_model and AutoConfig.from_pretrained(name, **where).vocab_size != encoder.config.vocab_size:
            return None
    except (OSError, ValueError):
        return None
    # Without tokenizer files, transformers creates one with special tokens only.
    return None if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens) else tokenizer


def layers_of(encoder) -> nn.ModuleList:
    return encoder.h if encoder.config.model_type in DECODERS else encoder.encoder.layer


def augment(encoder: PreTrainedModel, fusion: str, layers: list[int]) -> None:
    """Replaces the given layers, counted from 1, by memory-augmented ones."""
    config, stack = encoder.config, layers_of(encoder)
    memory_layer = MEMORY_LAYERS[config.model_type]
    # The plain layers of a decoder would read the memory as the states of an encoder.
    chosen = range(1, len(stack) + 1) if config.model_type in DECODERS else layers
    for layer in chosen:
        place = layers.index(layer) if layer in layers else None
        stack[layer - 1] = memory_layer(config, layer - 1, fusion, place)


def domain_twin(name: str) -> str | None:
    """The name of the domain encoder's weight that corresponds to a weight of the general encoder."""
    start, general, rest = name.partition("general.")
    return f"{start}domain.{rest}" if general and start in ("", "gmap.") else None


def shared_weights(state: dict[str, torch.Tensor], equal: bool) -> set[str]:
    """
    Names of the general encoder's weights that the domain encoder shares, and that are stored once.

    Args:
        equal: whether equal matrices count too, and not only the same tensors. (Vectors of new encoders are all equal.)
    """

    def shared(one, other):
        if (one.shape, one.device, one.dtype) != (other.shape, other.device, other.dtype) or one.is_meta:
            return False
        return one.data_ptr() == other.data_ptr() or (equal and one.ndim > 1 and torch.equal(one, other))

    twins = {name: domain_twin(name) for name in state}
    return {name for name, twin in twins.items() if twin in state and shared(state[name], state[twin])}


def seen_memory(memory_mask: torch.Tensor, attention_mask: torch.Tensor | None, memory: torch.Tensor) -> torch.Tensor:
    """The mask of the memory, in which padding is always hidden."""
    if memory_mask.shape != memory.shape[:2]:
        raise ValueError(
            f"`memory_mask` has the shape {tuple(memory_mask.shape)}; it must be {tuple(memory.shape[:2])}, with 1 "
            "where the memory may be read."
        )
    if attention_mask is None or attention_mask.ndim != 2:
        return memory_mask
    # The mask of prefix tuning begins with the prefix, which has no memory.
    return memory_mask.bool() & attention_mask[:, -memory.shape[1] :].bool()


def shared_mask(domain, general, input_ids=None, attention_mask=None, inputs_embeds=None, **others):
    """
    The mask in the form that both encoders take. Otherwise each would look for padding itself, and wait for the device.
    """
    given = input_ids if inputs_embeds is None else inputs_embeds
    kinds = {one.config._attn_implementation for one in (domain, general)}
    is_plain = attention_mask is not None and attention_mask.ndim == 2
    if kinds != {"sdpa"} or not is_plain or domain.config.model_type in DECODERS:
        return attention_mask
    like = torch.empty(*given.shape[:2], 0, dtype=domain.dtype, device=given.device)
    return create_bidirectional_mask(domain.config, inputs_embeds=like, attention_mask=attention_mask)


def layer_states(
    encoder, depth: int, input_ids=None, attention_mask=None, token_type_ids=None, position_ids=None, inputs_embeds=None
) -> list[torch.Tensor]:
    """The hidden states of the first `depth` layers, without those of the embeddings."""
    given = input_ids if inputs_embeds is None else inputs_embeds
    if attention_mask is not None and attention_mask.ndim == 2:
        # The mask of prefix tuning begins with the prefix.
        attention_mask = attention_mask[:, -given.shape[1] :]
    if encoder.config.model_type in DECODERS:
        hidden = encoder.wte(input_ids) if inputs_embeds is None else inputs_embeds
        if position_ids is None:
            position_ids = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        mask = create_causal_mask(
            config=encoder.config,
            inputs_embeds=hidden,
            attention_mask=attention_mask,
            past_key_values=None,
            position_ids=position_ids,
        )
        hidden = hidden + encoder.wpe(position_ids)
        if token_type_ids is not None:
            hidden = hidden + encoder.wte(token_type_ids)
        hidden = encoder.drop(hidden)
        masks: tuple = (None, mask)
    else:
        hidden = encoder.embeddings(
            input_ids=input_ids, token_type_ids=token_type_ids, position_ids=position_ids, inputs_embeds=inputs_embeds
        )
        masks = (create_bidirectional_mask(encoder.config, inputs_embeds=hidden, attention_mask=attention_mask),)
    states = []
    for layer in layers_of(encoder)[:depth]:
        hidden = layer(hidden, *masks)
        states.append(hidden)
    if encoder.config.model_type in DECODERS and len(states) == len(layers_of(encoder)):
        # The last norm of a decoder follows its layers; that of an encoder is part of its last layer.
        states[-1] = encoder.ln_f(hidden)
    return states
