# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Backward passes that are written by hand, where they are to be differentiated themselves."""

from collections.abc import Callable

import torch


def plain_gradients(plain: Callable, given: tuple, gradients: tuple) -> tuple[torch.Tensor | None, ...]:
    """
    What a backward pass returns where it is to be differentiated itself: of each tensor of `given`, the gradient
    through plain torch, with a graph of its own.

    Args:
        plain: `given` to a tensor or several, as the forward kernel.
        gradients: of what it returns, in that order.
    """
    # Other names of the same tensors: where one is made of another, each gets its own part alone.
    given = tuple(one.view_as(one) if isinstance(one, torch.Tensor) and one.requires_grad else one for one in given)
    places = [place for place, one in enumerate(given) if isinstance(one, torch.Tensor) and one.requires_grad]
    results = plain(*given)
    results = results if isinstance(results, tuple) else (results,)
    # Nobody asked for a result without a gradient.
    asked = [
        (result, gradient)
        for result, gradient in zip(results, gradients, strict=True)
        if gradient is not None and result.requires_grad
    ]
    found: list[torch.Tensor | None] = [None] * len(given)
    if asked:
        outputs, wanted = zip(*asked, strict=True)
        learned = [given[place] for place in places]
        for place, one in zip(
            places, torch.autograd.grad(outputs, learned, wanted, create_graph=True, allow_unused=True), strict=True
        ):
            found[place] = one
    return tuple(found)
