# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""RoBERTa and BERT with a key-value memory: configuration."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import BertConfig, PreTrainedConfig, RobertaConfig

from hf_memaug.configuration.checks import check_encoder, check_fields, inherited_fields, refuse_misspelt_fields
from hf_memaug.configuration.prompting import in_label_order, normalise_verbalizer, parse_template


@dataclass(kw_only=True)
class KVMemoryFields:
    r"""
    What a configuration gains with the memory. A third encoder's is this class and its own, in that order.

    Args:
        memory_slots (`int`, *optional*, defaults to 1024):
            `|K|` of Eq. 1, the number of slots.
        memory_slots_per_domain (`list[int]`, *optional*):
            How many of them came with which domain, where `grow_memory` has added some.
        memory_key_size (`int`, *optional*, defaults to 256):
            `d_q`, the width of a key.
        memory_heads (`int`, *optional*, defaults to 4):
            Number of queries asked of the keys. Must divide `hidden_size`, like the encoder's own heads.
        memory_weight (`float`, *optional*, defaults to 0.5):
            λ of Eq. 3: `0` is the plain encoder, `1` the memory alone.
        memory_query (`str`, *optional*, defaults to `"linear"`):
            The query network, `"linear"` or `"mlp"`.
        memory_pooling (`str`, *optional*, defaults to `"cls"`):
            The position that the memory acts on: `"cls"` (the first token), `"mask"` (the mask token, for prompting)
            or `"mean"` (the average over the tokens that are not padding).
        memory_initializer_range (`float`, *optional*, defaults to 1.0):
            Standard deviation of fresh values. By default keys and projections start at unit gain, so that a fresh
            memory's answer is small beside the features, but not negligible.
        memory_key_initializer_range (`float`, *optional*):
            Standard deviation of fresh keys (default: `memory_key_size ** -0.5`). The larger, the fewer slots a
            query reads of a fresh memory.
        mask_token_id (`int`, *optional*):
            The mask token, for `memory_pooling="mask"`.
        template (`str`, *optional*):
            Prompting: the cloze question, such as `"{text} It was {mask}."`.
        verbalizer (`dict[str, str | list[str]]`, *optional*):
            Prompting: the words that stand for each label. Without `id2label`, its order is that of the labels.
        verbalizer_token_ids (`list[list[int]]`, *optional*):
            Prompting: the vocabulary ids of those words, a row for each label in the order of `id2label`. Left out,
            the first entries of the vocabulary stand for the labels.
        run_facts (`dict`, *optional*):
            What happened in training. The model card is written from it.
    """

    backbone_model_type: ClassVar[str]

    memory_slots: int = 1024
    memory_slots_per_domain: list[int] | None = None
    memory_key_size: int = 256
    memory_heads: int = 4
    memory_weight: float | int = 0.5
    memory_query: Literal["linear", "mlp"] = "linear"
    memory_pooling: Literal["cls", "mask", "mean"] = "cls"
    memory_initializer_range: float | int = 1.0
    memory_key_initializer_range: float | int | None = None
    mask_token_id: int | None = None
    template: str | None = None
    verbalizer: dict[str, str | list[str]] | None = None
    verbalizer_token_ids: list[list[int]] | None = None
    run_facts: dict[str, Any] | None = None

    def __post_init__(self, **kwargs):
        refuse_misspelt_fields(type(self), kwargs, own_prefixes=("memory_", "verbali"))
        if self.verbalizer is not None:
            self.verbalizer = in_label_order(normalise_verbalizer(self.verbalizer), self.id2label)
            if self.id2label is None and kwargs.get("num_labels") in (None, len(self.verbalizer)):
                kwargs.pop("num_labels", None)
                self.id2label = dict(enumerate(self.verbalizer))
                self.label2id = {label: index for index, label in self.id2label.items()}
        # Auto classes with two heads iterate over this list, which must not be None.
        self.architectures = self.architectures or []
        super().__post_init__(**kwargs)

    def validate_memory(self):
        check_fields(vars(self))
        if sum(self.slots_per_domain) != self.memory_slots:
            raise ValueError(
                f"`memory_slots_per_domain={self.memory_slots_per_domain}` does not add up to "
                f"`memory_slots={self.memory_slots}`. Leave it out: `grow_memory` writes it."
            )

    @property
    def slots_per_domain(self) -> list[int]:
        """The number of slots added for each domain."""
        return list(self.memory_slots_per_domain or [self.memory_slots])

    def grown_memory(self, slots: int) -> dict[str, Any]:
        """The fields that change when slots for another domain are added."""
        return {"memory_slots": self.memory_slots + slots, "memory_slots_per_domain": [*self.slots_per_domain, slots]}

    @property
    def reads_memory(self) -> bool:
        """Whether the memory changes the features, which it does not with λ = 0."""
        return self.memory_weight > 0

    def check_heads(self):
        """Called when a model is built, because fields of a configuration may be set one by one."""
        check_encoder(self)
        if self.hidden_size % self.memory_heads:
            raise ValueError(
                f"`memory_heads` ({self.memory_heads}) must divide `hidden_size` ({self.hidden_size}). "
                f"Choose one of {[n for n in range(1, 33) if self.hidden_size % n == 0]}."
            )

    def check_pooling(self):
        """Called when a model is built."""
        if self.memory_pooling == "mask" and self.mask_token_id is None:
            raise ValueError(
                '`memory_pooling` is "mask", and nothing says which token that is. Give a `template` and a '
                '`verbalizer`, by `...ForPromptClassification.from_backbone`, or choose "cls" or "mean".'
            )

    def validate_prompt(self):
        if self.template is not None:
            parse_template(self.template)
        if self.verbalizer is not None and list(self.verbalizer) != [self.id2label[i] for i in range(self.num_labels)]:
            raise ValueError(
                f"`verbalizer` names the labels {list(self.verbalizer)} and `id2label` {list(self.id2label.values())}. "
                "Give both the same names, which are those of the rows, or leave `id2label` out."
            )
        if self.verbalizer_token_ids is not None and len(self.verbalizer_token_ids) != self.num_labels:
            raise ValueError(
                f"`verbalizer_token_ids` has {len(self.verbalizer_token_ids)} rows, and the model has "
                f"`num_labels={self.num_labels}`. Give one row for each label."
            )
        for row in self.verbalizer_token_ids or ():
            if not row or min(row) < 0 or max(row) >= self.vocab_size:
                raise ValueError(
                    f"`verbalizer_token_ids` has the row {row}. A row holds at least one vocabulary id, each from 0 to "
                    f"{self.vocab_size - 1} (`vocab_size` is {self.vocab_size})."
                )
        words = [len(words) for words in (self.verbalizer or {}).values()]
        if words and self.verbalizer_token_ids and words != [len(row) for row in self.verbalizer_token_ids]:
            raise ValueError(
                "`verbalizer` and `verbalizer_token_ids` do not belong together: they differ in the number of words. "
                "Build the model with `from_backbone`, which looks the ids up."
            )

    @classmethod
    def from_backbone_config(cls, backbone: PreTrainedConfig, **kwargs) -> "KVMemoryFields":
        """The configuration of the backbone with a memory. `kwargs` are fields of this configuration."""
        if backbone.model_type != cls.backbone_model_type:
            raise ValueError(
                f"`{cls.__name__}` is built on a `{cls.backbone_model_type}` encoder, and this checkpoint is a "
                f"`{backbone.model_type}`. Use the class of that family, or a {cls.backbone_model_type} checkpoint."
            )
        return cls(**{**inherited_fields(backbone, kwargs), **kwargs})


@strict
class RobertaWithKVMemoryConfig(KVMemoryFields, RobertaConfig):
    __doc__ = str(KVMemoryFields.__doc__).replace("What a configuration", "What RoBERTa's configuration")

    model_type = "roberta_kv_memory"
    backbone_model_type = "roberta"
    # Trainer would otherwise gather these beside the logits and hand `compute_metrics` a tuple.
    keys_to_ignore_at_inference = ["features", "memory_features", "augmented_features", "memory_weights"]


@strict
class BertWithKVMemoryConfig(KVMemoryFields, BertConfig):
    __doc__ = str(KVMemoryFields.__doc__).replace("What a configuration", "What BERT's configuration")

    model_type = "bert_kv_memory"
    backbone_model_type = "bert"
    keys_to_ignore_at_inference = RobertaWithKVMemoryConfig.keys_to_ignore_at_inference
