# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""GMoE with `"fused_experts"` in Triton's interpreter: a training step beside the plain one, and what it launches."""

import importlib.util

import pytest
import torch
from families import vit_gmoe_config
from interpreted import run_interpreted
from launches import Launches
from transformers.models.vit.modeling_vit import ViTLayer

from hf_memaug import ViTGMoEForImageClassification
from hf_memaug.kernels import fused_experts, fused_routing
from hf_memaug.modeling import modeling_vit_gmoe


def make(implementation: str) -> ViTGMoEForImageClassification:
    torch.manual_seed(0)
    model = ViTGMoEForImageClassification(vit_gmoe_config())
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.set_experts_implementation(implementation)
    return model.train()


def compare_steps() -> None:
    images = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    found = []
    for implementation in ("grouped_experts", "fused_experts"):
        model = make(implementation)
        torch.manual_seed(2)
        output = model(images, labels=torch.tensor([0, 1, 2]))
        output.loss.backward()
        found.append([output.loss, output.aux_loss, *(one.grad for one in model.parameters())])
    for expected, one in zip(*found, strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-3, atol=1e-4 * max(1.0, expected.abs().max().item()))


def count_launches() -> None:
    """A mixture issues 39, and the plain network 20. Two processes' sums would come on top."""
    moe = next(one for one in make("fused_experts").modules() if isinstance(one, modeling_vit_gmoe.MixtureOfExperts))
    hidden = torch.randn(2, 5, moe.config.hidden_size, requires_grad=True)
    launches = Launches()
    for module in (fused_experts, fused_routing):
        module._kernels = launches.of(module._kernels())
    with launches:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            said, routing = moe(hidden)
            loss = moe.auxiliary_loss(routing)
        forward = len(launches.found)
        torch.autograd.backward([said, loss], [said.detach(), loss.detach()])
    assert said.dtype == torch.float32, "as the tokens"
    assert forward <= 17 and len(launches.found) <= 39, launches.found
    plain, launches.found, hidden.grad = ViTLayer(moe.config).mlp, [], None
    with launches:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            said = plain(hidden)
        said.backward(said.detach())
    assert len(launches.found) == 20, launches.found
    # No tokens are not worth a kernel.
    none = torch.zeros(0, moe.config.hidden_size)
    assert moe.experts(none, torch.zeros(0, 2, dtype=torch.long), torch.zeros(0, 2)).shape == none.shape


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_step_in_the_interpreter():
    run_interpreted(__file__, 2)


if __name__ == "__main__":
    modeling_vit_gmoe.can_fuse = modeling_vit_gmoe.can_fuse_routing = lambda *given: True
    compare_steps()
    print("the same")
    count_launches()
    print("the same")
