# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What to minimise on a batch from several domains. An algorithm is one class with one `penalty` or `loss`, and one row in
`ALGORITHMS`.
"""

from dataclasses import dataclass
from itertools import combinations

import torch
from torch import nn
from torch.nn import functional as F

from hf_memaug.layers.discriminator import DomainDiscriminators, ReverseGradient


@dataclass
class DomainBatch:
    """
    A batch after the forward pass.

    Args:
        task_loss: the model's own loss, the mean over the batch.
        logits, labels: `(rows, labels)` and `(rows,)`.
        features: `(rows, width)`, what the head reads; `None` unless the algorithm has `needs_features`.
        domain_ids: `(rows,)`, which domain each row comes from.
        step: how many optimizer steps were made before this one.
    """

    task_loss: torch.Tensor
    logits: torch.Tensor
    labels: torch.Tensor
    features: torch.Tensor | None
    domain_ids: torch.Tensor
    step: int = 0

    def shares(self, domains: int) -> tuple[torch.Tensor, torch.Tensor]:
        """
        `(domains, rows)`, each domain's row averaging over its own rows, and how many rows each domain has. A domain
        that is not in the batch has zeros. Nothing here waits for the device, and no shape depends on the rows.
        """
        members = (self.domain_ids == torch.arange(domains, device=self.domain_ids.device).unsqueeze(-1)).float()
        counts = members.sum(dim=-1)
        return members / counts.clamp(min=1).unsqueeze(-1), counts


class ERM(nn.Module):
    """
    Empirical risk minimisation: the task loss alone, over batches with equal shares of the domains.

    The other algorithms add to it `penalty_weight` times a penalty of their own.
    """

    needs_features = False
    default_penalty_weight = 0.0

    def __init__(self, arguments, domains: list[str], feature_size: int):
        super().__init__()
        given = arguments.penalty_weight
        self.penalty_weight = self.default_penalty_weight if given is None else given
        self.anneal_steps = arguments.penalty_anneal_steps
        self.domains = domains

    def loss(self, batch: DomainBatch) -> torch.Tensor:
        if self.penalty_weight == 0 or batch.step < self.anneal_steps:
            return batch.task_loss
        return batch.task_loss + self.penalty_weight * self.penalty(batch)

    def penalty(self, batch: DomainBatch) -> torch.Tensor:
        return batch.task_loss.new_zeros(())


class IRM(ERM):
    """Invariant risk minimisation, IRMv1 (Arjovsky et al., 2019): in no domain would a scaled classifier do better."""

    default_penalty_weight = 1.0

    def penalty(self, batch: DomainBatch) -> torch.Tensor:
        logits = batch.logits.float()
        # The gradient of the cross-entropy of `w * logits` by the scalar `w`, at 1, row by row.
        expected = (logits.softmax(dim=-1) * logits).sum(dim=-1)
        gradients = expected - logits.gather(-1, batch.labels.unsqueeze(-1)).squeeze(-1)
        shares, counts = batch.shares(len(self.domains))
        # The mean over the domains that are in the batch.
        return (shares @ gradients).square().sum() / (counts > 0).sum().clamp(min=1)


class DeepCORAL(ERM):
    """Deep CORAL (Sun and Saenko, 2016): the features of all domains vary together in the same way."""

    needs_features = True
    default_penalty_weight = 1.0

    def penalty(self, batch: DomainBatch) -> torch.Tensor:
        features = batch.features.float()
        shares, counts = batch.shares(len(self.domains))
        centred = features.unsqueeze(0) - (shares @ features).unsqueeze(1)
        bessel = counts / (counts - 1).clamp(min=1)
        covariances = torch.einsum("dr,drf,drg->dfg", shares * bessel.unsqueeze(-1), centred, centred)
        # A single row does not vary.
        measured = counts > 1
        distances, pairs = features.new_zeros(()), features.new_zeros(())
        for first, second in combinations(range(len(self.domains)), 2):
            both = (measured[first] & measured[second]).float()
            distances = distances + both * (covariances[first] - covariances[second]).square().sum()
            pairs = pairs + both
        return distances / pairs.clamp(min=1) / (4 * features.shape[-1] ** 2)


class DANN(ERM):
    """
    Invariance learning without memory: the encoder deceives one discriminator for each domain (Ganin et al., 2016, in
    the one-against-the-rest form of MIL's Eq. 4 and 5, with the encoder in the memory's place).
    """

    needs_features = True
    default_penalty_weight = 0.1

    def __init__(self, arguments, domains: list[str], feature_size: int):
        super().__init__(arguments, domains, feature_size)
        self.discriminators = DomainDiscriminators(domains, feature_size, arguments.discriminator_hidden_size)

    def loss(self, batch: DomainBatch) -> torch.Tensor:
        # The discriminators learn at full strength also while the encoder is not yet, or hardly, turned against them.
        scale = self.penalty_weight if batch.step >= self.anneal_steps else 0.0
        features = ReverseGradient.apply(batch.features, scale)
        losses = []
        for index, domain in enumerate(self.domains):
            is_domain = (batch.domain_ids == index).to(torch.float32)
            # Each against all others together: without the weight, always saying "another" would be right most times.
            others = torch.full((), max(len(self.domains) - 1, 1), device=is_domain.device)
            logits = self.discriminators(features, domain)
            losses.append(F.binary_cross_entropy_with_logits(logits, is_domain.to(logits), pos_weight=others))
        return batch.task_loss + torch.stack(losses).mean()


ALGORITHMS = {"erm": ERM, "irm": IRM, "coral": DeepCORAL, "dann": DANN}
