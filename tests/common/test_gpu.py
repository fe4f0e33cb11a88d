# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show. Skipped, with that reason, where there is none."""

import pytest
import torch
from families import CASES, KV_CASES, Case, features_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_gpu_agrees_with_the_cpu(case: Case):
    model, inputs = case.model(), case.inputs()
    expected = features_of(model(**inputs))
    found = features_of(model.cuda()(**{name: value.cuda() for name, value in inputs.items()}))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bf16_autocast_on_the_gpu(case: Case):
    model, inputs = case.model(), case.inputs()
    expected = features_of(model(**inputs))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = model.cuda()(**{name: value.cuda() for name, value in inputs.items()})
    if case in KV_CASES:
        # The memory is read in the precision of its table.
        assert output.memory_features.dtype == torch.float32
    assert (features_of(output).float().cpu() - expected).norm() / expected.norm() < 0.05


@pytest.mark.parametrize("case", KV_CASES, ids=str)
def test_reading_the_memory_never_waits_for_the_device(case: Case):
    """A read-back would stop the GPU at every step. (The encoder's own mask has one; the memory adds none.)"""
    model = case.model().cuda().train()
    memory = next(module for module in model.modules() if isinstance(module, model.memory_modules))
    features = torch.randn(8, model.config.hidden_size, device="cuda", requires_grad=True)
    memory(features)[0].sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        memory(features)[0].sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(torch.isfinite(p.grad).all() for p in memory.parameters())
