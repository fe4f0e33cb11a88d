# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Model cards, and checkpoints with or without the code they need."""

from hf_memaug.lazy import lazy_names

_EXPORTS = {
    "card": ("model_card",),
    "code": ("export_with_code",),
    "provenance": ("record_run",),
    "publishing": ("complete_folder", "push_model"),
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _EXPORTS)
