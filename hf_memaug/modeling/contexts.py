# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Contexts in which a model is otherwise."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def replaced(owner: object, name: str, value: Any) -> Iterator[None]:
    """A context in which an attribute has another value."""
    kept = getattr(owner, name)
    try:
        setattr(owner, name, value)
        yield
    finally:
        setattr(owner, name, kept)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A context in which a model is in evaluation mode."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
