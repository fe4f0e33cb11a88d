# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The recurrent encoder with a progressive memory bank (IDA: Asghar et al., 2020, section 3)."""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import ModelOutput, auto_docstring, can_return_tuple

from hf_memaug.configuration.configuration_memory_rnn import MemoryRNNConfig
from hf_memaug.layers.memory_rnn import MemoryBank, MemoryRNN
from hf_memaug.modeling.contexts import replaced
from hf_memaug.modeling.memory_reads import MemoryRead, share_by_slot, slot_domains
from hf_memaug.modeling.modeling_growth import GrowingNetworkMixin


@dataclass
class MemoryRNNOutput(ModelOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned by the classifier when `labels` is provided):
        Classification (or regression) loss.
    logits (`torch.FloatTensor` of shape `(batch_size, num_labels)`, *optional*, returned by the classifier):
        Scores before the softmax.
    last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, directions * hidden_size)`):
        The hidden states of both directions, zero at padding; not returned by the classifier.
    pooler_output (`torch.FloatTensor` of shape `(batch_size, directions * hidden_size)`, *optional*):
        The text's vector: the last hidden state of each direction.
    last_cell_state (`torch.FloatTensor` of shape `(batch_size, directions * hidden_size)`, *optional*):
        The last cell state of an LSTM.
    memory_weights (`torch.FloatTensor`, *optional*, returned with `output_memory_weights=True`):
        α of Eq. 1, of shape `(batch_size, directions, sequence_length, slots)`. Zero at padding, and at the first word
        of each direction. For pairs, the second axis is the text, padded to the longest of the batch.
    hidden_states (`tuple(torch.FloatTensor)`, *optional*, returned with `output_hidden_states=True`):
        The word vectors, and `last_hidden_state`.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    last_cell_state: torch.Tensor | None = None
    memory_weights: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


class MemoryRNNLayer(GradientCheckpointingLayer, MemoryRNN):
    """The layer, with gradient checkpointing."""

    def __init__(self, config: MemoryRNNConfig, bidirectional: bool):
        sizes = (config.embedding_size, config.hidden_size, config.total_slots, cast(int, config.memory_value_size))
        super().__init__(*sizes, config.cell, bidirectional)

    def forward(self, inputs, mask=None, *state, output_weights=False):
        hidden, state, weights = super().forward(inputs, mask, state or None, output_weights)
        # A flat tuple: reentrant checkpointing loses the gradients of nested ones.
        return hidden, weights, *state


@auto_docstring
class MemoryRNNPreTrainedModel(GrowingNetworkMixin, PreTrainedModel):
    config: MemoryRNNConfig
    base_model_prefix = "rnn"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MemoryRNNLayer"]
    memory_modules = (MemoryBank,)
    memory_shape_fields = ("memory_slots", "memory_value_size", "hidden_size", "cell", "bidirectional")
    without_memory_means = "the values of all slots are zero, so that the network reads its words alone."

    def __init__(self, config: MemoryRNNConfig, *args, **kwargs):
        # transformers does not validate assignments to a configuration.
        config.validate_sizes()
        super().__init__(config, *args, **kwargs)

    def memory_reads(self, inputs, outputs) -> list[MemoryRead]:
        banks = {
            "Slots of the memory bank": (outputs.get("memory_weights"), "text read, in each direction"),
            "Slots of the decoder's bank": (outputs.get("decoder_memory_weights"), "answer read in the decoder"),
        }
        return [
            MemoryRead(
                title,
                f"Mean attention of all words of the {read}, over {self.config.total_slots} slots.",
                share_by_slot(weights),
                owners=slot_domains(self.config),
            )
            for title, (weights, read) in banks.items()
            if weights is not None and self.reads_memory
        ]

    @contextmanager
    def without_memory(self):
        with ExitStack() as stack:
            for module in self.modules():
                if isinstance(module, MemoryBank):
                    stack.enter_context(replaced(module.slot_values, "data", torch.zeros_like(module.slot_values)))
            yield

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, nn.Linear):
            init.normal_(module.weight, mean=0.0, std=module.in_features**-0.5)
        elif isinstance(module, MemoryRNN):
            # The initialisation of recurrent networks in torch.
            bound = module.hidden_size**-0.5
            init.uniform_(module.input_projection.weight, -bound, bound)
            init.uniform_(module.hidden_weight, -bound, bound)
            if module.content_weight is not None:
                init.uniform_(module.content_weight, -bound, bound)
            if module.candidate_bias is not None:
                init.zeros_(module.candidate_bias)
        elif isinstance(module, MemoryBank):
            key_range = self.config.memory_key_initializer_range
            std = module.slot_keys.shape[-1] ** -0.5 if key_range is None else float(key_range)
            init.normal_(module.slot_keys, mean=0.0, std=std)
            init.normal_(module.slot_values, mean=0.0, std=float(self.config.memory_initializer_range))


@auto_docstring
class MemoryRNNModel(MemoryRNNPreTrainedModel):
    _input_embed_layer = "embeddings"

    def __init__(self, config: MemoryRNNConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layer = MemoryRNNLayer(config, config.bidirectional)
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_memory_weights: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor] | MemoryRNNOutput:
        r"""
        token_type_ids (`torch.Tensor`, *optional*):
            Ignored: the input is one text.
        output_memory_weights (`bool`, *optional*):
            Whether to return the attention over the slots.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Pass either `input_ids` or `inputs_embeds`.")
        if input_ids is not None:
            if can_read_values(input_ids) and input_ids.shape[1]:
                self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
            inputs_embeds = self.embeddings(input_ids)
        if attention_mask is not None and can_read_values(attention_mask) and attention_mask.all():
            attention_mask = None
        hidden, weights, *state = self.layer(
            self.dropout(inputs_embeds), attention_mask, output_weights=bool(output_memory_weights)
        )
        pooled, *cell_state = (part.transpose(0, 1).flatten(1) for part in state)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return MemoryRNNOutput(
            last_hidden_state=hidden,
            pooler_output=pooled,
            last_cell_state=cell_state[0] if cell_state else None,
            memory_weights=weights,
            hidden_states=(inputs_embeds, hidden) if output_hidden_states else None,  # type: ignore[arg-type]
        )


def can_read_values(values: torch.Tensor) -> bool:
    """Whether Python may read a tensor: not while a program is traced, and not where it waits for a GPU."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()
