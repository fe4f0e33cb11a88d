# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimizers that go on when their model has grown."""

from collections.abc import Iterable

import torch


def grow_optimizer(optimizer: torch.optim.Optimizer, grown: Iterable) -> None:
    """
    Puts the parameters that grew in the place of the old ones. What the optimizer remembers of old entries (Adam's
    moments) is kept bit for bit, new entries start at zero, and step counts go on.

        grown = model.grow_memory(500)
        grow_optimizer(optimizer, grown)

    Args:
        optimizer (`torch.optim.Optimizer`): of the model, from before it grew. Changed in place.
        grown (`list[GrownParameter]`): what `grow_memory`, `grow_vocabulary` or `grow_hidden` returned.
    """
    grown = list(grown)
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not any(id(entry.old) in held for entry in grown):
        raise ValueError(
            "`optimizer` holds nothing of what grew. Pass the optimizer of this model as it was before, and each "
            "growth once, in its order."
        )
    for entry in grown:
        for name, value in optimizer.state.get(entry.old, {}).items():
            if torch.is_tensor(value) and value.ndim and value.shape != entry.old.shape:
                raise ValueError(
                    f"`{type(optimizer).__name__}` remembers `{name}` of `{entry.name}` in another shape "
                    f"({tuple(value.shape)}) than the parameter's ({tuple(entry.old.shape)}), which cannot grow with "
                    "it. Make a new optimizer of the model that has grown."
                )
    news = {id(entry.old): entry for entry in grown}
    for group in optimizer.param_groups:
        group["params"] = [news[id(p)].new if id(p) in news else p for p in group["params"]]
    for entry in grown:
        if entry.old not in optimizer.state:
            continue
        state = optimizer.state.pop(entry.old)
        optimizer.state[entry.new] = {
            name: entry.carry(value, torch.zeros_like(entry.new, dtype=value.dtype, requires_grad=False))
            if torch.is_tensor(value) and value.shape == entry.old.shape
            else value
            for name, value in state.items()
        }
