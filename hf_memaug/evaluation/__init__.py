# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores, `evaluate` modules that load offline, paired tests and per-domain tables.

Every name is imported on first use, and scikit-learn, SciPy, `datasets` and `evaluate` only by the functions that need
them, so that `import hf_memaug.evaluation` works where they are not installed.
"""

from importlib import import_module

_EXPORTS = {
    "loading": ("METRICS", "combine_metrics", "load_metric"),
    "per_domain": ("classification_scores", "score_table", "scores_per_domain"),
    "scores": ("a_distance", "accuracy", "macro_f1", "micro_f1"),
    "statistics": (
        "PairedTest",
        "Summary",
        "compare_models",
        "paired_bootstrap",
        "paired_t_test",
        "summarise",
        "wilcoxon",
    ),
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
