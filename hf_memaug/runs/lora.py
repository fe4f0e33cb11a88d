# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`--lora`: adapters of PEFT in the encoder, while head and memory train in full."""

import importlib.util
from collections.abc import Iterable
from typing import Any

from hf_memaug.runs.errors import CommandError, UsageError
from hf_memaug.runs.methods import Chosen


def check_lora(options: Any, several: Iterable[Chosen], kind: str) -> None:
    """Raises an error for methods without pre-trained weights to adapt."""
    if not options.lora and options.lora_rank is None:
        return
    if importlib.util.find_spec("peft") is None:
        raise UsageError("`--lora` needs the package peft. Install it: `pip install peft`.")
    for one in several:
        reason = "both levels of its training need all weights" if one.method.trainer == "bilevel" else None
        if one.makes_words or kind == "graph":
            reason = "its models are trained from scratch"
        if reason is not None:
            raise UsageError(f"`--lora` is not supported by `{one.name}`: {reason}. Leave one of them out.")


def add_lora(model: Any, rank: int) -> Any:
    """
    Adds adapters to the encoder of a model, in place, and freezes its own weights. Returns PEFT's tuner, whose
    `merge_and_unload()` merges them.
    """
    from peft import LoraConfig, LoraModel
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    encoder = getattr(model, "backbone", model.base_model)
    memory = {id(one) for one in model.memory_parameters()} if hasattr(model, "memory_parameters") else set()
    own = {id(one) for one in encoder.parameters()} - memory
    rest = [one for one in model.parameters() if one.requires_grad and id(one) not in own]
    layers = {id(one) for one in encoder.modules() if isinstance(one, (nn.Linear, Conv1D))}
    targets = getattr(model, "adapter_targets", [name for name, one in model.named_modules() if id(one) in layers])
    if not targets:
        raise CommandError(f"`--lora` adapts linear layers, and `{type(model).__name__}` has none. Leave it out.")
    frozen = r"(.*\.)?general\..*" if getattr(model.config, "freeze_general", False) else None
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, exclude_modules=frozen)
    tuner = LoraModel(model, config, "default")
    # The model is whole, not an adapter, so checkpoints hold all of it.
    del model.peft_config
    for parameter in rest:
        parameter.requires_grad_(True)
    return tuner
