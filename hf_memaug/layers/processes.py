# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether a model is one of several."""

import torch


def has_processes() -> bool:
    """Whether this process is one of a group, which may be a group of one."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
