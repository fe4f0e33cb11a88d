# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Algorithms that add a penalty to the task loss, or weigh the domains otherwise."""

from itertools import combinations
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from hf_memaug.layers.discriminator import DomainDiscriminators, ReverseGradient
from hf_memaug.layers.real_memory import has_processes
from hf_memaug.training.algorithms.base import ERM, Limits
from hf_memaug.training.forward_pass import DomainBatch


class IRM(ERM):
    """Invariant risk minimisation, IRMv1 (Arjovsky et al., 2019): in no domain would a scaled classifier do better."""

    reads_labels = compares_domains = True

    def penalty(self, batch: DomainBatch) -> torch.Tensor:
        logits = batch.logits.float()
        # The gradient of the cross-entropy of `w * logits` by the scalar `w`, at 1, row by row.
        expected = (logits.softmax(dim=-1) * logits).sum(dim=-1)
        gradients = expected - logits.gather(-1, batch.labels.unsqueeze(-1)).squeeze(-1)
        shares, counts = batch.shares(len(self.domains))
        # The mean over the domains that are in the batch.
        return (shares @ gradients).square().sum() / (counts > 0).sum().clamp(min=1)


class VREx(ERM):
    """Risk extrapolation (Krueger et al., 2021, Eq. 8): no domain's loss lies far from the others'."""

    reads_labels = compares_domains = compares_rows = True
    default_penalty_weight = 10.0

    def penalty(self, batch: DomainBatch) -> torch.Tensor:
        shares, counts = batch.shares(len(self.domains))
        return _mean_square((shares @ batch.row_losses()).unsqueeze(-1), counts)


class GroupDRO(ERM):
    """
    Group distributionally robust optimisation (Sagawa et al., 2020, Algorithm 1): the domains with the greatest loss
    count most. `rate` is the step size of their weights.
    """

    reads_labels = compares_domains = True
    options = {"rate": 0.01}
    # Its weights would also follow the batches that a graph is warmed up with.
    can_be_graphed = False

    def __init__(self, arguments, domains: list[str], feature_size: int | None):
        super().__init__(arguments, domains, feature_size)
        self.register_buffer("weights", torch.full((len(domains),), 1 / max(len(domains), 1)))

    def loss(self, batch: DomainBatch) -> torch.Tensor:
        shares, counts = batch.shares(len(self.domains))
        losses = shares @ batch.row_losses()
        with torch.no_grad():
            told = torch.stack([losses * counts, counts])
            if has_processes():
                torch.distributed.all_reduce(told)
            grown = self.weights * (self.rate * told[0] / told[1].clamp(min=1)).exp()
            self.weights.copy_(grown / grown.sum())
            # Those of the domains that are there.
            weights = self.weights * (counts > 0)
            weights = weights / weights.sum()
        return weights @ losses + batch.rest_of_loss()


class DeepCORAL(ERM):
    """Deep CORAL (Sun and Saenko, 2016): the features of all domains vary together in the same way."""

    needs_features = compares_domains = True

    @classmethod
    def check_run(cls, arguments, domains: list[str], model: nn.Module) -> None:
        super().check_run(arguments, domains, model)
        # Enough for two rows of two domains, where shares are equal within one row.
        if arguments.balanced_batches and arguments.train_batch_size < min(len(domains) + 2, 2 * len(domains)):
            raise ValueError(
                f"`per_device_train_batch_size` is {arguments.per_device_train_batch_size}, and there are "
                f"{len(domains)} domains: one row of a domain does not vary, so that CORAL would have nothing to "
                f"compare. Set it to {2 * len(domains)} or more."
            )

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


class MMD(ERM):
    """Maximum mean discrepancy (Li et al., 2018), by Gaussian kernels: features of all domains are spread alike."""

    needs_features = compares_domains = compares_rows = True
    options = {"gammas": (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)}

    def penalty(self, batch: DomainBatch) -> torch.Tensor:
        features = batch.features.float()
        # The narrowest kernel would see the rounding of a matrix product.
        distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist").square()
        kernel = sum(torch.exp(-gamma * distances) for gamma in self.gammas)
        shares, counts = batch.shares(len(self.domains))
        means = shares @ kernel @ shares.T
        own = means.diagonal()
        there = (counts > 0).float()
        pairs = torch.outer(there, there).triu(diagonal=1)
        # The mean over pairs of domains that are both in the batch.
        return (pairs * (own.unsqueeze(0) + own.unsqueeze(1) - 2 * means)).sum() / pairs.sum().clamp(min=1)


class Fishr(ERM):
    """
    Fishr (Rame et al., 2022): the gradients of the head's last layer vary in the same way in all domains. Their
    variance is averaged over the steps; `decay` is how much of it is kept.
    """

    needs_head_inputs = reads_labels = compares_domains = compares_rows = True
    default_penalty_weight = 1000.0
    options = {"decay": 0.95}
    # At 1, no batch would count.
    limits = {"decay": Limits(below=1)}
    # What it remembers has a shape that the first batch tells.
    can_be_graphed = False

    def __init__(self, arguments, domains: list[str], feature_size: int | None):
        super().__init__(arguments, domains, feature_size)
        self.variances: torch.Tensor | None = None

    def loss(self, batch: DomainBatch) -> torch.Tensor:
        # Also while it does not count yet, so that it sets in with an average and not with the first batch.
        penalty = self.penalty(batch)
        if self.penalty_weight == 0 or batch.step < self.anneal_steps:
            return batch.task_loss
        return batch.task_loss + self.penalty_weight * penalty

    def penalty(self, batch: DomainBatch) -> torch.Tensor:
        shares, counts = batch.shares(len(self.domains))
        # A row's gradient is the outer product of these two; the ones are for the bias.
        errors = batch.logits.float().softmax(dim=-1) - F.one_hot(batch.labels, batch.logits.shape[-1])
        inputs = F.pad(batch.head_inputs.float(), (0, 1), value=1.0)
        means = torch.einsum("dr,rl,rw->dlw", shares, errors, inputs)
        squares = torch.einsum("dr,rl,rw->dlw", shares, errors.square(), inputs.square())
        variances = (squares - means.square()).flatten(1)
        before = torch.zeros_like(variances) if self.variances is None else self.variances
        there = (counts > 0).unsqueeze(-1)
        averaged = torch.where(there, self.decay * before + (1 - self.decay) * variances, before)
        self.variances = averaged.detach()
        # So that the gradient's size does not depend on how much is kept.
        return _mean_square(averaged / (1 - self.decay), counts)

    def get_extra_state(self) -> torch.Tensor:
        return torch.empty(0) if self.variances is None else self.variances

    def set_extra_state(self, state: torch.Tensor) -> None:
        self.variances = state if state.numel() else None


class DANN(ERM):
    """
    Invariance learning without memory: the encoder deceives one discriminator for each domain (Ganin et al., 2016, in
    the one-against-the-rest form of MIL's Eq. 4 and 5, with the encoder in the memory's place).
    """

    needs_features = compares_domains = True
    default_penalty_weight = 0.1

    def __init__(self, arguments, domains: list[str], feature_size: Any):
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


def _mean_square(values: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """How far domains' values `(domains, width)` lie from their mean, over the domains that are in the batch."""
    there = (counts > 0).to(values.dtype).unsqueeze(-1)
    number = there.sum().clamp(min=1)
    distances = there * (values - (there * values).sum(dim=0) / number)
    return distances.square().sum() / number / values.shape[-1]
