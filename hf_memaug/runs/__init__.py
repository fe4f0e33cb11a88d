# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Jobs, the folder and the runner that they share, and the reader of their results."""

from hf_memaug.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {"folder": ("RunFolder",), "job": ("Job", "run_job"), "results": ("Run", "read_run"), "runner": ("run_jobs",)},
)
