# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Classification and generation with progressive memory banks (IDA: Asghar et al., 2020, section 4, appendix C)."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from transformers import GenerationMixin
from transformers.loss.loss_utils import ForMaskedLMLoss
from transformers.utils import ModelOutput, auto_docstring, can_return_tuple

from hf_memaug.configuration.configuration_memory_rnn import MemoryRNNConfig
from hf_memaug.modeling.modeling_memory_rnn_encoder import (
    MemoryRNNLayer,
    MemoryRNNModel,
    MemoryRNNOutput,
    MemoryRNNPreTrainedModel,
    can_read_values,
)


class MemoryRNNClassificationHead(nn.Module):
    """A ReLU layer and the classes, on `[p; h; p * h; |p - h|]` of a pair or on the vector of one text."""

    def __init__(self, config: MemoryRNNConfig):
        super().__init__()
        self.parts = 4 if config.sentence_pairs else 1
        self.directions, self.hidden_size = 1 + config.bidirectional, config.hidden_size
        self.dense = nn.Linear(self.parts * self.directions * self.hidden_size, config.classifier_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.out_proj = nn.Linear(config.classifier_size, cast(int, config.num_labels))

    def unflattened(self) -> dict[str, tuple[int, ...]]:
        """As in [`MemoryRNN`]."""
        return {"dense.weight": (self.dense.out_features, self.parts, self.directions, self.hidden_size)}

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        if self.parts == 4:
            premise, hypothesis = vectors.chunk(2)
            vectors = torch.cat([premise, hypothesis, premise * hypothesis, (premise - hypothesis).abs()], dim=-1)
        hidden = torch.relu(self.dense(self.dropout(vectors)))
        return self.out_proj(self.dropout(hidden))


@auto_docstring
class MemoryRNNForSequenceClassification(MemoryRNNPreTrainedModel):
    def __init__(self, config: MemoryRNNConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.rnn = MemoryRNNModel(config)
        self.classifier = MemoryRNNClassificationHead(config)
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor] | MemoryRNNOutput:
        r"""
        token_type_ids (`torch.Tensor`, *optional*):
            With `sentence_pairs`, 0 for the words of the first text and 1 for those of the second.
        """
        kwargs["return_dict"] = True
        if self.config.sentence_pairs:
            if input_ids is not None:
                inputs_embeds = self.rnn.embeddings(input_ids)
            words, mask = self._cut_pairs(inputs_embeds, attention_mask, token_type_ids)
            outputs = self.rnn(inputs_embeds=words, attention_mask=mask, **kwargs)
        else:
            if token_type_ids is not None and can_read_values(token_type_ids) and token_type_ids.any():
                raise ValueError(
                    "`token_type_ids` mark a second text, and this model reads one. Build it with "
                    "`sentence_pairs=True`, or pass one text."
                )
            outputs = self.rnn(input_ids, attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        logits = self.classifier(outputs.pooler_output)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        weights, hidden_states = outputs.memory_weights, outputs.hidden_states
        if self.config.sentence_pairs:
            weights = None if weights is None else _by_pair(weights)
            hidden_states = None if hidden_states is None else tuple(map(_by_pair, hidden_states))
        return MemoryRNNOutput(loss=loss, logits=logits, memory_weights=weights, hidden_states=hidden_states)

    def _cut_pairs(self, words, attention_mask, token_type_ids) -> tuple[torch.Tensor, torch.Tensor]:
        """Splits pairs into texts: first all premises, then all hypotheses, each from its first word."""
        if token_type_ids is None:
            raise ValueError(
                "`token_type_ids` is missing, which `sentence_pairs=True` needs. A tokenizer of `word_tokenizer` "
                "returns it: `tokenizer(premises, hypotheses, padding=True)`."
            )
        is_second = token_type_ids.bool()
        is_word = torch.ones_like(is_second) if attention_mask is None else attention_mask.bool()
        texts = torch.cat([is_word & ~is_second, is_word & is_second])
        lengths = texts.sum(dim=1, keepdim=True)
        longest = int(lengths.max()) if can_read_values(lengths) and len(lengths) else texts.shape[1]
        # A stable sort moves the words of a text to the front, in order.
        order = texts.int().argsort(dim=1, descending=True, stable=True)[:, :longest]
        chosen = words.repeat(2, 1, 1).gather(1, order.unsqueeze(-1).expand(-1, -1, words.shape[-1]))
        return chosen, torch.arange(longest, device=lengths.device) < lengths


@dataclass
class MemoryRNNGenerationOutput(ModelOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned when `labels` is provided):
        Cross-entropy of the next word.
    logits (`torch.FloatTensor` of shape `(batch_size, target_length, vocab_size)`):
        Scores of the next word before the softmax.
    past_key_values (`tuple(torch.FloatTensor)`, *optional*, returned with `use_cache=True`):
        The decoder's last state, with which generation continues.
    decoder_hidden_states (`tuple(torch.FloatTensor)`, *optional*, returned with `output_hidden_states=True`):
        The vectors of the words so far, and the decoder's hidden states.
    decoder_attentions:
        Always None: the decoder attends to its memory (`decoder_memory_weights`) and to the encoder.
    cross_attentions (`tuple(torch.FloatTensor)`, *optional*, returned with `output_attentions=True`):
        The attention to the encoder's words, `(batch_size, 1, target_length, sequence_length)`.
    encoder_last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, directions * hidden_size)`):
        The encoder's hidden states.
    encoder_hidden_states (`tuple(torch.FloatTensor)`, *optional*, returned with `output_hidden_states=True`):
        As `hidden_states` of [`MemoryRNNOutput`].
    memory_weights, decoder_memory_weights (*optional*, returned with `output_memory_weights=True`):
        α of Eq. 1 of the encoder, as in [`MemoryRNNOutput`], and of the decoder, `(batch_size, 1, target_length,
        slots)`. The first is left out where `encoder_outputs` were given without it.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    past_key_values: tuple[torch.Tensor, ...] | None = None
    decoder_hidden_states: tuple[torch.Tensor, ...] | None = None
    decoder_attentions: tuple[torch.Tensor, ...] | None = None
    cross_attentions: tuple[torch.Tensor, ...] | None = None
    encoder_last_hidden_state: torch.Tensor | None = None
    encoder_hidden_states: tuple[torch.Tensor, ...] | None = None
    memory_weights: torch.Tensor | None = None
    decoder_memory_weights: torch.Tensor | None = None


class EncoderReader(nn.Module):
    """The decoder's attention to the encoder (Luong et al., 2015, "general")."""

    def __init__(self, config: MemoryRNNConfig):
        super().__init__()
        self.hidden_size, self.directions = config.hidden_size, 1 + config.bidirectional
        self.question = nn.Linear(self.hidden_size, self.directions * self.hidden_size, bias=False)
        self.output = nn.Linear((1 + self.directions) * self.hidden_size, self.hidden_size)

    def unflattened(self) -> dict[str, tuple[int, ...]]:
        """As in [`MemoryRNN`]."""
        return {
            "question.weight": (self.directions, self.hidden_size, self.hidden_size),
            "output.weight": (self.hidden_size, 1 + self.directions, self.hidden_size),
        }

    def forward(self, hidden, encoded, mask=None) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.question(hidden) @ encoded.transpose(1, 2).to(hidden.dtype)
        if mask is not None:
            scores = scores.masked_fill(~mask.bool().unsqueeze(1), torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1)
        answer = weights.to(encoded.dtype) @ encoded
        return torch.tanh(self.output(torch.cat([hidden, answer.to(hidden.dtype)], dim=-1))), weights


class StateBridge(nn.Module):
    """From the last states of a bidirectional encoder to the first state of the decoder."""

    def __init__(self, config: MemoryRNNConfig):
        super().__init__()
        self.hidden_size = config.hidden_size
        self.parts = nn.ModuleList(
            nn.Linear(2 * config.hidden_size, config.hidden_size) for _ in range(2 if config.cell == "lstm" else 1)
        )

    def unflattened(self) -> dict[str, tuple[int, ...]]:
        """As in [`MemoryRNN`]."""
        return {f"parts.{n}.weight": (self.hidden_size, 2, self.hidden_size) for n in range(len(self.parts))}

    def forward(self, states: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.tanh(part(state)) for part, state in zip(self.parts, states, strict=True)]


@auto_docstring
class MemoryRNNForConditionalGeneration(MemoryRNNPreTrainedModel, GenerationMixin):
    # A recurrent state cannot be rolled back, so there is no assisted generation.
    _is_stateful = True
    accepts_loss_kwargs = True

    def __init__(self, config: MemoryRNNConfig):
        config.is_encoder_decoder = True
        super().__init__(config)
        self.rnn = MemoryRNNModel(config)
        # Appendix C: the decoder has its own bank.
        self.decoder = MemoryRNNLayer(config, bidirectional=False)
        self.bridge = StateBridge(config) if config.bidirectional else None
        self.encoder_reader = EncoderReader(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_encoder(self, *args, **kwargs):
        return self.rnn

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        encoder_outputs: MemoryRNNOutput | None = None,
        past_key_values: tuple[torch.Tensor, ...] | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_memory_weights: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor] | MemoryRNNGenerationOutput:
        r"""
        decoder_input_ids (`torch.Tensor`, *optional*):
            The words so far, from `decoder_start_token_id` on. By default `labels`, shifted right.
        token_type_ids (`torch.Tensor`, *optional*):
            Ignored: the input is one text.
        past_key_values (`tuple(torch.Tensor)`, *optional*):
            The decoder's state before `decoder_input_ids`.
        labels (`torch.Tensor` of shape `(batch_size, target_length)`, *optional*):
            The words to generate; -100 is ignored in the loss.
        output_memory_weights (`bool`, *optional*):
            Whether to return the attention over the slots of both banks.
        """
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if labels is None:
                raise ValueError("Pass `labels` for training or `decoder_input_ids`, or call `generate`.")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if encoder_outputs is None:
            encoder_outputs = self.rnn(
                input_ids,
                attention_mask,
                inputs_embeds=inputs_embeds,
                output_memory_weights=output_memory_weights,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        if decoder_inputs_embeds is None:
            decoder_inputs_embeds = self.rnn.embeddings(decoder_input_ids)
        state = self._first_state(encoder_outputs) if past_key_values is None else past_key_values
        if decoder_attention_mask is not None:
            decoder_attention_mask = decoder_attention_mask[:, -decoder_inputs_embeds.shape[1] :]
        hidden, weights, *state = self.decoder(
            self.dropout(decoder_inputs_embeds),
            decoder_attention_mask,
            *state,
            output_weights=bool(output_memory_weights),
        )
        said, attention = self.encoder_reader(hidden, encoder_outputs.last_hidden_state, attention_mask)
        logits = self.lm_head(self.dropout(said))
        loss = None
        if labels is not None:
            items = kwargs.get("num_items_in_batch")
            loss = ForMaskedLMLoss(logits, labels, self.config.vocab_size, num_items_in_batch=items)
        if use_cache is None:
            use_cache = self.config.use_cache and labels is None
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return MemoryRNNGenerationOutput(
            loss=loss,
            logits=logits,
            past_key_values=tuple(state) if use_cache else None,
            decoder_hidden_states=(decoder_inputs_embeds, hidden) if output_hidden_states else None,
            cross_attentions=(attention.unsqueeze(1),) if output_attentions else None,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            memory_weights=encoder_outputs.memory_weights if output_memory_weights else None,
            decoder_memory_weights=weights,
        )

    def _first_state(self, encoder_outputs: MemoryRNNOutput) -> tuple[torch.Tensor, ...]:
        ends: list[Any] = [encoder_outputs.pooler_output]
        if self.config.cell == "lstm":
            ends.append(encoder_outputs.last_cell_state)
        return tuple(end.unsqueeze(0) for end in (ends if self.bridge is None else self.bridge(ends)))

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """The labels, shifted right. Called by the collators of transformers, too."""
        shifted = labels.roll(1, dims=1)
        shifted[:, 0] = self.config.decoder_start_token_id  # type: ignore[assignment]
        return shifted.masked_fill(shifted == -100, self.config.pad_token_id or 0)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the state is not a cache of keys and values

    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, next_sequence_length=None, **kwargs):
        if past_key_values is not None:
            input_ids = input_ids[:, -1:]
        kept = ("attention_mask", "decoder_attention_mask", "encoder_outputs", "use_cache")
        kept = {name: value for name, value in kwargs.items() if name in kept or name.startswith("output_")}
        return {"decoder_input_ids": input_ids, "past_key_values": past_key_values, **kept}

    @staticmethod
    def _reorder_cache(past_key_values: tuple[torch.Tensor, ...], beam_idx: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(state.index_select(1, beam_idx.to(state.device)) for state in past_key_values)


def _by_pair(values: torch.Tensor) -> torch.Tensor:
    return values.unflatten(0, (2, -1)).transpose(0, 1)
