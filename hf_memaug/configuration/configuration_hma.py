# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""HMA: real and synthetic memory on top of any backbone. Configuration."""

import copy
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from hf_memaug.configuration.checks import ENCODERS, check_encoder, refuse_misspelt_fields
from hf_memaug.configuration.composite import CompositeConfig
from hf_memaug.configuration.configuration_graph_network import GraphNetworkConfig

# What backbones call the width of what they give, in the order in which they are asked.
_WIDTHS = ("hidden_size", "hidden_sizes", "num_features", "d_model", "dim", "n_embd")
# What each row of the paper's tables consists of: which memories, and whether rows read each other.
AUGMENTATIONS = {
    "none": (),
    "param": ("real reader", "synthetic reader"),
    "rma": ("real reader", "real"),
    "abd": ("synthetic reader", "between rows"),
    "abd+rma": ("real reader", "real", "synthetic reader", "between rows"),
    "abd+syn": ("synthetic reader", "between rows", "synthetic"),
    "hma": ("real reader", "real", "synthetic reader", "between rows", "synthetic"),
}


@strict
class HMAConfig(CompositeConfig):
    r"""
    A backbone, and the two memories that its pooled feature reads (HMA: Qiu et al., 2023, section 4). What is asked of
    the whole, such as `vocab_size` or `image_size`, is the backbone's.

    Args:
        backbone_config (`PreTrainedConfig` or `dict`, *optional*):
            Any model that `AutoModel` can load and that reads a text, or an image, alone. None for a head alone, and
            where the backbone is a module of yours.
        feature_size (`int`, *optional*):
            `d_1`, the width of a feature. Left out, what `backbone_config` says of its width.
        pooling (`str`, *optional*, defaults to `"auto"`):
            How a feature is made of what the backbone gives. `"auto"`: the backbone's own pooling if it has one without
            weights, else the first token, or the mean over an image's places. `"first"`, `"last"` and `"mean"`: of the
            tokens that are not padding.
        augmentation (`str`, *optional*, defaults to `"hma"`):
            A row of the paper's tables: `"hma"`, the whole; `"rma"`, the real memory alone; `"abd"`, attention between
            datapoints alone; `"abd+rma"` and `"abd+syn"`, with one of the memories; `"param"`, the weights of both
            readers, which read nothing but the row itself; `"none"`, the backbone and a linear head.
        real_memory_size (`int`, *optional*, defaults to 512):
            `m_1`, how many of the last rows are kept. At least as many as go into one optimizer step.
        synthetic_slots (`int`, *optional*, defaults to 8):
            `m_2`, learned slots for each class.
        label_embedding_size (`int`, *optional*, defaults to 64):
            `d_2`.
        memory_heads (`int`, *optional*, defaults to 4):
            Heads of both readers. They divide `d_1 + d_2`.
        memory_intermediate_size (`int`, *optional*):
            Width of the readers' feed-forward networks. Left out, `4 (d_1 + d_2)`.
        memory_dropout (`float`, *optional*, defaults to 0.0):
            Dropout in both readers.
        momentum_encoder (`str`, *optional*, defaults to `"copy"`):
            What gives the features for the real memory. `"copy"`: a second backbone that follows the first. `"none"`:
            the backbone itself, which saves a forward pass and the copy's memory.
        momentum (`float`, *optional*, defaults to 0.999):
            λ of section 4.2: how much of the copy stays at each step.
        inference (`str`, *optional*, defaults to `"independent"`):
            `"independent"`: each row reads the memories and itself. `"batch"`: rows of one batch read each other, as in
            the paper and as in training, so that a prediction depends on its batch.
        prompt_tokens (`int`, *optional*, defaults to 0):
            How many learned tokens stand behind those of the input, in backbones that are encoders of images or text.
        prompt_depth (`str`, *optional*, defaults to `"input"`):
            `"input"`: they go in once, and through all layers (PROMPT-P of section 5.1). `"all"`: every layer has its
            own (PROMPT-A).
        memory_initializer_range (`float`, *optional*, defaults to 1.0):
            Standard deviation of fresh slots and label embeddings: that of a normalised feature.
        initializer_range (`float`, *optional*, defaults to 0.02):
            Standard deviation of the other fresh weights.
        layer_norm_eps (`float`, *optional*, defaults to 1e-05):
            Of the readers.
        run_facts (`dict`, *optional*):
            What happened in training. The model card is written from it.
    """

    model_type = "hma"
    sub_configs = {"backbone_config": AutoConfig}
    delegates = ("backbone_config",)
    keys_to_ignore_at_inference = ["features", "augmented_features", "memory_weights"]
    method_fields = (
        *("augmentation", "real_memory_size", "synthetic_slots", "momentum_encoder"),
        *("inference", "prompt_tokens", "prompt_depth"),
    )

    backbone_config: dict | PreTrainedConfig | None = None
    feature_size: int | None = None
    pooling: Literal["auto", "first", "last", "mean"] = "auto"
    augmentation: Literal["none", "param", "rma", "abd", "abd+rma", "abd+syn", "hma"] = "hma"
    real_memory_size: int = 512
    synthetic_slots: int = 8
    label_embedding_size: int = 64
    memory_heads: int = 4
    memory_intermediate_size: int | None = None
    memory_dropout: float | int = 0.0
    momentum_encoder: Literal["copy", "none"] = "copy"
    momentum: float | int = 0.999
    inference: Literal["batch", "independent"] = "independent"
    prompt_tokens: int = 0
    prompt_depth: Literal["input", "all"] = "input"
    memory_initializer_range: float | int = 1.0
    initializer_range: float | int = 0.02
    layer_norm_eps: float = 1e-5
    run_facts: dict[str, Any] | None = None

    def __post_init__(self, **kwargs):
        own_prefixes = ("memory_", "real_", "synthetic_", "momentum", "augment", "inference", "prompt_")
        refuse_misspelt_fields(type(self), kwargs, own_prefixes=own_prefixes)
        kwargs.pop("hidden_size", None)  # it follows from the other fields
        super().__post_init__(**kwargs)

    def has(self, part: str) -> bool:
        """Whether the augmentation has a part of `AUGMENTATIONS`."""
        return part in AUGMENTATIONS[self.augmentation]

    @property
    def reads_memory(self) -> bool:
        return self.augmentation != "none"

    @property
    def writes_memory(self) -> bool:
        """Whether training writes rows to the memory."""
        return self.has("real")

    @property
    def method_row(self) -> str:
        """The name in result tables, as in the paper."""
        if not self.prompt_tokens:
            return self.augmentation
        prompts = {"input": "prompt-p", "all": "prompt-a"}[self.prompt_depth]
        return f"{prompts}+{self.augmentation}" if self.reads_memory else prompts

    @property
    def has_memory(self) -> bool:
        """Whether there is a memory, and not only readers."""
        return self.has("real") or self.has("synthetic")

    @property
    def inference_mode(self) -> str | None:
        """`inference`, if it changes scores."""
        return self.inference if self.has("between rows") else None

    @property
    def in_words(self) -> tuple[str, str] | None:
        """What and how, for the model card; None for the full method, which the registry describes."""
        if self.augmentation == "hma":
            return None
        prompts = f" that has {self.prompt_tokens} learned prompt tokens" if self.prompt_tokens else ""
        if not self.reads_memory:
            return f"a backbone{prompts} and a linear head, without a memory", "A linear head reads the feature."
        parts = ", ".join(f"`{part}`" for part in AUGMENTATIONS[self.augmentation])
        return f"a backbone{prompts}, with the part `{self.augmentation}` of HMA", f"Of HMA it has {parts}."

    @property
    def hidden_size(self) -> int:
        """`d_1`."""
        if self.feature_size is not None:
            return self.feature_size
        for name in _WIDTHS if self.backbone_config is not None else ():
            width = getattr(self.backbone_config, name, None)
            if width:
                return width[-1] if isinstance(width, list | tuple) else width
        raise ValueError("`feature_size` is missing: the width of the backbone's feature.")

    @property
    def sizes(self) -> dict[str, Any]:
        # The width of a default configuration is unknown.
        return super().sizes if self.feature_size is not None or self.backbone_config is not None else {}

    @property
    def memory_width(self) -> int:
        """`d = d_1 + d_2`."""
        return self.hidden_size + self.label_embedding_size

    @property
    def augmented_size(self) -> int:
        """The input width of the linear head."""
        return self.memory_width if self.reads_memory else self.hidden_size

    def check_memory(self):
        """Called when a model is built, because fields of a configuration may be set one by one."""
        check_encoder(self)
        if self.num_labels < 2 or self.problem_type not in (None, "single_label_classification"):
            raise ValueError(
                f"HMA embeds classes, of which a row has one: `num_labels` is {self.num_labels} and `problem_type` "
                f"{self.problem_type!r}. Choose two labels or more, and leave `problem_type` out."
            )
        known = isinstance(self.backbone_config, (*ENCODERS, GraphNetworkConfig))
        if known and self.feature_size not in (None, self.backbone_config.hidden_size):
            raise ValueError(f"`feature_size` ({self.feature_size}) is not the width of the backbone. Leave it out.")
        if self.prompt_tokens and self.backbone_config is None:
            raise ValueError(
                f"`prompt_tokens={self.prompt_tokens}` go into an encoder of transformers, and there is no "
                "`backbone_config`. Leave `prompt_tokens` out."
            )
        width, heads = self.memory_width, self.memory_heads
        if self.reads_memory and width % heads:
            larger = self.label_embedding_size + heads - width % heads
            raise ValueError(
                f"`memory_heads` ({heads}) must divide the width of a row, {self.hidden_size} of the feature and "
                f"{self.label_embedding_size} of the label. `label_embedding_size={larger}` would do."
            )

    @classmethod
    def from_backbone_config(cls, backbone: PreTrainedConfig | None, **kwargs) -> "HMAConfig":
        """Memories on a backbone. The labels are those of the backbone unless `kwargs` has others."""
        if backbone is not None and not {"num_labels", "id2label"} & set(kwargs):
            kwargs.update(id2label=copy.copy(backbone.id2label), label2id=copy.copy(backbone.label2id))
        return cls(backbone_config=backbone, **kwargs)
