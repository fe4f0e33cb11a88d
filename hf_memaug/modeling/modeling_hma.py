# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""HMA: real and synthetic memory on top of any backbone (Qiu et al., 2023, section 4)."""

import copy
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import auto_docstring, can_return_tuple, logging

from hf_memaug.configuration.configuration_hma import HMAConfig
from hf_memaug.layers.prompt_tokens import PromptTokens
from hf_memaug.modeling.modeling_hma_backbones import (
    check_input,
    is_sharded,
    make_backbone,
    paired,
    pooled_feature,
    pooling_for,
    see_prompts,
    share_fresh_adapters,
    take_backbone,
    with_own_cache,
    with_prompt_tokens,
)
from hf_memaug.modeling.modeling_hma_head import HMAHead, HMAOutput, HMAPreTrainedModel
from hf_memaug.modeling.modeling_utils import (
    WEIGHTS_ARG,
    ImageClassifierMixin,
    TextClassifierMixin,
    config_of_backbone,
    split_arguments,
    timm_width,
)

logger = logging.get_logger(__name__)

GRAPH_ARGS = r"""
node_features (`torch.LongTensor` of shape `(nodes, channels)`):
    The nodes of all graphs, as `GraphCollator` puts them together.
kwargs (*optional*):
    The other inputs of [`GraphNetworkModel`], or of a module of yours.
"""


class HMAForClassification(HMAPreTrainedModel):
    """A backbone and `HMAHead`. The subclasses differ in their inputs."""

    supports_gradient_checkpointing = True

    def __init__(self, config: HMAConfig, backbone: nn.Module | None = None):
        r"""
        backbone (`nn.Module`, *optional*):
            A module that returns a feature for each row. Left out, `config.backbone_config` is built.
        """
        super().__init__(config)
        if backbone is None and config.backbone_config is None:
            raise ValueError(
                "There is no `backbone_config`: the backbone is a module of yours. Pass it as `backbone`, also to "
                "`from_pretrained`."
            )
        if backbone is None:
            backbone = make_backbone(cast(PreTrainedConfig, config.backbone_config))
            check_input(backbone, self.main_input_name)  # the checkpoint may belong to another class
        else:
            for module in backbone.modules():
                module._is_hf_initialized = True  # type: ignore[assignment]  # `post_init` keeps its weights
        self.backbone = with_prompt_tokens(backbone, config)
        follows = config.has("real") and config.momentum_encoder == "copy"
        self.momentum_backbone: Any = copy.deepcopy(self.backbone) if follows else None
        self.head = HMAHead(config)
        self._follows_yet = False
        self.post_init()
        self.train(self.training)

    def _finish_loading(self, info):
        super()._finish_loading(info)
        # Loading creates new parameters, which require gradients.
        self.train(self.training)
        if any(name.startswith("momentum_backbone.") for name in info["missing_keys"]):
            self._follow(0.0)  # the checkpoint has none

    @classmethod
    def check_backbone(cls, backbone, **fields):
        """Raises an error if the fields do not fit the backbone: a checkpoint, of which no weights are read."""
        theirs = config_of_backbone(backbone)
        config = cls.config_class.from_backbone_config(theirs, **fields)
        # Networks of timm know their width when they are built.
        if theirs.model_type != "timm_wrapper":
            config.check_memory()

    @classmethod
    def from_backbone(cls, backbone, **kwargs):
        """
        Adds fresh memories and a fresh head to a backbone.

        Args:
            backbone (`str`, `PreTrainedModel` or `nn.Module`):
                A folder, a repository of the Hub, a model (which is copied), or any module that returns a feature for
                each row, with its width as `feature_size`.
            kwargs (*optional*):
                Fields of the configuration (`num_labels`, `real_memory_size`, ...) and arguments of `from_pretrained`.
        """
        how, kwargs = split_arguments("from_backbone", cls.config_class, kwargs)
        backbone = take_backbone(backbone, how)
        check_input(backbone, cls.main_input_name)
        theirs = getattr(backbone, "config", None) if isinstance(backbone, PreTrainedModel) else None
        # timm configurations do not have it.
        width = timm_width(backbone)
        if width is not None:
            kwargs.setdefault("feature_size", width)
        model = cls(cls.config_class.from_backbone_config(copy.deepcopy(theirs), **kwargs), backbone=backbone)
        first = next((p for p in backbone.parameters() if p.is_floating_point()), None)
        if first is not None:
            # New parts take the device and type of the backbone.
            for module in model.modules():
                if module is model.head or isinstance(module, PromptTokens):
                    module.to(device=first.device, dtype=first.dtype)
        if theirs is not None:
            model.config._name_or_path = theirs._name_or_path
        if "attn_implementation" in how:
            model.set_attn_implementation(how["attn_implementation"])
        return model.eval()

    def train(self, mode: bool = True):
        super().train(mode)
        if self.momentum_backbone is not None:
            self.momentum_backbone.eval()
            # Every time, because adapters and loading create parameters that require gradients.
            self.momentum_backbone.requires_grad_(False)
            # In a forward pass, FSDP2 would drop what is copied to parameters that it has gathered.
            if mode and is_sharded(self):
                self._begin_to_follow()
        return self

    def freeze_backbone(self, keep: tuple[str, ...] = ("cls_token",)):
        """
        Freezes the backbone, except for prompt tokens and `keep` (Table 2). Returns the model. This is not stored in a
        checkpoint. `model.backbone.requires_grad_(True)` unfreezes it.

        Args:
            keep (`tuple[str, ...]`, *optional*, defaults to `("cls_token",)`):
                Names of parameters or modules that keep training.
        """
        kept = {keep} if isinstance(keep, str) else set(keep)
        parameters = {name: set(name.split(".")) for name, _ in self.backbone.named_parameters()}
        missing = sorted(kept - set().union(*parameters.values()))
        if missing:
            raise ValueError(
                f"`keep` names `{missing[0]}`, which the backbone does not have. `keep=()` freezes the whole backbone."
            )
        for name, parameter in self.backbone.named_parameters():
            parameter.requires_grad_(not parameters[name].isdisjoint({*kept, "prompt_tokens"}))
        return self

    @property
    def classifier(self) -> nn.Module:
        """The linear head, under the name that PEFT expects."""
        return self.head.classifier

    def get_input_embeddings(self):
        return self.backbone.get_input_embeddings()

    def set_input_embeddings(self, value):
        self.backbone.set_input_embeddings(value)

    def resize_token_embeddings(self, new_num_tokens=None, *args, **kwargs):
        """As in transformers; the momentum encoder is resized too."""
        embeddings = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        if self.momentum_backbone is not None:
            following = self.momentum_backbone.get_input_embeddings().weight
            known = min(len(following), len(embeddings.weight))
            following = self.momentum_backbone.resize_token_embeddings(new_num_tokens, *args, **kwargs).weight
            with torch.no_grad():
                following[known:] = embeddings.weight[known:]  # both start with the same new embeddings
            self.train(self.training)
        return embeddings

    def features(self, main_input: torch.Tensor | None = None, /, **inputs) -> torch.Tensor:
        """`h^1` of section 4.1. Takes the inputs of the model."""
        if main_input is not None:
            inputs = {self.main_input_name: main_input, **inputs}
        return self._features(self.backbone, inputs)[0]

    def _features(self, backbone: nn.Module, inputs: dict):
        if not isinstance(backbone, PreTrainedModel):
            # A module with one input may call it as it likes.
            inputs = {name: value for name, value in inputs.items() if name != "return_dict"}
            output = backbone(*inputs.values()) if len(inputs) == 1 else backbone(**inputs)
        else:
            prompts = self.config.prompt_tokens
            output = backbone(**see_prompts(inputs, prompts))
            if prompts:
                output.last_hidden_state = output.last_hidden_state[:, :-prompts]
        pooled = pooled_feature(output, pooling_for(self.config), self.config.hidden_size, inputs.get("attention_mask"))
        return pooled, output

    def _classify(self, inputs: dict, labels, output_memory_weights) -> HMAOutput:
        # The outputs are taken by their names.
        inputs = {**inputs, "return_dict": True}
        follows = self.training and self.momentum_backbone is not None and torch.is_grad_enabled()
        if follows:
            if not self._follows_yet and is_sharded(self):
                raise RuntimeError("`model` is sharded. Call `model.train()` after `fully_shard(model)`.")
            self._begin_to_follow()
        features, output = self._features(self.backbone, with_own_cache(inputs))
        momentum_features = None
        if follows:
            with torch.no_grad():
                momentum_features, _ = self._features(self.momentum_backbone, inputs)
        found = self.head(features, labels, momentum_features, output_memory_weights, return_dict=True)
        found.hidden_states = getattr(output, "hidden_states", None)
        found.attentions = getattr(output, "attentions", None)
        return found

    @torch.no_grad()
    def _begin_to_follow(self) -> None:
        """Copies the backbone, adapters included, to the momentum encoder before the first row is written."""
        if not self._follows_yet:
            self._follows_yet = True
            if any(hasattr(parameter, "ds_id") for parameter in self.parameters()):
                raise ValueError(
                    '`momentum_encoder="copy"` does not support DeepSpeed ZeRO-3, which leaves parts of the weights on '
                    'each process. Choose ZeRO-2, FSDP2 or `momentum_encoder="none"`.'
                )
            half = {p.dtype for p in self.backbone.parameters()} & {torch.bfloat16, torch.float16}
            if half and self.config.momentum > 0.5:
                raise ValueError(
                    f"The weights are {half.pop()}, in which the steps of the momentum encoder are rounded away. Load "
                    'the model with `dtype="float32"` and train in mixed precision (`bf16=True`), or choose '
                    '`momentum_encoder="none"`.'
                )
            if int(self.head.memory.queue.written) == 0:
                self._follow(0.0)
                fresh = {
                    "The memories are untrained and frozen": self.memory_parameters(),
                    "The classifier is untrained and frozen": self.head.classifier.parameters(),
                }
                for what, parameters in fresh.items():
                    if not any(parameter.requires_grad for parameter in parameters):
                        logger.warning_once(
                            f"{what}. With a PEFT adapter, pass "
                            '`modules_to_save=["memory", "classifier"]`, which trains them and saves them with it.'
                        )
            else:
                share_fresh_adapters(self.backbone, self.momentum_backbone)

    @torch.no_grad()
    def _follow(self, momentum: float) -> None:
        """`E_m = λ E_m + (1 - λ) E` (section 4.2), including running statistics."""
        pairs = paired(self.momentum_backbone, self.backbone)
        floating = [(ours, theirs.detach()) for ours, theirs in pairs if ours.is_floating_point()]
        # FSDP2 shards parameters and no buffers; one call takes one kind.
        for kind in {type(theirs) for _, theirs in floating}:
            ours, theirs = zip(*(pair for pair in floating if type(pair[1]) is kind), strict=True)
            torch._foreach_lerp_(list(ours), list(theirs), 1.0 - momentum)
        for value, followed in pairs:
            if not value.is_floating_point():
                value.copy_(followed)

    def update_memory(self) -> None:
        """As in [`HMAHead`]; then the momentum encoder follows the backbone."""
        self.head.update_memory()
        if self.momentum_backbone is not None:
            self._follow(float(self.config.momentum))


@auto_docstring
class HMAForImageClassification(ImageClassifierMixin, HMAForClassification):
    pass


@auto_docstring
class HMAForSequenceClassification(TextClassifierMixin, HMAForClassification):
    pass


@auto_docstring
class HMAForGraphClassification(HMAForClassification):
    main_input_name = "node_features"
    # Checkpointing would update the running statistics of batch norm twice.
    supports_gradient_checkpointing = False

    @can_return_tuple
    @auto_docstring(custom_args=GRAPH_ARGS + WEIGHTS_ARG)
    def forward(
        self,
        node_features: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_memory_weights: bool | None = None,
        **kwargs,
    ) -> HMAOutput:
        if node_features is None:
            raise ValueError(
                "`node_features` is missing. `GraphCollator` makes it from rows with a `graph`: pass it to `Trainer` "
                "as `data_collator`, with `remove_unused_columns=False`."
            )
        given = {name: value for name, value in kwargs.items() if value is not None}
        return self._classify({"node_features": node_features, **given}, labels, output_memory_weights)
