# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Hugging Face models that hold up when the data shifts between domains."""

import importlib

from hf_memaug.registration import register_all, register_family
from hf_memaug.registry import FAMILIES, public_names

__version__ = "0.2.0.dev0"

# Public names other than configurations and models, and the modules that they are imported from on first use.
_EXPORTS = {
    "data": ("DomainDataset", "load_domains", "leave_one_domain_out", "prompt_tokenizer", "word_tokenizer"),
    "data.general_cache": ("cache_general_states", "GeneralStatesCollator"),
    "training": ("BilevelTrainer", "ContinualTrainer", "DomainTrainer"),
    "training.arguments": ("BilevelTrainingArguments", "ContinualTrainingArguments", "DomainTrainingArguments"),
    "training.callbacks": ("MemoryUpdateCallback", "RunGuard"),
    "training.model_cards": ("ModelCardCallback",),
    "evaluation": ("load_metric",),
    "hub": ("export_with_code", "record_run"),
}
_FUNCTIONS = {name: f"hf_memaug.{module}" for module, names in _EXPORTS.items() for name in names}

__all__ = ["FAMILIES", "__version__", "register_family", *public_names(), *_FUNCTIONS]


def __getattr__(name: str):
    if name in _FUNCTIONS:
        value = getattr(importlib.import_module(_FUNCTIONS[name]), name)
    elif name in public_names():
        value = public_names()[name].load(name)
    else:
        try:
            return importlib.import_module(f"hf_memaug.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"hf_memaug.{name}":
                raise  # a dependency of that package is not installed
            raise AttributeError(f"module 'hf_memaug' has no attribute '{name}'") from None
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})


register_all()
