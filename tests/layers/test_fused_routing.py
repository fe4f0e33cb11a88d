# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels of a router, in Triton's interpreter or on a GPU, against their plain twins."""

import importlib.util
import tempfile

import pytest
import torch
from interpreted import run_interpreted

from hf_memaug.kernels.fused_routing import busy_experts, busy_loss, can_fuse_routing, choose_experts, cosine_logits
from hf_memaug.layers.router import CosineRouter, balance_loss, importance_loss, load_loss, route

# Tokens, experts, k, width, noise: sizes that fill no block, all experts but one, several blocks, one token, and many.
CASES = [(37, 6, 2, 32, 0.2), (5, 4, 3, 16, 0.5), (130, 12, 2, 24, 0.3), (1, 2, 2, 8, 0.2), (150, 64, 2, 16, 0.1)]


def cosine(router: CosineRouter, tokens: torch.Tensor) -> torch.Tensor:
    weight, bias = router.projection.weight, router.projection.bias
    return cosine_logits(tokens, weight, bias, router.experts, router.log_scale, router.max_log_scale)


def compare(case, device: str = "cpu", tolerance: float = 2e-4) -> None:
    count, experts, k, width, noise = case
    torch.manual_seed(0)
    router = CosineRouter(20, experts, width).to(device)
    tokens = torch.randn(count, 20, device=device, requires_grad=True)
    learned = [tokens, *router.parameters()]
    of_weights, of_logits = torch.randn(count, k, device=device), torch.randn(count, experts, device=device)

    def results(is_fused: bool):
        torch.manual_seed(1)
        if is_fused:
            logits = cosine(router, tokens)
            chosen, weights, noisy = choose_experts(logits, k, noise)
            losses = balance_loss(busy_experts(logits, noisy, chosen, noise).sum(dim=0))
            both = busy_loss(logits, noisy, chosen, noise)
        else:
            logits = router(tokens)
            _, chosen, weights, noisy = routing = route(logits, k, noise)
            losses = torch.stack([importance_loss(logits), load_loss(routing, noise)])
            both = losses.mean()
        loss = 3 * both + (weights * of_weights).sum() + losses @ losses.new_tensor([1.0, 2.0])
        loss = loss + (logits * of_logits).mean() + (noisy * of_logits).square().mean()
        return loss, both, logits, chosen, weights, noisy

    found = []
    for is_fused in (False, True):
        loss, *values = results(is_fused)
        found.append([loss, *values, *torch.autograd.grad(loss, learned)])
        # A step's gradients, differentiated again: with kernels in the forward pass alone.
        firsts = torch.autograd.grad(results(is_fused)[0], learned, create_graph=True)
        found[-1] += [*firsts, *torch.autograd.grad(sum(one.square().sum() for one in firsts), learned)]
    for expected, one in zip(*found, strict=True):
        assert one.dtype == expected.dtype
        largest = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(one, expected, rtol=tolerance, atol=tolerance / 10 * largest)


def compare_edges(device: str = "cpu") -> None:
    """A scale beyond the largest, an expert without a direction, and one that is shorter than the shortest length."""
    torch.manual_seed(0)
    router, tokens = CosineRouter(20, 5, 16, scale=200.0).to(device), torch.randn(9, 20, device=device)
    with torch.no_grad():
        router.experts[1] = 0
        router.experts[3] *= 1e-14
    wanted, learned = torch.randn(9, 5, device=device), [router.experts, router.log_scale]
    plain, fused = router(tokens), cosine(router, tokens)
    found, expected = (torch.autograd.grad(one, learned, wanted) for one in (fused, plain))
    assert float(found[1]) == float(expected[1]) == 0 and fused.isfinite().all()
    for row, one in ((slice(None), (fused, plain)), *((row, (found[0][row], expected[0][row])) for row in range(5))):
        largest = one[1].abs().max().item()
        torch.testing.assert_close(one[0], one[1], rtol=2e-3, atol=2e-3 * largest, msg=str(row))


def compare_spoilt(device: str = "cpu") -> None:
    """What is not a number goes to experts that there are, with weights that say so; other tokens are as they were."""
    logits = torch.randn(40, 6, device=device)
    logits[3], logits[7, 2] = float("nan"), float("nan")
    chosen, weights, _ = choose_experts(logits, 2)
    assert 0 <= int(chosen.min()) and int(chosen.max()) < 6
    spoilt = weights.isnan().any(dim=-1)
    assert spoilt.nonzero().flatten().tolist() == [3, 7]
    expected = route(logits, 2)
    assert torch.equal(chosen[~spoilt], expected.experts[~spoilt])


def compare_processes(folder: str) -> None:
    """Where there are processes, their sums come in between: of one alone, the same."""
    logits = torch.randn(70, 5, requires_grad=True)
    chosen, _, noisy = choose_experts(logits, 2, 0.3)
    found = []
    for _ in range(2):
        loss = busy_loss(logits, noisy, chosen, 0.3)
        found.append([loss, *torch.autograd.grad(loss, logits, retain_graph=True)])
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/all", rank=0, world_size=1)
    torch.distributed.destroy_process_group()
    torch.testing.assert_close(*found)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_values_and_gradients_in_the_interpreter():
    run_interpreted(__file__, len(CASES) + 3)


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*CASES, (5000, 6, 2, 256, 0.2), (3000, 64, 2, 256, 0.1)])
def test_values_and_gradients_on_a_gpu(case):
    torch.set_float32_matmul_precision("highest")
    compare(case, "cuda", tolerance=2e-3)


@pytest.mark.gpu
def test_edges_on_a_gpu():
    torch.set_float32_matmul_precision("highest")
    compare_edges("cuda")


@pytest.mark.gpu
def test_what_is_not_a_number_on_a_gpu():
    compare_spoilt("cuda")


def test_it_is_for_a_gpu():
    assert not can_fuse_routing(torch.zeros(3, 6), 6, 2, 256)


if __name__ == "__main__":
    for one in CASES:
        compare(one)
        print("the same")
    compare_edges()
    print("the same")
    compare_spoilt()
    print("the same")
    with tempfile.TemporaryDirectory() as folder:
        compare_processes(folder)
    print("the same")
