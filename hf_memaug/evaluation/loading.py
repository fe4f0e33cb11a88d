# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The packaged `evaluate` modules, loaded from the installed package and never from the Hub."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_memaug.evaluation.checks import check_name

if TYPE_CHECKING:
    import evaluate

METRICS = ["accuracy", "macro_f1", "micro_f1", "a_distance"]


def load_metric(name: str, **load_options: Any) -> "evaluate.EvaluationModule":
    """The packaged metric `name`, one of `METRICS`, as an `evaluate` module (`add`, `add_batch`, `compute`).

    Needs no network. `load_options` go to `evaluate.load` (`num_process`, `process_id`, `experiment_id`, `cache_dir`,
    `keep_in_memory`, ...).
    """
    check_name("name", name, METRICS)
    import evaluate

    # An absolute path: a bare name would be looked up in the working directory first and on the Hub next.
    return evaluate.load(str(Path(__file__).resolve().parent / "metrics" / name), **load_options)


def combine_metrics(names: Sequence[str], **load_options: Any) -> "evaluate.CombinedEvaluations":
    """The packaged metrics `names` as one module; `compute` returns one dict with a score for each.

    `evaluate` hands the options of `compute` to every module: `num_labels` is understood by the three classification
    scores, `labels` by the two F1 scores only. `a_distance` reads features, not labels, and cannot be combined.
    """
    if isinstance(names, str) or not names:
        raise ValueError(f"`names` is {names!r}: pass a list of metric names, such as ['accuracy', 'macro_f1'].")
    combinable = [name for name in METRICS if name != "a_distance"]
    for name in names:
        check_name("names", name, combinable)
    import evaluate

    return evaluate.combine([load_metric(name, **load_options) for name in names])
