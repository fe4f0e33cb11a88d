# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The weights of the classes in the loss."""

import math
from collections.abc import Sequence

import torch

from hf_memaug.data.labels import LABEL_COLUMNS

BALANCED = "balanced"


def parsed_class_weights(given: Sequence[float] | str | None) -> list[float] | str | None:
    """`class_weights` of the arguments, also from `1,2.5`."""
    if given is None or given == BALANCED:
        return given  # type: ignore[return-value]
    try:
        found = [float(one) for one in (given.strip("[]").split(",") if isinstance(given, str) else given)]
    except (TypeError, ValueError):
        found = []
    if not found or not all(0 < one < math.inf for one in found):
        raise ValueError(
            f'`class_weights` is {given!r}. Use "balanced", or a number above 0 for each class, such as 1,2.5.'
        )
    return found


def class_weights(given: Sequence[float] | str, rows, num_labels: int) -> torch.Tensor:
    """The weight of each class, scaled so that the mean over the rows is 1. Then a loss is a mean over rows, too."""
    names = getattr(rows, "column_names", None) or ()
    column = next((name for name in LABEL_COLUMNS if name in names), None)
    labels: list = list(rows[column]) if column is not None else [None]
    if not all(hasattr(one, "__index__") and getattr(one, "ndim", 0) == 0 and 0 <= one < num_labels for one in labels):
        raise ValueError(
            f"`class_weights` needs one of {num_labels} classes in each row of `train_dataset`. Leave it out."
        )
    if not isinstance(given, str) and len(given) != num_labels:
        raise ValueError(
            f"`class_weights` has {len(given)} numbers, and there are {num_labels} classes. Give each one."
        )
    counts = torch.bincount(torch.tensor([int(one) for one in labels]), minlength=num_labels).double()
    weights = 1 / counts.clamp(min=1) if isinstance(given, str) else torch.tensor(given, dtype=torch.double)
    return (weights * counts.sum() / (weights @ counts)).float()
