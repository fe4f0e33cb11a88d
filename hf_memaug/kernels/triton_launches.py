# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What everybody needs who launches Triton kernels. Importing this does not need Triton."""

import importlib.util

# A checkpoint that carries its code goes without: transformers would ask for Triton when it loads it.
HAS_TRITON = all(importlib.util.find_spec(name) is not None for name in ("triton", "hf_memaug"))


def block_of(size: int) -> int:
    """The smallest block that holds so many: blocks are powers of two."""
    return max(2, 1 << (size - 1).bit_length())
