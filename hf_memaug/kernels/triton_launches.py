# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What everybody needs who launches Triton kernels. Importing this does not need Triton."""

import importlib.util
from collections.abc import Callable

import torch

# A checkpoint that carries its code goes without: transformers would ask for Triton when it loads it.
HAS_TRITON = all(importlib.util.find_spec(name) is not None for name in ("triton", "hf_memaug"))


def block_of(size: int) -> int:
    """The smallest block that holds so many: blocks are powers of two."""
    return max(2, 1 << (size - 1).bit_length())


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
    asked = [pair for pair in zip(results, gradients, strict=True) if pair[0].requires_grad and pair[1] is not None]
    found: list[torch.Tensor | None] = [None] * len(given)
    if asked:
        outputs, wanted = zip(*asked, strict=True)
        learned = [given[place] for place in places]
        for place, one in zip(
            places, torch.autograd.grad(outputs, learned, wanted, create_graph=True, allow_unused=True), strict=True
        ):
            found[place] = one
    return tuple(found)
