# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Input checks shared by the evaluation functions: each error names the argument and the fix."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from hf_memaug.messages import did_you_mean


def as_numpy(values: Any) -> np.ndarray:
    """`values` as an array; a torch tensor may require a gradient, sit on a GPU, or be bfloat16."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # NumPy has no bfloat16.
        return (values.double() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def float_array(name: str, values: Any) -> np.ndarray:
    """`values`, one score per seed, as a finite array of float64."""
    array = np.asarray(as_numpy(values), dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"`{name}` has shape {array.shape}: pass one score per seed.")
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` holds NaN or infinite values: leave them out, or run again what made them.")
    return array


def score_numbers(scores: Any) -> dict[str, float]:
    """What `compute_metrics` gave as plain numbers, if all of it can be averaged over domains."""
    if not isinstance(scores, Mapping):
        raise ValueError(
            f"`compute_metrics` gave a {type(scores).__name__}: a score needs a name. Return a dictionary, such as "
            '`{"accuracy": 0.9}`.'
        )
    found = {}
    for name, value in scores.items():
        # Lists of different lengths are no array at all.
        number = None if isinstance(value, (list, tuple)) else as_numpy(value)
        if number is None or number.ndim or number.dtype.kind not in "biuf":
            raise ValueError(
                f"`compute_metrics` gave {name!r} as a {type(value).__name__}, which has no mean over domains. Return "
                "numbers alone, each under a name of its own."
            )
        found[name] = number.item()
    return found


def check_same_length(**arrays: Any) -> None:
    """Refuse two arrays that do not line up; the keywords are the argument names."""
    (first, one), (second, other) = arrays.items()
    if len(one) != len(other):
        raise ValueError(
            f"`{first}` has {len(one)} items and `{second}` has {len(other)}: pass one of each per example."
        )


def check_name(argument: str, name: Any, known: Collection[str]) -> None:
    """Refuse a name that is not in `known`, listing the names and the nearest one."""
    if name not in known:
        raise ValueError(f"`{argument}` {name!r} is not known. {did_you_mean(name, known, 'Choose ')}")
