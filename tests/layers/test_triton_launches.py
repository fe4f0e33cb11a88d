# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Where Triton kernels are launched, and what is said where they cannot be built."""

import warnings
from types import SimpleNamespace

import pytest
import torch

from hf_memaug.kernels import triton_launches
from hf_memaug.kernels.triton_launches import can_launch

GPU = torch.device("cuda", 0)


@pytest.fixture
def builds(monkeypatch):
    """As on a machine with two GPUs, the first of which is the current one. What is raised there is the build's."""
    tried = SimpleNamespace(count=0, error=None)

    class Kernel:
        def __getitem__(self, grid):
            return self

        def __call__(self, place):
            tried.count += 1
            if tried.error is not None:
                raise tried.error

    zeros = torch.zeros
    monkeypatch.setattr(triton_launches, "HAS_TRITON", True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "zeros", lambda *sizes, device=None, **given: zeros(*sizes, **given))
    # There alone: torch imports parts of itself as they are needed.
    probe = SimpleNamespace(import_module=lambda name: SimpleNamespace(write_one=Kernel()))
    monkeypatch.setattr(triton_launches, "importlib", probe)
    triton_launches._can_build.cache_clear()
    yield tried
    triton_launches._can_build.cache_clear()


def test_on_the_current_gpu(builds):
    assert can_launch(GPU) and can_launch(torch.device("cuda")) and can_launch(GPU)
    assert builds.count == 2, "each device is tried once"
    assert not can_launch(torch.device("cuda", 1)), "Triton would launch on the other"
    assert not can_launch(torch.device("cpu"))


def test_not_without_triton(builds, monkeypatch):
    monkeypatch.setattr(triton_launches, "HAS_TRITON", False)
    assert not can_launch(GPU)
    assert not builds.count


def test_not_where_plain_operations_are_asked_for(builds, monkeypatch):
    found = []
    torch.func.vmap(lambda row: found.append(can_launch(GPU)) or row)(torch.ones(2))
    torch.func.grad(lambda row: found.append(can_launch(GPU)) or row)(torch.tensor(1.0))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert [*found, can_launch(GPU)] == [False] * 3


def test_what_cannot_be_built_is_said_once(builds):
    builds.error = RuntimeError("Failed to find C compiler.")
    with pytest.warns(UserWarning, match=r"needs a C compiler.*Failed to find C compiler"):
        assert not can_launch(GPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not can_launch(GPU)
    assert builds.count == 1
