# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Jobs of `continual`: one model is trained on domain after domain by a strategy."""

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, set_seed

from hf_memaug.data import DomainDataset
from hf_memaug.hub.provenance import record_run
from hf_memaug.inference.checkpoints import load_model, read_config
from hf_memaug.runs import building
from hf_memaug.runs.arguments import method_of, split_settings, training_arguments
from hf_memaug.runs.cards import kept_whole, score_facts, write_checkpoint_card
from hf_memaug.runs.job import Job, job_folder
from hf_memaug.runs.progress import Steps
from hf_memaug.runs.rows import data_name, load
from hf_memaug.runs.small_models import SMALL, small_backbone
from hf_memaug.runs.splits import prepared, split_for_continual
from hf_memaug.runs.tasks import QUESTIONS, TAGS, kind_of, trainer_of
from hf_memaug.runs.training import keep_facts
from hf_memaug.training import ContinualRecord
from hf_memaug.training.continual.record import RECORD_FILE
from hf_memaug.training.model_cards import is_family


def continual_job(job: Job, run: Path, steps: Steps) -> dict[str, Any]:
    """Trains on all domains in their order and scores all of them after each."""
    folder, protocol = job_folder(run, job.name), job.protocol
    parts, max_length = split(job), protocol["max_length"]
    arguments = training_arguments(job, folder, next(iter(parts["train"].values())))
    set_seed(job.seed)
    model, processor, history = _model(job, parts, run)
    # Domains of an earlier run are scored too, where there are rows of them.
    known = history or (getattr(model.config, "run_facts", None) or {}).get("continual", {})
    earlier = [name for name in ContinualRecord.load(known).trained if name in load(job.source)[0].domains]
    scored = (split(job, earlier)["test"] if earlier else {}) | parts["test"]
    kind = kind_of(next(iter(scored.values())))
    if kind in (TAGS, QUESTIONS):
        labels = [model.config.id2label[number] for number in range(model.config.num_labels)]
        parts = {name: _ready(of, kind, labels, model, processor, max_length) for name, of in parts.items()}
        scored = _ready(scored, kind, labels, model, processor, max_length)
    trainer = trainer_of(kind, continual=True)(
        model=model,
        args=arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["dev"] or None,
        test_dataset=scored,
        processing_class=processor,
        callbacks=[steps],
        history=history,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=(Path(arguments.output_dir) / RECORD_FILE).is_file() or None)
    record = {**_result(job, trainer), **building.parameter_counts(trainer.model), "checkpoint": None}
    if job.keep != "none":
        _keep(job, trainer, folder / "checkpoint", record["scores"])
        record["checkpoint"] = f"jobs/{job.name}/checkpoint"
    keep_facts(trainer, folder, list(scored.values()), max_length)
    if trainer.is_world_process_zero():
        shutil.rmtree(arguments.output_dir, ignore_errors=True)
    return record


def _result(job: Job, trainer) -> dict[str, Any]:
    figures, metric = trainer.figures(), job.protocol["metric"]
    final = {name: value for name, value in trainer.record.final_scores().items() if not math.isnan(value)}
    return {
        "validation": _points(figures["acc"]),
        "scores": {name: {metric: 100 * value} for name, value in final.items()},
        "settings": {**job.settings, "steps": trainer.state.global_step},
        "matrix": {
            "domains": trainer.record.domains,
            "trained_on": trainer.record.row_names,
            "rows": [[_points(value) for value in row] for row in trainer.record.matrix()],
            "baseline": {name: _points(value) for name, value in trainer.record.baseline.items()},
            **{name: _points(value) for name, value in figures.items()},
        },
    }


def split(job: Job, order: Sequence[str] | None = None) -> dict[str, dict[str, DomainDataset]]:
    protocol = job.protocol
    order = protocol["order"] if order is None else order
    rest = (protocol["holdout"], protocol["dev_fraction"], job.seed, protocol["on_overlap"])
    return split_for_continual(job.source, order, *rest)


def _ready(several: Mapping[str, DomainDataset], kind: str, labels, model, tokenizer, max_length: int | None):
    """Questions as tokens, and tags with the ids that the model has for them."""
    found = {}
    for name, rows in several.items():
        if kind == TAGS:
            rows = DomainDataset({one: rows[one] for one in rows.column_names}, labels)
        found[name] = prepared(rows, tokenizer, max_length, model)
    return found


def _model(job: Job, parts: Mapping[str, Mapping[str, DomainDataset]], run: Path):
    """(model, processor, history): a fresh model, or one that was trained on domains before, with its record."""
    order = job.protocol["order"]
    one, first = method_of(job), parts["train"][order[0]]
    backbone, kind = job.backbone, kind_of(first)
    if building.has_history(backbone):
        model = load_model(backbone, read_config(backbone, "--backbone"))
        history = backbone if (Path(backbone) / RECORD_FILE).is_file() else None
        return model, building.checkpoint_processor(backbone, kind), history
    if backbone == SMALL and kind != "graph":
        backbone = small_backbone(first, order[0], run)
    settings, _ = split_settings(job)
    processor = building.processor_of(one, backbone, first, job.general, settings)
    others = [part for part in load(job.source) if part is not None]
    model_parts = building.Parts(backbone, first, processor, job.general, settings, others, job.vectors)
    return building.build_model(one, model_parts), processor, None


def _keep(job: Job, trainer, folder: Path, scores: Mapping[str, Mapping[str, float]]) -> None:
    """Saves weights, processor, card, the matrix, and what the strategy needs to continue."""
    trained = trainer.record.trained
    if is_family(trainer.model):
        record_run(trainer.model, data=data_name(job.source["data"]), domains=trained)
    facts = {"domains": trained, "method": job.method, "scores": score_facts(job, scores, "test")}
    with kept_whole(trainer, folder) as partial:
        trainer.save_stage(partial)
        write_checkpoint_card(job, trainer, partial, facts)


def _points(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else 100 * value
