# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""HMA's backbones: any network that gives a feature for each row (Qiu et al., 2023, section 4.1)."""

import copy
import inspect
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES,
)

from hf_memaug.configuration.configuration_graph_network import GraphNetworkConfig
from hf_memaug.configuration.configuration_hma import HMAConfig
from hf_memaug.layers.prompt_tokens import PromptTokens, add_prompt_tokens
from hf_memaug.layers.real_memory import has_processes
from hf_memaug.modeling.modeling_graph_network import GraphNetworkModel
from hf_memaug.modeling.modeling_utils import located, pool_tokens

# The class for each main input of a backbone.
_CLASSES = {
    "pixel_values": "HMAForImageClassification",
    "input_ids": "HMAForSequenceClassification",
    "node_features": "HMAForGraphClassification",
}


def make_backbone(config: PreTrainedConfig) -> PreTrainedModel:
    """A new backbone without head and pooler."""
    if config.model_type == GraphNetworkConfig.model_type:
        return GraphNetworkModel(cast(GraphNetworkConfig, config))
    return _auto_class(config).from_config(config, **_without_pooler(config))


def _auto_class(config: PreTrainedConfig) -> type[AutoModel | AutoModelForTextEncoding]:
    """For T5 and similar models, the class of the encoder alone."""
    encoder = MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.get(config.model_type, "")
    return AutoModelForTextEncoding if encoder.endswith("EncoderModel") else AutoModel


def take_backbone(backbone, how: dict) -> nn.Module:
    """Loads a backbone, or copies a given module."""
    if isinstance(backbone, PreTrainedConfig):
        raise TypeError(
            f"`backbone` is a `{type(backbone).__name__}`, which has no weights. Pass a model, for example "
            "`AutoModel.from_config(config)`."
        )
    is_module = isinstance(backbone, nn.Module)
    config: Any = getattr(backbone, "config", None)
    if not is_module:
        config = AutoConfig.from_pretrained(backbone, **located(how))
    if getattr(config, "model_type", None) == HMAConfig.model_type:
        raise ValueError(
            "`backbone` is an HMA model. Load it with `from_pretrained`, or pass its `model.backbone` to add fresh "
            "memories."
        )
    if not is_module:
        found = _auto_class(config).from_pretrained(backbone, use_safetensors=True, **how, **_without_pooler(config))
        return _checked(found)
    foreign = sorted(set(how) - {"attn_implementation"})
    if foreign:
        raise TypeError(f"`{foreign[0]}` is for checkpoints, and `backbone` is a module. Leave it out.")
    backbone = copy.deepcopy(_encoder_of(backbone))
    if isinstance(backbone, PreTrainedModel) and _without_pooler(backbone.config):
        # A checkpoint would be loaded without it, and predict something else.
        backbone.pooler = None  # type: ignore[assignment]
    return _checked(backbone)


def check_input(backbone: nn.Module, wanted: str) -> None:
    """Raises an error if the backbone does not take `wanted`, the main input of the HMA class."""
    takes = inspect.signature(backbone.forward).parameters
    fed = getattr(backbone, "main_input_name", None) if isinstance(backbone, PreTrainedModel) else None
    if fed in _CLASSES and wanted not in takes and fed != wanted:
        raise ValueError(f"`{type(backbone).__name__}` reads `{fed}`, not `{wanted}`. Use `{_CLASSES[fed]}`.")
    # A single input is passed without its name; graphs have several.
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    if fed is None and wanted == "node_features" and wanted not in takes and not takes_any:
        raise ValueError(
            f"`{type(backbone).__name__}` takes no `node_features`. Wrap it in a module with "
            "`forward(node_features, edge_index, graph_index, **kwargs)` that returns a feature for each graph."
        )


def _classes_for(config: PreTrainedConfig) -> tuple[type, ...]:
    """The classes that `make_backbone` builds, if transformers knows the configuration."""
    is_encoder = _auto_class(config) is AutoModelForTextEncoding
    found: Any = (MODEL_FOR_TEXT_ENCODING_MAPPING if is_encoder else MODEL_MAPPING).get(type(config), ())
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def _encoder_of(model: nn.Module) -> nn.Module:
    encoder = getattr(model, "base_model", model)
    if not isinstance(model, PreTrainedModel):
        return encoder
    made = _classes_for(model.config)
    if isinstance(model, made):
        return model  # the `base_model` of some models is only their stack of layers
    # A timm network includes its head.
    if model.config.model_type != "timm_wrapper" and _auto_class(model.config) is AutoModel:
        return encoder
    encoder = made[0](copy.deepcopy(model.config))
    if encoder.load_state_dict(model.state_dict(), strict=False).missing_keys:
        return model  # part of an encoder
    return encoder.to(device=model.device, dtype=model.dtype)


def _checked(backbone: nn.Module) -> nn.Module:
    """Raises an error if a checkpoint would restore another class."""
    made = _classes_for(backbone.config) if isinstance(backbone, PreTrainedModel) else ()
    if made and not isinstance(backbone, made):
        raise ValueError(
            f"A checkpoint would restore `{type(backbone).__name__}` as `{made[0].__name__}`, which its configuration "
            "names. Pass that class, or a module of yours around this one, with `feature_size`."
        )
    return backbone


def _without_pooler(config: PreTrainedConfig) -> dict:
    model_class = next(iter(_classes_for(config)), None)
    takes = {} if model_class is None else inspect.signature(model_class.__init__).parameters  # type: ignore[misc]
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def with_prompt_tokens(backbone: nn.Module, config: HMAConfig) -> nn.Module:
    """PROMPT-P and PROMPT-A (section 5.1): learned tokens at the input, or at every layer."""
    if any(isinstance(module, PromptTokens) for module in backbone.modules()):
        raise ValueError("The backbone has the prompt tokens of another model. Pass a plain backbone, or its folder.")
    if not config.prompt_tokens:
        return backbone
    embeddings: Any = getattr(backbone, "embeddings", None)
    positions = getattr(embeddings, "position_embeddings", None)
    layers = _layers(backbone)
    encodes = isinstance(backbone, PreTrainedModel) and not getattr(backbone.config, "is_decoder", False)
    # Prompt tokens have no positions, so positions must be added at the input, not in the layers.
    if layers is None or not encodes or not isinstance(positions, nn.Parameter | nn.Embedding):
        raise ValueError(
            f"`prompt_tokens={config.prompt_tokens}` is for encoders with learned positions, such as ViT, DINOv2, BERT "
            f"and RoBERTa; the backbone is a `{type(backbone).__name__}`. Leave `prompt_tokens` out."
        )
    width = cast(torch.Tensor, getattr(positions, "weight", positions)).shape[-1]
    # The first layer's own tokens are those at the input.
    add_prompt_tokens(embeddings, layers[1:] if config.prompt_depth == "all" else [], config.prompt_tokens, width)
    # Initialises the tokens alone, before the momentum encoder copies them.
    cast(PreTrainedModel, backbone).init_weights()
    return backbone


def _layers(backbone: nn.Module) -> nn.ModuleList | None:
    encoder = getattr(backbone, "encoder", None)
    places = ((backbone, "layers"), (encoder, "layers"), (encoder, "layer"))
    found = (getattr(owner, name, None) for owner, name in places)
    return next((layers for layers in found if isinstance(layers, nn.ModuleList) and len(layers)), None)


def see_prompts(inputs: dict, prompt_tokens: int) -> dict:
    """Extends the attention mask by the prompt tokens."""
    mask = inputs.get("attention_mask")
    if not prompt_tokens or mask is None:
        return inputs
    if mask.ndim != 2:
        raise ValueError(
            f"With `prompt_tokens`, `attention_mask` must have the shape (rows, length); got {tuple(mask.shape)}."
        )
    return {**inputs, "attention_mask": F.pad(mask, (0, prompt_tokens), value=1)}


def with_own_cache(inputs: dict) -> dict:
    """Copies the cache, to which the backbone appends: the momentum encoder needs it unchanged."""
    cache = copy.copy(inputs.get("past_key_values"))
    if cache is None:
        return inputs
    # Not deeply: learned prefixes need their gradient.
    cache.layers = [copy.copy(layer) for layer in cache.layers]
    return {**inputs, "past_key_values": cache}


def pooling_for(config: HMAConfig) -> str:
    """`"auto"` means the last token for a decoder, whose first token has seen nothing of the text."""
    model_type = getattr(config.backbone_config, "model_type", None)
    decodes = model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return "last" if config.pooling == "auto" and decodes else config.pooling


def is_sharded(model: nn.Module) -> bool:
    """Whether parameters are distributed over processes, as by FSDP2."""
    if not has_processes():
        return False
    from torch.distributed.tensor import DTensor

    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def paired(following: nn.Module, leading: nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs the parameters and buffers of the momentum encoder with those of the backbone."""
    ours, theirs = ({**dict(one.named_parameters()), **dict(one.named_buffers())} for one in (following, leading))
    odd = sorted(ours.keys() ^ theirs.keys())
    if odd:
        raise ValueError(
            f"The momentum encoder cannot follow the backbone: only one of them has `{odd[0]}`. Adapt both, with "
            '`target_modules=["q_proj"]` and without `exclude_modules`, or choose `momentum_encoder="none"`.'
        )
    return [(value, theirs[name]) for name, value in ours.items()]


@torch.no_grad()
def share_fresh_adapters(leading: nn.Module, following: nn.Module) -> None:
    """
    Copies fresh LoRA matrices to the momentum encoder of a model whose memory is full. B starts at zero, but A is
    random and differs between the two, so averages of A and B would not belong together.
    """
    paired(following, leading)  # raises an error if only one has the adapter
    theirs, ours = dict(leading.named_parameters()), dict(following.named_parameters())
    for name, value in ours.items():
        second = name.replace(".lora_A.", ".lora_B.")
        if second != name and not theirs[second].any() and not ours[second].any():
            value.copy_(theirs[name])


def pooled_feature(output, pooling: str, width: int, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
    """`h^1` of section 4.1, of shape `(rows, width)`, from the output of a backbone."""
    feature = _pooled(output, pooling, attention_mask)
    if feature is None or feature.ndim != 2 or feature.shape[-1] != width:
        found = "neither a tensor nor a `last_hidden_state`" if feature is None else f"{tuple(feature.shape)}"
        raise ValueError(
            f"The backbone must return a feature of shape (rows, {width}); got {found}. Set `feature_size` to its "
            "width, or return a tensor, a `pooler_output` or a `last_hidden_state`."
        )
    return feature


def _pooled(output, pooling: str, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    if not isinstance(output, torch.Tensor):
        own = getattr(output, "pooler_output", None)
        if pooling == "auto" and own is not None:
            return own.flatten(1)  # convolutional networks return (rows, width, 1, 1)
        output = getattr(output, "last_hidden_state", None)
    if output is None or output.ndim == 2:
        return output
    if output.ndim == 4:
        return output.mean(dim=(2, 3))
    if output.ndim != 3:
        return None
    return pool_tokens(output, pooling, attention_mask)
