# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Trainers, and what they share."""

from importlib import import_module

_EXPORTS = {
    "algorithms": ("ALGORITHMS",),
    "arguments": ("BilevelTrainingArguments", "DomainTrainingArguments"),
    "bilevel_trainer": ("BilevelTrainer",),
    "checkpoints": ("last_complete_checkpoint",),
    "domain_trainer": ("DomainTrainer",),
    "guard": ("NonFiniteGradientError", "RunGuard"),
    "meta_trainer": ("MetaTrainer",),
    "selection": ("BestInMemory",),
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = list(_MODULE_OF)


def __getattr__(name):
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
