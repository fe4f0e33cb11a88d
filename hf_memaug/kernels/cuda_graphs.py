# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
CUDA graphs for code whose kernels are so short that a GPU waits for Python between them: the steps of small encoders.

The plain twin of `GraphedFunction(function)` is `function` itself.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch


class GraphedFunction:
    """
    Calls `function` on tensors, recorded once for each shape of its inputs and replayed from then on.

    What `function` returns lies in memory that the next replay overwrites: copy what is to outlive it. Everything in it
    must happen on the device; what it does in Python happens only when it is recorded.

    Args:
        function (`Callable[[dict[str, Tensor]], Any]`): what to record.
        warm_up (`int`): calls before the recording, in which libraries choose their kernels.
    """

    def __init__(self, function: Callable[[dict], Any], warm_up: int = 3):
        self.function = function
        self.warm_up = warm_up
        self._recorded: dict[tuple, tuple] = {}
        self._pool = None

    def __call__(self, inputs: dict[str, torch.Tensor], key: Hashable = None) -> Any:
        """`key` tells apart calls whose inputs have the same shapes but that do different things."""
        shapes = tuple((name, value.shape, value.dtype) for name, value in inputs.items())
        if (key, shapes) not in self._recorded:
            self._recorded[key, shapes] = self._record(inputs)
        graph, own, outputs = self._recorded[key, shapes]
        for name, value in inputs.items():
            own[name].copy_(value, non_blocking=True)
        graph.replay()
        return outputs

    def _record(self, inputs: dict[str, torch.Tensor]) -> tuple:
        own = {name: value.clone() for name, value in inputs.items()}
        # A run that goes on records anew, and is to draw the same numbers as one that was never disturbed.
        numbers = torch.cuda.get_rng_state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(self.warm_up):
                self.function(own)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            outputs = self.function(own)
        # Only one graph's outputs are in use at a time, so all of them can share their memory.
        self._pool = graph.pool()
        torch.cuda.set_rng_state(numbers)
        return graph, own, outputs
