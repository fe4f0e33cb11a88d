# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Configurations of models that are made of others."""

from typing import Any, ClassVar, cast

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig

from hf_memaug.configuration.checks import check_fields
from hf_memaug.configuration.configuration_graph_network import GraphNetworkConfig

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


class DelegatedField:
    """A field that is read from the first of the configuration's `delegates`, and written to all of them."""

    def __set_name__(self, owner: type, name: str):
        self.name = name

    def __get__(self, config, owner: type | None = None):
        if config is None:
            return self
        first = config.delegates[0]
        if getattr(config, first) is None:
            raise AttributeError(f"`{self.name}` is a field of `{first}`, which is None.")
        return getattr(getattr(config, first), self.name)

    def __set__(self, config, value):
        for part in config.delegates:
            if getattr(config, part) is not None:
                setattr(getattr(config, part), self.name, value)


@strict
class CompositeConfig(PreTrainedConfig):
    """A base of configurations with `sub_configs`. What is asked of the whole is a field of the `delegates`."""

    delegates: ClassVar[tuple[str, ...]]
    # The `model_type` of parts that do not name theirs. None: they must.
    default_part: ClassVar[str | None] = None

    vocab_size = DelegatedField()
    hidden_size = DelegatedField()
    num_hidden_layers = DelegatedField()
    num_attention_heads = DelegatedField()
    intermediate_size = DelegatedField()
    hidden_dropout_prob = DelegatedField()
    max_position_embeddings = DelegatedField()
    pad_token_id = DelegatedField()
    image_size = DelegatedField()
    patch_size = DelegatedField()
    num_channels = DelegatedField()

    def __post_init__(self, **kwargs):
        if all(getattr(self, name) is not None for name in self.delegates):
            for name in _SIZES:
                kwargs.pop(name, None)  # `to_dict` adds these for PEFT and others
        for name in self.sub_configs:
            part = getattr(self, name)
            if isinstance(part, dict) or (part is None and self.default_part):
                setattr(self, name, self._part(name, dict(part or {})))
        # Auto classes with two heads iterate over this list, which must not be None.
        self.architectures = self.architectures or []
        super().__post_init__(**kwargs)

    def _part(self, name: str, fields: dict[str, Any]) -> PreTrainedConfig:
        model_type = fields.pop("model_type", self.default_part)
        if not isinstance(model_type, str):
            raise ValueError(f'`{name}` names no `model_type`, such as "bert".')
        check_fields(fields, f"{name}.")
        try:
            if model_type == GraphNetworkConfig.model_type:
                # Directly, because a checkpoint that carries its code registers nothing.
                return GraphNetworkConfig(**fields)
            return AutoConfig.for_model(model_type, **fields)
        except (TypeError, ValueError, StrictDataclassError) as error:
            raise ValueError(f"`{name}` is no configuration: {error}") from error

    def validate_fields(self):
        check_fields(vars(self))

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of the parts, for PEFT and others that look for them in the configuration of a model."""
        return {name: getattr(self, name, None) for name in _SIZES}

    def to_dict(self) -> dict[str, Any]:
        fields = super().to_dict()
        for name in self.sub_configs:
            if fields.get(name) is not None:
                fields[name]["_name_or_path"] = ""  # not the folder that it was loaded from
        return fields | {name: size for name, size in self.sizes.items() if size is not None}

    def get_text_config(self, decoder=None, encoder=None) -> PreTrainedConfig:
        part = getattr(self, self.delegates[0])
        return self if part is None else cast(PreTrainedConfig, part)
