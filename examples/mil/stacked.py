# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What together.py stacks beside the models: their rows and their discriminators."""

import dataclasses

import numpy as np
import torch
from torch.func import functional_call, vmap
from torch.nn import functional as F

from hf_memaug.layers.discriminator import DomainDiscriminators
from hf_memaug.training.algorithms import ALGORITHMS


class Table:
    """The tokenized rows of one part of the data, one data set a model, padded to one shape, on the device."""

    def __init__(self, parts: list, domains: list[list[str]], padding: dict[str, int], length: int, device):
        rows = max(map(len, parts))
        self.count = [len(part) for part in parts]
        self.names = [part["domain"] for part in parts]
        self.lengths = np.ones((len(parts), rows), dtype=np.int64)
        for model, part in enumerate(parts):
            self.lengths[model, : len(part)] = [len(values) for values in part["input_ids"]]
        self.columns = {}
        for name in [name for name in padding if name in parts[0].column_names]:
            array = np.full((len(parts), rows, length), padding[name], dtype=np.int64)
            for model, part in enumerate(parts):
                for row, values in enumerate(part[name]):
                    array[model, row, : len(values)] = values
            self.columns[name] = torch.from_numpy(array).to(device)
        self.labels = np.full((len(parts), rows), 0, dtype=np.int64)
        ids = np.full((len(parts), rows), -1, dtype=np.int64)
        for model, part in enumerate(parts):
            self.labels[model, : len(part)] = part["labels"]
            order = {name: index for index, name in enumerate(domains[model])}
            ids[model, : len(part)] = [order.get(name, -1) for name in part["domain"]]
        self.columns["labels"] = torch.from_numpy(self.labels).to(device)
        self.columns["domain_ids"] = torch.from_numpy(ids).to(device)

    def batch(self, index: torch.Tensor, length: int | None = None) -> dict[str, torch.Tensor]:
        """
        `(models, rows)` row numbers to columns `(models, rows, ...)`, with the mask in the form attention takes;
        `length` cuts off padding that none of the rows needs.
        """
        models = torch.arange(index.shape[0], device=index.device).unsqueeze(-1)
        batch = {name: values[models, index] for name, values in self.columns.items()}
        batch = {name: value[:, :, :length] if value.ndim == 3 else value for name, value in batch.items()}
        mask = batch["attention_mask"].bool()[:, :, None, None, :]
        # Already in four dimensions, so that nothing looks at its values: that would stop the device.
        batch["attention_mask"] = mask.expand(-1, -1, 1, mask.shape[-1], -1)
        return batch


class Adversaries:
    """The discriminators of all models, `(models, domains, ...)`, and their optimizer."""

    def __init__(self, together, method: str):
        job = together.job
        self.rate, self.weight = job.discriminator_learning_rate, job.penalty_weight
        stacks = []
        for one, domains in zip(together.jobs, together.domains, strict=True):
            # As the trainers seed them.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(one.seed)
                found = DomainDiscriminators(domains, together.model.config.hidden_size, job.discriminator_hidden_size)
            parts = [dict(part.named_parameters()) for part in found.discriminators]
            stacks.append({name: torch.stack([part[name].detach() for part in parts]) for name in parts[0]})
        self.module = found.discriminators[0].to(together.device)
        self.values = {name: torch.stack([one[name] for one in stacks]).to(together.device) for name in stacks[0]}
        self.first = {name: torch.zeros_like(value) for name, value in self.values.items()}
        self.second = {name: torch.zeros_like(value) for name, value in self.values.items()}
        shape = next(iter(self.values.values())).shape[:2]
        self.counts = torch.zeros(shape, device=together.device)
        self.models = torch.arange(shape[0], device=together.device)
        if method == "dann":
            self.weight = ALGORITHMS["dann"].default_penalty_weight if self.weight is None else self.weight
            for value in self.values.values():
                value.requires_grad_()

    def chosen(self, target: torch.Tensor) -> dict:
        """Each model's discriminator of its meta-target, as leaves of their own."""
        return {name: value[self.models, target].detach().requires_grad_() for name, value in self.values.items()}

    def logits(self, values: dict, features: torch.Tensor) -> torch.Tensor:
        def one(values, features):
            return functional_call(self.module, values, (features,)).squeeze(-1)

        return vmap(one)(values, features.float())

    @torch.no_grad()
    def learn(self, target: torch.Tensor, gradients, factor: float) -> None:
        """A step of AdamW for the chosen ones alone: the others' moments stay as they are."""
        self.counts[self.models, target] += 1
        count = self.counts[self.models, target].double()
        for name, gradient in zip(self.values, gradients, strict=True):
            shape = (-1, *[1] * (gradient.ndim - 1))
            first, second = self.first[name], self.second[name]
            moment = first[self.models, target].lerp(gradient, 0.1)
            square = second[self.models, target] * 0.999 + 0.001 * gradient.square()
            first[self.models, target], second[self.models, target] = moment, square
            bias1, bias2 = (1 - 0.9**count).float().view(shape), (1 - 0.999**count).float().view(shape)
            change = moment / bias1 / (square.sqrt() / bias2.sqrt() + 1e-8)
            self.values[name][self.models, target] -= self.rate * factor * change

    def losses(self, features: torch.Tensor, domain_ids: torch.Tensor) -> torch.Tensor:
        """DANN's, with the gradient turned round by a second reading of the features instead of a hook."""
        domains = self.counts.shape[1]
        total = 0.0
        for domain in range(domains):
            labels = (domain_ids == domain).float()
            weights = 1 + labels * (domains - 2)
            for reading, held, sign in ((features.detach(), False, 1.0), (features, True, -self.weight)):
                values = {n: (v.detach() if held else v)[:, domain] for n, v in self.values.items()}
                found = F.binary_cross_entropy_with_logits(self.logits(values, reading), labels, reduction="none")
                total = total + sign * (weights * found).mean(dim=1) / domains
        return total


@dataclasses.dataclass
class AlgorithmArguments:
    penalty_weight: float | None = None
    penalty_anneal_steps: int = 0
    algorithm_kwargs: dict | None = None
    discriminator_hidden_size: int = 256
