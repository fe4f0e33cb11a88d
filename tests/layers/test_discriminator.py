# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Domain discriminators, and the gradient that is turned round."""

import pytest
import torch
from torch import nn

from hf_memaug.layers.discriminator import DomainDiscriminators, ReverseGradient

DOMAINS = ["books", "a.b", "films & more"]


def make(hidden_size: int = 5) -> DomainDiscriminators:
    torch.manual_seed(0)
    return DomainDiscriminators(DOMAINS, feature_size=4, hidden_size=hidden_size)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_logit_for_each_row_is_its_two_layers_by_hand(domain):
    discriminators, features = make(), torch.randn(7, 4)
    first, _, second = discriminators.discriminators[DOMAINS.index(domain)]
    expected = (features @ first.weight.T + first.bias).clamp(min=0) @ second.weight.T + second.bias
    found = discriminators(features, domain)
    assert found.shape == (7,)
    torch.testing.assert_close(found, expected[:, 0])


def test_each_domain_has_a_discriminator_of_its_own():
    discriminators, features = make(), torch.randn(7, 4)
    logits = [discriminators(features, domain) for domain in DOMAINS]
    assert not torch.allclose(logits[0], logits[1]) and not torch.allclose(logits[1], logits[2])


def test_only_the_named_domain_learns():
    discriminators = make()
    discriminators(torch.randn(7, 4), "a.b").sum().backward()
    for index, discriminator in enumerate(discriminators.discriminators):
        for parameter in discriminator.parameters():
            assert (parameter.grad is not None and bool(parameter.grad.any())) == (index == 1)


@pytest.mark.parametrize("hidden_size", [0, 5])
def test_autocast_does_not_reach_the_game(hidden_size):
    discriminators, features = make(hidden_size), torch.randn(7, 4)
    expected = discriminators(features, "books")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nn.Linear(4, 1)(features).dtype == torch.bfloat16, "autocast is not on"
        found = discriminators(features, "books")
    assert found.dtype == torch.float32 and torch.equal(found, expected)


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
def test_the_reversed_gradient_against_autograd_by_hand(scale):
    torch.manual_seed(0)
    features, weight = torch.randn(6, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    reversed_features = ReverseGradient.apply(features, scale)
    assert torch.equal(reversed_features, features), "it is the identity"
    found = torch.autograd.grad((reversed_features @ weight).exp().sum(), [features, weight])
    plain = torch.autograd.grad((features @ weight).exp().sum(), [features, weight])
    torch.testing.assert_close(found[0], -scale * plain[0])
    torch.testing.assert_close(found[1], plain[1], msg="what lies behind the reversal learns as it would without")
