# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The selected checkpoint with its card, and the card of a whole run."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.files import write_atomically
from hf_memaug.hub.card import MARK
from hf_memaug.hub.provenance import record_run
from hf_memaug.runs.rows import NO_TARGET, data_name
from hf_memaug.runs.tasks import TASKS

NEVER_THE_TARGET = "Selection saw dev rows of the domains trained on, and never the target."
# In a record, the scores by which it was selected, where the others are those of a split of its own.
GIVEN_DEV = "dev_scores"


def metric_name(metric: str, task: str | None = None) -> str:
    """What the trainers call f1 is the mean over the labels, where rows have a class."""
    return "macro_f1" if metric == "f1" and task not in TASKS else metric


def keep_checkpoint(trainer, folder: Path, spec: Mapping[str, Any], record: Mapping, sources: Sequence[str]) -> None:
    """Saves the trainer's model, its processor and its card, whole or not at all."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    job = spec["job"]
    target = None if job.get("target") in (None, NO_TARGET) else job["target"]
    scores = [
        {
            "domain": domain,
            "split": "test" if domain == target or GIVEN_DEV in record else "dev",
            "metric": metric_name(metric, spec["source"].get("task")),
            "value": value,
            "seed": job["seed"],
        }
        for domain, by_metric in record["scores"].items()
        for metric, value in by_metric.items()
    ]
    name = data_name(spec["source"]["data"])
    has_facts = hasattr(model.config, "run_facts")
    if has_facts:
        record_run(model, data=name, domains=sources, left_out=target, method=job["method"], scores=scores)
    with kept_whole(trainer, folder) as half:
        trainer.save_model()
        if has_facts:
            trainer.create_model_card(model_name=spec["name"])
        elif trainer.is_world_process_zero():
            write_atomically(half / "README.md", plain_card(model, spec, scores, sources, target, name))


@contextlib.contextmanager
def kept_whole(trainer, folder: Path) -> Iterator[Path]:
    """Where the trainer saves a checkpoint, within; behind it the checkpoint is in `folder`, whole or not at all."""
    half = folder.with_name(".checkpoint")
    before, trainer.args.output_dir = trainer.args.output_dir, str(half)
    try:
        if trainer.is_world_process_zero():
            shutil.rmtree(half, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        yield half
    finally:
        trainer.args.output_dir = before
    if trainer.is_world_process_zero():
        (half / "training_args.bin").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(half, folder)
    trainer.accelerator.wait_for_everyone()


def plain_card(model, spec, scores: Sequence[Mapping], sources: Sequence[str], target: str | None, name: str) -> str:
    """For a model of transformers: the library's cards are those of its own models."""
    task = "image-classification" if "Image" in type(model).__name__ else "text-classification"
    of_task = TASKS.get(spec["source"].get("task"))
    task = task if of_task is None else of_task.pipeline
    left_out = f" The domain **{target}** was left out: neither training nor selection saw it." if target else ""
    rows = [f"| {one['domain']} | {one['split']} | {one['metric']} | {one['value']:.1f} |" for one in scores]
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            f"pipeline_tag: {task}",
            "tags:\n- hf_memaug\n- domain-generalization",
            "---",
            "",
            MARK,
            "",
            f"# {spec['name']}",
            "",
            f"`{type(model).__name__}` trained as `{spec['job']['method']}` on {name}, domains "
            f"{', '.join(sources)} (seed {spec['job']['seed']}).{left_out}",
            "",
            "```python",
            *_loading(task),
            "```",
            "",
            "| domain | split | metric | points |",
            "|---|---|---|---:|",
            *rows,
            "",
        ]
    )


def _loading(task: str) -> list[str]:
    if task == "question-answering":
        # There is no pipeline for it.
        return [
            "from transformers import AutoModelForQuestionAnswering, AutoTokenizer",
            "",
            'tokenizer = AutoTokenizer.from_pretrained("PATH")',
            'model = AutoModelForQuestionAnswering.from_pretrained("PATH")',
        ]
    name = "tag" if task == "token-classification" else "classify"
    return ["from transformers import pipeline", "", f'{name} = pipeline("{task}", model="PATH")']


def run_card(
    run: Mapping[str, Any], data: Mapping[str, Any], table: str, notes: Sequence[str] = (), selection: str = ""
) -> str:
    """README.md of a run folder. `selection` says by which rows a model was chosen, where one was."""
    metric = metric_name(run["metric"], run.get("rows", run.get("task")))
    versions = ", ".join(f"{name} {value}" for name, value in run["versions"].items())
    domains = [
        f"| {name} | {entry['train']} | {entry['dev']} | {entry['test']} |" for name, entry in data["domains"].items()
    ]
    return "\n".join(
        [
            f"# {data_name(str(data['source']))}: {', '.join(map(str, run['methods']))}",
            "",
            "```bash",
            run["command"],
            "```",
            "",
            f"{metric} in points, mean ± standard deviation over the seeds "
            f"{', '.join(map(str, run['seeds']))}. {selection}".rstrip(),
            "",
            table,
            "",
            *notes,
            "",
            "| domain | train | dev | test |",
            "|---|---:|---:|---:|",
            *domains,
            "",
            f"Made on {run['device']} with {versions}. `recipe.yaml` has every option: "
            f"`hf-memaug {run['command'].split()[1]} --recipe recipe.yaml --output FOLDER` makes it again.",
            "",
        ]
    )
