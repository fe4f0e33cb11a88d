# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""CUDA graphs for a CPU."""

from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch.utils._pytree import tree_leaves

from hf_memaug.kernels.cuda_graphs import GraphedFunction


class Replayed(GraphedFunction):
    """
    Inputs and outputs lie in memory of their own, as a graph's do, and a replay draws the random numbers of the state
    it finds. What Python does happens when it is recorded; a test says by `unseen` what a replay must not do again.
    """

    def _record(self, inputs):
        own = {name: value.clone() for name, value in inputs.items()}
        numbers = torch.get_rng_state()
        outputs = self.function(own)
        torch.set_rng_state(numbers)

        def replay():
            with self.unseen():
                found = self.function(own)
            for kept, value in zip(tree_leaves(outputs), tree_leaves(found), strict=True):
                if kept is not None:
                    kept.detach().copy_(value)

        return SimpleNamespace(replay=replay), own, outputs

    @contextmanager
    def unseen(self):
        yield
