# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Trainers, and what they share."""

from hf_memaug.lazy import lazy_names

_EXPORTS = {
    "algorithms": ("ALGORITHMS",),
    "arguments": ("BilevelTrainingArguments", "ContinualTrainingArguments", "DomainTrainingArguments"),
    "base_trainer": ("BaseTrainer",),
    "bilevel_trainer": ("BilevelTrainer",),
    "resuming": ("last_complete_checkpoint",),
    "continual": ("STRATEGIES",),
    "continual.record": ("ContinualRecord",),
    "continual_trainer": ("ContinualTrainer",),
    "domain_trainer": ("DomainTrainer",),
    "callbacks": ("MemoryUpdateCallback", "NonFiniteGradientError", "RunGuard"),
    "masked_lm": ("MaskedLMTrainer", "fitting_length"),
    "meta_trainer": ("MetaTrainer",),
    "model_cards": ("ModelCardCallback",),
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _EXPORTS)
