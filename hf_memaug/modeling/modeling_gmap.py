# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""G-MAP: a domain encoder that reads the memory of a frozen general encoder (Wan et al., 2022, section 2)."""

import copy
from contextlib import contextmanager

import torch
from torch import nn
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bert.modeling_bert import BertLMPredictionHead
from transformers.models.roberta.modeling_roberta import RobertaClassificationHead, RobertaLMHead
from transformers.utils import auto_docstring, can_return_tuple

from hf_memaug.configuration.configuration_gmap import GMAPConfig
from hf_memaug.layers.general_memory import GeneralMemory, in_computed_type
from hf_memaug.modeling.memory_reads import MemoryRead, share_by_slot
from hf_memaug.modeling.modeling_gmap_attention import MEMORY_LAYERS
from hf_memaug.modeling.modeling_gmap_encoders import (
    DECODERS,
    HALVES,
    augment,
    check_config,
    check_pair,
    copy_weights,
    domain_twin,
    layer_states,
    load_encoder,
    make_encoder,
    own_precision,
    seen_memory,
    shared_mask,
    shared_weights,
)
from hf_memaug.modeling.modeling_gmap_outputs import GMAPHeadOutput, GMAPOutput, GMAPQuestionAnsweringOutput
from hf_memaug.modeling.modeling_utils import (
    WHERE,
    MemoryModelMixin,
    check_arguments,
    last_token_states,
    split_arguments,
)

LM_HEADS = {"roberta": RobertaLMHead, "bert": BertLMPredictionHead}


@auto_docstring
class GMAPPreTrainedModel(MemoryModelMixin, PreTrainedModel):
    config: GMAPConfig
    base_model_prefix = "gmap"
    memory_modules = (GeneralMemory,)
    memory_shape_fields = ("strategy", "fusion")
    without_memory_means = "the general encoder's memory is masked, so that tokens read the domain encoder's own."
    # Set by `without_memory`.
    memory_is_off = False
    # Whether the head is the domain encoder's own.
    keeps_lm_head = False
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    @property
    def attention_reads_memory(self) -> bool:
        return self.config.fusion == "memory_attention"

    def memory_reads(self, inputs, outputs) -> list[MemoryRead]:
        config, tokens, mask = self.config, inputs["input_ids"].shape[1], inputs.get("attention_mask")
        reads = []
        if outputs.memory_weights is not None:
            depth, gates = outputs.memory_weights.shape[-1], 2 if config.strategy == "chunk_gated" else 1
            # The first of two gates weighs the lower half.
            readers = [config.augmented_layers[int(gates > 1 and layer >= depth // 2)] for layer in range(depth)]
            reads.append(
                MemoryRead(
                    "Layers of the general encoder",
                    f"How {gates} gate{'s' * (gates > 1)} weigh the {depth} layers, over all tokens. The memory is "
                    "what the general encoder makes of the same text.",
                    share_by_slot(outputs.memory_weights, mask),
                    unit="layer",
                    names=[f"layer {layer + 1}" for layer in range(depth)],
                    owners=[f"read by layer {layer}" for layer in readers] if gates > 1 else None,
                )
            )
        kept = torch.ones_like(inputs["input_ids"]) if mask is None else mask
        for layer in config.augmented_layers if self.attention_reads_memory and outputs.attentions else ():
            attention = outputs.attentions[layer - 1].float().mean(dim=1)
            if attention.shape[-1] == 2 * tokens:
                reads.append(
                    MemoryRead(
                        f"What layer {layer} reads of the memory",
                        "Shares of the attention of all tokens, the mean over heads.",
                        (attention[:, :, tokens:] * kept.unsqueeze(-1)).sum(dim=1) / kept.sum(dim=1, keepdim=True),
                        unit="token",
                        elsewhere="the domain encoder's own tokens",
                        layer=layer,
                        of_input=True,
                    )
                )
        return reads

    @contextmanager
    def without_memory(self):
        try:
            self.base_model.memory_is_off = True
            yield
        finally:
            self.base_model.memory_is_off = False

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, GeneralMemory) and module.head_gates is not None:
            init.zeros_(module.head_gates)
        elif isinstance(module, tuple(LM_HEADS.values())):
            init.zeros_(module.bias)

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        found = super().from_pretrained(*args, **kwargs)
        model = found[0] if isinstance(found, tuple) else found
        if not model.config.freeze_general:
            model.config.refuse_general_dtype(kwargs.get("general_dtype"))
        # Loading makes fresh parameters, which all learn.
        model.base_model.freeze_general(model.config.freeze_general).cast_general()
        return found

    def save_pretrained(self, save_directory, is_main_process=True, state_dict=None, *args, **kwargs):
        """As in transformers; weights that both encoders share are stored once, each encoder in its own precision."""
        self.config.general_dtype = self.base_model.found_general_dtype()
        ignored = self._keys_to_ignore_on_save
        # A general encoder that learns may be put back by `Trainer`, which fills nothing in.
        loaded_in = getattr(torch, self.config.general_dtype or "", None)
        shared = shared_weights(state_dict or self.state_dict(), self.config.freeze_general, loaded_in)
        self._keys_to_ignore_on_save = ignored | shared
        try:
            super().save_pretrained(save_directory, is_main_process, state_dict, *args, **kwargs)
        finally:
            self._keys_to_ignore_on_save = ignored

    def tie_weights(self, missing_keys=None, recompute_mapping=True):
        super().tie_weights(missing_keys, recompute_mapping)
        for name in sorted(missing_keys or ()):
            twin = domain_twin(name)
            if twin is not None and twin not in missing_keys:
                if self.get_parameter(twin).is_meta:
                    raise ValueError(
                        f"`{name}` is stored as `{twin}`, which `device_map` leaves on disk. Leave none there."
                    )
                # Stored once. From here on each encoder has its own: the one learns, the other does not.
                with torch.no_grad():
                    self.get_parameter(name).copy_(self.get_parameter(twin))
                missing_keys.discard(name)

    def resize_token_embeddings(self, new_num_tokens=None, *args, **kwargs):
        """As in transformers, and in both encoders: they read the same tokens."""
        embeddings = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        encoders = self.base_model
        encoders.general.resize_token_embeddings(new_num_tokens, *args, **kwargs)
        encoders.general.requires_grad_(not self.config.freeze_general)
        return embeddings

    @property
    def pads_right(self) -> bool:
        # BERT counts the places of padding too, and a head of sequences reads the first token, if not the last.
        return self.config.domain.model_type == "bert" or getattr(self, "reads_last", None) is False

    @classmethod
    def how_to_begin_with(cls, model_type: str) -> str | None:
        if model_type in MEMORY_LAYERS:
            return "`from_general_and_domain` makes a model of two such encoders."
        return None

    @classmethod
    def from_general_and_domain(cls, general, domain, **kwargs):
        """
        Pairs two encoders, with fresh gates, and a fresh head where there is none.

        Args:
            general, domain (`str` or `PreTrainedModel`):
                A folder, a repository of the hub, or a model. Both read the same tokens.
            kwargs (*optional*):
                Fields of the configuration (`strategy`, `num_labels`, ...) and arguments of `from_pretrained`.
        """
        how, kwargs = split_arguments(kwargs)
        takes = WHERE | {"dtype", "torch_dtype", "attn_implementation", "trust_remote_code", "variant"}
        check_arguments("from_general_and_domain", cls.config_class, how, kwargs, takes)
        config = check_pair(
            general, domain, cls.config_class, kwargs, {name: how[name] for name in WHERE if name in how}
        )
        if cls.keeps_lm_head:
            _check_masked(config)
        own = {"dtype": kwargs["general_dtype"]} if kwargs.get("general_dtype") else {}
        plain = general if isinstance(general, PreTrainedModel) else load_encoder(general, {**how, **own})
        if not isinstance(domain, PreTrainedModel):
            domain = (
                AutoModelForMaskedLM.from_pretrained(domain, **how) if cls.keeps_lm_head else load_encoder(domain, how)
            )
        encoders = {"general": plain.base_model, "domain": domain.base_model}
        kwargs.setdefault("tie_word_embeddings", getattr(domain.config, "tie_word_embeddings", True))
        config = cls.config_class(**{name: copy.deepcopy(one.config) for name, one in encoders.items()}, **kwargs)
        model = cls(config).to(encoders["domain"].dtype)
        model.base_model.cast_general()
        if "attn_implementation" in how:
            model.set_attn_implementation(how["attn_implementation"])
        for name, encoder in encoders.items():
            copy_weights(encoder, getattr(model.base_model, name), name)
        if cls.keeps_lm_head:
            theirs = getattr(domain, "lm_head", None) or getattr(getattr(domain, "cls", None), "predictions", None)
            if theirs is not None:
                copy_weights(theirs, model.lm_head, "lm_head")
            model.tie_weights()
        return model.eval()


def _check_masked(config: GMAPConfig) -> None:
    found = config.domain.model_type
    if found not in LM_HEADS:
        raise ValueError(
            f"`domain` is a `{found}`, which is no masked language model. There are heads for: {', '.join(LM_HEADS)}."
        )


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
        self.freeze_general(config.freeze_general).cast_general()

    def freeze_general(self, frozen: bool = True):
        """
        Keeps the general encoder as it is. `frozen=False` lets it learn, in the precision of the rest, which it then
        keeps. Returns the model.
        """
        self.config.freeze_general = frozen
        if not frozen:
            self.config.general_dtype = None
            self.cast_general(self.domain.dtype)
        self.general.requires_grad_(not frozen)
        return self.train(self.training)

    def cast_general(self, dtype: torch.dtype | None = None) -> None:
        """Puts the general encoder into `general_dtype`, where there is one, or into another."""
        dtype = dtype or getattr(torch, self.config.general_dtype or "", None)
        if dtype not in (None, self.general.dtype):
            self.general.to(dtype)

    def found_general_dtype(self) -> str | None:
        """The half precision of a frozen general encoder, where the domain encoder has another."""
        found = {one.dtype for one in self.general.parameters()} if self.config.freeze_general else set()
        halves = [dtype for dtype in HALVES if found == {dtype} and dtype != self.domain.dtype]
        return str(halves[0]).removeprefix("torch.") if halves else None

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
        """`M = {M^1, ..., M^l}` of Eq. 1, as far as the strategy asks for them, from what an encoder takes."""
        # Under `torch.func` parameters do not say that they learn; the configuration does.
        learns = not self.config.freeze_general or any(one.requires_grad for one in self.general.parameters())
        if inputs.get("inputs_embeds") is not None:
            # The domain encoder's, which may be of another precision.
            inputs["inputs_embeds"] = inputs["inputs_embeds"].to(self.general.dtype)
        given = inputs["input_ids"] if inputs.get("inputs_embeds") is None else inputs["inputs_embeds"]
        with torch.set_grad_enabled(learns and torch.is_grad_enabled()), own_precision(self.general, given.device):
            return layer_states(self.general, max(self.config.states_read), **inputs)

    def _checked(self, states: torch.Tensor | list[torch.Tensor], rows: int, tokens: int) -> torch.Tensor:
        depth, width = self.config.num_hidden_layers, self.config.hidden_size
        if isinstance(states, (list, tuple)):
            # As `general_states` gives them: the first layers, as far as they are read.
            read = self.config.states_read
            states = [states[layer - 1] for layer in read] if len(states) == max(read) else states
            states = torch.stack(in_computed_type(states), dim=1)
        if states.shape not in [(rows, layers, tokens, width) for layers in (len(self.config.states_read), depth)]:
            raise ValueError(
                f"`general_hidden_states` has the shape {tuple(states.shape)}. It is (batch, layers, tokens, width), "
                f"here ({rows}, {depth}, {tokens}, {width}), with layers 1 to {depth} and without the embeddings, as "
                "`general_states` gives them for the same tokens."
            )
        return states

    @can_return_tuple
    @auto_docstring
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
        r"""
        general_hidden_states (`torch.FloatTensor`, *optional*):
            `M^1` to `M^l`, where they are known already: the general encoder does not run. Of shape `(batch_size,
            num_hidden_layers, sequence_length, hidden_size)`.
        memory_mask (`torch.Tensor` of shape `(batch_size, sequence_length)`, *optional*):
            1 where the memory may be read, 0 where not. What `attention_mask` hides, such as padding, is hidden there
            too.
        output_memory_weights (`bool`, *optional*):
            Whether to return the gates' weights of the general encoder's layers.
        """
        if input_ids is not None and inputs_embeds is not None:
            raise ValueError("Give `input_ids` or `inputs_embeds`, not both.")
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        if general_hidden_states is None:
            if past_key_values is None:
                inputs["attention_mask"] = shared_mask(self.domain, self.general, **inputs)
            states = self.general_states(**inputs)
        else:
            given = input_ids if inputs_embeds is None else inputs_embeds
            states = self._checked(general_hidden_states, *given.shape[:2])
        memories, memory_weights = self.memory(states)
        del states  # of all layers: what is read of them is in the memories
        if self.memory_is_off:
            memory_mask = memories[0].new_zeros(memories[0].shape[:2], dtype=torch.long)
        if memory_mask is not None:
            if "flash" in self.domain.config._attn_implementation:
                raise ValueError('Flash attention takes no `memory_mask`. Use `set_attn_implementation("sdpa")`.')
            memory_mask = seen_memory(memory_mask, attention_mask, memories[0])
            memory_mask = create_bidirectional_mask(
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
        if self.config.domain.model_type in DECODERS:
            kwargs["use_cache"] = False
        # Eq. 2
        outputs = self.domain(
            **inputs,
            past_key_values=past_key_values,
            # Side by side: gradient checkpointing asks for one tensor, and each layer takes its part.
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
    """A task on top of `H`: `_logits` and `_loss` say which."""

    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.gmap = GMAPModel(config)
        dropout = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if dropout is None else dropout)

    @can_return_tuple
    @auto_docstring
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
    ) -> tuple[torch.Tensor] | GMAPHeadOutput:
        r"""
        general_hidden_states (`torch.FloatTensor`, *optional*):
            As in [`GMAPModel`].
        memory_mask (`torch.Tensor`, *optional*):
            As in [`GMAPModel`].
        """
        # All named above, for `Trainer` keeps only columns that it finds in the signature.
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, past_key_values)
        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        outputs = self.gmap(*inputs, general_hidden_states, memory_mask, **{**kwargs, "return_dict": True})
        is_decoder = self.config.domain.model_type in DECODERS
        if is_decoder and attention_mask is None and input_ids is not None and self.config.pad_token_id is not None:
            # Only to find the last token.
            attention_mask = input_ids.ne(self.config.pad_token_id).long()
        logits = self._logits(outputs.last_hidden_state, attention_mask)
        return GMAPHeadOutput(
            loss=None if labels is None else self._loss(logits, labels, num_items_in_batch),
            logits=logits,
            memory_weights=outputs.memory_weights,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


@auto_docstring
class GMAPForSequenceClassification(GMAPHead):
    def __init__(self, config):
        super().__init__(config)
        # All of the head has this name, by which PEFT knows what to train and to save beside an adapter.
        if config.classifier_layers == 2:
            self.classifier = RobertaClassificationHead(config)
        else:
            self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @property
    def reads_last(self) -> bool:
        return self.config.domain.model_type in DECODERS

    def _logits(self, hidden_states, attention_mask):
        features = self._pooled(hidden_states, attention_mask)
        if self.config.classifier_layers == 2:
            # It has its own dropout, and takes the first token itself.
            return self.classifier(features[:, None])
        return self.classifier(self.dropout(features))

    def _pooled(self, hidden_states, attention_mask):
        """The first token; where tokens know only those before them, the last that is not padding."""
        if not self.reads_last:
            return hidden_states[:, 0]
        return last_token_states(hidden_states, attention_mask)

    def _loss(self, logits, labels, num_items_in_batch):
        return self.loss_function(labels=labels, pooled_logits=logits, config=self.config)


@auto_docstring
class GMAPForTokenClassification(GMAPHead):
    accepts_loss_kwargs = True

    def __init__(self, config):
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def _logits(self, hidden_states, attention_mask):
        return self.classifier(self.dropout(hidden_states))

    def _loss(self, logits, labels, num_items_in_batch):
        return self.loss_function(logits, labels, config=self.config, num_items_in_batch=num_items_in_batch)


@auto_docstring
class GMAPForMaskedLM(GMAPHead):
    _tied_weights_keys = {
        "lm_head.decoder.weight": "gmap.domain.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    keeps_lm_head = True
    accepts_loss_kwargs = True

    def __init__(self, config):
        _check_masked(config)
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

    def _loss(self, logits, labels, num_items_in_batch):
        vocab_size = self.config.vocab_size
        return self.loss_function(logits, labels, vocab_size=vocab_size, num_items_in_batch=num_items_in_batch)


@auto_docstring
class GMAPForQuestionAnswering(GMAPPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.gmap = GMAPModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    @auto_docstring
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
    ) -> tuple[torch.Tensor] | GMAPQuestionAnsweringOutput:
        r"""
        general_hidden_states (`torch.FloatTensor`, *optional*):
            As in [`GMAPModel`].
        memory_mask (`torch.Tensor`, *optional*):
            As in [`GMAPModel`].
        """
        # All named above, for `Trainer` keeps only columns that it finds in the signature.
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, past_key_values)
        outputs = self.gmap(*inputs, general_hidden_states, memory_mask, **{**kwargs, "return_dict": True})
        start_logits, end_logits = (part.contiguous() for part in self.qa_outputs(outputs.last_hidden_state).unbind(-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start_logits, end_logits, start_positions, end_positions)
        return GMAPQuestionAnsweringOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            memory_weights=outputs.memory_weights,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
