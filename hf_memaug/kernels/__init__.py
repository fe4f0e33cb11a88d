# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Fast paths, each with a plain twin that tests compare it with."""

from hf_memaug.kernels.cuda_graphs import GraphedFunction
from hf_memaug.kernels.grouped_experts import grouped_experts

__all__ = ["GraphedFunction", "grouped_experts"]
