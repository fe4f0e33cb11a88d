# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Hugging Face models that hold up when the data shifts between domains."""

import importlib

from hf_memaug.registration import register_all, register_family
from hf_memaug.registry import FAMILIES, public_names

__version__ = "0.2.0.dev0"

# Public names other than configurations and models, and the modules that they are imported from on first use.
_FUNCTIONS = {
    "DomainDataset": "hf_memaug.data",
    "load_domains": "hf_memaug.data",
    "leave_one_domain_out": "hf_memaug.data",
    "prompt_tokenizer": "hf_memaug.data",
    "word_tokenizer": "hf_memaug.data",
    "cache_general_states": "hf_memaug.data.general_cache",
    "GeneralStatesCollator": "hf_memaug.data.general_cache",
    "DomainTrainer": "hf_memaug.training",
    "DomainTrainingArguments": "hf_memaug.training",
    "BilevelTrainer": "hf_memaug.training",
    "BilevelTrainingArguments": "hf_memaug.training",
    "ContinualTrainer": "hf_memaug.training",
    "ContinualTrainingArguments": "hf_memaug.training",
    "MemoryUpdateCallback": "hf_memaug.training",
    "ModelCardCallback": "hf_memaug.training",
    "RunGuard": "hf_memaug.training",
    "load_metric": "hf_memaug.evaluation",
    "export_with_code": "hf_memaug.hub",
    "record_run": "hf_memaug.hub",
}

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
