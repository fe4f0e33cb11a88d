# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Many runs of `DomainTrainer` by DomainBed's protocol, as one command: `python -m hf_memaug.training.sweep --help`."""

from hf_memaug.lazy import lazy_names

_EXPORTS = {
    "job": ("run_job",),
    "plan": ("Job", "plan_jobs"),
    "runner": ("run_jobs",),
    "winners": ("keep_winners",),
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _EXPORTS)
