# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""RoBERTa and BERT with a key-value memory (MIL: Jia and Zhang, 2023, section 3.1)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import gelu
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.models.bert.modeling_bert import BertModel, BertOnlyMLMHead, BertPreTrainedModel
from transformers.models.roberta.modeling_roberta import (
    RobertaClassificationHead,
    RobertaLMHead,
    RobertaModel,
    RobertaPreTrainedModel,
)
from transformers.utils import ModelOutput, auto_docstring, can_return_tuple, logging

from hf_memaug.configuration.configuration_kv_memory import BertWithKVMemoryConfig, RobertaWithKVMemoryConfig
from hf_memaug.layers.kv_memory import KeyValueMemory
from hf_memaug.modeling.contexts import replaced
from hf_memaug.modeling.memory_reads import MemoryRead
from hf_memaug.modeling.modeling_growth import GrowingModelMixin
from hf_memaug.modeling.modeling_prompting import LabelWords, PromptMixin
from hf_memaug.modeling.modeling_utils import (
    WEIGHTS_ARG,
    TextClassifierMixin,
    config_of_backbone,
    head_output,
    pool_tokens,
)

logger = logging.get_logger(__name__)


@dataclass
class KVMemoryOutput(ModelOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned by the heads when `labels` is provided):
        Classification (or regression) loss.
    logits (`torch.FloatTensor` of shape `(batch_size, num_labels)`, *optional*, returned by the heads):
        Scores before the softmax.
    last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, hidden_size)`, *optional*):
        The encoder's last layer, before the memory; not returned by the heads.
    pooler_output (`torch.FloatTensor` of shape `(batch_size, hidden_size)`, *optional*):
        The backbone's pooler, applied to the augmented features.
    augmented_features (`torch.FloatTensor` of shape `(batch_size, hidden_size)`):
        `g_m(x)`, the weighted mean of the next two. The pooler and the heads read it.
    features (`torch.FloatTensor` of shape `(batch_size, hidden_size)`):
        `g(x)`, the encoder's feature at the pooled position.
    memory_features (`torch.FloatTensor` of shape `(batch_size, hidden_size)`):
        `m(g(x))`, what is read from the memory.
    memory_weights (`torch.FloatTensor` of shape `(batch_size, memory_heads, memory_slots)`, *optional*):
        The attention of each head over the slots, with `output_memory_weights=True`.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    augmented_features: torch.Tensor | None = None
    features: torch.Tensor | None = None
    memory_features: torch.Tensor | None = None
    memory_weights: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class KVMemoryMixin(GrowingModelMixin):
    """What encoders and heads with a key-value memory share."""

    base_model: Any
    memory_modules = (KeyValueMemory,)
    memory_shape_fields = ("memory_slots", "memory_key_size", "memory_heads", "memory_query", "hidden_size")
    without_memory_means = "λ is 0, so that the encoder's own feature goes to the head."

    @property
    def pads_right(self) -> bool:  # type: ignore[override]
        # BERT's positions include padding, and "cls" reads the first token.
        return self.config.memory_pooling == "cls" or self.config.backbone_model_type == "bert"

    def memory_reads(self, inputs, outputs) -> list[MemoryRead]:
        config = self.config
        about = (
            f"Mean attention of {config.memory_heads} heads over {config.memory_slots} slots. What they read is mixed "
            f"in with λ = {config.memory_weight}."
        )
        return [replace(read, title="Memory slots", about=about) for read in super().memory_reads(inputs, outputs)]

    def without_memory(self):
        return replaced(self.config, "memory_weight", 0.0)

    @classmethod
    def check_backbone(cls, backbone, **fields):
        """Raises an error if the fields do not fit the backbone: a checkpoint, of which no weights are read."""
        config = cls.config_class.from_backbone_config(config_of_backbone(backbone), **fields)
        config.check_heads()
        config.check_pooling()

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, KeyValueMemory):
            # Unit gain, and scores of unit variance by default: attention starts soft, so every slot gets a gradient.
            for linear in (*module.query_network.modules(), module.output):
                if isinstance(linear, nn.Linear):
                    init.normal_(linear.weight, mean=0.0, std=linear.in_features**-0.5)
            key_range = self.config.memory_key_initializer_range
            std = module.slot_keys.shape[-1] ** -0.5 if key_range is None else float(key_range)
            init.normal_(module.slot_keys, mean=0.0, std=std)
            init.normal_(module.slot_values, mean=0.0, std=float(self.config.memory_initializer_range))
        elif isinstance(module, LabelWords):
            init.copy_(module.token_ids, module.padded_token_ids()[0])
            init.copy_(module.word_shares, module.padded_token_ids()[1])


class KVMemoryEncoderMixin(KVMemoryMixin):
    """`g_m`: a base before an encoder of transformers, which is `g`."""

    pooler: nn.Module | None

    def __init__(self, config, add_pooling_layer=True):
        r"""
        add_pooling_layer (`bool`, *optional*, defaults to `True`):
            Whether to add the backbone's pooler, which then reads the augmented features.
        """
        # transformers does not validate assignments to a configuration.
        config.validate_memory()
        config.check_heads()
        config.check_pooling()
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        self.memory = KeyValueMemory(
            config.hidden_size, config.memory_slots, config.memory_key_size, config.memory_heads, config.memory_query
        )
        self.post_init()

    @can_return_tuple
    @auto_docstring(custom_args=WEIGHTS_ARG)
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        output_memory_weights: bool | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor] | KVMemoryOutput:
        outputs = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            past_key_values=past_key_values,
            return_dict=True,
            **kwargs,
        )
        features = self._pool(outputs.last_hidden_state, attention_mask, input_ids, inputs_embeds)
        augmented_features, memory_features, memory_weights = self.augment(features)
        return KVMemoryOutput(
            last_hidden_state=outputs.last_hidden_state,
            # The backbone's pooler reads the first position.
            pooler_output=None if self.pooler is None else self.pooler(augmented_features.unsqueeze(1)),
            augmented_features=augmented_features,
            features=features,
            memory_features=memory_features,
            memory_weights=memory_weights if output_memory_weights else None,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def augment(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`g_m(x)` from `g(x)`: the augmented features, the features of the memory, and each head's slot weights."""
        memory_features, memory_weights = self.memory(features)
        # Eq. 3
        augmented_features = torch.lerp(features, memory_features.to(features.dtype), float(self.config.memory_weight))
        return augmented_features, memory_features, memory_weights

    def _pool(self, hidden_states, attention_mask, input_ids, inputs_embeds) -> torch.Tensor:
        """`g(x)`: the position that the memory augments."""
        if self.config.memory_pooling == "mean":
            return pool_tokens(hidden_states, "mean", attention_mask)
        if self.config.memory_pooling == "mask":
            rows = torch.arange(hidden_states.shape[0], device=hidden_states.device)
            return hidden_states[rows, self._mask_positions(input_ids, inputs_embeds)]
        return hidden_states[:, 0]

    def _mask_positions(self, input_ids, inputs_embeds) -> torch.Tensor:
        """The first mask token of each row; the first position where a row has none."""
        if input_ids is not None:
            is_mask = input_ids == self.config.mask_token_id
        else:
            embeddings: Any = self.get_input_embeddings()
            is_mask = (inputs_embeds == embeddings.weight[self.config.mask_token_id]).all(dim=-1)
        if not torch.compiler.is_compiling() and is_mask.device.type == "cpu" and not is_mask.any(dim=-1).all():
            logger.warning_once(
                '`memory_pooling="mask"`, but an input has no mask token (`config.mask_token_id` = '
                f"{self.config.mask_token_id}): its first position is read instead. Use a tokenizer of "
                "`hf_memaug.prompt_tokenizer(tokenizer, template)`."
            )
        return is_mask.int().argmax(dim=-1)


class KVMemoryClassifierMixin(TextClassifierMixin, KVMemoryMixin):
    """`h` after `g_m`: what both classification heads share."""

    _scores: Callable[[KVMemoryOutput], torch.Tensor]

    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels

    def _classify(self, inputs: dict, labels, output_memory_weights) -> KVMemoryOutput:
        outputs = self.base_model(**inputs, output_memory_weights=output_memory_weights, return_dict=True)
        logits = self._scores(outputs)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return head_output(outputs, loss=loss, logits=logits)


# RoBERTa


@auto_docstring
class RobertaWithKVMemory(KVMemoryEncoderMixin, RobertaModel):
    config: RobertaWithKVMemoryConfig


@auto_docstring
class RobertaWithKVMemoryForSequenceClassification(KVMemoryClassifierMixin, RobertaPreTrainedModel):
    config: RobertaWithKVMemoryConfig

    def __init__(self, config):
        super().__init__(config)
        self.roberta = RobertaWithKVMemory(config, add_pooling_layer=False)
        self.classifier = RobertaClassificationHead(config)
        self.post_init()

    def _scores(self, outputs: KVMemoryOutput) -> torch.Tensor:
        # RoBERTa's head reads the first position.
        return self.classifier(outputs.augmented_features.unsqueeze(1))  # type: ignore[union-attr]


@auto_docstring
class RobertaWithKVMemoryForPromptClassification(  # type: ignore[misc]
    PromptMixin, KVMemoryClassifierMixin, RobertaPreTrainedModel
):
    config: RobertaWithKVMemoryConfig
    _tied_weights_keys = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }

    def __init__(self, config):
        super().__init__(config)
        self.roberta = RobertaWithKVMemory(config, add_pooling_layer=False)
        self.lm_head = RobertaLMHead(config)
        self._build_verbalizer(config)
        self.post_init()

    @property
    def words_head(self) -> nn.Module:
        return self.lm_head

    def _scores(self, outputs: KVMemoryOutput) -> torch.Tensor:
        head = self.lm_head
        return self._label_scores(head.layer_norm(gelu(head.dense(outputs.augmented_features))))


# BERT


@auto_docstring
class BertWithKVMemory(KVMemoryEncoderMixin, BertModel):
    config: BertWithKVMemoryConfig


@auto_docstring
class BertWithKVMemoryForSequenceClassification(KVMemoryClassifierMixin, BertPreTrainedModel):
    config: BertWithKVMemoryConfig

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertWithKVMemory(config)
        dropout = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if dropout is None else dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def _scores(self, outputs: KVMemoryOutput) -> torch.Tensor:
        return self.classifier(self.dropout(outputs.pooler_output))


@auto_docstring
class BertWithKVMemoryForPromptClassification(  # type: ignore[misc]
    PromptMixin, KVMemoryClassifierMixin, BertPreTrainedModel
):
    config: BertWithKVMemoryConfig
    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertWithKVMemory(config, add_pooling_layer=False)
        self.cls = BertOnlyMLMHead(config)
        self._build_verbalizer(config)
        self.post_init()

    @property
    def words_head(self) -> nn.Module:
        return self.cls.predictions

    def _scores(self, outputs: KVMemoryOutput) -> torch.Tensor:
        return self._label_scores(self.cls.predictions.transform(outputs.augmented_features))
