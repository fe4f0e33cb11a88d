# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""GMoE: a vision transformer with sparse experts in some of its layers (Li et al., 2023, sections 4 and C)."""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForImageClassification, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, use_experts_implementation
from transformers.models.deit.modeling_deit import DeiTEmbeddings
from transformers.models.vit.modeling_vit import ViTEmbeddings, ViTLayer, ViTPooler, ViTPreTrainedModel
from transformers.utils import ModelOutput, auto_docstring
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from hf_memaug.configuration.checks import check_encoder
from hf_memaug.configuration.configuration_vit_gmoe import PLAIN_TYPES, ViTGMoEConfig
from hf_memaug.kernels.grouped_experts import grouped_experts
from hf_memaug.layers.experts import Experts
from hf_memaug.layers.router import CosineRouter, LinearRouter, Routing, importance_loss, load_loss, route
from hf_memaug.modeling.memory_reads import MemoryRead
from hf_memaug.modeling.modeling_utils import (
    LOADING,
    ImageClassifierMixin,
    MemoryModelMixin,
    config_of_backbone,
    copy_weights,
    head_output,
    located,
    split_arguments,
)


@dataclass
class ViTGMoEOutput(ModelOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned by the head when `labels` is provided):
        Classification (or regression) loss; in training also `aux_loss`, by its weight.
    logits (`torch.FloatTensor` of shape `(batch_size, num_labels)`, *optional*, returned by the head):
        Scores before the softmax.
    last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, hidden_size)`, *optional*):
        The last layer, after the last norm; not returned by the head.
    pooler_output (`torch.FloatTensor` of shape `(batch_size, hidden_size)`, *optional*):
        ViT's pooler.
    aux_loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned in training):
        The mean of importance and load loss (C.4), summed over the layers with experts, before its weight.
    router_logits (`tuple(torch.FloatTensor)`, *optional*, returned with `output_router_logits=True`):
        The router's scores of each layer with experts, before the noise, of shape `(batch_size * sequence_length,
        num_experts)`.
    memory_weights (`torch.FloatTensor`, *optional*, returned with `output_memory_weights=True`):
        `G(x)` of Eq. 3, the weight of each expert for each token, zero where it was not chosen, of shape `(batch_size,
        layers with experts, sequence_length, num_experts)`.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    aux_loss: torch.Tensor | None = None
    router_logits: tuple[torch.Tensor, ...] | None = None
    memory_weights: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


# The mixture (section 4.1)


@use_experts_implementation(has_bias=True, has_gate=False)
class ViTGMoEExperts(Experts):
    """`E_1` to `E_N` of Eq. 3, through the experts interface of transformers."""

    def __init__(self, config: ViTGMoEConfig):
        super().__init__(config.num_experts, config.hidden_size, config.intermediate_size, ACT2FN[config.hidden_act])


def grouped_experts_forward(experts: Any, tokens, chosen, weights) -> torch.Tensor:
    """The default. Unlike `"grouped_mm"` of transformers it follows autocast."""
    if experts.has_gate or not experts.has_bias or experts.is_transposed:
        raise ValueError(
            '`experts_implementation="grouped_experts"` needs experts of two layers with biases. Use "eager".'
        )
    layers = (experts.up_proj, experts.up_proj_bias, experts.down_proj, experts.down_proj_bias)
    return grouped_experts(tokens, chosen, weights, layers, experts.act_fn)


class Flatten(ConversionOps):
    """A scalar of a checkpoint of before 0.2.0 as a tensor of one element."""

    def convert(self, input_dict, source_patterns, target_patterns, **kwargs):
        (tensors,) = input_dict.values()
        return {target_patterns[0]: (tensors[0] if isinstance(tensors, list) else tensors).reshape(-1)}

    @property
    def reverse_op(self):
        return self


ALL_EXPERTS_FUNCTIONS.register("grouped_experts", grouped_experts_forward)
_scale = "router.log_scale"
register_checkpoint_conversion_mapping("vit_gmoe", [WeightConverter(_scale, _scale, [Flatten()])], overwrite=True)


class MixtureOfExperts(nn.Module):
    """`f_MoE` of Eq. 3. No token is dropped, and no token depends on others."""

    def __init__(self, config: ViTGMoEConfig):
        super().__init__()
        self.config = config
        self.router: CosineRouter | LinearRouter
        if config.router == "cosine":
            scales = (float(config.router_scale), float(config.router_max_scale))
            self.router = CosineRouter(config.hidden_size, config.num_experts, config.router_dim, *scales)
        else:
            self.router = LinearRouter(config.hidden_size, config.num_experts)
        self.experts = ViTGMoEExperts(config)

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, Routing]:
        tokens = hidden_states.flatten(0, 1)
        noise = self.config.noise if self.training else 0.0
        routing = route(self.router(tokens), self.config.num_experts_per_tok, noise)
        return self.experts(tokens, routing.experts, routing.weights).view_as(hidden_states), routing


class ViTGMoELayer(ViTLayer):
    """
    A layer of ViT whose feed-forward network is a mixture. Returns the tokens and the parts of the routing in one flat
    tuple, because reentrant checkpointing loses the gradients of nested ones.
    """

    def __init__(self, config: ViTGMoEConfig):
        super().__init__(config)
        del self.mlp
        self.moe = MixtureOfExperts(config)

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs):
        # Section 4.1: x = f_MHA(LN(x_in)) + x_in, and x_out = f_MoE(LN(x)) + x
        attended, _ = self.attention(self.layernorm_before(hidden_states), attention_mask, **kwargs)
        hidden_states = self.dropout(attended) + hidden_states
        said, routing = self.moe(self.layernorm_after(hidden_states))
        return self.dropout(said) + hidden_states, *routing


@auto_docstring
class ViTGMoEPreTrainedModel(MemoryModelMixin, ViTPreTrainedModel):
    config: ViTGMoEConfig
    base_model: Any
    # Routers and experts take the place of a memory.
    memory_modules = (MixtureOfExperts,)
    memory_shape_fields = ("num_experts", "moe_placement", "moe_layers", "router", "router_dim", "distillation_token")
    # The class of transformers that loads a plain checkpoint.
    plain_auto_class: Any = AutoModel
    _can_record_outputs = {
        **ViTPreTrainedModel._can_record_outputs,
        "router_logits": [OutputRecorder(CosineRouter), OutputRecorder(LinearRouter)],
    }
    _no_split_modules = ["ViTEmbeddings", "DeiTEmbeddings", "ViTLayer", "ViTGMoELayer"]

    def __init__(self, config: ViTGMoEConfig, *args, **kwargs):
        # transformers does not validate assignments to a configuration.
        config.validate_experts()
        check_encoder(config)
        super().__init__(config, *args, **kwargs)

    def memory_reads(self, inputs, outputs) -> list[MemoryRead]:
        if outputs.memory_weights is None:
            return []
        config, patch = self.config, self.base_model.embeddings.patch_embeddings.patch_size
        grid = [size // side for size, side in zip(inputs["pixel_values"].shape[-2:], patch, strict=True)]
        about = (
            f"Weights of {config.num_experts} experts for {grid[0] * grid[1]} patches, each of which has "
            f"{config.num_experts_per_tok} of them."
        )
        # Without the class token and DeiT's distillation token.
        layers = outputs.memory_weights[:, :, -grid[0] * grid[1] :].float().unbind(dim=1)
        return [
            MemoryRead(
                f"Experts of layer {layer}",
                about,
                patches.mean(dim=1),
                unit="expert",
                layer=layer,
                patches=patches.unflatten(1, grid),
            )
            for layer, patches in zip(config.expert_layers, layers, strict=True)
        ]

    def get_correct_experts_implementation(self, requested_experts: str | None) -> str:
        # Unlike the default of transformers, ours supports autocast and float64.
        return super().get_correct_experts_implementation(requested_experts or "grouped_experts")

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        std = self.config.initializer_range
        if isinstance(module, Experts):
            for weight, bias in ((module.up_proj, module.up_proj_bias), (module.down_proj, module.down_proj_bias)):
                init.normal_(weight, mean=0.0, std=std)
                init.zeros_(bias)
        elif isinstance(module, CosineRouter):
            init.normal_(module.experts, mean=0.0, std=std)
            init.constant_(module.log_scale, math.log(self.config.router_scale))
        elif isinstance(module, DeiTEmbeddings):
            for token in (module.cls_token, module.distillation_token, module.position_embeddings):
                init.trunc_normal_(token, mean=0.0, std=std)

    @classmethod
    def how_to_begin_with(cls, model_type: str) -> str | None:
        if model_type in PLAIN_TYPES:
            return "`from_vit` copies its feed-forward network to every expert."
        return None

    @classmethod
    def check_backbone(cls, vit, **fields):
        """Raises an error if the fields do not fit the backbone: a checkpoint, of which no weights are read."""
        cls.config_class.from_vit_config(config_of_backbone(vit), **fields)

    @classmethod
    def from_vit(cls, vit, **kwargs):
        """
        Copies the feed-forward networks of a plain ViT or DeiT to every expert (C.2). Routers are untrained, and so is
        the head if there is none, or if `num_labels` or `id2label` are given.

        Args:
            vit (`str` or `PreTrainedModel`):
                A folder, a repository of the Hub, or a model (which is copied).
            kwargs (*optional*):
                Fields of the configuration (`num_experts`, `num_labels`, ...) and arguments of `from_pretrained`.
        """
        switches = ("attn_implementation", "experts_implementation")
        how, kwargs = split_arguments("from_vit", cls.config_class, kwargs, LOADING | set(switches))
        refused = sorted(set(how) - set(switches))
        if refused and isinstance(vit, PreTrainedModel):
            raise TypeError(f"`{refused[0]}` is for checkpoints, and `vit` is a model. Leave it out.")
        chosen = {name: how.pop(name) for name in switches if name in how}
        new_labels = bool({"num_labels", "id2label"} & set(kwargs))
        plain = vit if isinstance(vit, PreTrainedModel) else cls._load_plain(vit, how, kwargs, new_labels)
        config = cls.config_class.from_vit_config(plain.config, **kwargs)
        model = cls(config).to(device=plain.device, dtype=plain.dtype)
        for name, value in chosen.items():
            getattr(model, f"set_{name}")(value)
        model.config._name_or_path = plain.config._name_or_path
        encoder, theirs = model.base_model, cast(Any, plain.base_model)
        copy_weights(theirs, encoder, "vit", fresh=(".moe.", "pooler."))
        for layer in config.expert_layers:
            # C.2: every expert starts as the pre-trained network of its layer.
            network = theirs.layers[layer].mlp
            encoder.layers[layer].moe.experts.copy_of(network.fc1, network.fc2)
        if not new_labels:
            model._keep_head(plain)
        return model.eval()

    @classmethod
    def _load_plain(cls, name_or_path, how: dict, kwargs: dict, new_labels: bool) -> PreTrainedModel:
        found = AutoConfig.from_pretrained(name_or_path, **located(how))
        cls.config_class.from_vit_config(found, **kwargs)  # raises errors before any weight is read
        auto_class = cls.plain_auto_class
        if new_labels and auto_class is not AutoModel:
            auto_class, how = AutoModel, {**how, "add_pooling_layer": False}
        return auto_class.from_pretrained(name_or_path, use_safetensors=True, **how)

    def _keep_head(self, plain: PreTrainedModel) -> None:
        """Copies the head, in classes that have one."""


@auto_docstring
class ViTGMoEModel(ViTGMoEPreTrainedModel):
    def __init__(self, config: ViTGMoEConfig, add_pooling_layer: bool = True):
        r"""
        add_pooling_layer (`bool`, *optional*, defaults to `True`):
            Whether to add ViT's pooler.
        """
        super().__init__(config)
        embeddings: Any = DeiTEmbeddings if config.distillation_token else ViTEmbeddings
        self.embeddings = embeddings(config)
        with_experts = config.expert_layers
        self.layers = nn.ModuleList(
            ViTGMoELayer(config) if layer in with_experts else ViTLayer(config)
            for layer in range(config.num_hidden_layers)
        )
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.pooler = ViTPooler(config) if add_pooling_layer else None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)
    @auto_docstring
    def forward(
        self,
        pixel_values: torch.Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        output_memory_weights: bool | None = None,
        **kwargs,
    ) -> ViTGMoEOutput:
        r"""
        output_memory_weights (`bool`, *optional*):
            Whether to return the weight of each expert for each token.
        """
        if pixel_values is None:
            raise ValueError("`pixel_values` is missing. The checkpoint's image processor makes it from images.")
        pixel_values = pixel_values.to(self.embeddings.patch_embeddings.projection.weight.dtype)
        hidden_states = self.embeddings(pixel_values, interpolate_pos_encoding=bool(interpolate_pos_encoding))
        batch_and_tokens = hidden_states.shape[:2]

        routings = []
        for layer in self.layers:
            if isinstance(layer, ViTGMoELayer):
                hidden_states, *routing = layer(hidden_states, None, **kwargs)
                routings.append(Routing(*routing))
            else:
                hidden_states = layer(hidden_states, None, **kwargs)
        hidden_states = self.layernorm(hidden_states)

        aux_loss = memory_weights = None
        if self.training:
            # C.4. Not in evaluation, where a process may run alone and would wait for the others.
            losses = [(importance_loss(one.logits) + load_loss(one, self.config.noise)) / 2 for one in routings]
            aux_loss = torch.stack(losses).sum()
        if output_memory_weights:
            weights = [torch.zeros_like(one.logits).scatter(1, one.experts, one.weights) for one in routings]
            memory_weights = torch.stack([one.unflatten(0, batch_and_tokens) for one in weights], dim=1)
        return ViTGMoEOutput(
            last_hidden_state=hidden_states,
            pooler_output=None if self.pooler is None else self.pooler(hidden_states),
            aux_loss=aux_loss,
            memory_weights=memory_weights,
        )


@auto_docstring
class ViTGMoEForImageClassification(ImageClassifierMixin, ViTGMoEPreTrainedModel):
    plain_auto_class = AutoModelForImageClassification

    def __init__(self, config: ViTGMoEConfig):
        super().__init__(config)
        self.num_labels = cast(int, config.num_labels)
        self.vit = ViTGMoEModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels) if self.num_labels > 0 else nn.Identity()
        self.post_init()

    def _keep_head(self, plain: PreTrainedModel) -> None:
        if hasattr(plain, "distillation_classifier"):
            raise ValueError(
                "`vit` is a DeiT with a distillation head, which this model does not have. Pass `num_labels` for a "
                "fresh head, or load the checkpoint as `DeiTForImageClassification`."
            )
        theirs = getattr(plain, "classifier", None)
        if isinstance(theirs, nn.Linear):
            self.classifier.load_state_dict(theirs.state_dict())

    def _classify(self, inputs: dict, labels, output_memory_weights) -> ViTGMoEOutput:
        outputs = self.vit(**{**inputs, "return_dict": True}, output_memory_weights=output_memory_weights)
        # The class token; DeiT's distillation token is not read.
        logits = self.classifier(outputs.last_hidden_state[:, 0])
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
            if outputs.aux_loss is not None:
                # C.4: L = L_classification + λ (L_imp + L_load) / 2
                loss = loss + self.config.aux_loss_weight * outputs.aux_loss
        return head_output(outputs, loss=loss, logits=logits)
