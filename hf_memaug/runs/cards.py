# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The selected checkpoint with its card, and the card of a run folder."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.files import render
from hf_memaug.hub.card import model_card
from hf_memaug.hub.provenance import record_run
from hf_memaug.runs.job import NONE, Job
from hf_memaug.runs.rows import data_name
from hf_memaug.runs.tasks import TASKS
from hf_memaug.training.model_cards import is_family

# In a record, the scores by which the model was selected, where `scores` are those of a split of its own.
DEV_SCORES = "dev_scores"


def metric_name(metric: str, task: str | None = None) -> str:
    """What the trainers call f1 is the mean over the classes, where rows have a class."""
    return "macro_f1" if metric == "f1" and task not in TASKS else metric


def keep_checkpoint(job: Job, trainer, folder: Path, record: Mapping[str, Any], sources: Sequence[str]) -> None:
    """Saves the trainer's model, its processor and its card, all or nothing."""
    target = None if NONE == job.target or job.start else job.target
    facts: dict[str, Any] = {"domains": list(sources), "left_out": target, "method": job.method}
    facts["data"] = data_name(job.source["data"])
    is_test = DEV_SCORES in record or "shots" in job.protocol
    facts["scores"] = score_facts(job, record["scores"], "test" if is_test else "dev")
    if job.start:
        facts["training"] = {"checkpoint": job.start, f"rows_of_{job.target}": job.protocol["shots"], **job.settings}
    model = trainer.accelerator.unwrap_model(trainer.model)
    if is_family(model):
        record_run(model, **facts)
    else:
        # `hf-memaug push` writes the card again, with the name of the repository.
        model.config.run_facts = facts
    with kept_whole(trainer, folder) as partial:
        trainer.save_model()
        write_checkpoint_card(job, trainer, partial, facts)


def score_facts(job: Job, scores: Mapping[str, Mapping[str, float]], split: str) -> list[dict[str, Any]]:
    """The scores of a job, as `record_run` takes them. Those of the target are always of test rows."""
    return [
        {
            "domain": domain,
            "split": "test" if domain == job.target else split,
            "metric": metric_name(metric, job.source.get("task")),
            "value": value,
            "seed": job.seed,
        }
        for domain, by_metric in scores.items()
        for metric, value in by_metric.items()
    ]


def write_checkpoint_card(job: Job, trainer, folder: Path, facts: Mapping[str, Any]) -> None:
    """The card of a saved model. `facts` are for a model of transformers; our own models keep theirs."""
    if is_family(trainer.model) and not job.start:
        trainer.create_model_card(model_name=job.name)
    elif trainer.is_world_process_zero():
        model = trainer.accelerator.unwrap_model(trainer.model)
        facts = {"data": data_name(job.source["data"]), **facts}
        # Progressive networks are columns of another class, and no Auto class loads them.
        column = getattr(model.config, "column_class", None)
        loaded_by = type(model) if column else None
        card = model_card(model.config, column or type(model).__name__, job.name, facts=facts, loaded_by=loaded_by)
        card.save(folder / "README.md")


@contextlib.contextmanager
def kept_whole(trainer, folder: Path) -> Iterator[Path]:
    """Redirects what the trainer saves to a temporary folder, which then becomes `folder`."""
    partial = folder.with_name(".checkpoint")
    before, trainer.args.output_dir = trainer.args.output_dir, str(partial)
    try:
        if trainer.is_world_process_zero():
            shutil.rmtree(partial, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        yield partial
    finally:
        trainer.args.output_dir = before
    if trainer.is_world_process_zero():
        (partial / "training_args.bin").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    trainer.accelerator.wait_for_everyone()


def run_card(
    run: Mapping[str, Any], data: Mapping[str, Any], table: str, notes: Sequence[str] = (), selection: str = ""
) -> str:
    """README.md of a run folder. `selection` says on which rows models were selected."""
    return render(
        __package__,
        "run_card.md.jinja",
        run=run,
        name=data_name(str(data["source"])),
        domains=data["domains"],
        metric=metric_name(run["metric"], run.get("rows", run.get("task"))),
        table=table,
        notes=notes,
        selection=selection,
    )
