# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""G-MAP: a domain encoder that reads the memory of a frozen general encoder. Configuration."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from hf_memaug.configuration.checks import check_encoder, check_layers, refuse_misspelt_fields
from hf_memaug.configuration.composite import CompositeConfig, DelegatedField


@strict
class GMAPConfig(CompositeConfig):
    r"""
    Two encoders, and how the second reads the first (G-MAP: Wan et al., 2022, section 2). What is asked of the whole,
    such as `hidden_size`, is the domain encoder's.

    Args:
        general (`PreTrainedConfig` or `dict`, *optional*, defaults to RoBERTa's):
            PLM-G, whose hidden states are the memory.
        domain (`PreTrainedConfig` or `dict`, *optional*, defaults to RoBERTa's):
            PLM-D, which reads them. As deep and as wide as `general`, with the same vocabulary.
        strategy (`str`, *optional*, defaults to `"chunk_gated"`):
            How the memory is built and where it is read (section 2.3). `"single"`: the last hidden state, in one layer.
            `"multiple"`: each layer's, in the same layer. `"gated"`: a gate weighs the layers token by token (Eq.
            9-11), for one layer. `"chunk_gated"`: one gate for the lower half and one for the upper, for two layers.
        fusion (`str`, *optional*, defaults to `"memory_attention"`):
            How a layer reads it (section 2.2 and 4.2). `"memory_attention"`: as more keys and values of its own
            attention. `"cross_attention"`: by an attention of its own after that. `"gate_attention"`: by a second
            reading with the same weights, mixed in by a gate for each head.
        memory_layers (`list[int]`, *optional*):
            The layers of `domain` that read the memory, counted from 1. Left out, the paper's choice for 12 layers,
            scaled to the depth: layer 9 for `"single"` and `"gated"` (of two that are as near, the even one: layer 4
            of 6), layers 6 and 12 for `"chunk_gated"`, all for `"multiple"`.
        freeze_general (`bool`, *optional*, defaults to `True`):
            Whether `general` stays as it is: no gradient, no graph, no dropout.
        classifier_layers (`int`, *optional*, defaults to 1):
            Layers of the head for sequence classification, 1 or 2.
        classifier_dropout (`float`, *optional*):
            Dropout before the head of sequence and token classification. Left out, that of the domain encoder's layers.
        run_facts (`dict`, *optional*):
            What happened in training. The model card is written from it.
    """

    model_type = "gmap"
    sub_configs = {"general": AutoConfig, "domain": AutoConfig}
    delegates = ("domain", "general")
    default_part = "roberta"
    # Trainer would otherwise gather these beside the logits and hand `compute_metrics` a tuple.
    keys_to_ignore_at_inference = ["memory_weights"]
    # What a model card says of the method.
    method_fields = ("strategy", "fusion", "augmented_layers", "freeze_general")

    general: dict | PreTrainedConfig | None = None
    domain: dict | PreTrainedConfig | None = None
    strategy: Literal["single", "multiple", "gated", "chunk_gated"] = "chunk_gated"
    fusion: Literal["memory_attention", "cross_attention", "gate_attention"] = "memory_attention"
    memory_layers: list[int] | tuple[int, ...] | None = None
    freeze_general: bool = True
    classifier_layers: Literal[1, 2] = 1
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    run_facts: dict[str, Any] | None = None

    initializer_range = DelegatedField()
    bos_token_id = DelegatedField()
    eos_token_id = DelegatedField()

    def __post_init__(self, **kwargs):
        kwargs.pop("general_dtype", None)  # a field of 0.1.0
        refuse_misspelt_fields(type(self), kwargs, own_prefixes=("memory_", "freeze_", "general_", "strateg", "fusion"))
        if self.memory_layers is not None:
            self.memory_layers = sorted(self.memory_layers)
        super().__post_init__(**kwargs)

    @property
    def hidden_dropout_prob(self) -> float:
        """The dropout of the domain encoder's layers, under any of its names."""
        return getattr(self.domain, "hidden_dropout_prob", getattr(self.domain, "resid_pdrop", 0.0))

    @hidden_dropout_prob.setter
    def hidden_dropout_prob(self, value: float) -> None:
        for encoder in (self.general, self.domain):
            setattr(encoder, "hidden_dropout_prob" if hasattr(encoder, "hidden_dropout_prob") else "resid_pdrop", value)

    @property
    def augmented_layers(self) -> list[int]:
        """`memory_layers`, or their default, counted from 1."""
        depth = self.num_hidden_layers
        if self.memory_layers is not None:
            return sorted(self.memory_layers)
        if self.strategy == "multiple":
            return list(range(1, depth + 1))
        # Section 4.3, for 12 layers: 6 and 12, and 9.
        return [depth // 2, depth] if self.strategy == "chunk_gated" else [max(1, round(depth * 9 / 12))]

    @property
    def states_read(self) -> list[int]:
        """The layers of `general`, counted from 1, whose states the strategy reads (section 2.3)."""
        depth = self.num_hidden_layers
        if self.strategy == "single":
            return [depth]
        # Each layer's own in "multiple": none above the highest that reads.
        return list(range(1, (max(self.augmented_layers) if self.strategy == "multiple" else depth) + 1))

    def check_encoders(self):
        """Called when a model is built, because fields of a configuration may be set one by one."""
        check_encoder(self)
        for name in ("hidden_size", "num_hidden_layers", "vocab_size"):
            general, domain = getattr(self.general, name), getattr(self.domain, name)
            if general != domain:
                raise ValueError(
                    f"`general` has `{name}={general}` and `domain` has `{name}={domain}`. Choose two encoders of one "
                    "shape with one tokenizer, such as a model and its further pre-trained version."
                )
        layers, depth = self.augmented_layers, self.num_hidden_layers
        if self.strategy == "chunk_gated" and depth < 2:
            raise ValueError(
                f'`strategy="chunk_gated"` reads in two layers, and the domain encoder has {depth}. Choose "single", '
                '"gated" or "multiple".'
            )
        check_layers("memory_layers", layers, "the domain encoder has", 1, depth, "Name a layer, or leave it out.")
        wanted = {"single": 1, "gated": 1, "chunk_gated": 2}.get(self.strategy)
        if wanted is not None and len(layers) != wanted:
            raise ValueError(
                f'`strategy="{self.strategy}"` makes {wanted} memory representation{"s" * (wanted > 1)}, and '
                f"`memory_layers` is {layers}. Name {wanted} layer{'s' * (wanted > 1)}."
            )
