# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""A classifier with a memory of labelled rows. Configuration."""

from typing import Any, cast

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from hf_memaug.configuration.checks import check_at_least, refuse_misspelt_fields, without_folders_of_parts
from hf_memaug.configuration.delegation import DelegatedField

# Beside the weights of a classifier: features of rows that it was trained for.
GUARD_FILE = "guard.safetensors"
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


@strict
class WritableMemoryConfig(PreTrainedConfig):
    r"""
    A classifier, and a memory of labelled rows that corrects its answers. `write` and `erase` set the sizes.

    Args:
        classifier_config (`PreTrainedConfig` or `dict`, *optional*):
            Any text or image classifier that an `AutoModelFor...Classification` loads.
        general_config (`PreTrainedConfig` or `dict`, *optional*):
            A frozen encoder whose hidden states are part of the keys too.
        key_layers (`list[int]`, *optional*):
            The layers of the classifier whose hidden states are keys, where 0 is the embeddings. Default: the layers
            at one third, at two thirds and at the end.
        key_shape (`list[int]`, *optional*):
            The number of parts of a key, and the width of a part.
        memory_rows (`int`, *optional*, defaults to 0):
            Written rows and guard rows.
        memory_landmarks (`int`, *optional*, defaults to 0):
            The rows that the answer is computed from. 0: the answer is the classifier's.
        max_landmarks (`int`, *optional*, defaults to 1024):
            The most landmarks. Reading costs the same for any number of rows above it.
        domains (`list[dict]`, *optional*):
            What is in the memory: name, rows, the time of writing and the estimated gain of each domain.
        memory_texts (`dict`, *optional*):
            The texts of rows that were written with `keep_text=True`, by their ids.
        fingerprint (`str`, *optional*):
            Of the classifier's weights when the rows were written.
        vocabulary (`str`, *optional*):
            A hash of the vocabulary of the tokenizer that read the rows.
        run_facts (`dict`, *optional*):
            What happened in training. The model card is written from it.
    """

    model_type = "writable_memory"
    sub_configs = {"classifier_config": AutoConfig, "general_config": AutoConfig}
    keys_to_ignore_at_inference = ["classifier_logits", "memory_weights"]
    method_fields = ("memory_rows", "key_layers", "max_landmarks")

    classifier_config: dict | PreTrainedConfig | None = None
    general_config: dict | PreTrainedConfig | None = None
    key_layers: list[int] | None = None
    key_shape: list[int] | None = None
    memory_rows: int = 0
    memory_landmarks: int = 0
    max_landmarks: int = 1024
    domains: list[dict[str, Any]] | None = None
    memory_texts: dict[str, Any] | None = None
    fingerprint: str | None = None
    vocabulary: str | None = None
    run_facts: dict[str, Any] | None = None

    # Fields of the classifier.
    vocab_size = DelegatedField("classifier_config")
    num_hidden_layers = DelegatedField("classifier_config")
    num_attention_heads = DelegatedField("classifier_config")
    max_position_embeddings = DelegatedField("classifier_config")
    pad_token_id = DelegatedField("classifier_config")
    image_size = DelegatedField("classifier_config")
    patch_size = DelegatedField("classifier_config")
    num_channels = DelegatedField("classifier_config")
    hidden_size = DelegatedField("classifier_config")

    def __post_init__(self, **kwargs):
        refuse_misspelt_fields(type(self), kwargs, own_prefixes=("memory_", "key_", "max_landmarks", "general_"))
        for name in self.sub_configs:
            given = getattr(self, name)
            if isinstance(given, dict):
                fields = dict(given)
                if "model_type" not in fields:
                    raise ValueError(f'`{name}` names no `model_type`, such as "bert".')
                setattr(self, name, AutoConfig.for_model(fields.pop("model_type"), **fields))
        if self.classifier_config is not None:
            for name in _SIZES:
                kwargs.pop(name, None)  # `to_dict` adds these for PEFT and others
        self.architectures = self.architectures or []
        super().__post_init__(**kwargs)

    def validate_memory(self):
        check_at_least(self, 0, "memory_rows", "memory_landmarks")
        check_at_least(self, 2, "max_landmarks")
        if self.key_layers == []:
            raise ValueError("`key_layers` is empty. Name at least one layer, or leave it out.")

    @property
    def has_memory(self) -> bool:
        """Whether predictions depend on written rows."""
        return self.memory_landmarks > 0

    def to_dict(self) -> dict[str, Any]:
        # PEFT and others look for the sizes of a model here.
        sizes = {name: getattr(self.classifier_config, name, None) for name in _SIZES}
        return {
            **without_folders_of_parts(super().to_dict()),
            **{name: size for name, size in sizes.items() if size is not None},
        }

    def get_text_config(self, decoder=None, encoder=None) -> PreTrainedConfig:
        return self if self.classifier_config is None else cast(PreTrainedConfig, self.classifier_config)
