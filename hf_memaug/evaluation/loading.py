# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The packaged `evaluate` modules, loaded from the installed package and never from the Hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_memaug.evaluation.checks import check_name

if TYPE_CHECKING:
    import evaluate

METRICS = ["accuracy", "macro_f1", "micro_f1", "a_distance"]


def load_metric(name: str, **load_options: Any) -> "evaluate.EvaluationModule":
    """The packaged metric `name`, one of `METRICS`, as an `evaluate` module. Needs no network.

    To combine several, use `evaluate.combine([load_metric(name) for name in names])`.

    Args:
        name: one of `METRICS`.
        load_options: go to `evaluate.load` (`num_process`, `process_id`, `cache_dir`, `keep_in_memory`, ...).
    """
    check_name("name", name, METRICS)
    import evaluate

    # An absolute path: a bare name would be looked up in the working directory first and on the Hub next.
    return evaluate.load(str(Path(__file__).resolve().parent / "metrics" / name), **load_options)
