# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What everybody needs who launches Triton kernels. Importing this does not need Triton."""

import functools
import importlib
import importlib.util
import warnings

import torch

# A checkpoint that carries its code goes without: transformers would ask for Triton when it loads it.
HAS_TRITON = all(importlib.util.find_spec(name) is not None for name in ("triton", "hf_memaug"))


def can_launch(device: torch.device) -> bool:
    """
    Whether kernels run there: on the current GPU, which is where Triton launches. They do not under a compiler or
    `torch.func`, which understand plain operations alone.
    """
    if torch.compiler.is_compiling() or not HAS_TRITON or device.type != "cuda":
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return device.index in (None, torch.cuda.current_device()) and _can_build(device)


@functools.cache
def _can_build(device: torch.device) -> bool:
    """Tried once: Triton needs a C compiler, and a GPU that it knows."""
    place = torch.zeros(1, dtype=torch.int32, device=device)
    try:
        importlib.import_module("hf_memaug.kernels.triton_probe").write_one[(1,)](place)
    except Exception as error:  # whatever its compiler, the system's and the driver raise
        warnings.warn(
            f"Triton cannot build kernels for {device}, and plain operations are used, which give the same and take "
            f"longer. It needs a C compiler, such as gcc, or one that `CC` names. It says: {error!r}",
            stacklevel=2,
        )
        return False
    return True


def block_of(size: int) -> int:
    """The smallest block that holds so many: blocks are powers of two."""
    return max(2, 1 << (size - 1).bit_length())
