# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show. Skipped, with that reason, where there is none."""

import pytest
import torch
from families import CASES, KV_CASES, Case, features_of

pytestmark = pytest.mark.gpu


def on_gpu(inputs: dict) -> dict:
    """Graphs come with their number, which is no tensor."""
    return {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_gpu_agrees_with_the_cpu(case: Case):
    model, inputs = case.model(), case.inputs()
    expected = features_of(model(**inputs))
    found = features_of(model.cuda()(**on_gpu(inputs)))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bf16_autocast_on_the_gpu(case: Case):
    model, inputs = case.model(), case.inputs()
    expected = features_of(model(**inputs))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = model.cuda()(**on_gpu(inputs))
    if case in KV_CASES:
        # The memory is read in the precision of its table.
        assert output.memory_features.dtype == torch.float32
    assert (features_of(output).float().cpu() - expected).norm() / expected.norm() < 0.05


@pytest.mark.parametrize("head_size", [10, 24, 126])
def test_heads_of_any_size_read_their_memories(head_size):
    """Features of 8, 64 and 472 are whole vectors; of the heads, 24 alone."""
    case = Case("hma", "HMAHead")
    # Weights so small that wide heads do not magnify the rounding of float32.
    sizes = {"feature_size": 4 * head_size - 32, "label_embedding_size": 32, "initializer_range": 0.02}
    model = case.model(**sizes, inference="batch").train()
    features, labels = torch.randn(6, model.config.feature_size), torch.arange(6) % 3
    results = []
    for device in ("cpu", "cuda"):
        model.to(device).zero_grad()
        output = model(features.to(device), labels=labels.to(device))
        output.loss.backward()
        # Copies: a model that moves takes its gradients with it.
        results.append([one.detach().cpu().clone() for one in (output.logits, *(p.grad for p in model.parameters()))])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


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
