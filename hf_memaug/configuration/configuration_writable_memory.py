# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A classifier with a memory of labelled rows. Configuration."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from hf_memaug.configuration.checks import ENCODERS, check_encoder, check_layers, refuse_misspelt_fields
from hf_memaug.configuration.composite import CompositeConfig

# Beside the weights of a classifier: features of rows that it was trained for.
GUARD_FILE = "guard.safetensors"


@strict
class WritableMemoryConfig(CompositeConfig):
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
    delegates = ("classifier_config",)
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

    def __post_init__(self, **kwargs):
        refuse_misspelt_fields(type(self), kwargs, own_prefixes=("memory_", "key_", "max_landmarks", "general_"))
        super().__post_init__(**kwargs)
        # A file may list "10" before "2".
        self.id2label = dict(sorted((self.id2label or {}).items()))

    def validate_memory(self):
        if self.key_layers == []:
            raise ValueError("`key_layers` is empty. Name at least one layer, or leave it out.")
        if self.key_shape is not None and len(self.key_shape) != 2:
            raise ValueError(f"`key_shape` is a number of parts and a width; got {self.key_shape}. `write` sets it.")
        if self.memory_landmarks > (self.memory_rows if self.key_shape else 0):
            raise ValueError(
                f"`memory_landmarks` ({self.memory_landmarks}) needs as many `memory_rows`, and `key_shape`. `write` "
                "sets all three."
            )

    def check_classifier(self):
        """Called when a model is built, because fields of a configuration may be set one by one."""
        check_encoder(self)
        if self.key_layers and isinstance(self.classifier_config, ENCODERS):
            last = self.classifier_config.num_hidden_layers
            check_layers("key_layers", self.key_layers, "the classifier has", 0, last, "Leave it out.")

    @property
    def has_memory(self) -> bool:
        """Whether predictions depend on written rows."""
        return self.memory_landmarks > 0
