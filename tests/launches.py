# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""How much a GPU would be given to do, counted on a CPU."""

from torch.utils._python_dispatch import TorchDispatchMode


class Launches(TorchDispatchMode):
    """Counts what a GPU would be given: operations that are no views, and kernels, whatever these do inside."""

    def __init__(self):
        super().__init__()
        self.found, self.is_inside = [], False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__.partition(".")[0]
        is_free = function.is_view or name in ("detach", "empty", "empty_like", "new_empty", "promote_types")
        if not is_free and not self.is_inside:
            self.found.append(name)
        return function(*args, **(kwargs or {}))

    def of(self, kernels):
        """The module with the kernels, where each says that it is launched."""
        launches = self

        class Counted:
            def __getattr__(self, name: str):
                self.name = name
                return self

            def __getitem__(self, grid):
                def launch(*args):
                    launches.found.append(self.name)
                    launches.is_inside = True
                    getattr(kernels, self.name)[grid](*args)
                    launches.is_inside = False

                return launch

        return Counted
