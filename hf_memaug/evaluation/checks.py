# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Input checks shared by the evaluation functions: each error names the argument and the fix."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hf_memaug.suggestions import nearest


def as_numpy(values: Any) -> np.ndarray:
    """`values` as an array; a torch tensor may require a gradient, sit on a GPU, or be bfloat16."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # NumPy has no bfloat16.
        values = values.double() if values.is_floating_point() else values
        return values.numpy()
    return np.asarray(values)


def label_array(name: str, values: Any) -> np.ndarray:
    """`values` as a one-dimensional array of int64 or str labels."""
    array = as_numpy(values)
    if array.ndim != 1:
        raise ValueError(
            f"`{name}` has {array.ndim} dimensions: pass one label per example "
            "(for logits, the argmax over the last axis)."
        )
    if array.size == 0:
        raise ValueError(f"`{name}` is empty: a score needs at least one example.")
    if array.dtype.kind in "biu" or (array.dtype.kind == "f" and np.all(array == np.round(array))):
        return array.astype(np.int64)
    # np.asarray turns a list that mixes numbers and strings into strings without a word, hence the look at the items.
    if array.dtype.kind in "UO" and all(isinstance(value, str) for value in values):
        return array.astype(str)
    raise ValueError(f"`{name}` must hold label ids or label names, not {array.dtype} values: map each to its label.")


def float_array(name: str, values: Any, shape: str, axes: int = 1, least: int = 1) -> np.ndarray:
    """`values` as a finite array of float64. `shape` says in words what `axes` and `least`, the items, demand."""
    array = np.asarray(as_numpy(values), dtype=np.float64)
    if array.ndim != axes or len(array) < least:
        raise ValueError(f"`{name}` has shape {array.shape}: pass {shape}.")
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
    """Refuse arrays that do not line up; the keywords are the argument names."""
    (first, reference), *others = arrays.items()
    for name, array in others:
        if len(array) != len(reference):
            raise ValueError(
                f"`{first}` has {len(reference)} items and `{name}` has {len(array)}: pass one of each per example."
            )


def label_arrays(**values: Any) -> list[np.ndarray]:
    """Label arrays of the same length and the same type; the keywords are the argument names."""
    arrays = {name: label_array(name, value) for name, value in values.items()}
    check_same_length(**arrays)
    (first, reference), *others = arrays.items()
    for name, array in others:
        if (array.dtype.kind == "U") != (reference.dtype.kind == "U"):
            raise ValueError(f"`{first}` and `{name}` mix label ids and label names: map both to ids or both to names.")
    return list(arrays.values())


def check_name(argument: str, name: Any, known: Iterable[str]) -> None:
    """Refuse a name that is not in `known`, listing the names and the nearest one."""
    known = list(known)
    if name in known:
        return
    near = nearest(name, known, cutoff=0.4)
    hint = f" Did you mean {near!r}?" if near else ""
    raise ValueError(f"`{argument}` {name!r} is not known: choose one of {known}.{hint}")
