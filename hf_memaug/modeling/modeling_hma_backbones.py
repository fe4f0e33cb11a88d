# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What HMA asks of a backbone, whatever its kind: a feature for each row (Qiu et al., 2023, section 4.1)."""

import copy
import inspect
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    Cache,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES,
)

from hf_memaug.configuration.configuration_hma import HMAConfig
from hf_memaug.layers.prompt_tokens import PromptTokens, add_prompt_tokens
from hf_memaug.modeling.modeling_graph_network import GraphNetworkModel
from hf_memaug.modeling.modeling_utils import WHERE

# What backbones are fed with, and the class that does it.
_CLASSES = {
    "pixel_values": "HMAForImageClassification",
    "input_ids": "HMAForSequenceClassification",
    "node_features": "HMAForGraphClassification",
}


def make_backbone(config: PreTrainedConfig) -> PreTrainedModel:
    """A fresh one, without a head, and without a pooler that has weights."""
    if config.model_type == GraphNetworkModel.config_class.model_type:
        return GraphNetworkModel(config)
    return _auto_class(config).from_config(config, **_without_pooler(config))


def load_backbone(name_or_path, how: dict) -> PreTrainedModel:
    """The same, from a checkpoint."""
    config = AutoConfig.from_pretrained(name_or_path, **{name: how[name] for name in WHERE if name in how})
    _refuse_memories(config)
    auto_class = _auto_class(config)
    return auto_class.from_pretrained(name_or_path, use_safetensors=True, **how, **_without_pooler(config))


def _auto_class(config: PreTrainedConfig) -> type:
    """Of a T5 and its kin the encoder alone: the decoder waits for a text of its own."""
    encoder = MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.get(config.model_type, "")
    return AutoModelForTextEncoding if encoder.endswith("EncoderModel") else AutoModel


def take_backbone(backbone, how: dict) -> nn.Module:
    """One that is ours: loaded, or a copy."""
    if isinstance(backbone, PreTrainedConfig):
        raise TypeError(
            f"`backbone` is a `{type(backbone).__name__}`, which has no weights. Make a model of it, such as by "
            "`AutoModel.from_config`, and pass that."
        )
    if not isinstance(backbone, nn.Module):
        return _checked(load_backbone(backbone, how))
    _refuse_memories(getattr(backbone, "config", None))
    foreign = sorted(set(how) - {"attn_implementation"})
    if foreign:
        raise TypeError(
            f"`{foreign[0]}` is for checkpoints, and `backbone` is a module, whose type and place are kept."
        )
    backbone = copy.deepcopy(_encoder_of(backbone))
    if isinstance(backbone, PreTrainedModel) and _without_pooler(backbone.config):
        # A checkpoint of the whole would be loaded without it, and predict something else.
        backbone.pooler = None
    return _checked(backbone)


def _refuse_memories(config) -> None:
    if getattr(config, "model_type", None) == HMAConfig.model_type:
        raise ValueError(
            "`backbone` is a model of HMA, which has its memories: `from_pretrained` loads it with them. To put fresh "
            "ones on what is under them, pass its `model.backbone`."
        )


def check_input(backbone: nn.Module, wanted: str) -> None:
    """Refuses a backbone that is not fed with `wanted`, what the class reads that it is for."""
    takes = inspect.signature(backbone.forward).parameters
    fed = getattr(backbone, "main_input_name", None) if isinstance(backbone, PreTrainedModel) else None
    if fed in _CLASSES and wanted not in takes and fed != wanted:
        raise ValueError(f"`{type(backbone).__name__}` reads `{fed}`, and not `{wanted}`. Use `{_CLASSES[fed]}`.")
    # What is fed with one thing need not know its name; graphs are several.
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    if fed is None and wanted == "node_features" and wanted not in takes and not takes_any:
        raise ValueError(
            f"`{type(backbone).__name__}` takes no `node_features`. Put it into a `PooledGraphModule` (of "
            "`hf_memaug.modeling.modeling_graph_network`), which feeds it and makes one feature of a graph's nodes."
        )


def _classes_for(config: PreTrainedConfig) -> tuple[type, ...]:
    """What `make_backbone` builds; nothing where transformers does not know."""
    is_encoder = _auto_class(config) is AutoModelForTextEncoding
    found = (MODEL_FOR_TEXT_ENCODING_MAPPING if is_encoder else MODEL_MAPPING).get(type(config), ())
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def _encoder_of(model: nn.Module) -> nn.Module:
    encoder = getattr(model, "base_model", model)
    if not isinstance(model, PreTrainedModel):
        return encoder
    made = _classes_for(model.config)
    if isinstance(model, made):
        return model  # `base_model` of some is their stack of layers alone
    # A network of timm has its configuration from the wrapper of transformers, and its head in it.
    if model.config.model_type != "timm_wrapper" and _auto_class(model.config) is AutoModel:
        return encoder
    encoder = made[0](copy.deepcopy(model.config))
    if encoder.load_state_dict(model.state_dict(), strict=False).missing_keys:
        return model  # a part of one
    return encoder.to(device=model.device, dtype=model.dtype)


@torch.no_grad()
def _checked(backbone: nn.Module) -> nn.Module:
    """Refuses models of transformers that make no feature of a text, or of an image, alone."""
    if not isinstance(backbone, PreTrainedModel):
        return backbone
    name, config = type(backbone).__name__, backbone.config
    if hasattr(backbone, "get_text_features") and hasattr(backbone, "get_image_features"):
        parts = [getattr(config, kind, None) for kind in ("vision_config", "text_config")]
        known = [one.__name__ for part in parts if part is not None for one in _classes_for(part)]
        mend = f"Load {' or '.join(f'`{one}`' for one in known)}" if known else "Load one half of it"
        raise ValueError(f"`{name}` reads images and texts together. {mend} from its checkpoint, and pass that.")
    made = _classes_for(config)
    if made and not isinstance(backbone, made):
        raise ValueError(
            f"`{name}` would come back from a checkpoint as `{made[0].__name__}`, which its configuration says. Pass "
            "that, or a module of yours around this one, with `feature_size`."
        )
    if getattr(config, "is_encoder_decoder", False):
        try:
            backbone(input_ids=torch.ones((1, 2), dtype=torch.long, device=backbone.device))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"`{name}` makes no feature of a text alone ({error}). Choose an encoder, or a network whose decoder "
                "reads the same text, such as `BartModel`; of T5 and mT5 the encoder is taken."
            ) from error
    return backbone


def _without_pooler(config: PreTrainedConfig) -> dict:
    model_class = next(iter(_classes_for(config)), None)
    takes = {} if model_class is None else inspect.signature(model_class.__init__).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def keep_weights(module: nn.Module) -> nn.Module:
    """Says of a module that it is initialised: what builds a model around it must not draw its weights again."""
    for one in module.modules():
        one._is_hf_initialized = True
    return module


def with_prompt_tokens(backbone: nn.Module, config: HMAConfig) -> nn.Module:
    """PROMPT-P and PROMPT-A of section 5.1: learned tokens at the input, or at every layer."""
    if any(isinstance(module, PromptTokens) for module in backbone.modules()):
        raise ValueError(
            "The backbone has prompt tokens of another model. Pass it without: a plain one, or its folder."
        )
    if not config.prompt_tokens:
        return backbone
    embeddings = getattr(backbone, "embeddings", None)
    positions = getattr(embeddings, "position_embeddings", None)
    layers = _layers(backbone)
    encodes = isinstance(backbone, PreTrainedModel) and not getattr(backbone.config, "is_decoder", False)
    # Positions that are added at the input: where layers add or rotate by them, tokens that have none do not fit in.
    if layers is None or not encodes or not isinstance(positions, nn.Parameter | nn.Embedding):
        raise ValueError(
            f"`prompt_tokens={config.prompt_tokens}` is for encoders of images or text that have `embeddings` with "
            "`position_embeddings` and a list of layers, such as ViT, DeiT, DINOv2, BERT and RoBERTa; the backbone is "
            f"a `{type(backbone).__name__}`. Leave `prompt_tokens` out, or choose such a backbone."
        )
    width = getattr(positions, "weight", positions).shape[-1]
    # The first layer's own tokens are those at the input.
    add_prompt_tokens(embeddings, layers[1:] if config.prompt_depth == "all" else [], config.prompt_tokens, width)
    # All else is initialised, and the momentum encoder is to begin with the same tokens.
    backbone.init_weights()
    return backbone


def _layers(backbone: nn.Module) -> nn.ModuleList | None:
    encoder = getattr(backbone, "encoder", None)
    places = ((backbone, "layers"), (encoder, "layers"), (encoder, "layer"))
    found = (getattr(owner, name, None) for owner, name in places)
    return next((layers for layers in found if isinstance(layers, nn.ModuleList) and len(layers)), None)


def for_the_backbone(kwargs: dict) -> dict:
    # Outputs are taken by their names.
    return {**{name: value for name, value in kwargs.items() if value is not None}, "return_dict": True}


def see_prompts(inputs: dict, prompt_tokens: int) -> dict:
    """An attention mask is given for the input, and the tokens behind it are seen by all."""
    mask = inputs.get("attention_mask")
    if not prompt_tokens or mask is None:
        return inputs
    if mask.ndim != 2:
        raise ValueError(
            f"With `prompt_tokens`, `attention_mask` has the shape (rows, length); got {tuple(mask.shape)}. Say of "
            "each token whether it is seen."
        )
    return {**inputs, "attention_mask": F.pad(mask, (0, prompt_tokens), value=1)}


def with_own_cache(inputs: dict) -> dict:
    """A backbone appends to the keys and values that it is given. The momentum encoder reads them as they were."""
    cache = inputs.get("past_key_values")
    return inputs if cache is None else {**inputs, "past_key_values": _copied(cache)}


def _copied(cache: Cache) -> Cache:
    # Not deeply: what is learned must get its gradient.
    twin = copy.copy(cache)
    for name, part in vars(cache).items():
        if isinstance(part, Cache):
            setattr(twin, name, _copied(part))
        elif name == "layers":
            twin.layers = [copy.copy(layer) for layer in part]
    return twin


def freeze(backbone: nn.Module, keep: Iterable[str]) -> None:
    """All but its prompt tokens, and the parameters that have one of the names `keep` in theirs."""
    keep = {keep} if isinstance(keep, str) else set(keep)
    parameters = {name: set(name.split(".")) for name, _ in backbone.named_parameters()}
    missing = sorted(keep - set().union(*parameters.values()))
    if missing:
        raise ValueError(
            f"`keep` names `{missing[0]}`, and no parameter of the backbone is called so. `keep=()` freezes it whole."
        )
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_(not parameters[name].isdisjoint({*keep, "prompt_tokens"}))


def pooling_for(config: HMAConfig) -> str:
    """`"auto"` of a decoder is the last token: the first has seen nothing of the text."""
    model_type = getattr(config.backbone_config, "model_type", None)
    decodes = model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return "last" if config.pooling == "auto" and decodes else config.pooling


def paired(following: nn.Module, leading: nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Parameters and buffers of the momentum encoder, each with the backbone's."""
    ours, theirs = ({**dict(one.named_parameters()), **dict(one.named_buffers())} for one in (following, leading))
    odd = sorted(ours.keys() ^ theirs.keys())
    if odd:
        raise ValueError(
            f"The momentum encoder cannot follow the backbone: one of them has `{odd[0]}`, and the other has not. Give "
            'an adapter to both: by the ends of their names, `target_modules=["q_proj"]`, and without '
            '`exclude_modules`. Or choose `momentum_encoder="none"`.'
        )
    return [(value, theirs[name]) for name, value in ours.items()]


@torch.no_grad()
def share_fresh_adapters(leading: nn.Module, following: nn.Module) -> None:
    """
    For LoRA on a model whose memory is full: B starts at zero, and A at random, another one in each of the two. They do
    not differ yet in what they say, but a mean of two B would be multiplied with a mean of two A that have nothing to
    do with each other: the copy begins with the same A.
    """
    paired(following, leading)  # or an adapter is in one alone
    theirs, ours = dict(leading.named_parameters()), dict(following.named_parameters())
    for name, value in ours.items():
        second = name.replace(".lora_A.", ".lora_B.")
        if second != name and not theirs[second].any() and not ours[second].any():
            value.copy_(theirs[name])


def pooled_feature(output, pooling: str, width: int, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
    """`h^1` of section 4.1, `(rows, width)`, of what a backbone gives."""
    feature = _pooled(output, pooling, attention_mask)
    if feature is None or feature.ndim != 2 or feature.shape[-1] != width:
        found = "nothing of the kind" if feature is None else f"the shape {tuple(feature.shape)}"
        raise ValueError(
            f"The backbone gives no feature of shape (rows, {width}), but {found}. Give back a tensor of that shape, "
            "a `pooler_output` or a `last_hidden_state`, or set `feature_size` to what it is wide."
        )
    return feature


def _pooled(output, pooling: str, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    if not isinstance(output, torch.Tensor):
        own = getattr(output, "pooler_output", None)
        if pooling == "auto" and own is not None:
            return own.flatten(1)  # of a convolutional network, (rows, width, 1, 1)
        output = getattr(output, "last_hidden_state", None)
    if output is None or output.ndim == 2:
        return output
    if output.ndim == 4:
        return output.mean(dim=(2, 3))
    if output.ndim != 3:
        return None
    if attention_mask is None:
        return output.mean(dim=1) if pooling == "mean" else output[:, -1 if pooling == "last" else 0]
    attention_mask = attention_mask[:, -output.shape[1] :]  # without a prefix, which has keys but no output
    seen = attention_mask.to(output.dtype)
    if pooling == "mean":
        return (output * seen[..., None]).sum(dim=1) / seen.sum(dim=1, keepdim=True).clamp(min=1)
    places = torch.arange(output.shape[1], device=output.device)
    # Of the tokens that are seen, the last, or the first: padding may be on either side.
    chosen = (places * attention_mask if pooling == "last" else attention_mask).argmax(dim=1)
    return output[torch.arange(len(output), device=output.device), chosen]
