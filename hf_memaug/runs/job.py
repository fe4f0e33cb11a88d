# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
One job: trained, or resumed, selected on dev rows and scored. `python -m hf_memaug.runs.job FOLDER` runs the job in
a folder of its own process, or in several under torchrun.

    job.json        what to train
    run/            the trainer's checkpoints, to go on from; removed at the end
    checkpoint/     the selected weights, ready for `from_pretrained`
    metrics.jsonl   a line for each log
    logs/           TensorBoard
    log.txt         what else was said
"""

import contextlib
import importlib
import json
import math
import os
import shutil
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, PrinterCallback, logging, set_seed

from hf_memaug.data import DomainDataset
from hf_memaug.files import told_plainly, write_atomically
from hf_memaug.runs import rows as data
from hf_memaug.runs.cards import GIVEN_DEV, keep_checkpoint
from hf_memaug.runs.errors import CommandError, DataRefused
from hf_memaug.runs.folder import JOB
from hf_memaug.runs.methods import Parts, chosen, local_backbone
from hf_memaug.runs.processors import processor_of
from hf_memaug.runs.progress import Say, Steps, Stop, end_with_the_parent
from hf_memaug.runs.tasks import REPLIES, TASKS, trainer_of
from hf_memaug.training.checks import check_positions, tokens_of
from hf_memaug.training.costs import clock_in, has_tensorboard, parameter_counts, peak_memory, tensorboard_in
from hf_memaug.training.resuming import last_complete_checkpoint

# The mark of a line that is an event and not something that a library has printed.
EVENT = "\x1ehf-memaug "
# What is scored of some rows: auroc where there are two labels and rows of both, exact_match of questions.
METRICS = ("accuracy", "f1", "mcc", "auroc", "exact_match")


def run_job(spec: Mapping[str, Any], run: Path, say: Say, stop: Stop) -> dict:
    """
    Args:
        spec: `job` (what makes it different from others), `name`, `kind` (a function of `KINDS`), and what it needs.
        run: the run folder.
        say: gets its events.
        stop: when asked, the job saves a checkpoint and raises `Interrupted`.

    Returns:
        The record for runs.jsonl.
    """
    module, _, function = KINDS[spec["kind"]].partition(":")
    folder = run / "jobs" / spec["name"]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / JOB, json.dumps(spec, indent=2, ensure_ascii=False) + "\n")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with clock_in(folder) as clock, tensorboard_in(folder / "logs"):
        record = getattr(importlib.import_module(module), function)(spec, run, say, stop)
        record |= {"seconds": round(clock.seconds, 2), "peak_memory_bytes": peak_memory()}
        clock.forget()
    return {"job": spec["job"], "name": spec["name"], **record}


def train_job(spec: Mapping[str, Any], run: Path, say: Say, stop: Stop) -> dict:
    """A job of `train` and `compare`: one method, one target, one seed."""
    job, folder = spec["job"], run / "jobs" / spec["name"]
    one = chosen(job["method"])
    parts = data.split_for(spec["source"], job["target"], spec["dev_fraction"], spec["on_overlap"])
    kind = data.kind_of(parts["train"])
    backbone = local_backbone(spec["backbone"], parts["train"], job["target"], run)
    settings = one.configuration(spec["settings"])
    processor = processor_of(one, backbone, parts["train"], spec["general"], settings)
    prepared = {name: prepare(part, processor, spec["max_length"]) for name, part in parts.items() if part is not None}
    set_seed(job["seed"])
    others = [part for name, part in parts.items() if name != "train" and part is not None]
    model = one.method.build(Parts(backbone, parts["train"], processor, spec["general"], settings, others))
    check_lengths(model, *prepared.values())
    arguments = training_arguments(spec, one, len(prepared["train"]), folder)
    steps = Steps(say, stop, folder / "metrics.jsonl")
    trainer = _trainer(one, model, arguments, prepared, processor, steps, trainer_of(kind))
    if one.method.trainer == "bilevel":
        # It finds the phase and the checkpoint itself, and begins where there is none.
        trainer.train(resume_from_checkpoint=True)
    else:
        trainer.train(resume_from_checkpoint=last_complete_checkpoint(arguments.output_dir))
    say({"event": "scoring"})
    scores = scores_of(trainer, prepared["dev"])
    metric = spec["metric"]
    validation = sum(score[metric] for score in scores.values()) / len(scores)
    given = {}
    if spec["source"].get("dev_split") is not None:
        given[GIVEN_DEV], scores = scores, scores_of(trainer, prepared["test"])
    elif "test" in prepared:
        scores |= scores_of(trainer, prepared["test"])
    record = {
        "validation": validation,
        "scores": scores,
        **given,
        "settings": {**spec["settings"], "steps": trainer.state.global_step, **_winner(trainer)},
        **parameter_counts(model),
        "checkpoint": None,
    }
    if spec["keep"] != "none":
        keep_checkpoint(trainer, folder / "checkpoint", spec, record, sources=parts["train"].domains)
        record["checkpoint"] = f"jobs/{spec['name']}/checkpoint"
    if kind != REPLIES:
        shown = prepared if kind in TASKS else parts
        keep_facts(trainer, folder, [shown[name] for name in ("dev", "test") if name in prepared], spec["max_length"])
    if trainer.is_world_process_zero():
        shutil.rmtree(arguments.output_dir, ignore_errors=True)
    return record


def prepare(rows: DomainDataset, processor, max_length: int | None) -> DomainDataset:
    """Texts as tokens, with the labels of their task; all else as it is."""
    if not isinstance(processor, PreTrainedTokenizerBase):
        return rows
    kind = data.kind_of(rows)
    if kind not in TASKS:
        return rows.tokenize(processor, max_length)
    try:
        return TASKS[kind].prepare(rows, processor, max_length)
    except ValueError as error:
        raise DataRefused(data.as_options(error)) from error


def check_lengths(model, *several: DomainDataset) -> None:
    """Of rows to score too, before anything is trained."""
    try:
        check_positions(model, tokens_of(*several))
    except ValueError as error:
        raise DataRefused(data.as_options(error)) from error


def keep_facts(trainer, folder: Path, rows: list[DomainDataset], max_length: int | None) -> None:
    """
    What the report shows of the model, of rows as they are or, of tags and questions, tokenized. A job that cannot keep
    it is done all the same.
    """
    from hf_memaug.runs.facts import write_job_facts
    from hf_memaug.runs.token_facts import write_token_facts

    if trainer.is_world_process_zero():
        model = trainer.accelerator.unwrap_model(trainer.model)
        try:
            rows = DomainDataset.concatenate(rows)
            if "input_ids" in rows.column_names:
                write_token_facts(folder, model, trainer.processing_class, rows)
            else:
                write_job_facts(folder, model, trainer.processing_class, rows, max_length=max_length)
        except Exception:
            traceback.print_exc()


def training_arguments(spec: Mapping[str, Any], one, train_rows: int, folder: Path):
    """What was given, and what the protocol of a comparison asks for: every run is scored as often as the others."""
    from hf_memaug.training import BilevelTrainingArguments, DomainTrainingArguments
    from hf_memaug.training.algorithms import ALGORITHMS

    classes = {"domain": DomainTrainingArguments, "bilevel": BilevelTrainingArguments}
    given = one.training(spec["settings"])
    common = common_arguments(folder, spec["job"]["seed"])
    chooses_itself = ALGORITHMS[one.algorithm].chooses_by_evaluation
    batch = max(1, given.get("per_device_train_batch_size", 8) * given.get("gradient_accumulation_steps", 1))
    steps = given.get("max_steps", -1)
    if steps <= 0:
        steps = math.ceil(given.get("num_train_epochs", 3.0) * math.ceil(train_rows / (batch * spec["processes"])))
    steps += spec["extra_steps"]
    every = max(1, math.ceil(steps / spec["evaluations"]))
    protocol = {
        "algorithm": one.algorithm,
        "max_steps": steps,
        "eval_strategy": "steps",
        "eval_steps": every,
        "save_strategy": "steps",
        "save_steps": every,
        "load_best_model_at_end": not chooses_itself,
        "metric_for_best_model": None if chooses_itself else f"eval_{spec['metric']}",
        "logging_steps": max(1, every // 4),
    }
    given = {name: value for name, value in given.items() if name != "max_steps"}
    try:
        return classes[one.method.trainer](**{**common, **protocol, **given})
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error


def common_arguments(folder: Path, seed: int) -> dict[str, Any]:
    """What all jobs share, whatever the trainer."""
    return {
        "output_dir": str(folder / "run"),
        "seed": seed,
        "per_device_eval_batch_size": 64,
        # Beside the best, the last: to go on from.
        "save_total_limit": 1,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": True,
        # Without it, processes that share no GPU do not find each other (accelerate 1.15), and each trains by itself.
        "use_cpu": not torch.cuda.is_available() and int(os.environ.get("WORLD_SIZE", "1")) > 1,
        "report_to": ["tensorboard"] if has_tensorboard() else [],
    }


def _trainer(one, model, arguments, prepared: Mapping, processor, steps: Steps, of_kind: type):
    from hf_memaug.training import BilevelTrainer

    classes = {"domain": of_kind, "bilevel": BilevelTrainer}
    trainer = classes[one.method.trainer](
        model,
        arguments,
        train_dataset=prepared["train"],
        eval_dataset=prepared["dev"],
        processing_class=processor,
        callbacks=[steps],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def scores_of(trainer, rows) -> dict[str, dict[str, float]]:
    """For each domain its scores, in points."""
    found = trainer.predict(rows).metrics
    return {
        domain: {
            metric: 100 * found[f"test_{domain}_{metric}"] for metric in METRICS if f"test_{domain}_{metric}" in found
        }
        for domain in rows.domains
    }


def _winner(trainer) -> dict[str, Any]:
    step = trainer.state.best_global_step
    return {"best_step": step} if step else {}


def guarded(spec: Mapping[str, Any], run: Path, say: Say, stop: Stop) -> None:
    """Runs a job with what it prints in its log.txt; says `done`, `failed` or `interrupted` at the end."""
    folder = run / "jobs" / spec["name"]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "log.txt", "a", encoding="utf-8") as log:
        try:
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                record = run_job(spec, run, say, stop)
        except CommandError as error:
            say({"event": "interrupted" if stop.asked else "failed", "why": str(error)})
        except KeyboardInterrupt:
            say({"event": "interrupted", "why": "at once"})
        except Exception as error:  # one broken job must not lose the others
            traceback.print_exc(file=log)
            error = told_plainly(error, folder)
            if getattr(error, "errno", None) is not None:
                say({"event": "failed", "why": str(error), "errno": error.errno})
            else:
                # Also what stands below a first line that only says that something is wrong.
                said = " ".join(line.strip() for line in str(error).strip().splitlines()[:3])
                say({"event": "failed", "why": f"{type(error).__name__}: {said}"})
        else:
            say({"event": "done", "record": record})


# Who runs which kind of job.
KINDS = {"train": "hf_memaug.runs.job:train_job", "continual": "hf_memaug.cli.continual:continual_job"}


def main(folder: str) -> None:
    """A job in this process; its events are lines on stdout."""
    end_with_the_parent()
    is_first = os.environ.get("RANK", "0") == "0"
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def say(event: dict) -> None:
        if is_first:
            out.write(EVENT + json.dumps(event) + "\n")
            out.flush()

    spec = json.loads((Path(folder) / JOB).read_text(encoding="utf-8"))
    with Stop() as stop:
        guarded(spec, Path(folder).parents[1], say, stop)


if __name__ == "__main__":
    main(sys.argv[1])
