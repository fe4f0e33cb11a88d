# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""G-MAP: a domain encoder that reads the memory of a frozen general encoder (Wan et al., 2022, section 2)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.roberta.modeling_roberta import RobertaClassificationHead
from transformers.utils import auto_docstring, can_return_tuple

from hf_memaug.configuration.configuration_gmap import GMAPConfig
from hf_memaug.layers.general_memory import GeneralMemory, in_computed_type
from hf_memaug.modeling.modeling_gmap_base import LM_HEADS, GMAPOutput, GMAPPreTrainedModel, check_masked
from hf_memaug.modeling.modeling_gmap_encoders import (
    DECODERS,
    augment,
    check_config,
    layer_states,
    make_encoder,
    seen_memory,
    shared_mask,
)
from hf_memaug.modeling.modeling_utils import head_output, pool_tokens

MEMORY_ARGS = r"""
general_hidden_states (`torch.FloatTensor`, *optional*):
    `M^1` to `M^l`, of shape `(batch_size, num_hidden_layers, sequence_length, hidden_size)`. If given, the general
    encoder does not run.
memory_mask (`torch.Tensor` of shape `(batch_size, sequence_length)`, *optional*):
    1 where the memory may be read, 0 where not. Padding in `attention_mask` is always hidden.
output_memory_weights (`bool`, *optional*):
    Whether to return the gates' weights of the general encoder's layers.
"""


@auto_docstring
class GMAPModel(GMAPPreTrainedModel):
    def __init__(self, config: GMAPConfig):
        check_config(config)
        super().__init__(config)
        self.domain = make_encoder(config.domain)
        self.general = make_encoder(config.general)
        heads = config.num_attention_heads if config.fusion == "gate_attention" else 0
        self.memory = GeneralMemory(config.hidden_size, config.strategy, config.augmented_layers, gated_heads=heads)
        augment(self.domain, config.fusion, config.augmented_layers)
        self.post_init()
        self.freeze_general(config.freeze_general)

    def freeze_general(self, frozen: bool = True):
        """Freezes the general encoder; `frozen=False` trains it. Returns the model."""
        self.config.freeze_general = frozen
        self.general.requires_grad_(not frozen)
        return self.train(self.training)

    def train(self, mode: bool = True):
        super().train(mode)
        if self.config.freeze_general:
            self.general.eval()
        return self

    def get_input_embeddings(self):
        return self.domain.get_input_embeddings()

    def set_input_embeddings(self, value):
        self.domain.set_input_embeddings(value)

    def general_states(self, **inputs) -> list[torch.Tensor]:
        """`M = {M^1, ..., M^l}` of Eq. 1, as far as the strategy reads them. Takes the inputs of an encoder."""
        # Under `torch.func`, `requires_grad` is not set; the configuration is.
        learns = not self.config.freeze_general or any(one.requires_grad for one in self.general.parameters())
        with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
            return layer_states(self.general, max(self.config.states_read), **inputs)

    def _checked(self, states: torch.Tensor | list[torch.Tensor], rows: int, tokens: int) -> torch.Tensor:
        depth, width = self.config.num_hidden_layers, self.config.hidden_size
        if isinstance(states, (list, tuple)):
            # A list from `general_states`, of the first layers.
            read = self.config.states_read
            states = [states[layer - 1] for layer in read] if len(states) == max(read) else states
            states = torch.stack(in_computed_type(states), dim=1)
        if states.shape not in [(rows, layers, tokens, width) for layers in (len(self.config.states_read), depth)]:
            raise ValueError(
                f"`general_hidden_states` has the shape {tuple(states.shape)}; it must be ({rows}, {depth}, {tokens}, "
                f"{width}): (batch, layers 1 to {depth}, tokens, width), as `general_states` returns them."
            )
        return states

    @can_return_tuple
    @auto_docstring(custom_args=MEMORY_ARGS)
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        general_hidden_states: torch.Tensor | None = None,
        memory_mask: torch.Tensor | None = None,
        output_memory_weights: bool | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor] | GMAPOutput:
        if input_ids is not None and inputs_embeds is not None:
            raise ValueError("Give `input_ids` or `inputs_embeds`, not both.")
        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        if general_hidden_states is None:
            if past_key_values is None:
                inputs["attention_mask"] = shared_mask(self.domain, self.general, **inputs)
            states: torch.Tensor | list[torch.Tensor] = self.general_states(**inputs)
        else:
            given = inputs["input_ids"] if inputs_embeds is None else inputs_embeds
            states = self._checked(general_hidden_states, *given.shape[:2])
        memories, memory_weights = self.memory(states)
        del states  # frees the states of all layers
        if self.memory_is_off:
            memory_mask = memories[0].new_zeros(memories[0].shape[:2], dtype=torch.long)
        if memory_mask is not None:
            if "flash" in self.domain.config._attn_implementation:
                raise ValueError('Flash attention has no `memory_mask`. Use `set_attn_implementation("sdpa")`.')
            memory_mask = seen_memory(memory_mask, attention_mask, memories[0])
            memory_mask = create_bidirectional_mask(  # type: ignore[assignment]
                config=self.domain.config,
                inputs_embeds=memories[0].to(self.domain.dtype),
                attention_mask=memory_mask,
                allow_is_bidirectional_skip=False,
            )
        if self.memory.head_gates is not None:
            kwargs["head_gates"] = dict(zip(self.memory.layers, self.memory.head_gates, strict=True))
        for name in ("output_hidden_states", "output_attentions"):
            if getattr(self.config, name):
                kwargs.setdefault(name, True)
        if self.config.domain.model_type in DECODERS:  # type: ignore[union-attr]
            kwargs["use_cache"] = False
        # Eq. 2
        outputs = self.domain(
            **inputs,
            past_key_values=past_key_values,
            # One tensor, because gradient checkpointing needs it; each layer reads its slice.
            encoder_hidden_states=memories[0] if len(memories) == 1 else torch.cat(memories, dim=-1),
            encoder_attention_mask=memory_mask,
            **{**kwargs, "return_dict": True},
        )
        return GMAPOutput(
            last_hidden_state=outputs.last_hidden_state,
            memory_weights=memory_weights if output_memory_weights else None,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class GMAPHead(GMAPPreTrainedModel):
    """A head on the domain encoder; subclasses define `_logits`."""

    _logits: Callable[..., torch.Tensor]

    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.gmap = GMAPModel(config)
        dropout = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if dropout is None else dropout)

    @can_return_tuple
    @auto_docstring(custom_args=MEMORY_ARGS)
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        general_hidden_states: torch.Tensor | None = None,
        memory_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor] | GMAPOutput:
        # All inputs are named in the signature, because `Trainer` drops other columns.
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, past_key_values)
        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        outputs = self.gmap(*inputs, general_hidden_states, memory_mask, **{**kwargs, "return_dict": True})
        is_decoder = self.config.domain.model_type in DECODERS  # type: ignore[union-attr]
        if is_decoder and attention_mask is None and input_ids is not None and self.config.pad_token_id is not None:
            # Only to find the last token.
            attention_mask = input_ids.ne(self.config.pad_token_id).long()
        logits = self._logits(outputs.last_hidden_state, attention_mask)
        loss = None
        if labels is not None:
            # The loss of each task takes what it needs of these.
            given = {"logits": logits, "pooled_logits": logits, "labels": labels, "config": self.config}
            given |= {"vocab_size": self.config.vocab_size, "num_items_in_batch": num_items_in_batch}
            loss = self.loss_function(**given)
        return head_output(outputs, loss=loss, logits=logits)


@auto_docstring
class GMAPForSequenceClassification(GMAPHead):
    def __init__(self, config):
        super().__init__(config)
        # PEFT finds the head by this name, and trains and saves it with an adapter.
        if config.classifier_layers == 2:
            self.classifier = RobertaClassificationHead(config)
        else:
            self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @property
    def reads_last(self) -> bool:
        return self.config.domain.model_type in DECODERS  # type: ignore[union-attr]

    def _logits(self, hidden_states, attention_mask):
        # Of an encoder the first token; of a decoder the last that is not padding.
        features = pool_tokens(hidden_states, "last", attention_mask) if self.reads_last else hidden_states[:, 0]
        if self.config.classifier_layers == 2:
            # It has its own dropout, and reads the first position.
            return self.classifier(features[:, None])
        return self.classifier(self.dropout(features))


@auto_docstring
class GMAPForTokenClassification(GMAPHead):
    accepts_loss_kwargs = True

    def __init__(self, config):
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def _logits(self, hidden_states, attention_mask):
        return self.classifier(self.dropout(hidden_states))


@auto_docstring
class GMAPForMaskedLM(GMAPHead):
    _tied_weights_keys = {
        "lm_head.decoder.weight": "gmap.domain.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    keeps_lm_head = True
    accepts_loss_kwargs = True

    def __init__(self, config):
        check_masked(config)
        super().__init__(config)
        self.lm_head = LM_HEADS[config.domain.model_type](config.domain)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings):
        self.lm_head.decoder = new_embeddings
        self.lm_head.bias = new_embeddings.bias

    def _logits(self, hidden_states, attention_mask):
        return self.lm_head(hidden_states)


@auto_docstring
class GMAPForQuestionAnswering(GMAPPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.gmap = GMAPModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    @auto_docstring(custom_args=MEMORY_ARGS)
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        general_hidden_states: torch.Tensor | None = None,
        memory_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor] | GMAPOutput:
        # All inputs are named in the signature, because `Trainer` drops other columns.
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, past_key_values)
        outputs = self.gmap(*inputs, general_hidden_states, memory_mask, **{**kwargs, "return_dict": True})
        start_logits, end_logits = (part.contiguous() for part in self.qa_outputs(outputs.last_hidden_state).unbind(-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start_logits, end_logits, start_positions, end_positions)
        return head_output(outputs, loss=loss, start_logits=start_logits, end_logits=end_logits)
