# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Algorithms that need another forward pass than that of the batch as it is."""

import random
from typing import Any

import torch
from torch import nn

from hf_memaug.modeling.modeling_utils import reads_last_token
from hf_memaug.training.algorithms.base import ERM, Limits
from hf_memaug.training.forward_pass import ForwardPass, learners

# Of torch's Adam.
ADAM_EPSILON = 1e-8


class Mixup(ERM):
    """
    Mixup between domains (Zhang et al., 2018; Yan et al., 2020): each row is mixed with one of another domain, and its
    label likewise. `alpha` is that of the Beta distribution the shares are drawn from. Images are mixed as they are,
    texts as the embeddings of their tokens.
    """

    reads_labels = compares_domains = compares_rows = True
    options = {"alpha": 0.2}
    # At 0, nothing would be mixed.
    limits = {"alpha": Limits(above=0)}
    can_be_graphed = False

    @classmethod
    def check_run(cls, arguments, domains: list[str], model: nn.Module) -> None:
        super().check_run(arguments, domains, model)
        writes = any(hasattr(type(one), "update_memory") for one in model.modules())
        if writes and getattr(model.config, "writes_memory", True):
            raise ValueError(
                '`algorithm="mixup"` would write mixed rows into the real memory, each with one of its two labels. '
                'Choose another algorithm, or an `augmentation` without a real memory, such as "abd+syn".'
            )
        # Models of this library find it by the mask.
        if reads_last_token(model) and not hasattr(model, "memory_parameters"):
            raise ValueError(
                '`algorithm="mixup"` mixes the vectors of tokens, among which a decoder does not find the last one. '
                "Choose another algorithm."
            )

    def train_loss(self, forward: ForwardPass, inputs: dict, domain_ids: torch.Tensor) -> torch.Tensor:
        partners, kept = self.draw(domain_ids)
        batch = forward(self.mixed(forward.model, inputs, partners, kept), domain_ids)
        both = kept * batch.row_losses() + (1 - kept) * batch.row_losses(batch.labels[partners])
        return both.mean() + batch.rest_of_loss()

    def draw(self, domain_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The row that each row is mixed with, and how much of it stays: the domains in a ring, in a random order."""
        ids = domain_ids.tolist()
        rows_of = {domain: [row for row, one in enumerate(ids) if one == domain] for domain in sorted(set(ids))}
        ring = [list(rows_of)[place] for place in torch.randperm(len(rows_of)).tolist()]
        alpha = torch.tensor(float(self.alpha))
        partners, kept = [0] * len(ids), [1.0] * len(ids)
        for domain, other in zip(ring, ring[1:] + ring[:1], strict=True):
            share = torch.distributions.Beta(alpha, alpha).sample().item()
            for place, row in enumerate(rows_of[domain]):
                partners[row] = rows_of[other][place % len(rows_of[other])]
                kept[row] = share
        return torch.tensor(partners, device=domain_ids.device), torch.tensor(kept, device=domain_ids.device)

    def mixed(self, model: Any, inputs: dict, partners: torch.Tensor, kept: torch.Tensor) -> dict:
        inputs = dict(inputs)
        if "pixel_values" in inputs:
            name, values = "pixel_values", inputs.pop("pixel_values")
        elif "input_ids" in inputs:
            name, values = "inputs_embeds", model.get_input_embeddings()(inputs.pop("input_ids"))
            if "attention_mask" in inputs:
                # Of two texts, the longer one is read to its end.
                inputs["attention_mask"] = torch.maximum(inputs["attention_mask"], inputs["attention_mask"][partners])
        else:
            raise ValueError(
                f'`algorithm="mixup"` mixes `pixel_values` or `input_ids`, and the batch has {sorted(inputs)}. Choose '
                "another algorithm."
            )
        share = kept.view(-1, *[1] * (values.ndim - 1)).to(values.dtype)
        inputs[name] = share * values + (1 - share) * values[partners]
        return inputs


class MLDG(ERM):
    """
    Meta-learning domain generalisation (Li et al., 2018, Eq. 3), in its first-order form: `F(w) + b G(w - a F'(w))`. At
    each step another domain plays the unseen one, on which `G` is measured. `penalty_weight` is `b`; `inner_rate` is
    `a`, by default the learning rate. The step is the first one of Adam, as DomainBed takes it.
    """

    compares_domains = compares_rows = True
    default_penalty_weight = 1.0
    inner_rate: Any
    options = {"inner_rate": None}
    limits = {"inner_rate": Limits()}
    can_be_graphed = False

    def __init__(self, arguments, domains: list[str], feature_size: int | None):
        super().__init__(arguments, domains, feature_size)
        self.seed = arguments.seed
        self.inner_rate = arguments.learning_rate if self.inner_rate is None else self.inner_rate

    def train_loss(self, forward: ForwardPass, inputs: dict, domain_ids: torch.Tensor) -> torch.Tensor:
        there = sorted(set(domain_ids.tolist()))
        if self.penalty_weight == 0 or forward.step < self.anneal_steps or len(there) < 2:
            return forward(inputs, domain_ids).task_loss
        is_unseen = domain_ids == there[random.Random(f"{self.seed} {forward.step}").randrange(len(there))]
        seen = _rows(forward, inputs, domain_ids, ~is_unseen)
        moved: dict[str, torch.Tensor] = dict(learners(forward.model))
        gradients = torch.autograd.grad(seen.task_loss, list(moved.values()), retain_graph=True, allow_unused=True)
        for name, gradient in zip(moved, gradients, strict=True):
            if gradient is not None:
                # What the step was is taken as given, so that the gradient by the moved weight is that by the weight.
                gradient = forward.averaged(gradient)
                moved[name] = moved[name] - self.inner_rate * (gradient / (gradient.abs() + ADAM_EPSILON))
        unseen = _rows(forward, inputs, domain_ids, is_unseen, weights=moved)
        return seen.task_loss + self.penalty_weight * unseen.task_loss


def _rows(forward: ForwardPass, inputs: dict, domain_ids: torch.Tensor, kept: torch.Tensor, weights=None) -> Any:
    return forward({name: value[kept] for name, value in inputs.items()}, domain_ids[kept], weights=weights)
