# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What the models of every family share: loading, saving, publishing, and the verbs of a memory."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn
from transformers import AutoConfig, Cache, PreTrainedConfig
from transformers.utils import ModelOutput, auto_docstring, can_return_tuple

from hf_memaug.configuration.checks import refuse_misspelt_fields
from hf_memaug.messages import nearest
from hf_memaug.modeling.memory_reads import MemoryRead, share_by_slot, slot_domains

# Arguments of `from_pretrained` that locate a checkpoint.
WHERE = {"cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token"}
# All arguments of `from_pretrained`. Every other keyword is a field of the configuration.
_HOW = WHERE | set(
    """
    adapter_kwargs adapter_name attn_implementation commit_hash device_map device_mesh distributed_config dtype
    experts_implementation generation_config gguf_file ignore_mismatched_sizes key_mapping low_cpu_mem_usage max_memory
    offload_buffers offload_folder offload_state_dict output_loading_info quantization_config state_dict torch_dtype
    tp_plan tp_size trust_remote_code use_kernels use_safetensors variant weights_only _from_auto _from_pipeline
    """.split()
)
# Those that every verb takes which starts from plain checkpoints.
LOADING = WHERE | {"attn_implementation", "dtype", "torch_dtype", "trust_remote_code", "variant"}
# Arguments of `push_to_hub` that `save_pretrained` passes on.
_PUSH = {"repo_id", "commit_message", "commit_description", "private", "revision", "create_pr", "tags"}
WEIGHTS_ARG = r"""
output_memory_weights (`bool`, *optional*):
    Whether to return how much each row reads of the memory.
"""
# What the queries and values of an attention are called in transformers, and the input of our recurrent network.
ADAPTER_TARGETS = ("query", "value", "q_proj", "v_proj", "q_lin", "v_lin", "c_attn", "input_projection")


def located(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that locate a checkpoint."""
    return {name: arguments[name] for name in WHERE if name in arguments}


def split_arguments(verb: str, config_class: type, kwargs: dict, takes: set[str] = LOADING) -> tuple[dict, dict]:
    """
    Splits keywords into arguments of `from_pretrained` and fields of the configuration. Raises an error for arguments
    that are not in `takes`, and for names that are not fields.
    """
    how = {name: value for name, value in kwargs.items() if name in _HOW}
    given = {name: value for name, value in kwargs.items() if name not in _HOW}
    refused = sorted(set(how) - takes)
    if refused:
        raise TypeError(f"`{verb}` takes no `{refused[0]}`. Save the model, and pass it to `from_pretrained`.")
    known = {field.name for field in fields(config_class)} | {"num_labels"}
    for name in given:
        if name not in known:
            raise TypeError(f"`{verb}` takes no `{name}`. Did you mean `{nearest(name, known | takes, 0)}`?")
    return how, given


def lacking_lm_head(missing_keys: Iterable[str]) -> list[str]:
    """The missing weights that belong to a masked-LM head. Tied weights and the output bias may be missing."""
    heads = ("lm_head.dense", "lm_head.layer_norm", "cls.predictions.transform")
    return sorted(name for name in missing_keys if name.startswith(heads))


def reads_last_token(model: nn.Module) -> bool:
    """Whether a classifier reads the last token, as classifiers on decoders do."""
    # transformers names the head of decoders `score`, and no other.
    return isinstance(getattr(model, "score", None), nn.Module) or getattr(model, "reads_last", False)


def pool_tokens(states: torch.Tensor, pooling: str, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
    """The `"first"` or `"last"` token of each row that is not padding, or the `"mean"` of all: `(rows, width)`."""
    if attention_mask is None:
        return states.mean(dim=1) if pooling == "mean" else states[:, -1 if pooling == "last" else 0]
    # The mask of prefix tuning begins with the prefix, which has keys but no output.
    attention_mask = attention_mask[:, -states.shape[1] :]
    if pooling == "mean":
        seen = attention_mask.to(states.dtype).unsqueeze(-1)
        return (states * seen).sum(dim=1) / seen.sum(dim=1).clamp(min=1)
    return states[torch.arange(states.shape[0], device=states.device), chosen_places(attention_mask, pooling)]


def chosen_places(attention_mask: torch.Tensor, token: str) -> torch.Tensor:
    """Of each row, the place of the `"first"` or `"last"` token that is not padding, which may be on either side."""
    places = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    return (places * attention_mask if token == "last" else attention_mask).argmax(dim=-1)


def positions_of(model: torch.nn.Module) -> list[int]:
    """How many tokens each table of positions in a model is for."""
    # GPT-2 and BART have other names for it.
    names = ("position_embeddings", "wpe", "embed_positions")
    named = [getattr(module, name, None) for module in model.modules() for name in names]
    # RoBERTa begins to count behind the position of padding, and BART at its `offset`.
    return [
        one.num_embeddings - (getattr(one, "offset", 0) if one.padding_idx is None else one.padding_idx + 1)
        for one in named
        if isinstance(one, torch.nn.Embedding)
    ]


def longest_text(model: torch.nn.Module, tokenizer: Any, max_length: int | None = None) -> int | None:
    """How many tokens of a text a model reads; None if there is no limit."""
    limit = min([max_length or getattr(tokenizer, "model_max_length", 512), *positions_of(model)])
    # Tokenizers without a limit say 10**30.
    return None if limit >= 10**9 else limit


if TYPE_CHECKING:
    from transformers import PreTrainedModel as _Base
else:
    _Base = object


class TextClassifierMixin(_Base):
    """`forward` of classifiers of texts. Subclasses define `_classify(inputs, labels, output_memory_weights)`."""

    main_input_name = "input_ids"
    _classify: Any

    @can_return_tuple
    @auto_docstring(custom_args=WEIGHTS_ARG)
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        output_memory_weights: bool | None = None,
        **kwargs,
    ):
        r"""
        past_key_values (`Cache`, *optional*):
            Keys and values of a tuned prefix.

        Returns:
            The output of the family: `loss`, `logits`, and what its memory gave.
        """
        # All inputs are named: `Trainer` drops other columns, and PEFT looks for `past_key_values`.
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            "past_key_values": past_key_values,
            **kwargs,
        }
        given = {name: value for name, value in inputs.items() if value is not None}
        return self._classify(given, labels, output_memory_weights)


class ImageClassifierMixin(_Base):
    """`forward` of classifiers of images. Subclasses define `_classify(inputs, labels, output_memory_weights)`."""

    main_input_name = "pixel_values"
    _classify: Any

    @can_return_tuple
    @auto_docstring(custom_args=WEIGHTS_ARG)
    def forward(
        self,
        pixel_values: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_memory_weights: bool | None = None,
        **kwargs,
    ):
        r"""
        Returns:
            The output of the family: `loss`, `logits`, and what its memory gave.
        """
        if pixel_values is None:
            raise ValueError("`pixel_values` is missing. The checkpoint's image processor makes it from images.")
        given = {name: value for name, value in kwargs.items() if value is not None}
        return self._classify({"pixel_values": pixel_values, **given}, labels, output_memory_weights)


class MemoryModelMixin(_Base):
    """
    A base of every model of the library, before `PreTrainedModel`.

    Class attributes:
        memory_modules (`tuple[type[nn.Module], ...]`): The layers of the memory.
        memory_shape_fields (`tuple[str, ...]`): The configuration fields that determine the shape of the memory.
        without_memory_means (`str`, *optional*): What `without_memory` does, in a sentence. None where the memory
            cannot be switched off.
        pads_right (`bool`): Whether texts must be padded on the right.
    """

    if TYPE_CHECKING:
        config: Any
        config_class: Any
    memory_modules: ClassVar[tuple[type[nn.Module], ...]] = ()
    memory_shape_fields: ClassVar[tuple[str, ...]] = ()
    without_memory_means: ClassVar[str | None] = None
    pads_right = False
    # The heads return batch means, which `Trainer` must divide by the accumulation steps and processes. Without this it
    # does not, because `forward` takes `**kwargs`. Heads with several labels a row use `num_items_in_batch` instead.
    accepts_loss_kwargs = False

    def memory_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the memory, for example for an optimizer group of their own."""
        for module in self.modules():
            if isinstance(module, self.memory_modules):
                yield from module.parameters()

    def freeze_memory(self, frozen: bool = True):
        """Freezes the memory while the rest trains; `frozen=False` unfreezes it. Returns the model."""
        for parameter in self.memory_parameters():
            parameter.requires_grad_(not frozen)
        return self

    @property
    def reads_memory(self) -> bool:
        """Whether predictions depend on a memory. Some settings of a family leave it out."""
        return getattr(self.config, "has_memory", getattr(self.config, "reads_memory", True))

    def memory_reads(self, inputs: dict, outputs: ModelOutput) -> list[MemoryRead]:
        """
        What each row of a batch read of each memory.

        Args:
            inputs (`dict`): What the forward pass was given.
            outputs (`ModelOutput`): What it returned with `output_memory_weights=True`.
        """
        weights = outputs.get("memory_weights")
        if weights is None or not self.reads_memory:
            return []
        about = f"Shares of what is read in {weights.shape[-1]} slots."
        return [MemoryRead("Memory", about, share_by_slot(weights), owners=slot_domains(self.config))]

    def without_memory(self) -> AbstractContextManager[None]:
        """A context in which forward passes read no memory, to compare a prediction with."""
        raise ValueError(f"The memory of `{type(self).__name__}` cannot be switched off.")

    @property
    def adapter_targets(self) -> list[str]:
        """
        The layers to adapt with PEFT: the queries and values of the attention, or the input projection of a recurrent
        network.

        Example:

        ```python
        config = LoraConfig(target_modules=model.adapter_targets, modules_to_save=["memory"])
        ```
        """
        own = {name.rpartition(".")[2] for name, _ in self.named_modules()}
        return [name for name in ADAPTER_TARGETS if name in own]

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, config=None, **kwargs):
        """
        As in transformers, for safetensors only. A checkpoint of another family, a misspelt field or a memory of
        another size raises an error, instead of a newly initialised memory.
        """
        if kwargs.get("use_safetensors") is None:
            kwargs["use_safetensors"] = True
        if not kwargs["use_safetensors"]:
            raise ValueError("`use_safetensors=False` is not supported: weights are read from safetensors files only.")
        is_fresh = kwargs.pop("_fresh_memory", False)
        if not is_fresh and pretrained_model_name_or_path is not None:
            cls._check_checkpoint(pretrained_model_name_or_path, config, kwargs)
        wants_info = kwargs.pop("output_loading_info", False)
        model, info = super().from_pretrained(
            pretrained_model_name_or_path, *model_args, config=config, output_loading_info=True, **kwargs
        )
        if not is_fresh and pretrained_model_name_or_path is not None:
            cls._check_memory(pretrained_model_name_or_path, model, info, kwargs)
        model._finish_loading(info)
        return (model, info) if wants_info else model

    def _finish_loading(self, info: dict) -> None:
        """Called when all weights are loaded, with the loading information of transformers."""

    @staticmethod
    def _check_memory(name_or_path, model, info: dict, asked: dict) -> None:
        """Raises an error if the weights lack a part of the memory, or have a memory and the configuration has none."""
        parts = [name for name, module in model.named_modules() if isinstance(module, model.memory_modules)]
        missing = sorted(name for name in info["missing_keys"] if name.startswith(tuple(f"{one}." for one in parts)))
        if missing and not asked.get("ignore_mismatched_sizes"):
            raise ValueError(
                f"`{name_or_path}` lacks weights of the memory that its configuration describes (`{missing[0]}`). Put "
                "the `config.json` there that was written with these weights, or pass `ignore_mismatched_sizes=True` "
                "to begin with a fresh memory."
            )
        if not parts and any(name.endswith("memory.slot_keys") for name in info["unexpected_keys"]):
            raise ValueError(
                f"`{name_or_path}` has a memory, and its configuration says that there is none "
                f"(`memory_slots={model.config.memory_slots}`). Put the `config.json` there that was written with "
                "these weights."
            )

    @classmethod
    def _check_checkpoint(cls, name_or_path: str | os.PathLike, config, kwargs: dict) -> None:
        try:
            stored, _ = PreTrainedConfig.get_config_dict(name_or_path, **located(kwargs))
        except OSError:
            return  # Nothing there, or an adapter without a configuration: transformers handles both.
        stored_type: Any = stored.get("model_type")
        if stored_type != cls.config_class.model_type:
            fix = cls.how_to_begin_with(stored_type) or "An `Auto` class picks the right one."
            raise ValueError(
                f"`{name_or_path}` holds a `{stored_type}` model, and `{cls.__name__}` reads "
                f"`{cls.config_class.model_type}`. {fix}"
            )
        refuse_misspelt_fields(cls.config_class, set(kwargs) - _HOW, own_prefixes=("memory_",))
        # An Auto class has moved the keywords into `config`.
        asked = (config.to_dict() if isinstance(config, PreTrainedConfig) else {}) | kwargs
        stored = cls.config_class.from_dict(stored).to_dict()
        for name in () if kwargs.get("ignore_mismatched_sizes") else cls.memory_shape_fields:
            if name in asked and asked[name] != stored[name]:
                raise ValueError(
                    f"`{name}={asked[name]}` does not fit `{name_or_path}`, whose memory has `{name}={stored[name]}`. "
                    f"Leave `{name}` out to load the memory as it is."
                )

    @classmethod
    def how_to_begin_with(cls, model_type: str) -> str | None:
        """Names the class method that builds this class from a plain checkpoint of `model_type`, if there is one."""
        if model_type == getattr(cls.config_class, "backbone_model_type", None):
            return "`from_backbone` adds a fresh memory to it."
        return None

    @classmethod
    def from_backbone(cls, name_or_path: str | os.PathLike, **kwargs):
        """
        Loads a plain checkpoint of the backbone and adds a fresh memory, and a fresh head if it has none.

        Args:
            name_or_path (`str`): A folder or a repository of the Hub.
            kwargs (*optional*): Fields of the configuration (`memory_slots`, `num_labels`, ...) and arguments of
                `from_pretrained`.
        """
        how, kwargs = split_arguments("from_backbone", cls.config_class, kwargs, takes=_HOW)
        found = AutoConfig.from_pretrained(name_or_path, **located(how))
        config = cls.config_class.from_backbone_config(found, **kwargs)
        return cls.from_pretrained(name_or_path, config=config, _fresh_memory=True, **how)

    def save_pretrained(  # type: ignore[override]
        self, save_directory, is_main_process: bool = True, state_dict=None, push_to_hub: bool = False, **kwargs
    ) -> None:
        """As in transformers. `push_to_hub=True` takes the arguments of `push_to_hub` too."""
        hub = {name: kwargs.pop(name) for name in _PUSH if name in kwargs}
        # The original format renames weights of the backbone, and `Trainer` does not find them when it resumes.
        kwargs.setdefault("save_original_format", False)
        super().save_pretrained(save_directory, is_main_process, state_dict, **kwargs)
        if push_to_hub and is_main_process:
            hub |= {"token": kwargs["token"]} if "token" in kwargs else {}
            self.push_to_hub(hub.pop("repo_id", Path(save_directory).name), folder=save_directory, **hub)

    def push_to_hub(self, repo_id: str, **kwargs) -> str:  # type: ignore[override]
        """As in transformers. The repository also gets a model card, and the tokenizer or image processor."""
        try:
            import hf_memaug.hub.publishing as publishing
        except ImportError:  # the code came with a checkpoint, and the library is not installed
            kwargs.pop("folder", None)
            return super().push_to_hub(repo_id, **kwargs)  # type: ignore[arg-type]
        return publishing.push_model(self, repo_id, **kwargs)


def head_output(outputs: ModelOutput, **own: Any) -> Any:
    """What a head returns: its `own` values, and those of its encoder, except for the states of each token."""
    left_out = {"last_hidden_state", "pooler_output"}
    return type(outputs)(**own, **{name: value for name, value in outputs.items() if name not in left_out})


def config_of_backbone(backbone: str | os.PathLike | PreTrainedConfig) -> PreTrainedConfig:
    return backbone if isinstance(backbone, PreTrainedConfig) else AutoConfig.from_pretrained(backbone)


def copy_weights(source: nn.Module, into: nn.Module, name: str, fresh: tuple[str, ...]) -> None:
    """Copies weights of the same names. Only those with a part of `fresh` in their names may be missing in `source`."""
    stored, wanted = source.state_dict(), into.state_dict()
    missing = [key for key in wanted if key not in stored and not any(part in key for part in fresh)]
    if missing:
        raise ValueError(f"`{name}` has no weights for {missing[:3]}. Pass a model of transformers, without adapters.")
    into.load_state_dict({key: value for key, value in stored.items() if key in wanted}, strict=False)


def timm_width(model: nn.Module) -> int | None:
    """The width of the pooled features of a timm network, alone or in transformers' wrapper; None for others."""
    network = getattr(model, "timm_model", model)
    if not hasattr(network, "get_classifier"):
        return None
    return getattr(network, "head_hidden_size", None) or getattr(network, "num_features", None)
