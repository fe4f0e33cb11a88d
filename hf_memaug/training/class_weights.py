# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The weights of the classes in the loss."""

import math
from collections.abc import Sequence

import torch

from hf_memaug.data.labels import LABEL_COLUMNS


def class_weights(given: Sequence[float] | str, rows, num_labels: int) -> torch.Tensor:
    """The weight of each class, scaled so that the mean over the rows is 1. Then a loss is a mean over rows, too."""
    column = next((name for name in LABEL_COLUMNS if name in (getattr(rows, "column_names", None) or ())), None)
    values = [None] if column is None else [*rows[column]]
    labels = torch.tensor(values if all(hasattr(one, "__index__") for one in values) else [-1])
    if labels.ndim != 1 or not 0 <= labels.min() <= labels.max() < num_labels:
        raise ValueError(f"`class_weights` needs one of {num_labels} classes in each row of `train_dataset`.")
    counts = labels.bincount(minlength=num_labels).double()
    weights = 1 / counts.clamp(min=1)
    if given != "balanced":
        try:
            numbers = [float(one) for one in (given.strip("[]").split(",") if isinstance(given, str) else given)]
        except ValueError:
            numbers = []
        if len(numbers) != num_labels or not all(0 < one < math.inf for one in numbers):
            raise ValueError(f'`class_weights` is {given!r}. Use "balanced", or {num_labels} numbers above 0.')
        weights = torch.tensor(numbers, dtype=torch.double)
    return (weights * counts.sum() / (weights @ counts)).float()
