# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
One trained model of the GMoE tables: a data set, a domain left out, a model, an algorithm, a seed.

The same steps as `DomainTrainer` makes (tests/test_gmoe_experiment.py compares the weights), without what it does
between them: images lie on the device, and forward and backward pass are a CUDA graph where there is a GPU and the
algorithm can be one.
"""

import json
import time
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace

import torch
from augmenting import augmented, normalised
from job import MODELS, SMALL, Job
from pixels import Pixels

from hf_memaug import DomainTrainingArguments
from hf_memaug.data.sampling import DomainAfterDomainSampler, DomainBalancedSampler
from hf_memaug.kernels.cuda_graphs import GraphedFunction
from hf_memaug.training.algorithms import ALGORITHMS, DomainBatch
from hf_memaug.training.forward_pass import ForwardPass
from hf_memaug.training.sweep.building import small_vit

EVALUATION_ROWS = 1024
# What an algorithm reads of its arguments.
DEFAULTS = {field.name: field.default for field in fields(DomainTrainingArguments)}


def make_model(job: Job, backbone: str, label_names: list[str]):
    from transformers import ViTForImageClassification, set_seed

    from hf_memaug import ViTGMoEForImageClassification

    set_seed(job.seed)
    labels = {"id2label": dict(enumerate(label_names)), "label2id": {name: i for i, name in enumerate(label_names)}}
    more = MODELS[job.model]
    if backbone == SMALL:
        vit = small_vit(job.size, **labels)
        return vit if more is None else ViTGMoEForImageClassification.from_vit(vit, **more)
    if more is None:
        model = ViTForImageClassification.from_pretrained(
            backbone, dtype=torch.float32, ignore_mismatched_sizes=True, **labels
        )
        # Fresh, as that of a model with experts, also where the number of labels happens to be the same.
        torch.nn.init.normal_(model.classifier.weight, std=model.config.initializer_range)
        torch.nn.init.zeros_(model.classifier.bias)
        return model
    return ViTGMoEForImageClassification.from_vit(backbone, dtype=torch.float32, **labels, **more)


def pixel_statistics(backbone: str) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each colour: all that is needed of a processor."""
    if backbone == SMALL:
        return [0.5] * 3, [0.5] * 3
    processor = json.loads((Path(backbone) / "preprocessor_config.json").read_text(encoding="utf-8"))
    return processor["image_mean"], processor["image_std"]


class Forward(ForwardPass):
    """What `DomainTrainer` gives an algorithm, of one process."""

    def __init__(self, model, algorithm, name: str, autocast):
        self.model = self.wrapped = model
        arguments = SimpleNamespace(algorithm=name, label_smoothing_factor=0.0)
        self.trainer = SimpleNamespace(algorithm=algorithm, args=arguments, _task_loss=lambda outputs, _: outputs.loss)
        self.autocast, self.step = autocast, 0

    def __call__(self, inputs: dict, domain_ids: torch.Tensor, weights=None) -> DomainBatch:
        # Around the model alone, as in a trainer: what an algorithm computes is in full precision.
        with self.autocast():
            return super().__call__(inputs, domain_ids, weights)

    def averaged(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Experiment:
    def __init__(self, job: Job, pixels: Pixels, backbone: str, device=None):
        self.job, self.pixels = job, pixels
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        pixels.to(self.device)
        self.sources = job.sources(pixels.names)
        self.inner, self.outer = pixels.split(job.seed)
        self.model = make_model(job, backbone, pixels.label_names).to(self.device)
        self.mean, self.std = (
            torch.tensor(values, device=self.device).view(1, 3, 1, 1) for values in pixel_statistics(backbone)
        )
        arguments = SimpleNamespace(
            **{
                **DEFAULTS,
                "seed": job.seed,
                "learning_rate": job.learning_rate,
                "penalty_anneal_steps": job.anneal_steps,
            }
        )
        algorithm = ALGORITHMS[job.algorithm]
        if algorithm.compares_domains and len(self.sources) < 2:
            raise ValueError(f"`algorithm` is {job.algorithm!r}, which compares domains, and there is one source.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            self.algorithm = algorithm(arguments, self.sources, self.model.config.hidden_size).to(self.device)
        self.forward = Forward(self.model, self.algorithm, job.algorithm, self._autocast)
        # An algorithm that takes the domains one after another has done one step when each has had its turn.
        self.turns = len(self.sources) if algorithm.one_domain_a_step else 1
        self.rows = [row for name in self.sources for row in self.inner[name]]
        adversaries = list(self.algorithm.parameters())
        # Of the model, and of what plays against it, at a rate of its own.
        self.groups = [{"params": [value for value in self.model.parameters() if value.requires_grad]}]
        if adversaries:
            self.groups.append({"params": adversaries, "lr": arguments.discriminator_learning_rate})
        self.learners = [value for group in self.groups for value in group["params"]]
        # A vision transformer's numbers are small enough that graphs pay.
        is_graphed = self.device.type == "cuda" and algorithm.can_be_graphed
        self.graphed = GraphedFunction(self._gradients) if is_graphed else None

    def _autocast(self):
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda")

    def _gradients(self, inputs: dict) -> tuple:
        for value in self.learners:
            value.grad = None
        images = self.pixels.images[inputs["rows"]].float() / 255
        if self.job.augment:
            images = augmented(images)
        given = {"pixel_values": (images - self.mean) / self.std, "labels": self.pixels.labels[inputs["rows"]]}
        loss = self.algorithm.train_loss(self.forward, given, inputs["domain_ids"])
        loss.backward()
        return loss.detach(), [value.grad for value in self.learners]

    def batches(self):
        """Row numbers and domains of each step, as `DomainTrainer` draws them."""
        domains = [self.pixels.domains[row] for row in self.rows]
        size = self.job.rows_per_domain * (1 if self.turns > 1 else len(self.sources))
        if len(domains) < size:
            raise ValueError(f"`rows_per_domain` asks for {size} rows a step, and there are {len(domains)} in all.")
        if self.algorithm.one_domain_a_step:
            sampler = DomainAfterDomainSampler(domains, size, self.job.seed)
        else:
            sampler = DomainBalancedSampler(domains, self.job.seed)
        ids = {name: number for number, name in enumerate(self.sources)}
        rows, of = torch.tensor(self.rows), torch.tensor([ids[name] for name in domains])
        epoch = 0
        while True:
            sampler.set_epoch(epoch)
            order = torch.tensor(list(sampler))
            for start in range(0, len(order) - size + 1, size):
                some = order[start : start + size]
                yield {"rows": rows[some].to(self.device), "domain_ids": of[some].to(self.device)}
            epoch += 1

    def train(self) -> list[dict]:
        """A record for each evaluation, and one more where the algorithm ends with other weights."""
        job, records = self.job, []
        torch.manual_seed(job.seed)
        optimizer = torch.optim.AdamW(
            self.groups, lr=job.learning_rate, weight_decay=0.0, fused=self.device.type == "cuda"
        )
        self.model.train()
        total = torch.zeros((), device=self.device)
        since = 0
        for step, batch in zip(range(1, job.steps * self.turns + 1), self.batches(), strict=False):
            self.forward.step = step - 1
            self.algorithm.before_step(self.model)
            if self.graphed is None:
                loss, gradients = self._gradients(batch)
            else:
                # A graph with the penalty, and one without.
                loss, gradients = self.graphed(batch, key=step > job.anneal_steps)
            total += loss
            for value, gradient in zip(self.learners, gradients, strict=True):
                value.grad = gradient
            optimizer.step()
            since += 1
            self.algorithm.after_step(self.model, is_last=step == job.steps * self.turns)
            done, is_turn = divmod(step, self.turns)
            if not is_turn and (done % job.eval_steps == 0 or done == job.steps):
                records.append({"step": done, "loss": round(total.item() / since, 4), **self.evaluate()})
                total.zero_()
                since = 0
                self.algorithm.after_evaluation({"eval_loss": records[-1]["out_loss"]})
        if self.algorithm.chooses_by_evaluation:
            self.algorithm.after_training(self.model)
            records.append({"step": job.steps, "averaged": True, **self.evaluate()})
        return records

    @torch.no_grad()
    def evaluate(self) -> dict:
        """Accuracies of all domains in points, on the rows to train on and on those to validate by."""
        self.model.eval()
        right, losses = [], []
        for start in range(0, len(self.pixels.images), EVALUATION_ROWS):
            some = slice(start, start + EVALUATION_ROWS)
            images = normalised(self.pixels.images[some], self.mean, self.std)
            with self._autocast():
                logits = self.model(pixel_values=images).logits.float()
            labels = self.pixels.labels[some]
            right.append(logits.argmax(dim=-1) == labels)
            losses.append(torch.nn.functional.cross_entropy(logits, labels, reduction="none"))
        self.model.train()
        right, losses = torch.cat(right).float().cpu(), torch.cat(losses).cpu()
        parts = (("in", self.inner), ("out", self.outer))
        accuracy = {
            name: {part: round(100 * right[rows[name]].mean().item(), 4) for part, rows in parts}
            for name in self.pixels.names
        }
        validation = [row for name in self.sources for row in self.outer[name]]
        return {"accuracy": accuracy, "out_loss": losses[validation].mean().item()}


def select(records: list[dict], sources: list[str], anneal_steps: int = 0) -> dict:
    """
    Training-domain validation: by the mean over the sources of what they were not trained on, and nothing else. A model
    that no penalty has reached yet is none of its algorithm: the first `anneal_steps` are left out, for all algorithms.
    """
    averaged = [record for record in records if record.get("averaged")]
    if averaged:
        return averaged[-1]
    late = [record for record in records if record["step"] > anneal_steps]
    if not late:
        raise ValueError(
            f"no evaluation lies after `anneal_steps`, {anneal_steps}: take more steps, or evaluate more often"
        )
    return max(late, key=lambda record: sum(record["accuracy"][name]["out"] for name in sources))


def run(job: Job, pixels: Pixels, backbone: str, device=None) -> dict:
    begin = time.time()
    experiment = Experiment(job, pixels, backbone, device)
    records = experiment.train()
    chosen = select(records, experiment.sources, job.anneal_steps)
    targets = [name for name in pixels.names if name not in experiment.sources]
    return {
        "job": asdict(job),
        "step": chosen["step"],
        "validation": sum(chosen["accuracy"][name]["out"] for name in experiment.sources) / len(experiment.sources),
        "target": {name: _reported(chosen["accuracy"][name], experiment, name) for name in targets},
        # What a single source says of its own kind, the paper's IID.
        "source": {name: chosen["accuracy"][name]["out"] for name in experiment.sources},
        "records": records,
        "seconds": round(time.time() - begin, 2),
    }


def _reported(accuracy: dict, experiment: Experiment, name: str) -> float:
    """All rows of a domain that was left out; beside a single source the held-out ones, as of the source itself."""
    if experiment.job.single_source:
        return accuracy["out"]
    counts = len(experiment.inner[name]), len(experiment.outer[name])
    return (accuracy["in"] * counts[0] + accuracy["out"] * counts[1]) / sum(counts)
