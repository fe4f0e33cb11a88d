# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Means of what is measured at each step, in a trainer's logs."""

import torch


class LoggedMeans:
    """For a `Trainer`: beside each `loss` it logs the means, since the last one and over all processes, of the rest."""

    def __init__(self, *args, **kwargs):
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = {}
        super().__init__(*args, **kwargs)

    def _log_mean(self, name: str, value: torch.Tensor) -> None:
        """Nothing here waits for the device. All processes must give the same names between two logs."""
        self._sums[name] = self._sums.get(name, 0.0) + value.detach()
        self._counts[name] = self._counts.get(name, 0) + 1

    def _mean_over_processes(self, tensors: dict) -> dict:
        if self.args.world_size == 1:
            return tensors
        return {name: self.accelerator.reduce(value, reduction="mean") for name, value in tensors.items()}

    def log(self, logs: dict, *args, **kwargs) -> None:
        if self._sums and "loss" in logs:
            means = self._mean_over_processes({name: self._sums[name] / self._counts[name] for name in self._sums})
            logs.update({name: float(value) for name, value in means.items()})
            self._sums.clear()
            self._counts.clear()
        super().log(logs, *args, **kwargs)
