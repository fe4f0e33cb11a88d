# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs of `train`, `compare` and `sweep`: one method, one target, one seed."""

import math
import os
import shutil
import traceback
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, set_seed

from hf_memaug.data import DomainDataset
from hf_memaug.runs import sweeps
from hf_memaug.runs.building import Parts, build_model, processor_of
from hf_memaug.runs.cards import DEV_SCORES, keep_checkpoint
from hf_memaug.runs.costs import parameter_counts
from hf_memaug.runs.errors import CommandError
from hf_memaug.runs.folder import job_folder
from hf_memaug.runs.job import Job
from hf_memaug.runs.methods import Chosen, chosen
from hf_memaug.runs.progress import Steps, report_to
from hf_memaug.runs.small_models import SMALL, small_backbone
from hf_memaug.runs.splits import prepared, split_for_sweep, split_rows
from hf_memaug.runs.tasks import REPLIES, TASKS, kind_of, trainer_of
from hf_memaug.training import BilevelTrainer
from hf_memaug.training.resuming import last_complete_checkpoint

# The scores of a domain; only those that the trainer logs are kept.
METRICS = ("accuracy", "f1", "mcc", "auroc", "exact_match")
# The most rows that protect the old domains of a writable memory.
GUARD_ROWS = 500


def train_job(job: Job, run: Path, steps: Steps) -> dict[str, Any]:
    """Trains a model, selects its best evaluation on dev rows, scores it and keeps it."""
    folder, one = job_folder(run, job.name), chosen(job.method)
    is_sweep = "draw" in job.protocol
    parts = sweep_parts(job) if is_sweep else _parts(job)
    train = parts["train"]
    others = [part for name, part in parts.items() if name != "train"]
    settings, _ = one.split_settings(job.settings)
    if is_sweep:
        # Of the drawn hyper-parameters, this one shapes the model.
        settings = {"dropout": job.protocol["hparams"]["dropout"], **settings}
    backbone = job.backbone
    if job.start is not None:
        backbone = str(job_folder(run, job.start) / "checkpoint")
        if not Path(backbone).is_dir():
            raise CommandError(f"There is no checkpoint of {job.start}, which it starts from. Did that job fail?")
    elif backbone == SMALL and kind_of(train) != "graph":
        backbone = small_backbone(train, job.target, run)
    processor = processor_of(one, backbone, train, job.general, settings)
    set_seed(sweeps.training_seed(job) if is_sweep else job.seed)
    model = build_model(one, Parts(backbone, train, processor, job.general, settings, others, job.vectors))
    max_length = job.protocol.get("max_length")
    if max_length is not None and hasattr(processor, "model_max_length"):
        # It is saved with the tokenizer, so that a checkpoint reads texts as in training.
        processor.model_max_length = max_length
    ready = {name: prepared(part, processor, max_length, model) for name, part in parts.items()}
    make = sweeps.training_arguments if is_sweep else training_arguments
    arguments = make(job, one, ready["train"], folder)
    recorder = sweeps.Recorder(job, one, folder, ready) if is_sweep else None
    callbacks = [steps, recorder] if recorder else [steps]
    trainer_class = BilevelTrainer if one.method.trainer == "bilevel" else trainer_of(kind_of(train))
    if not one.method.trains:
        _write(model.to(arguments.device), job, parts, processor)
    trainer = _trainer(trainer_class, model, arguments, ready, processor, callbacks)
    if one.method.trains:
        # `BilevelTrainer` finds the phase and the checkpoint itself.
        checkpoint = True if one.method.trainer == "bilevel" else last_complete_checkpoint(arguments.output_dir)
        trainer.train(resume_from_checkpoint=checkpoint)
    steps.say({"event": "scoring"})
    record = {
        **(recorder.result(trainer) if recorder else _scored(job, trainer, ready)),
        **parameter_counts(model),
        "checkpoint": None,
    }
    if job.keep != "none":
        keep_checkpoint(
            job, trainer, folder / "checkpoint", record, sources=(parts["dev"] if job.start else train).domains
        )
        if job.keep != "start":
            record["checkpoint"] = f"jobs/{job.name}/checkpoint"
    shown = ready if kind_of(train) in TASKS else parts
    keep_facts(trainer, folder, [shown[name] for name in ("dev", "test") if name in shown], max_length)
    if trainer.is_world_process_zero():
        shutil.rmtree(arguments.output_dir, ignore_errors=True)
    return record


def _parts(job: Job) -> dict[str, DomainDataset]:
    protocol, shots = job.protocol, job.protocol.get("shots")
    split = split_rows(
        job.source, job.target, protocol["dev_fraction"], protocol["on_overlap"], shots=shots is not None
    )
    parts = {name: part for name, part in split.items() if part is not None}
    pool = parts.pop("pool", None)
    if pool is not None and shots:
        parts["train"] = pool.shuffle(job.seed).select(range(shots))
    return parts


def _write(model, job: Job, parts: Mapping[str, DomainDataset], processor) -> None:
    """Writes the rows to the model's memory. The dev rows are its guard rows."""
    model.requires_grad_(False).write(
        parts["train"],
        job.target,
        processor,
        guard=parts["dev"].select(range(min(GUARD_ROWS, len(parts["dev"])))),
        text_pair="text_pair" if "text_pair" in parts["train"].column_names else None,
        max_length=job.protocol.get("max_length"),
        append=True,  # a few rows may all have one label
    )


def sweep_parts(job: Job) -> dict[str, DomainDataset]:
    """The `in` rows of the sources, their `out` rows to select on, and the splits that are recorded besides."""
    protocol, left_out = job.protocol, job.protocol["left_out"]
    inside, outside = split_for_sweep(job.source, left_out, protocol["holdout"], job.seed, protocol["on_overlap"])
    sources = [name for name in inside.domains if name not in left_out]
    return {
        "train": inside.of_domains(sources),
        "dev": outside.of_domains(sources),
        "test": outside.of_domains(left_out),
        "inside": inside,
    }


def training_arguments(job: Job, one: Chosen, train: Sized, folder: Path):
    """The settings of the trainer, and the protocol: every run is scored equally often."""
    from hf_memaug.training.algorithms import ALGORITHMS

    _, given = one.split_settings(job.settings)
    protocol, chooses_itself = job.protocol, ALGORITHMS[one.algorithm].chooses_by_evaluation
    batch = max(1, given.get("per_device_train_batch_size", 8) * given.get("gradient_accumulation_steps", 1))
    steps = given.pop("max_steps", -1)
    if steps == -1:
        steps = math.ceil(given.get("num_train_epochs", 3.0) * math.ceil(len(train) / (batch * job.processes)))
    if steps > 0:  # the arguments refuse others
        steps += protocol.get("extra_steps", 0)
    every = max(1, math.ceil(steps / protocol["evaluations"]))
    fixed = {
        "algorithm": one.algorithm,
        "max_steps": steps,
        "eval_strategy": "steps",
        "eval_steps": every,
        "save_strategy": "steps",
        "save_steps": every,
        "load_best_model_at_end": not chooses_itself,
        "metric_for_best_model": None if chooses_itself else f"eval_{protocol['metric']}",
        "logging_steps": max(1, every // 4),
    }
    if one.method.needs_shots:
        # There is nothing to select: the last step counts.
        never = dict.fromkeys(("eval_strategy", "save_strategy"), "no")
        fixed |= {**never, "load_best_model_at_end": False, "metric_for_best_model": None}
    return make_arguments(one.method.trainer, {**common_arguments(folder, job.seed), **fixed, **given})


def make_arguments(trainer: str, fields: Mapping[str, Any]):
    """The arguments of a trainer, or a `CommandError`."""
    from hf_memaug.runs.settings import arguments_class

    try:
        return arguments_class(trainer)(**fields)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error


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
        "report_to": report_to(),
    }


def _trainer(trainer_class: type, model, arguments, ready: Mapping, processor, callbacks: Sequence):
    trainer = trainer_class(
        model,
        arguments,
        train_dataset=ready["train"],
        eval_dataset=ready["dev"],
        processing_class=processor,
        callbacks=list(callbacks),
    )
    for callback in callbacks:
        callback.trainer = trainer
    trainer.remove_callback(PrinterCallback)
    return trainer


def _scored(job: Job, trainer, ready: Mapping[str, Any]) -> dict[str, Any]:
    """The scores of the selected weights."""
    scores, metric = scores_of(trainer, ready["dev"]), job.protocol["metric"]
    record: dict[str, Any] = {"validation": sum(score[metric] for score in scores.values()) / len(scores)}
    if job.source.get("dev_split") is not None:
        record[DEV_SCORES], scores = scores, scores_of(trainer, ready["test"])
    elif "test" in ready:
        scores = {**scores, **scores_of(trainer, ready["test"])}
    best = trainer.state.best_global_step
    settings = {**job.settings, "steps": trainer.state.global_step, **({"best_step": best} if best else {})}
    return {**record, "scores": scores, "settings": settings}


def scores_of(trainer, rows: DomainDataset) -> dict[str, dict[str, float]]:
    """The scores of each domain, in points."""
    found = trainer.predict(rows).metrics
    return {
        domain: {
            metric: 100 * found[f"test_{domain}_{metric}"] for metric in METRICS if f"test_{domain}_{metric}" in found
        }
        for domain in rows.domains
    }


def keep_facts(trainer, folder: Path, rows: Sequence[DomainDataset], max_length: int | None) -> None:
    """Keeps what the report shows of the model. If this fails, the job does not."""
    from hf_memaug.runs.facts import write_facts

    if trainer.is_world_process_zero() and kind_of(rows[0]) != REPLIES:
        model = trainer.accelerator.unwrap_model(trainer.model)
        try:
            joined = DomainDataset.concatenate(list(rows))
            write_facts(folder, model, trainer.processing_class, joined, max_length=max_length)
        except Exception:
            traceback.print_exc()
