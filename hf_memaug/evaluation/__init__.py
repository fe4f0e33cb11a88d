# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Scores, `evaluate` modules that need no network, paired tests, per-domain tables, and selection among checkpoints.

Every name is imported on first use, and scikit-learn, SciPy, `datasets` and `evaluate` only by the functions that need
them, so that `import hf_memaug.evaluation` works where they are not installed.
"""

from hf_memaug.lazy import lazy_names

_EXPORTS = {
    "continual": ("DEFINITIONS", "continual_scores"),
    "domain_selection": ("SELECTIONS", "Choice", "Record", "choose", "read_records", "write_records"),
    "per_domain": ("classification_scores", "score_table"),
    "scores": (
        "METRICS",
        "a_distance",
        "accuracy",
        "auroc",
        "load_metric",
        "macro_f1",
        "matthews_correlation",
        "micro_f1",
    ),
    "statistics": ("PairedTest", "Summary", "paired_t_test", "summarise"),
    "text_scores": ("answer_scores", "bleu", "entity_f1", "masked_lm_loss"),
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _EXPORTS)
