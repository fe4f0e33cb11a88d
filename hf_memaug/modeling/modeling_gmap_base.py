# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What all G-MAP models share: outputs, pairing two encoders, and saving and loading the pair."""

import copy
from dataclasses import dataclass

import torch
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers import initialization as init
from transformers.models.bert.modeling_bert import BertLMPredictionHead
from transformers.models.roberta.modeling_roberta import RobertaLMHead
from transformers.utils import ModelOutput, auto_docstring

from hf_memaug.configuration.configuration_gmap import GMAPConfig
from hf_memaug.layers.general_memory import GeneralMemory
from hf_memaug.modeling.contexts import replaced
from hf_memaug.modeling.memory_reads import MemoryRead, share_by_slot
from hf_memaug.modeling.modeling_gmap_attention import MEMORY_LAYERS
from hf_memaug.modeling.modeling_gmap_encoders import check_pair, domain_twin, load_encoder, shared_weights
from hf_memaug.modeling.modeling_utils import (
    MemoryModelMixin,
    config_of_backbone,
    copy_weights,
    located,
    split_arguments,
)

LM_HEADS = {"roberta": RobertaLMHead, "bert": BertLMPredictionHead}


@dataclass
class GMAPOutput(ModelOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned by the heads when labels or positions are provided):
        The task's loss; of questions the mean of the losses of the two ends.
    logits (`torch.FloatTensor`, *optional*, returned by the heads):
        Scores before the softmax: of the labels, of each token's labels, or of the vocabulary.
    start_logits, end_logits (`torch.FloatTensor` of shape `(batch_size, sequence_length)`, *optional*):
        Scores of each token as the answer's first and as its last.
    last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, hidden_size)`, *optional*):
        `H` of Eq. 2, the domain encoder's last layer; not returned by the heads.
    memory_weights (`torch.FloatTensor` of shape `(batch_size, sequence_length, num_hidden_layers)`, *optional*):
        The gates' weights of the general encoder's layers (Eq. 10), with `output_memory_weights=True`. Those of one
        gate add up to 1. Strategies without a gate have none.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    start_logits: torch.Tensor | None = None
    end_logits: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    memory_weights: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


@auto_docstring
class GMAPPreTrainedModel(MemoryModelMixin, PreTrainedModel):
    config: GMAPConfig
    base_model_prefix = "gmap"
    memory_modules = (GeneralMemory,)
    memory_shape_fields = ("strategy", "fusion")
    without_memory_means = "the general encoder's memory is masked, so that tokens read the domain encoder's own."
    memory_is_off = False
    # Whether the model takes over the masked-LM head of the domain encoder.
    keeps_lm_head = False
    supports_gradient_checkpointing = _supports_sdpa = _supports_flash_attn = _supports_attention_backend = True

    def memory_reads(self, inputs, outputs) -> list[MemoryRead]:
        if outputs.memory_weights is None:
            return []
        config, depth = self.config, outputs.memory_weights.shape[-1]
        gates = 2 if config.strategy == "chunk_gated" else 1
        # The first of two gates reads the lower half of the layers.
        readers = [config.augmented_layers[int(gates > 1 and layer >= depth // 2)] for layer in range(depth)]
        return [
            MemoryRead(
                "Layers of the general encoder",
                f"How {gates} gate{'s' * (gates > 1)} weigh the {depth} layers, over all tokens. The memory is what "
                "the general encoder makes of the same text.",
                share_by_slot(outputs.memory_weights, inputs.get("attention_mask")),
                unit="layer",
                names=[f"layer {layer + 1}" for layer in range(depth)],
                owners=[f"read by layer {layer}" for layer in readers] if gates > 1 else None,
            )
        ]

    def without_memory(self):
        return replaced(self.base_model, "memory_is_off", True)

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, GeneralMemory) and module.head_gates is not None:
            init.zeros_(module.head_gates)
        elif isinstance(module, tuple(LM_HEADS.values())):
            init.zeros_(module.bias)

    def _finish_loading(self, info):
        super()._finish_loading(info)
        # Loading creates new parameters, which require gradients.
        self.base_model.freeze_general(self.config.freeze_general)

    def save_pretrained(self, save_directory, is_main_process=True, state_dict=None, *args, **kwargs):
        """As in transformers. Weights that are equal in both encoders are stored once."""
        # `Trainer` restores a general encoder that learns without `tie_weights`, so all its weights are stored.
        shared = shared_weights(state_dict or self.state_dict(), self.config.freeze_general)
        with replaced(self, "_keys_to_ignore_on_save", self._keys_to_ignore_on_save | shared):
            super().save_pretrained(save_directory, is_main_process, state_dict, *args, **kwargs)

    def tie_weights(self, missing_keys=None, recompute_mapping=True):
        super().tie_weights(missing_keys, recompute_mapping)
        for name in sorted(missing_keys or ()):
            twin = domain_twin(name)
            if twin is not None and twin not in missing_keys:
                if self.get_parameter(twin).is_meta:
                    raise ValueError(
                        f"`{name}` is stored as `{twin}`, which `device_map` offloads to disk. Do not offload to disk."
                    )
                # Stored once, but two parameters: only one of them is trained.
                with torch.no_grad():
                    self.get_parameter(name).copy_(self.get_parameter(twin))
                missing_keys.discard(name)

    def resize_token_embeddings(self, new_num_tokens=None, *args, **kwargs):
        """As in transformers, for both encoders."""
        embeddings = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        encoders = self.base_model
        encoders.general.resize_token_embeddings(new_num_tokens, *args, **kwargs)
        encoders.general.requires_grad_(not self.config.freeze_general)
        return embeddings

    @property
    def pads_right(self) -> bool:  # type: ignore[override]
        # BERT's positions include padding, and classifiers on encoders read the first token.
        kind = self.config.domain.model_type  # type: ignore[union-attr]
        return kind == "bert" or getattr(self, "reads_last", None) is False

    @classmethod
    def how_to_begin_with(cls, model_type: str) -> str | None:
        if model_type in MEMORY_LAYERS:
            return "`from_general_and_domain` pairs two such encoders."
        return None

    @classmethod
    def check_backbone(cls, domain, general, **fields):
        """Raises an error if the two checkpoints, or the fields, do not fit each other. Reads no weights."""
        theirs = config_of_backbone(domain)
        if theirs.model_type == cls.config_class.model_type:
            raise ValueError(
                "`domain` is a G-MAP model already, which contains its general encoder. Train it by `erm`, without "
                "`general`."
            )
        # A configuration alone has no tokenizer to compare.
        if domain is not theirs:
            check_pair(general, domain, cls.config_class, fields, {})

    @classmethod
    def from_general_and_domain(cls, general, domain, **kwargs):
        """
        Pairs two encoders, with untrained gates, and an untrained head where there is none.

        Args:
            general, domain (`str` or `PreTrainedModel`):
                A folder, a repository of the Hub, or a model. Both must have the same tokenizer.
            kwargs (*optional*):
                Fields of the configuration (`strategy`, `num_labels`, ...) and arguments of `from_pretrained`.
        """
        how, kwargs = split_arguments("from_general_and_domain", cls.config_class, kwargs)
        config = check_pair(general, domain, cls.config_class, kwargs, located(how))
        if cls.keeps_lm_head:
            check_masked(config)
        plain = general if isinstance(general, PreTrainedModel) else load_encoder(general, how)
        if not isinstance(domain, PreTrainedModel):
            domain = (
                AutoModelForMaskedLM.from_pretrained(domain, **how) if cls.keeps_lm_head else load_encoder(domain, how)
            )
        encoders = {"general": plain.base_model, "domain": domain.base_model}
        kwargs.setdefault("tie_word_embeddings", getattr(domain.config, "tie_word_embeddings", True))
        config = cls.config_class(**{name: copy.deepcopy(one.config) for name, one in encoders.items()}, **kwargs)
        model = cls(config).to(encoders["domain"].dtype)
        if "attn_implementation" in how:
            model.set_attn_implementation(how["attn_implementation"])
        for name, encoder in encoders.items():
            copy_weights(encoder, getattr(model.base_model, name), name, fresh=("memory_",))
        if cls.keeps_lm_head:
            theirs = getattr(domain, "lm_head", None) or getattr(getattr(domain, "cls", None), "predictions", None)
            if theirs is not None:
                copy_weights(theirs, model.lm_head, "lm_head", fresh=())
            model.tie_weights()
        return model.eval()


def check_masked(config: GMAPConfig) -> None:
    found = config.domain.model_type  # type: ignore[union-attr]
    if found not in LM_HEADS:
        raise ValueError(f"`domain` is a `{found}`, which has no masked-LM head. Supported: {', '.join(LM_HEADS)}.")
