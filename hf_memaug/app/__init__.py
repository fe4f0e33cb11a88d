# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A page in the browser for any checkpoint. Gradio is imported when it is launched."""

from hf_memaug.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names("hf_memaug.app", {"page": ["launch"], "space": ["write_space"]})
