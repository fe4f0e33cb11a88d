# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels of a router, in Triton's interpreter or on a GPU, against their plain twins."""

import importlib.util

import pytest
import torch
from interpreted import run_interpreted

from hf_memaug.kernels.fused_routing import busy_experts, can_fuse_routing, choose_experts, cosine_logits
from hf_memaug.layers.router import CosineRouter, balance_loss, importance_loss, load_loss, route

# Tokens, experts, k, width, noise: sizes that fill no block, all experts but one, many, and one token.
CASES = [(37, 6, 2, 32, 0.2), (5, 4, 3, 16, 0.5), (130, 12, 2, 24, 0.3), (1, 2, 2, 8, 0.2)]


def compare(case, device: str = "cpu", tolerance: float = 2e-4) -> None:
    count, experts, k, width, noise = case
    torch.manual_seed(0)
    router = CosineRouter(20, experts, width).to(device)
    tokens = torch.randn(count, 20, device=device, requires_grad=True)
    learned = [tokens, *router.parameters()]
    of_weights, of_logits = torch.randn(count, k, device=device), torch.randn(count, experts, device=device)

    def cosine() -> torch.Tensor:
        scale = router.log_scale.clamp(max=router.max_log_scale).exp()
        return cosine_logits(tokens, router.projection.weight, router.projection.bias, router.experts, scale)

    def results(is_fused: bool):
        torch.manual_seed(1)
        if is_fused:
            logits = cosine()
            chosen, weights, noisy = choose_experts(logits, k, noise)
            losses = balance_loss(busy_experts(logits, noisy, chosen, noise))
        else:
            logits = router(tokens)
            _, chosen, weights, noisy = routing = route(logits, k, noise)
            losses = torch.stack([importance_loss(logits), load_loss(routing, noise)])
        loss = (weights * of_weights).sum() + losses @ losses.new_tensor([1.0, 2.0])
        return loss + (logits * of_logits).mean() + (noisy * of_logits).square().mean(), logits, chosen, weights, noisy

    found = []
    for is_fused in (False, True):
        loss, *values = results(is_fused)
        found.append([loss, *values, *torch.autograd.grad(loss, learned)])
        # A step's gradients, differentiated again: with kernels in the forward pass alone.
        firsts = torch.autograd.grad(results(is_fused)[0], learned, create_graph=True)
        found[-1] += [*firsts, *torch.autograd.grad(sum(one.square().sum() for one in firsts), learned)]
    for expected, one in zip(*found, strict=True):
        assert one.dtype == expected.dtype
        torch.testing.assert_close(one, expected, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_values_and_gradients_in_the_interpreter():
    run_interpreted(__file__, len(CASES))


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*CASES, (5000, 6, 2, 256, 0.2), (3000, 64, 2, 256, 0.1)])
def test_values_and_gradients_on_a_gpu(case):
    torch.set_float32_matmul_precision("highest")
    compare(case, "cuda", tolerance=2e-3)


def test_it_is_for_a_gpu():
    assert not can_fuse_routing(torch.zeros(3, 6), 6, 2, 256)


if __name__ == "__main__":
    for one in CASES:
        compare(one)
        print("the same")
