# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The selected checkpoint with its card, and the card of a run folder."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hf_memaug.hub.card import MARK, model_card
from hf_memaug.hub.provenance import record_run
from hf_memaug.runs.job import NONE, Job
from hf_memaug.runs.rows import data_name
from hf_memaug.runs.tasks import TASKS, auto_class_of

# In a record, the scores by which the model was selected, where `scores` are those of a split of its own.
DEV_SCORES = "dev_scores"


def metric_name(metric: str, task: str | None = None) -> str:
    """What the trainers call f1 is the mean over the classes, where rows have a class."""
    return "macro_f1" if metric == "f1" and task not in TASKS else metric


def keep_checkpoint(job: Job, trainer, folder: Path, record: Mapping[str, Any], sources: Sequence[str]) -> None:
    """Saves the trainer's model, its processor and its card, all or nothing."""
    from hf_memaug.training.model_cards import is_family

    model = trainer.accelerator.unwrap_model(trainer.model)
    target = None if job.target == NONE else job.target
    scores = [
        {
            "domain": domain,
            "split": "test" if domain == target or DEV_SCORES in record else "dev",
            "metric": metric_name(metric, job.source.get("task")),
            "value": value,
            "seed": job.seed,
        }
        for domain, by_metric in record["scores"].items()
        for metric, value in by_metric.items()
    ]
    is_ours = is_family(model)
    if is_ours:
        name = data_name(job.source["data"])
        record_run(model, data=name, domains=sources, left_out=target, method=job.method, scores=scores)
    with kept_whole(trainer, folder) as partial:
        trainer.save_model()
        if is_ours:
            trainer.create_model_card(model_name=job.name)
        elif trainer.is_world_process_zero():
            (partial / "README.md").write_text(plain_card(job, model, scores, sources, target), encoding="utf-8")


def write_winner_card(folder: Path, winner: Mapping[str, Any], job: Job) -> None:
    """The card of a checkpoint that a sweep selected, where it is a model of this library."""
    from transformers import AutoConfig

    from hf_memaug.registry import FAMILIES

    config = AutoConfig.from_pretrained(folder)
    if config.model_type not in FAMILIES:
        return
    accuracy, figure = winner["record"]["accuracy"], {"metric": "accuracy", "seed": winner["trial_seed"]}
    trained_on = [domain for domain in accuracy if domain not in winner["test_envs"]]
    scores = [{**figure, "domain": one, "split": "dev", "value": 100 * accuracy[one]["out"]} for one in trained_on]
    tested = winner["test_accuracy"].items()
    scores += [{**figure, "domain": one, "split": "test", "value": 100 * value} for one, value in tested]
    record_run(
        SimpleNamespace(config=config),
        data=winner["dataset"],
        domains=trained_on,
        # The card says that selection never saw the domain left out, which is wrong for the oracle.
        left_out=None if winner["selection"] == "oracle" else ", ".join(winner["test_envs"]),
        method=job.method,
        scores=scores,
        training={**winner["hparams"], "steps": winner["step"], "selection": winner["selection"]},
    )
    config.save_pretrained(folder)
    card = model_card(config, config.architectures[0], "-".join(folder.parts[-4:]))
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


PLAIN_CARD = """\
---
library_name: transformers
pipeline_tag: {pipeline}
tags:
- hf_memaug
- domain-generalization
---

{mark}

# {name}

`{architecture}` trained as `{method}` on {data}, domains {sources} (seed {seed}).{left_out}

```python
from transformers import {auto_class}, {processor}

model = {auto_class}.from_pretrained("PATH")
processor = {processor}.from_pretrained("PATH")
```

| domain | split | metric | points |
|---|---|---|---:|
{rows}
"""


def plain_card(job: Job, model, scores: Sequence[Mapping], sources: Sequence[str], target: str | None) -> str:
    """The card of a model of transformers. The library's own models have cards of their own."""
    is_image = "Image" in type(model).__name__
    task = job.source.get("task", "image" if is_image else "text")
    pipeline = "image-classification" if is_image else "text-classification"
    rows = [f"| {one['domain']} | {one['split']} | {one['metric']} | {one['value']:.1f} |" for one in scores]
    left_out = f" The domain **{target}** was left out of training and selection." if target else ""
    return PLAIN_CARD.format(
        pipeline=TASKS[task].pipeline if task in TASKS else pipeline,
        mark=MARK,
        name=job.name,
        architecture=type(model).__name__,
        method=job.method,
        data=data_name(job.source["data"]),
        sources=", ".join(sources),
        seed=job.seed,
        left_out=left_out,
        auto_class=auto_class_of(task),
        processor="AutoImageProcessor" if is_image else "AutoTokenizer",
        rows="\n".join(rows),
    )


RUN_CARD = """\
# {data}: {methods}

```bash
{command}
```

{metric} in points, mean ± standard deviation over the seeds {seeds}. {selection}

{table}

{notes}

| domain | train | dev | test |
|---|---:|---:|---:|
{domains}

Made on {device} with {versions}. To repeat the run: `hf-memaug {verb} --recipe recipe.yaml --output FOLDER`.
"""


def run_card(
    run: Mapping[str, Any], data: Mapping[str, Any], table: str, notes: Sequence[str] = (), selection: str = ""
) -> str:
    """README.md of a run folder. `selection` says on which rows models were selected."""
    domains = [f"| {name} | {one['train']} | {one['dev']} | {one['test']} |" for name, one in data["domains"].items()]
    return RUN_CARD.format(
        data=data_name(str(data["source"])),
        methods=", ".join(map(str, run["methods"])),
        command=run["command"],
        metric=metric_name(run["metric"], run.get("rows", run.get("task"))),
        seeds=", ".join(map(str, run["seeds"])),
        selection=selection,
        table=table,
        notes="\n\n".join(notes),
        domains="\n".join(domains),
        device=run["device"],
        versions=", ".join(f"{name} {value}" for name, value in run["versions"].items()),
        verb=run["command"].split()[1],
    )
