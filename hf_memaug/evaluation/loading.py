# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Our scores as `evaluate` modules, without a network."""

from typing import TYPE_CHECKING, Any

from hf_memaug.evaluation.checks import check_name

if TYPE_CHECKING:
    import evaluate

METRICS = {"accuracy": "Accuracy", "macro_f1": "MacroF1", "micro_f1": "MicroF1", "a_distance": "ADistance"}


def load_metric(name: str, **load_options: Any) -> "evaluate.EvaluationModule":
    """The metric `name`, one of `METRICS`, as an `evaluate` module. Needs no network.

    To combine several, use `evaluate.combine([load_metric(name) for name in names])`.

    Args:
        name: one of `METRICS`.
        load_options: go to `evaluate.EvaluationModule`: `num_process`, `process_id`, `cache_dir`, ...
    """
    check_name("name", name, METRICS)
    from hf_memaug.evaluation import evaluate_modules

    return getattr(evaluate_modules, METRICS[name])(**load_options)
