# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks make of what a profiler saw, without a GPU."""

import runpy
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import torch

TIMING = Path(__file__).parents[1] / "benchmarks" / "timing.py"


def test_kernels_are_summed_and_counted_by_the_step(monkeypatch):
    seen = []

    def step(times):
        def run():
            seen.extend(
                # What the host does, and a range with a name, are no kernels.
                SimpleNamespace(
                    device_type=kind,
                    time_range=SimpleNamespace(elapsed_us=lambda time=time: time),
                    is_user_annotation=is_range,
                )
                for time in times
                for kind, is_range in (("CUDA", False), ("CPU", False), ("CUDA", True))
            )

        return run

    def profile(activities):
        # What came before, to warm up, is not seen.
        seen.clear()
        return nullcontext(SimpleNamespace(events=lambda: list(seen)))

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.autograd, "DeviceType", SimpleNamespace(CUDA="CUDA"))
    monkeypatch.setattr(torch.profiler, "profile", profile)
    timing = runpy.run_path(str(TIMING))
    kernels, launches = timing["compare_kernels"]("train", "ViT", step([1000.0, 1000.0]), step([1000.0] * 3))
    assert kernels == {"what": "train_kernels", "value": 3.0, "unit": "ms", "against": "ViT 2.00 ms", "ratio": 1.5}
    assert launches["what"] == "train_launches" and (launches["value"], launches["ratio"]) == (3.0, 1.5)


def test_what_lay_on_the_gpu_before_a_step_can_be_left_out(monkeypatch):
    """Two reads in memory would hide what one needs."""
    for name, value in {"synchronize": None, "reset_peak_memory_stats": None, "memory_allocated": 3 * 2**30}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 7 * 2**29)
    peak = runpy.run_path(str(TIMING))["peak"]
    assert peak(lambda: None) == 3.5 and peak(lambda: None, beside=True) == 0.5
