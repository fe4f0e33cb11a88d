# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The models of one row of a G-MAP table, which differ in their seed only, trained at the same time on one device.

The general encoder is frozen, so that its states are computed once for all rows, seeds and epochs, and lie on the
device (as `cache_general_states` keeps them on disk). Losses, clipping, optimizer and schedule are those of `Trainer`,
model by model (tests/test_gmap_together.py compares the weights with a plain loop). Rows of like length share a batch,
as with `Trainer`'s grouping by length; the last, smaller batch of an epoch is filled up with the epoch's first rows.
"""

import dataclasses
import sys
import time
from pathlib import Path

import numpy as np
import torch
from experiment import METHODS, Job, build_model, encoder_folder, loaded, logits_file, prepared
from torch.func import functional_call, vmap

sys.path.insert(0, str(Path(__file__).parents[1]))  # stacking.py

from stacking import Best, StackedStep, fold, stacked_parameters, without_dropout

EVALUATION_ROWS = 256
# Of so many batches of an epoch, each takes rows of like length.
GROUPED = 20


def held(vectors: torch.Tensor, row: int) -> torch.Tensor:
    """The embedding of padding does not learn. `vmap` forgets that, where the vectors of models lie on each other."""
    is_padding = torch.arange(vectors.shape[1], device=vectors.device)[:, None] == row
    return torch.where(is_padding, vectors.detach(), vectors)


class Together:
    """
    Args:
        jobs: jobs that differ in `seed` only.
        root: the folder of the data sets.
        encoders: the folder that `encoders.py` filled.
        dropout: `False` turns it off, for comparisons.
    """

    def __init__(self, jobs: list[Job], root: str, encoders: str, device=None, dropout: bool = True):
        if len({dataclasses.replace(job, seed=0) for job in jobs}) > 1:
            raise ValueError("`jobs` may differ in `seed` only.")
        self.jobs, self.job = jobs, jobs[0]
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.is_graphed = self.device.type == "cuda"
        self.general = encoder_folder(encoders, "general", self.job.data)
        self.task = prepared(root, self.job.data, self.general)
        models = [build_model(job, encoders, self.task) for job in jobs]
        self.model = models[0].to(self.device).train()
        fold(self.model)
        if not dropout:
            without_dropout(self.model)
        self.reads = METHODS[self.job.method][1]
        # An unfrozen general encoder runs in every step.
        self.needs_states = self.reads == "logits" or bool(self.reads and self.reads.get("freeze_general", True))
        frozen = {name for name, value in self.model.named_parameters() if not value.requires_grad}
        # What is frozen here is the general encoder, which does not run: its states are known.
        for model in models:
            model.to(self.device)
        stacked = stacked_parameters(models)
        self.parameters = {name: value for name, value in stacked.items() if name not in frozen}
        self.padding = {
            f"{name}.weight": module.padding_idx
            for name, module in self.model.named_modules()
            if getattr(module, "padding_idx", None) is not None and f"{name}.weight" in self.parameters
        }
        self.lengths = {
            split: np.array([len(row["input_ids"]) for row in part]) for split, part in self.task.parts.items()
        }
        self.length = max(map(self._length, self.lengths.values()))
        self.columns = {split: self._columns(split) for split in self.task.parts}

    def _columns(self, split: str) -> dict[str, torch.Tensor]:
        """The rows of a part, padded to one length, and what the general encoder makes of them."""
        rows = self.task.parts[split]
        ids = torch.full((len(rows), self.length), self.task.pad)
        mask = torch.zeros(len(rows), self.length, dtype=torch.bool)
        for number, row in enumerate(rows):
            ids[number, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
            mask[number, : len(row["input_ids"])] = True
        columns = {"input_ids": ids, "attention_mask": mask, "labels": self.task.labels(split, self.length)}
        if "token_type_ids" in rows[0]:
            columns["token_type_ids"] = torch.zeros_like(ids)
            for number, row in enumerate(rows):
                columns["token_type_ids"][number, : len(row["input_ids"])] = torch.tensor(row["token_type_ids"])
        columns = {name: value.to(self.device) for name, value in columns.items()}
        if self.needs_states:
            columns["general_hidden_states"] = self._general_states(columns)
        return columns

    @torch.no_grad()
    def _general_states(self, columns: dict) -> torch.Tensor:
        general = loaded(self.general).to(self.device).eval()
        depth = general.config.num_hidden_layers
        read = [depth] if self.reads == "logits" else self.model.config.states_read
        found = []
        for start in range(0, len(columns["input_ids"]), EVALUATION_ROWS):
            some = slice(start, start + EVALUATION_ROWS)
            inputs = {name: value[some] for name, value in columns.items() if name != "labels"}
            with self._autocast():
                states = general(**inputs, output_hidden_states=True).hidden_states[1:]
            kept = torch.stack([states[layer - 1] for layer in read], dim=1)
            found.append(kept.to(torch.float16) if self.is_graphed else kept)
        general.cpu()
        return torch.cat(found)

    def _autocast(self):
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.is_graphed)

    def _length(self, lengths: np.ndarray) -> int:
        """Of a batch: few enough that a graph can be recorded for each."""
        return int(lengths.max()) + -int(lengths.max()) % 32

    def _batch(self, split: str, index: torch.Tensor, length: int) -> dict[str, torch.Tensor]:
        """Row numbers, `(models, rows)` or `(rows,)`, to their columns. No row is longer than `length`."""
        batch = {}
        for name, values in self.columns[split].items():
            if name == "general_hidden_states":
                values = values[:, :, :length]
            elif values.ndim == 2 and values.shape[1] == self.length:
                values = values[:, :length]
            batch[name] = values[index]
        mask = batch["attention_mask"][..., None, None, :]
        # Already in four dimensions, so that nothing looks at its values: that would stop the device.
        batch["attention_mask"] = mask.expand(*mask.shape[:-2], length, -1)
        return batch

    def _logits(self, parameters: dict, batch: dict, shared: bool = False) -> torch.Tensor:
        """Of all models, each on its own rows, or on the same if `shared`."""

        def one(parameters, inputs):
            return self.task.logits(functional_call(self.model, parameters, kwargs=inputs))

        if self.task.reads_padding:
            parameters = {**parameters, **{n: held(parameters[n], row) for n, row in self.padding.items()}}
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        with self._autocast():
            logits = vmap(one, in_dims=(0, None if shared else 0), randomness="different")(parameters, inputs)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def train(self) -> Best:
        """All epochs; ends with each model's best parameters on its dev rows."""
        job = self.job
        order = np.stack([self._order(one.seed) for one in self.jobs], axis=1)
        lengths = [self._length(self.lengths["train"][rows]) for rows in order]
        order, total = torch.from_numpy(order).to(self.device), len(order)
        length = 0

        def losses(inputs):
            batch = self._batch("train", inputs["index"], length)
            return vmap(self.task.loss)(self._logits(self.parameters, batch), batch["labels"])

        rates = dict.fromkeys(self.parameters, job.learning_rate)
        step = StackedStep(losses, self.model, self.parameters, rates, total, job.warmup, graphed=self.is_graphed)
        best, epoch = Best(len(self.jobs)), total // job.epochs
        for number, length in enumerate(lengths):
            step(number, length, index=order[number])
            if (number + 1) % epoch == 0:
                best.offer([one["f1"] for one in self.scores("dev")], number + 1, self.parameters)
        self.parameters = {name: value.detach() for name, value in best.parameters.items()}
        return best

    def _order(self, seed: int) -> np.ndarray:
        """`(steps, batch)`: each epoch in a new order."""
        lengths = self.lengths["train"]
        rows, size, batches = len(lengths), min(self.job.batch_size, len(lengths)), []
        random = np.random.default_rng(seed)
        for epoch in range(self.job.epochs):
            order = random.permutation(rows)
            order = np.concatenate([order, order[: -rows % size]])
            parts = [order[start : start + GROUPED * size] for start in range(0, len(order), GROUPED * size)]
            order = np.concatenate([part[lengths[part].argsort(kind="stable")] for part in parts]).reshape(-1, size)
            # All models' batches in the same order, so that the long ones come together.
            batches.append(order[np.random.default_rng(epoch).permutation(len(order))])
        return np.concatenate(batches)

    @torch.no_grad()
    def predict(self, split: str) -> np.ndarray:
        """`(models, rows, ...)`"""
        self.model.eval()
        parameters = {name: value.detach() for name, value in self.parameters.items()}
        by_length = self.lengths[split].argsort(kind="stable")
        found = []
        for start in range(0, len(by_length), EVALUATION_ROWS):
            rows = by_length[start : start + EVALUATION_ROWS]
            index = torch.from_numpy(rows).to(self.device)
            batch = self._batch(split, index, self._length(self.lengths[split][rows]))
            logits = self._logits(parameters, batch, shared=True)
            if self.task.name != "classification":
                logits = torch.nn.functional.pad(logits, (0, 0, 0, self.length - logits.shape[2]))
            found.append(logits.cpu())
        self.model.train()
        return torch.cat(found, dim=1)[:, by_length.argsort()].numpy()

    def scores(self, split: str, logits: np.ndarray | None = None) -> list[dict[str, float]]:
        return [self.task.scores(split, one) for one in (self.predict(split) if logits is None else logits)]

    def run(self, logits_folder: str | Path | None = None) -> list[dict]:
        """A record for each job. With `logits_folder`, what it said of the test rows is kept there, for an ensemble."""
        begin = time.time()
        best = self.train()
        logits = self.predict("test")
        if logits_folder is not None and self.task.name == "classification":
            for job, one in zip(self.jobs, logits, strict=True):
                Path(logits_folder).mkdir(parents=True, exist_ok=True)
                np.save(logits_file(Path(logits_folder), job), one.astype(np.float16))
        seconds = round((time.time() - begin) / len(self.jobs), 2)
        return [
            {
                "job": dataclasses.asdict(job),
                "dev": best.scores[number],
                "best_step": best.steps[number],
                "scores": scores,
                "log": best.log[number],
                "seconds": seconds,
            }
            for number, (job, scores) in enumerate(zip(self.jobs, self.scores("test", logits), strict=True))
        ]
