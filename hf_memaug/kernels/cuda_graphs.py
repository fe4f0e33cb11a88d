# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
CUDA graphs for functions whose GPU kernels are shorter than Python's launches, such as the steps of small encoders.

The plain twin of `GraphedFunction(function)` is `function` itself.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch

_recordings = 0


def is_recording() -> bool:
    """Whether a CUDA graph is being recorded or warmed up, in any thread: a backward pass has its own."""
    return _recordings > 0


class GraphedFunction:
    """
    Records `function` once for each shape of its inputs, and replays the recording from then on.

    The next replay overwrites the returned tensors: copy what you keep. The function must run on the device alone; its
    Python code runs only during the recording.

    Args:
        function (`Callable[[dict[str, Tensor]], Any]`): the function to record.
    """

    def __init__(self, function: Callable[[dict], Any]):
        self.function = function
        self._recorded: dict[tuple, tuple] = {}
        self._pool: Any = None

    def __call__(self, inputs: dict[str, torch.Tensor], key: Hashable = None) -> Any:
        """`key` distinguishes calls with inputs of the same shapes that do different things."""
        shapes = tuple((name, value.shape, value.dtype) for name, value in inputs.items())
        if (key, shapes) not in self._recorded:
            self._recorded[key, shapes] = self._record(inputs)
        graph, own, outputs = self._recorded[key, shapes]
        for name, value in inputs.items():
            own[name].copy_(value, non_blocking=True)
        graph.replay()
        return outputs

    def _record(self, inputs: dict[str, torch.Tensor]) -> tuple:
        global _recordings
        own = {name: value.clone() for name, value in inputs.items()}
        # A resumed run records again, and must draw the same random numbers as an uninterrupted one.
        numbers = torch.cuda.get_rng_state()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        _recordings += 1
        try:
            with torch.cuda.stream(stream):
                # Calls before the recording, in which libraries select their kernels.
                for _ in range(3):
                    self.function(own)
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph, pool=self._pool):
                outputs = self.function(own)
        finally:
            _recordings -= 1
        # Only one graph's outputs are in use at a time, so all graphs can share memory.
        self._pool = graph.pool()
        torch.cuda.set_rng_state(numbers)
        return graph, own, outputs
