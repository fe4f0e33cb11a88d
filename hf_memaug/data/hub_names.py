# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Datasets of the hub, by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def is_hub_name(name: str) -> bool:
    """Whether it has the form of one: `name` or `owner/name`, and not of a file path."""
    return name.count("/") <= 1 and not name.startswith((".", "/", "~")) and not Path(name).suffix


def load_from_hub(name: str, split: str | None = None) -> Any:
    """A source for `load_domains`: a dataset with its splits, or the one that it has where none is asked for."""
    try:
        from datasets import load_dataset

        found = load_dataset(name)
        return next(iter(found.values())) if split is None and len(found) == 1 else found
    except Exception as error:  # the hub, the network, the dataset and a missing library each fail in their own way
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{name!r} is no file or folder, and no dataset of the hub could be loaded by this name ({said})."
        ) from error
