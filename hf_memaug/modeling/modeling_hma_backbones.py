# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What HMA asks of a backbone, whatever its kind: a feature for each row (Qiu et al., 2023, section 4.1)."""

import inspect

import torch
from torch import nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from hf_memaug.modeling.modeling_utils import WHERE


def make_backbone(config: PreTrainedConfig) -> PreTrainedModel:
    """A fresh one, without a head, and without a pooler that has weights."""
    return AutoModel.from_config(config, **_without_pooler(config))


def load_backbone(name_or_path, how: dict) -> PreTrainedModel:
    """The same, from a checkpoint."""
    config = AutoConfig.from_pretrained(name_or_path, **{name: how[name] for name in WHERE if name in how})
    return AutoModel.from_pretrained(name_or_path, use_safetensors=True, **how, **_without_pooler(config))


def _without_pooler(config: PreTrainedConfig) -> dict:
    model_class = MODEL_MAPPING.get(type(config), None)
    model_class = model_class[0] if isinstance(model_class, tuple | list) else model_class
    takes = {} if model_class is None else inspect.signature(model_class.__init__).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def keep_weights(module: nn.Module) -> nn.Module:
    """Says of a module that it is initialised: what builds a model around it must not draw its weights again."""
    for one in module.modules():
        one._is_hf_initialized = True
    return module


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
    if pooling in ("auto", "first"):
        return output[:, 0]
    if attention_mask is None:
        return output[:, -1] if pooling == "last" else output.mean(dim=1)
    seen = attention_mask.to(output.dtype)
    if pooling == "mean":
        return (output * seen[..., None]).sum(dim=1) / seen.sum(dim=1, keepdim=True)
    places = torch.arange(output.shape[1], device=output.device)
    last = (places * attention_mask).argmax(dim=1)
    return output[torch.arange(len(output), device=output.device), last]
