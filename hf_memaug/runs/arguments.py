# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The arguments of a job's trainer: what all jobs share, what the protocol says, and the settings that were given."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers.integrations import is_tensorboard_available

from hf_memaug.data import DomainDataset
from hf_memaug.runs.errors import CommandError
from hf_memaug.runs.job import Job
from hf_memaug.runs.methods import Chosen, chosen
from hf_memaug.runs.rows import data_name
from hf_memaug.runs.settings import arguments_class
from hf_memaug.runs.tasks import PLAIN_TASKS, kind_of
from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.class_weights import class_weights
from hf_memaug.training.continual import STRATEGIES


def training_arguments(job: Job, folder: Path, train: DomainDataset):
    """The arguments of a job's trainer, or a `CommandError`. The rows to train on say how many steps there are."""
    one = method_of(job)
    trainer = "continual" if job.kind == "continual" else one.method.trainer
    _, given = split_settings(job)
    if job.kind == "continual":
        fixed = _continual_arguments(job, given)
    else:
        fixed = (_sweep_arguments if "draw" in job.protocol else _train_arguments)(job, one, train, given)
    found = make_arguments(trainer, {**common_arguments(folder, seed_of(job)), **fixed, **given})
    if found.label_smoothing_factor and kind_of(train) in PLAIN_TASKS:
        raise CommandError("`label_smoothing_factor` is for classes. Leave it out.")
    if found.class_weights is not None:
        try:
            class_weights(found.class_weights, train, train.num_labels)
        except ValueError as error:
            raise CommandError(str(error)) from error
    return found


def make_arguments(trainer: str, fields: Mapping[str, Any]):
    """The arguments of a trainer, or a `CommandError`."""
    try:
        return arguments_class(trainer)(**fields)
    except (TypeError, ValueError) as error:
        said = str(error)
        if "support bf16/gpu" in said:
            said = "`bf16` needs a GPU that supports it. Leave it out, or add `--use-cpu`: bf16 may be slow on a CPU."
        raise CommandError(said) from error


def common_arguments(folder: Path, seed: int) -> dict[str, Any]:
    """The arguments that all jobs share."""
    return {
        "output_dir": str(folder / "run"),
        "seed": seed,
        "per_device_eval_batch_size": 64,
        # The last checkpoint to resume from, and the best.
        "save_total_limit": 1,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": True,
        # Without it, processes without a GPU do not find each other (accelerate 1.15) and train separately.
        "use_cpu": not torch.cuda.is_available() and int(os.environ.get("WORLD_SIZE", "1")) > 1,
        "report_to": ["tensorboard"] if is_tensorboard_available() else [],
    }


def method_of(job: Job) -> Chosen:
    """What the model of a job is. The method of a continual job is a strategy."""
    return chosen(job.protocol["model"] if job.kind == "continual" else job.method)


def split_settings(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the settings that shape the model of a job, those of its trainer)."""
    return method_of(job).split_settings(job.settings, "continual" if job.kind == "continual" else None)


def seed_of(job: Job) -> int:
    """Seeds weights and batches. In a sweep it does not depend on the model, so that models see the same batches."""
    if "draw" not in job.protocol:
        return job.seed
    protocol, algorithm = job.protocol, chosen(job.method).algorithm
    names = (data_name(job.source["data"]), algorithm, protocol["left_out"], job.seed, protocol["draw"])
    return int.from_bytes(hashlib.sha256(json.dumps(names).encode()).digest()[:4], "big") % 2**31


def turns_of(one: Chosen, train: DomainDataset) -> int:
    """An algorithm that takes one domain at a time has done one step when every domain had its turn."""
    return len(train.domains) if ALGORITHMS[one.algorithm].one_domain_a_step else 1


def _train_arguments(job: Job, one: Chosen, train: DomainDataset, given: dict[str, Any]) -> dict[str, Any]:
    """Every run is scored equally often."""
    protocol = job.protocol
    is_last = ALGORITHMS[one.algorithm].chooses_by_evaluation or given.get("weight_averaging") is not None
    batch = max(1, given.get("per_device_train_batch_size", 8) * given.get("gradient_accumulation_steps", 1))
    steps = given.pop("max_steps", -1)
    if steps == -1:
        steps = math.ceil(given.get("num_train_epochs", 3.0) * math.ceil(len(train) / (batch * job.processes)))
    if steps > 0:  # the arguments refuse others
        steps += protocol.get("extra_steps", 0)
    every = max(1, math.ceil(steps / protocol["evaluations"]))
    fixed = {"algorithm": one.algorithm, "max_steps": steps, "logging_steps": max(1, every // 4)}
    if one.method.needs_shots:
        # There is nothing to select: the last step counts.
        return {**fixed, "eval_strategy": "no", "save_strategy": "no"}
    return {**fixed, **_evaluated(every, None if is_last else protocol["metric"])}


def _sweep_arguments(job: Job, one: Chosen, train: DomainDataset, given: dict[str, Any]) -> dict[str, Any]:
    """DomainBed's: equally many rows of each domain in a step, a constant learning rate, no warm-up."""
    algorithm = ALGORITHMS[one.algorithm]
    hparams = {name: value for name, value in job.protocol["hparams"].items() if name != "dropout"}
    rows, turns = hparams.pop("batch_size", 32), turns_of(one, train)
    options = {name: hparams.pop(name) for name in algorithm.options if name in hparams}
    every = job.protocol["checkpoint_every"] * turns
    return {
        "algorithm": one.algorithm,
        "algorithm_kwargs": options or None,
        "max_steps": job.protocol["steps"] * turns,
        "per_device_train_batch_size": rows if turns > 1 else rows * len(train.domains),
        "lr_scheduler_type": "constant",
        "logging_steps": every,
        **_evaluated(every, None if algorithm.chooses_by_evaluation else "accuracy"),
        **hparams,
    }


def _evaluated(every: int, metric: str | None) -> dict[str, Any]:
    """Evaluations and checkpoints every so many steps. The best one counts, unless there is no `metric`."""
    return {
        "eval_strategy": "steps",
        "eval_steps": every,
        "save_strategy": "steps",
        "save_steps": every,
        "load_best_model_at_end": metric is not None,
        "metric_for_best_model": metric and f"eval_{metric}",
    }


def _continual_arguments(job: Job, given: dict[str, Any]) -> dict[str, Any]:
    protocol = job.protocol
    fixed = {
        "strategy": job.method,
        "domains": protocol["order"],
        "matrix_metric": protocol["metric"],
        "max_length": protocol["max_length"],
        "save_strategy": "epoch",
        "logging_steps": 10,
    }
    if protocol["dev_fraction"]:
        best = {"load_best_model_at_end": True, "metric_for_best_model": f"eval_{protocol['metric']}"}
        fixed |= {"eval_strategy": "epoch", **best}
    if job.vectors and "word_vectors" in STRATEGIES[job.method].options:
        # The words of later domains have vectors of the same file, unless the strategy is told otherwise.
        given["strategy_kwargs"] = {"word_vectors": job.vectors, **(given.get("strategy_kwargs") or {})}
    return fixed
