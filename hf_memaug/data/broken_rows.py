# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Rows that cannot be read: an error that names them, or a dataset without them."""

import logging
from collections.abc import Callable
from typing import Any

from huggingface_hub.utils import tqdm

from hf_memaug.messages import listed

logger = logging.getLogger(__name__)


def check_column(dataset, column: str, check: Callable[[Any], Any], broken: str, what: str):
    """
    The dataset without the rows whose value makes `check` raise an error (`broken="skip"`), or an error about them
    (`"refuse"`). `what` says what is wrong, such as "rows are no graphs".
    """
    if broken not in ("refuse", "skip"):
        raise ValueError(f"`broken` is {broken!r}; it must be 'refuse' or 'skip'.")
    if column not in dataset.column_names:
        raise ValueError(f"`dataset` has no column {column!r}; it has: {listed(dataset.column_names)}.")
    reasons: dict[int, str] = {}
    for row in tqdm(range(len(dataset)), desc=f"Checking `{column}`", unit="row", disable=len(dataset) <= 2000):
        try:
            check(dataset[row][column])
        except ImportError:  # says which extra is missing
            raise
        except Exception as error:  # `datasets` decodes images by itself, and raises what Pillow raises.
            reasons[row] = str(error)
    if not reasons:
        return dataset
    domains = list(dataset["domain"]) if "domain" in dataset.column_names else [None] * len(dataset)
    where = {row: "" if domains[row] is None else f" (domain {domains[row]!r})" for row in reasons}
    shown = [f"row {row}{where[row]}: {reason}" for row, reason in reasons.items()][:5]
    more = [f"And {len(reasons) - 5} more."] if len(reasons) > 5 else []
    summary = f"{len(reasons)} of {len(dataset)} {what}. {' '.join([*shown, *more])}"
    if broken == "refuse":
        raise ValueError(f'`dataset`: {summary} Fix these rows, or leave them out with `broken="skip"`.')
    kept = [row for row in range(len(dataset)) if row not in reasons]
    lost = sorted({str(name) for name in domains} - {str(domains[row]) for row in kept})
    if lost:
        raise ValueError(f"`dataset`: no row of {listed(lost)} is left. {summary} Fix them, or remove that domain.")
    logger.warning("%s They are left out.", summary)
    return dataset.select(kept)
