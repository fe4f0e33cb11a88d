# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Models that differ only in their target domain and seed, trained at the same time on one device.

A small encoder leaves a large GPU idle. Here the parameters of all models of a row of a table lie on top of each other,
`torch.func.vmap` runs them as one, and the step is recorded as a CUDA graph: the same batches, losses, clipping,
optimizer and schedules as `DomainTrainer` and `BilevelTrainer`, model by model (tests/test_mil_together.py compares the
weights). One thing differs: an epoch's last, smaller batch is filled up with its first rows.
"""

import concurrent.futures
import dataclasses
import math
import os
import sys
import time
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from experiment import FEATURES, Job, build_model, describe, features_path, tokenized
from stacked import Adversaries, AlgorithmArguments, Table
from torch.func import functional_call, vmap
from torch.nn import functional as F
from tqdm.auto import tqdm
from transformers import logging

from hf_memaug.data.sampling import DomainBalancedSampler, EpisodeSampler
from hf_memaug.evaluation.scores import macro_f1
from hf_memaug.kernels.cuda_graphs import GraphedFunction
from hf_memaug.layers.kv_memory import slot_entropy
from hf_memaug.training.algorithms import ALGORITHMS, DomainBatch

sys.path.insert(0, str(Path(__file__).parents[1]))  # run_lines.py, stacking.py

from run_lines import free_memory
from stacking import Best, Packing, StackedStep, fold, linear, stacked_parameters, warm_steps, without_dropout

EVALUATION_ROWS = 128


class Together:
    """
    Args:
        jobs: jobs that differ in `target` and `seed` only.
        root, backbone: as in `experiment.run`.
        dropout: `False` turns it off, for comparisons with the trainers.
        fused: compile the encoder's layers with this backend of `torch.compile`.
        packed: leave the padding out of them while training (default: on a GPU that has flash attention).
    """

    def __init__(
        self,
        jobs: list[Job],
        root: str,
        backbone: str,
        device=None,
        dropout: bool = True,
        fused: str | None = None,
        packed: bool | None = None,
    ):
        self.jobs, self.job = jobs, jobs[0]
        if self.job.hypergradient != "first_order" or self.job.pooling != "cls":
            raise ValueError("Only the first-order hyper-gradient and `cls` pooling are had here: use `--workers`.")
        shared = {dataclasses.replace(job, target="", seed=0) for job in jobs}
        if len(shared) > 1:
            raise ValueError("`jobs` may differ in `target` and `seed` only.")
        torch.set_float32_matmul_precision("high")  # as in jobs.py
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        prompted = self.job.head == "prompting"
        if prompted and self.device.type == "cpu":
            raise ValueError(
                "On a CPU a prompted model looks for the mask of each text, and a stack cannot: use `--workers`."
            )
        data = [tokenized(root, job.data, job.target, job.train_rows, backbone, prompted) for job in jobs]
        self.tokenizer = data[0][0]
        self.train_parts, self.dev_parts = [part[1] for part in data], [part[2] for part in data]
        self.test_parts = [part[3] for part in data]
        self.domains = [sorted(part.domains) for part in self.train_parts]
        # The seed alone decides what a model begins with.
        by_seed = {job.seed: build_model(job, backbone, self.train_parts[0].label_names) for job in jobs}
        models = [by_seed[job.seed].to(self.device) for job in jobs]
        self.model = models[0].train()
        fold(self.model, fused)
        self.packing = Packing(self.model.base_model.encoder)
        if not dropout:
            without_dropout(self.model)
        self.encoder = self.model.base_model
        memory = {id(parameter) for parameter in self.model.memory_parameters()}
        self.memory_names = [name for name, value in self.model.named_parameters() if id(value) in memory]
        self.parameters = stacked_parameters(models)
        self.num_labels = self.train_parts[0].num_labels
        self.is_graphed = self.device.type == "cuda"
        can_pack = self.is_graphed and torch.cuda.get_device_capability(self.device) >= (8, 0)
        self.is_packed = can_pack if packed is None else packed

    # Data

    def _table(self, parts: list) -> Table:
        padding = {
            "input_ids": self.tokenizer.pad_token_id,
            "token_type_ids": self.tokenizer.pad_token_type_id,
            "attention_mask": 0,
        }
        length = max(len(row) for part in parts for row in part["input_ids"])
        # A fully masked row would have no attention at all: rows that only fill up are masked but for one position.
        table = Table(parts, self.domains, padding, length, self.device)
        table.columns["attention_mask"][:, :, 0] = 1
        return table

    @cached_property
    def train_table(self) -> Table:
        return self._table(self.train_parts)

    @cached_property
    def dev_table(self) -> Table:
        return self._table(self.dev_parts)

    def _counted(self, steps: int, what: str) -> tqdm:
        models = f"{len(self.jobs)} x {self.job.method} on {self.job.data}"
        return tqdm(range(steps), desc=f"{models}, {what}", unit="step", mininterval=1, leave=False)

    def _autocast(self):
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda")

    def _tokens(self, order: np.ndarray) -> int | None:
        """What the largest of the batches `(steps, models, rows)` has to be packed to."""
        if not self.is_packed:
            return None
        lengths = self.train_table.lengths[np.arange(len(self.jobs))[:, None], order]
        return math.ceil(lengths.sum(axis=-1).max() / 64) * 64

    def _forward(self, parameters: dict, batch: dict, tokens: int | None = None) -> tuple:
        """Logits and what the head reads, for all models; `tokens`: what to pack to."""

        def one(parameters, inputs):
            outputs = functional_call(self.model, parameters, kwargs=inputs)
            return outputs.logits, outputs.augmented_features, outputs.features, outputs.memory_features

        inputs = {name: value for name, value in batch.items() if name not in ("labels", "domain_ids")}
        with self._autocast(), self.packing.to(tokens):
            return vmap(one, randomness="different")(parameters, inputs)

    # The task

    def train_task(self, order: np.ndarray, frozen: list[str], algorithm: str = "erm", evaluate_every: int = 0):
        """
        `order` is `(steps, models, rows)`. What is not frozen learns. With `evaluate_every`, ends with each model's
        best parameters on its source domains' dev rows.
        """
        total, best = len(order), Best(len(self.jobs))
        one_step = self._task_steps(frozen, total, algorithm, self._tokens(order))
        order = torch.from_numpy(order).to(self.device)
        for number in self._counted(total, "training"):
            one_step(number, index=order[number])
            # The last step too, as a run that is not a whole number of epochs would else end unseen.
            if evaluate_every and ((number + 1) % evaluate_every == 0 or number + 1 == total):
                best.offer(self.score(self.dev_table, self.dev_parts), number + 1, self.parameters)
        self.parameters = {
            name: value.detach() for name, value in (best.parameters if evaluate_every else self.parameters).items()
        }
        return best

    def _task_steps(
        self, frozen: list[str], total: int, algorithm: str = "erm", tokens: int | None = None
    ) -> StackedStep:
        job = self.job
        learners = {name: value for name, value in self.parameters.items() if name not in frozen}
        adversaries = Adversaries(self, algorithm) if algorithm == "dann" else None

        def losses(inputs):
            batch = self.train_table.batch(inputs["index"])
            constants = {name: self.parameters[name].detach() for name in frozen}
            logits, features, _, _ = self._forward({**learners, **constants}, batch, tokens)
            return self._losses(algorithm, logits, features, batch, adversaries)

        return StackedStep(
            losses,
            self.model,
            learners,
            {name: job.memory_learning_rate if name in self.memory_names else job.learning_rate for name in learners},
            total,
            job.warmup,
            also=[(value, adversaries.rate) for value in adversaries.values.values()] if adversaries else [],
            graphed=self.is_graphed,
        )

    def _losses(self, algorithm: str, logits, features, batch, adversaries) -> torch.Tensor:
        task = vmap(lambda one, labels: F.cross_entropy(one.float(), labels))(logits, batch["labels"])
        if algorithm == "erm":
            return task
        if algorithm == "dann":
            return task + adversaries.losses(features, batch["domain_ids"])
        arguments = AlgorithmArguments(penalty_weight=self.job.penalty_weight)
        rule = ALGORITHMS[algorithm](arguments, self.domains[0], features.shape[-1])

        def one(task, logits, labels, features, domain_ids):
            return rule.loss(DomainBatch(task, logits, labels, features, domain_ids))

        return vmap(one)(task, logits, batch["labels"], features, batch["domain_ids"])

    # Evaluation

    @torch.no_grad()
    def predict(self, table: Table, outputs: str = "logits") -> list[np.ndarray]:
        """Logits of each model on its own rows, or, with `outputs="features"`, `g`, `m(g)` and `g_m`."""
        was_training, found = self.model.training, []
        self.model.eval()
        parameters = {name: value.detach() for name, value in self.parameters.items()}
        rows = max(table.count)
        size = min(EVALUATION_ROWS, rows)
        # The longest first: a batch is then no wider than its rows.
        order = np.argsort(-table.lengths, axis=1, kind="stable")
        widths = np.take_along_axis(table.lengths, order, axis=1).max(axis=0)
        order = np.pad(order, ((0, 0), (0, -rows % size)), mode="edge")
        for start in range(0, rows, size):
            index = torch.from_numpy(order[:, start : start + size]).to(self.device)
            batch = table.batch(index, int(widths[start]))
            logits, augmented, features, memory = self._forward(parameters, batch)
            kept = (logits,) if outputs == "logits" else (features, memory, augmented)
            found.append(torch.stack([part.float() for part in kept], dim=1).cpu())
        self.model.train(was_training)
        whole = torch.cat(found, dim=2)[:, :, :rows].numpy()
        places = np.argsort(order[:, :rows], axis=1)
        found = [whole[model][:, places[model, :count]] for model, count in enumerate(table.count)]
        return [one[0] for one in found] if outputs == "logits" else found

    def score(self, table: Table, parts: list) -> list[float]:
        """Macro-F1 in points, the mean over the domains of each part."""
        scores = []
        for part, logits in zip(parts, self.predict(table), strict=True):
            predicted, labels, domains = logits.argmax(-1), np.asarray(part["labels"]), np.asarray(part["domain"])
            per_domain = [
                macro_f1(predicted[domains == name], labels[domains == name], num_labels=self.num_labels)
                for name in part.domains
            ]
            scores.append(100 * float(np.mean(per_domain)))
        return scores

    # Meta-training

    def meta_train(self) -> list[dict]:
        """Algorithm 2 for all models; encoder and head are as before at its end. Returns a log for each model."""
        job, start = self.job, {name: value.clone() for name, value in self.parameters.items()}
        samplers = [
            EpisodeSampler(
                part["domain"],
                episodes=job.episodes,
                episode_steps=job.episode_steps,
                inner_steps=job.inner_steps,
                source_rows=job.batch_size,
                target_rows=job.batch_size,
                seed=one.seed,
            )
            for one, part in zip(self.jobs, self.train_parts, strict=True)
        ]
        order = np.stack([np.array(list(sampler)).reshape(-1, 2 * job.batch_size) for sampler in samplers], axis=1)
        tokens, all_tokens = self._tokens(order[..., : job.batch_size]), self._tokens(order)
        adversaries = Adversaries(self, "mil")
        memory = {name: self.parameters[name].requires_grad_() for name in self.memory_names}
        memory_optimizer = torch.optim.AdamW(
            list(memory.values()), lr=job.memory_learning_rate, weight_decay=0.0, maximize=True
        )
        total = len(order)
        outer_total = total // job.inner_steps
        warmup = warm_steps(total, job.warmup) // job.inner_steps
        device_order = torch.from_numpy(order).to(self.device)
        prefix = next(name for name, module in self.model.named_modules() if module is self.encoder.memory) + "."
        is_target = torch.zeros(len(self.jobs), 2 * job.batch_size, device=self.device)
        is_target[:, job.batch_size :] = 1.0

        def play(inputs):
            self.model.eval()
            with torch.no_grad():
                batch = self.train_table.batch(inputs["index"])
                _, _, features, _ = self._forward({**self.parameters, **memory}, batch, all_tokens)
            self.model.train()
            features = features.float()

            def augment(values, features):
                found, weights = functional_call(self.encoder.memory, values, (features,))
                return torch.lerp(features, found, float(self.model.config.memory_weight)), weights

            own = {name.removeprefix(prefix): value for name, value in memory.items()}
            augmented, weights = vmap(augment)(own, features)
            chosen = adversaries.chosen(inputs["target"])
            logits = adversaries.logits(chosen, augmented)
            losses = F.binary_cross_entropy_with_logits(logits, is_target, reduction="none").mean(dim=1)
            gradients = torch.autograd.grad(losses.sum(), [*memory.values(), *chosen.values()])
            accuracy = ((logits > 0) == (is_target > 0)).float().mean(dim=1)
            entropy = slot_entropy(weights.detach()).mean(dim=(1, 2))
            return gradients, (losses.detach(), accuracy, entropy)

        run = GraphedFunction(play) if self.is_graphed else play
        # Line 6 to 8: a step of encoder and head, with the memory as it is.
        inner = self._task_steps(self.memory_names, total, tokens=tokens)
        logs: list[list[dict]] = [[] for _ in self.jobs]
        sums: list = [0.0] * 4
        for number in self._counted(total, "meta-training"):
            task = inner(number, index=device_order[number, :, : job.batch_size].contiguous())
            if (number + 1) % job.inner_steps:
                continue
            targets = [sampler.meta_target(number) for sampler in samplers]
            ids = [names.index(target) for names, target in zip(self.domains, targets, strict=True)]
            outer = number // job.inner_steps
            chosen = torch.tensor(ids, device=self.device)
            gradients, seen = run({"index": device_order[number], "target": chosen})
            for value, gradient in zip(memory.values(), gradients, strict=False):
                value.grad = gradient
            factor = linear(outer, outer_total, warmup)
            memory_optimizer.param_groups[0]["lr"] = job.memory_learning_rate * factor
            memory_optimizer.step()
            adversaries.learn(chosen, gradients[len(memory) :], factor)
            sums = [total + value for total, value in zip(sums, (task, *seen), strict=True)]
            if (outer + 1) % job.episode_steps == 0:
                values = [(value / job.episode_steps).tolist() for value in sums]
                sums = [0.0] * 4
                for model, target in enumerate(targets):
                    loss, domain_loss, accuracy, entropy = (value[model] for value in values)
                    logs[model].append(
                        {
                            "step": number + 1,
                            "task_loss": loss,
                            f"domain_loss_{target}": domain_loss,
                            f"discriminator_accuracy_{target}": accuracy,
                            "slot_entropy": entropy,
                        }
                    )
        learned = {name: value.detach() for name, value in memory.items()}
        self.parameters = {**start, **learned}
        return logs

    # A row of a table

    def run(self, score_target: bool = True, diagnose: bool = False, features: str | None = None) -> list[dict]:
        """What `experiment.run` returns, for each job."""
        job, begin = self.job, time.time()
        logs: list[list[dict]] = [[] for _ in self.jobs]
        frozen = [] if job.method == "+memory" else list(self.memory_names)
        if job.method == "mil":
            logs = self.meta_train()
            free_memory()  # of its recorded steps
        order = np.stack([self._balanced(model, job.task_steps) for model in range(len(self.jobs))], axis=1)
        algorithm = job.method if job.method in ("irm", "coral", "dann") else "erm"
        best = self.train_task(order, frozen, algorithm, evaluate_every=job.evaluation_steps)
        scores: list[dict] = [{} for _ in self.jobs]
        if score_target:
            for name in sorted({name for part in self.test_parts for name in part}):
                # A target that is not every model's: the others are scored on some other and their score is dropped.
                parts = [part.get(name, next(iter(part.values()))) for part in self.test_parts]
                for model, value in enumerate(self.score(self._table(parts), parts)):
                    if name in self.test_parts[model]:
                        scores[model][name] = value
        chosen = [diagnose or features_path(features, one) is not None for one in self.jobs]
        found = self._diagnose(score_target, features, chosen) if any(chosen) else [{}] * len(self.jobs)
        seconds = (time.time() - begin) / len(self.jobs)
        return [
            {
                "job": dataclasses.asdict(one),
                "dev": best.scores[model],
                "best_step": best.steps[model],
                "scores": scores[model],
                "log": best.log[model],
                "meta_log": logs[model],
                "diagnostics": found[model],
                "seconds": round(seconds, 2),
            }
            for model, one in enumerate(self.jobs)
        ]

    def _diagnose(self, score_target: bool, folder: str | None, chosen: list[bool], rows: int = 400) -> list[dict]:
        """`experiment.describe` for each chosen model, on some rows of its dev part and of its targets."""
        names = sorted({name for part in self.test_parts for name in part}) if score_target else []
        parts = [{"dev": part.shuffle(0)[: 2 * rows]} for part in self.dev_parts]
        for own, tests in zip(parts, self.test_parts, strict=True):
            own |= {name: tests[name].shuffle(0)[:rows] for name in names if name in tests}
        found: list[dict] = [{} for _ in self.jobs]
        for name in ["dev", *names]:
            table = self._table([own.get(name, own["dev"]) for own in parts])
            for model, arrays in enumerate(self.predict(table, "features")):
                if name in parts[model]:
                    found[model][name] = dict(zip(FEATURES, arrays, strict=True))
        arguments = [
            (values, {name: part["domain"] for name, part in own.items()}, features_path(folder, job))
            for values, own, job in zip(found, parts, self.jobs, strict=True)
        ]
        # A classifier for each model and kind of features: the slowest part, on the CPU.
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda one, is_chosen: describe(*one) if is_chosen else {}, arguments, chosen))

    def _balanced(self, model: int, steps: int) -> np.ndarray:
        """The rows of each step, epoch after epoch, as `DomainTrainer` draws them."""
        size = self.job.batch_size
        sampler = DomainBalancedSampler(self.train_parts[model]["domain"], self.jobs[model].seed)
        batches: list[list[int]] = []
        epoch = 0
        while len(batches) < steps:
            sampler.set_epoch(epoch)
            rows = list(sampler)
            # The last, smaller batch of an epoch begins the row again: all batches have one shape here.
            rows += rows[: -len(rows) % size]
            batches += [rows[start : start + size] for start in range(0, len(rows), size)]
            epoch += 1
        return np.array(batches[:steps])
