# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Recurrent networks with progressive memory banks: configuration."""

from typing import Any, Literal, cast

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from hf_memaug.configuration.checks import check_encoder, refuse_misspelt_fields


@strict
class MemoryRNNConfig(PreTrainedConfig):
    r"""
    Args:
        vocab_size (`int`, *optional*, defaults to 30000):
            Words that have a vector.
        cell (`str`, *optional*, defaults to `"lstm"`):
            The transition, `"lstm"` or `"gru"`.
        hidden_size (`int`, *optional*, defaults to 300):
            Width of the hidden state of each direction, and so of a key.
        embedding_size (`int`, *optional*, defaults to 300):
            Width of a word vector.
        memory_slots (`list[int]`, *optional*, defaults to `[300]`):
            The slots of each domain, in the order in which the domains came; `N` of Eq. 1 is their sum. Every bank
            has as many. A number is one domain; `[]` is the network without a memory.
        memory_value_size (`int`, *optional*):
            Width of a value. By default `hidden_size`, and it stays what it was when `hidden_size` grows.
        memory_initializer_range (`float`, *optional*, defaults to 1.0):
            Standard deviation of fresh values.
        memory_key_initializer_range (`float`, *optional*):
            Standard deviation of fresh keys. By default `hidden_size ** -0.5`: attention starts soft, almost even.
        bidirectional (`bool`, *optional*, defaults to `True`):
            Whether an encoder also reads from right to left, with weights and a bank of its own.
        sentence_pairs (`bool`, *optional*, defaults to `False`):
            Whether the classifier compares two texts, which `token_type_ids` tell apart.
        classifier_size (`int`, *optional*, defaults to 300):
            Width of the classifier's hidden layer.
        hidden_dropout_prob (`float`, *optional*, defaults to 0.0):
            Dropout of word vectors, of the classifier's layers, and of what a decoder says before the last layer.
        initializer_range (`float`, *optional*, defaults to 0.1):
            Standard deviation of fresh word vectors.
        use_cache (`bool`, *optional*, defaults to `True`):
            Whether `generate` continues from the decoder's last state instead of reading all words again.
        run_facts (`dict`, *optional*):
            What happened in training. The model card is written from it.
    """

    model_type = "memory_rnn"
    keys_to_ignore_at_inference = [
        "past_key_values", "memory_weights", "decoder_memory_weights", "encoder_last_hidden_state",
    ]  # fmt: skip

    vocab_size: int = 30000
    cell: Literal["lstm", "gru"] = "lstm"
    hidden_size: int = 300
    embedding_size: int = 300
    memory_slots: list[int] | int | None = None
    memory_value_size: int | None = None
    memory_initializer_range: float | int = 1.0
    memory_key_initializer_range: float | int | None = None
    bidirectional: bool = True
    sentence_pairs: bool = False
    classifier_size: int = 300
    hidden_dropout_prob: float | int = 0.0
    initializer_range: float | int = 0.1
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | list[int] | None = 3
    decoder_start_token_id: int | None = 2
    tie_word_embeddings: bool = False
    run_facts: dict[str, Any] | None = None

    def __post_init__(self, **kwargs):
        refuse_misspelt_fields(type(self), kwargs, own_prefixes=("memory_",))
        if self.memory_slots is None:
            self.memory_slots = [300]
        elif isinstance(self.memory_slots, int):
            self.memory_slots = [self.memory_slots]
        if self.memory_value_size is None:
            self.memory_value_size = self.hidden_size
        super().__post_init__(**kwargs)

    def validate_sizes(self):
        check_encoder(self)
        if self.tie_word_embeddings:
            raise ValueError("`tie_word_embeddings=True` is refused: words and what is said have vectors of their own.")

    @property
    def total_slots(self) -> int:
        """`N` of Eq. 1."""
        return sum(self.slots_per_domain)

    @property
    def feature_size(self) -> int:
        """The width of a text's vector."""
        return (1 + self.bidirectional) * self.hidden_size

    @property
    def slots_per_domain(self) -> list[int]:
        """How many slots came with each domain."""
        return list(cast(list[int], self.memory_slots))

    @property
    def reads_memory(self) -> bool:
        """Whether there is a memory to read."""
        return bool(self.memory_slots)

    def grown_memory(self, slots: int) -> dict[str, Any]:
        """The fields of this configuration that another domain's slots change."""
        if not self.memory_slots:
            raise ValueError(
                "`grow_memory` needs a memory to add to, and `memory_slots` is []. Build the model with "
                "`memory_slots=[...]`."
            )
        return {"memory_slots": [*self.slots_per_domain, slots]}
