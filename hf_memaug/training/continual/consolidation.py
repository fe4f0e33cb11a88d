# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Strategies against forgetting: they keep weights or predictions near those before a domain, or rows of it."""

import copy
import random
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import nn
from torch.nn import functional as F

from hf_memaug.data import DomainDataset
from hf_memaug.data.spans import IGNORED
from hf_memaug.modeling.contexts import evaluating
from hf_memaug.training.algorithms.base import Limits
from hf_memaug.training.continual.base import FineTuning
from hf_memaug.training.forward_pass import DomainBatch, learners, logits_of

# The labels of questions: the places of an answer.
PLACES = ("start_positions", "end_positions")


class ElasticWeightConsolidation(FineTuning):
    """
    EWC (Kirkpatrick et al., 2017, Eq. 3): the task loss + sum over earlier domains of (λ/2) Σ F (θ − θ*)², with θ* the
    weights after the domain and F the diagonal of its Fisher information there.

    F is the mean over `fisher_samples` training rows of the squared gradient of each row's own log-likelihood, without
    dropout. `fisher="true"` takes the likelihood of a label that is drawn from the model's own distribution, which is
    the Fisher information; `"empirical"` that of the row's label. λ is `fisher_weight`. Of each domain a copy of the
    weights and F are kept.
    """

    options = {"fisher_weight": 1000.0, "fisher_samples": 200, "fisher": "true"}
    limits = {"fisher_samples": Limits(least=1), "fisher": ("true", "empirical")}
    needs_state = True
    stored = ("anchors", "fishers")

    def __init__(self, arguments):
        super().__init__(arguments)
        self.anchors: list[dict[str, torch.Tensor]] = []
        self.fishers: list[dict[str, torch.Tensor]] = []

    def loss(self, batch: DomainBatch, inputs: dict[str, torch.Tensor], model: Any) -> torch.Tensor:
        return batch.task_loss + self.penalty(model)

    def penalty(self, model: Any) -> torch.Tensor | float:
        """(λ/2) Σ F (θ − θ*)², summed over the earlier domains."""
        total: torch.Tensor | float = 0.0
        weights = dict(model.named_parameters())
        for anchor, fisher in zip(self.anchors, self.fishers, strict=True):
            for name, value in fisher.items():
                total = total + (value * (weights[name] - anchor[name]).square()).sum()
        return 0.5 * self.fisher_weight * total

    def begin(self, model: Any, number: int) -> Any:
        device = next(model.parameters()).device
        for state in (*self.anchors, *self.fishers):
            state.update({name: value.to(device) for name, value in state.items()})
        return model

    def end(self, trainer, rows: DomainDataset, raw_rows: DomainDataset, seed: int) -> None:
        draw = random.Random(f"fisher {seed}")
        chosen = draw.sample(range(len(rows)), min(self.fisher_samples, len(rows)))
        inputs = (send_to_device(trainer.data_collator([rows[row]]), trainer.args.device) for row in chosen)
        self.fishers.append(diagonal_fisher(trainer.model, inputs, len(chosen), self.fisher, seed))
        self.anchors.append({name: value.detach().clone() for name, value in learners(trainer.model).items()})


def diagonal_fisher(model: Any, inputs, count: int, kind: str, seed: int) -> dict[str, torch.Tensor]:
    """
    The diagonal of the Fisher information of each parameter, over `count` batches of one row. Gradients are squared row
    by row: the square of a batch's mean gradient would be another, smaller quantity.
    """
    learned = learners(model)
    fisher = {name: torch.zeros_like(value, requires_grad=False) for name, value in learned.items()}
    generator = torch.Generator().manual_seed(seed)
    # cuDNN has no backward pass of recurrent layers in evaluation mode.
    with evaluating(model), torch.backends.cudnn.flags(enabled=False):
        for one in inputs:
            logits = answers(model, one)
            likelihoods = F.log_softmax(logits.float(), dim=-1).flatten(0, -2)
            if "labels" in one:
                labels, ignored = one["labels"], IGNORED
            else:
                # A place outside of the text is not learned, as in the models of transformers.
                ignored = logits.shape[-1]
                labels = torch.stack([one[name] for name in PLACES], dim=1).clamp(0, ignored)
            kept = labels.flatten() != ignored
            if kind == "true":
                drawn = torch.multinomial(likelihoods.detach().exp().cpu(), 1, generator=generator)
                labels = drawn.squeeze(-1).to(logits.device)
            likelihood = likelihoods[kept].gather(-1, labels.flatten()[kept].unsqueeze(-1)).sum()
            gradients = torch.autograd.grad(likelihood, list(learned.values()), allow_unused=True)
            for name, gradient in zip(learned, gradients, strict=True):
                if gradient is not None:
                    fisher[name] += gradient.detach().square() / count
    return fisher


def answers(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """A model's logits. Of the labels, only a decoder reads the words before each position."""
    given = {name: value for name, value in inputs.items() if name not in ("labels", "domain_ids", *PLACES)}
    if model.config.is_encoder_decoder and "decoder_input_ids" not in given:
        given["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    return logits_of(model(**given), 0)


class LearningWithoutForgetting(FineTuning):
    """
    LwF (Li and Hoiem, 2018), for domains with the same labels. It adds the cross-entropy between the predictions of the
    model before and during the training on a domain, at `temperature` and times `distillation_weight`. It needs no row
    of earlier domains.
    """

    options = {"distillation_weight": 1.0, "temperature": 2.0}
    limits = {"temperature": Limits(above=0)}
    teacher: nn.Module | None = None

    def begin(self, model: Any, number: int) -> Any:
        self.teacher = copy.deepcopy(model).eval().requires_grad_(False) if number else None
        return model

    def loss(self, batch: DomainBatch, inputs: dict[str, torch.Tensor], model: Any) -> torch.Tensor:
        if self.teacher is None:
            return batch.task_loss
        with torch.no_grad():
            taught = answers(self.teacher, inputs)
        learned = batch.logits
        if batch.labels is not None and batch.labels.ndim > 1:
            # Of tokens, those that have a label.
            kept = batch.labels != IGNORED
            learned, taught = learned[kept], taught[kept]
        return batch.task_loss + self.distillation_weight * distillation(learned, taught, self.temperature)


def distillation(logits: torch.Tensor, taught: torch.Tensor, temperature: float) -> torch.Tensor:
    """−Σ p' log q', the mean over rows, with p' ∝ p^(1/T): Li and Hoiem's Eq. 2 and 3."""
    wanted = F.softmax(taught.float() / temperature, dim=-1)
    return -(wanted * F.log_softmax(logits.float() / temperature, dim=-1)).sum(dim=-1).mean()


class ExperienceReplay(FineTuning):
    """
    Keeps `rows_per_domain` random training rows of each domain. An epoch of a later domain shuffles its own rows with
    all that are kept. The rows are saved in the folder of the run, and never pushed to the hub.
    """

    options = {"rows_per_domain": 100}
    limits = {"rows_per_domain": Limits(least=1)}
    needs_state = True
    stored = ("kept", "label_names")
    state_file = "_replay.pt"
    balanced_batches = False

    def __init__(self, arguments):
        super().__init__(arguments)
        self.kept: dict[str, list] = {}
        self.label_names: list[str] = []

    def check_model(self, model, processing_class, rows: DomainDataset) -> None:
        super().check_model(model, processing_class, rows)
        for name, value in (rows[0] if len(rows) else {}).items():
            if not isinstance(value, (str, bytes, int, float, list, tuple, dict, type(None))):
                raise ValueError(
                    f'`strategy="{self.name}"` saves rows, but the column {name!r} of `train_dataset` holds '
                    f"{type(value).__name__}. Use paths or bytes for images, and text and numbers for the rest."
                )

    def training_rows(self, rows: DomainDataset) -> DomainDataset:
        if not self.kept:
            return rows
        return DomainDataset.concatenate([rows, DomainDataset(self.kept, self.label_names)])

    def end(self, trainer, rows: DomainDataset, raw_rows: DomainDataset, seed: int) -> None:
        draw = random.Random(f"replay {seed}")
        chosen = draw.sample(range(len(raw_rows)), min(self.rows_per_domain, len(raw_rows)))
        new = raw_rows.select(sorted(chosen))
        self.kept = {name: [*self.kept.get(name, ()), *new[name]] for name in new.column_names}
        self.label_names = new.label_names
