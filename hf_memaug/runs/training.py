# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Jobs of `train`, `compare` and `sweep`: one method, one target, one seed."""

import shutil
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PrinterCallback, set_seed

from hf_memaug.data import DomainDataset
from hf_memaug.evaluation.scores import class_scores
from hf_memaug.runs.arguments import seed_of, split_settings, training_arguments
from hf_memaug.runs.building import Parts, build_model, parameter_counts, processor_of
from hf_memaug.runs.cards import DEV_SCORES, keep_checkpoint
from hf_memaug.runs.errors import CommandError
from hf_memaug.runs.job import Job, job_folder
from hf_memaug.runs.lora import add_lora
from hf_memaug.runs.methods import chosen
from hf_memaug.runs.progress import Steps
from hf_memaug.runs.small_models import SMALL, small_backbone
from hf_memaug.runs.splits import prepared, split_for_sweep, split_rows
from hf_memaug.runs.sweeps import Recorder
from hf_memaug.runs.tasks import PLAIN_TASKS, REPLIES, TASKS, kind_of, trainer_of
from hf_memaug.training import BilevelTrainer
from hf_memaug.training.domain_trainer import first_of
from hf_memaug.training.resuming import last_complete_checkpoint

# The scores of a domain; only those that the trainer logs are kept.
METRICS = ("accuracy", "f1", "mcc", "auroc", "exact_match", "macro_f1", "micro_f1", "r2", "pearson")
# In the folder of a job: the logits of the test rows.
ANSWERS_FILE = "answers.npz"
# The most rows that protect the old domains of a writable memory.
GUARD_ROWS = 500


def train_job(job: Job, run: Path, steps: Steps) -> dict[str, Any]:
    """Trains a model, selects its best evaluation on dev rows, scores it and keeps it."""
    folder, one = job_folder(run, job.name), chosen(job.method)
    is_sweep, is_bilevel = "draw" in job.protocol, one.method.trainer == "bilevel"
    parts = _sweep_parts(job) if is_sweep else _parts(job)
    train = parts["train"]
    settings, _ = split_settings(job)
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
    set_seed(seed_of(job))
    others = [part for name, part in parts.items() if name != "train"]
    model = build_model(one, Parts(backbone, train, processor, job.general, settings, others, job.vectors))
    adapters = add_lora(model, job.protocol["lora"]) if "lora" in job.protocol else None
    max_length = job.protocol.get("max_length")
    if max_length is not None and hasattr(processor, "model_max_length"):
        # It is saved with the tokenizer, so that a checkpoint reads texts as in training.
        processor.model_max_length = max_length
    ready = {name: prepared(part, processor, max_length, model) for name, part in parts.items()}
    arguments = training_arguments(job, folder, ready["train"])
    if not one.method.trains:
        _write(model.to(arguments.device), job, parts, processor)
    recorder = Recorder(job, one, folder, ready) if is_sweep else None
    trainer = (BilevelTrainer if is_bilevel else trainer_of(kind_of(train)))(
        model,
        arguments,
        train_dataset=ready["train"],
        eval_dataset=ready["dev"],
        processing_class=processor,
        callbacks=[steps] if recorder is None else [steps, recorder],
    )
    trainer.remove_callback(PrinterCallback)
    if recorder is not None:
        recorder.trainer = trainer
    if one.method.trains:
        # `BilevelTrainer` finds the phase and the checkpoint itself.
        trainer.train(resume_from_checkpoint=is_bilevel or last_complete_checkpoint(arguments.output_dir))
    counts = parameter_counts(model)
    if adapters is not None:
        adapters.merge_and_unload()
    steps.say({"event": "scoring"})
    answers = None if kind_of(train) in TASKS else folder / ANSWERS_FILE
    record = recorder.result() if recorder is not None else _scored(job, trainer, ready, answers)
    record |= {**counts, "checkpoint": None}
    if job.keep != "none":
        sources = (parts["dev"] if job.start else train).domains
        keep_checkpoint(job, trainer, folder / "checkpoint", record, sources)
        if job.keep != "start":
            record["checkpoint"] = f"jobs/{job.name}/checkpoint"
    shown = parts if kind_of(train) in PLAIN_TASKS or kind_of(train) not in TASKS else ready
    keep_facts(trainer, folder, [shown[name] for name in ("dev", "test") if name in shown], max_length)
    if trainer.is_world_process_zero():
        shutil.rmtree(arguments.output_dir, ignore_errors=True)
    return record


def _parts(job: Job) -> dict[str, DomainDataset]:
    protocol, shots = job.protocol, job.protocol.get("shots")
    split = split_rows(job.source, job.target, protocol["dev_fraction"], protocol["on_overlap"], shots is not None)
    parts = {name: part for name, part in split.items() if part is not None}
    pool = parts.pop("pool", None)
    if pool is not None and shots:
        parts["train"] = pool.shuffle(job.seed).select(range(shots))
    return parts


def _sweep_parts(job: Job) -> dict[str, DomainDataset]:
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


def _scored(job: Job, trainer, ready: Mapping[str, Any], keep: Path | None) -> dict[str, Any]:
    """The scores of the selected weights."""
    scores, metric = scores_of(trainer, ready["dev"], None if "test" in ready else keep), job.protocol["metric"]
    record: dict[str, Any] = {"validation": sum(score[metric] for score in scores.values()) / len(scores)}
    if job.source.get("dev_split") is not None:
        record[DEV_SCORES], scores = scores, scores_of(trainer, ready["test"], keep)
    elif "test" in ready:
        scores = {**scores, **scores_of(trainer, ready["test"], keep)}
    best = trainer.state.best_global_step
    settings = {**job.settings, "steps": trainer.state.global_step, **({"best_step": best} if best else {})}
    return {**record, "scores": scores, "settings": settings}


def scores_of(trainer, rows: DomainDataset, keep: Path | None = None) -> dict[str, dict[str, float]]:
    """The scores of each domain, in points. `keep`: a file for the answers, from which ensembles are scored."""
    answers = trainer.predict(rows)
    logits, found = first_of(answers.predictions), answers.metrics
    if keep is not None and trainer.is_world_process_zero():
        np.savez_compressed(keep, logits=logits, labels=answers.label_ids, domains=np.array(rows["domain"]))
    return {
        domain: {
            metric: 100 * found[f"test_{domain}_{metric}"] for metric in METRICS if f"test_{domain}_{metric}" in found
        }
        for domain in rows.domains
    }


def ensembles(run: Path, records: Sequence[Mapping[str, Any]], seeds: Sequence[int], size: int) -> list[dict[str, Any]]:
    """
    Records of the mean answers: of a method and target, of the first `size` seeds, of the next, and so on. Their seed
    is that of the first member. Groups that lack a member are left out.
    """
    from scipy.special import softmax

    by_job = {(one["job"]["method"], one["job"]["target"], one["job"]["seed"]): one for one in records}
    groups = [seeds[start : start + size] for start in range(0, len(seeds) - size + 1, size)]
    found = []
    for method, target in dict.fromkeys(key[:2] for key in by_job):
        for group in groups:
            members = [by_job[key] for seed in group if (key := (method, target, seed)) in by_job]
            if len(members) < size:
                continue
            paths = [job_folder(run, one["name"]) / ANSWERS_FILE for one in members]
            missing = next((path for path in paths if not path.is_file()), None)
            if missing is not None:
                raise CommandError(f"`--ensemble-seeds` needs {missing}, which is missing. Use another `--output`.")
            files = [np.load(path) for path in paths]
            answers = np.mean([softmax(one["logits"].astype(float), axis=-1) for one in files], axis=0)
            labels, domains = files[0]["labels"], files[0]["domains"]
            scores = {}
            for name in dict.fromkeys(domains.tolist()):
                of_domain = class_scores(np.log(answers[domains == name]), labels[domains == name])
                scores[name] = {metric: 100 * value for metric, value in of_domain.items()}
            job = {**members[0]["job"], "method": f"{method}×{size}"}
            found.append({**members[0], "job": job, "scores": scores})
    return found


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
