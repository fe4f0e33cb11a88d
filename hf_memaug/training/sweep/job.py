# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
One run of a sweep: `python -m hf_memaug.training.sweep.job FOLDER`, where the folder has a `job.json`.

    job.json          what to train
    records.jsonl     a line for each checkpoint, whole at any time
    weights/step-N/   weights that may be chosen, ready for `from_pretrained`
    run/              the trainer's own checkpoint, to go on from after a kill; removed at the end
    log.txt           what the run said
    metrics.jsonl     a line for each log; in logs/ the same for TensorBoard
    costs.json        seconds, peak memory, parameters
    done              the run is finished
"""

import errno
import importlib
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback, logging, set_seed

from hf_memaug.data import DomainDataset, check_overlap, find_overlap, split_domains
from hf_memaug.evaluation.domain_selection import training_score
from hf_memaug.evaluation.records import Record, read_records, write_records
from hf_memaug.files import is_full, told_plainly, write_atomically
from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.arguments import DomainTrainingArguments
from hf_memaug.training.costs import JobClock, MetricLines, clock_in, parameter_counts, peak_memory, tensorboard_in
from hf_memaug.training.domain_trainer import DomainTrainer
from hf_memaug.training.resuming import last_complete_checkpoint
from hf_memaug.training.sweep.plan import Job


class Recorder(TrainerCallback):
    """
    Scores every split of every domain at each evaluation, writes the record, and keeps the weights that the job says.

    Args:
        job, folder: what is run, and where it is kept.
        inside, outside: the `in` and `out` splits of all domains, as the trainer takes them.
        round_steps: optimizer steps that count as one step of the run.
    """

    def __init__(self, job: Job, folder: Path, inside, outside, round_steps: int):
        self.job, self.folder, self.inside, self.round_steps = job, folder, inside, round_steps
        self.outside_test = _of(outside, job.test_envs)
        self.trainer: DomainTrainer | None = None
        self.records: dict[int, Record] = {}
        # Weights on the way are not yet those of an algorithm that averages some of them at the end.
        self.records_evaluations = not ALGORITHMS[job.algorithm].chooses_by_evaluation

    def go_on(self, step: int) -> None:
        """Takes up the records of a run that was broken off, but not those after the checkpoint it goes on from."""
        path = self.folder / "records.jsonl"
        if path.is_file():
            self.records = {record.step: record for record in read_records(path) if record.step <= step}

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if self.records_evaluations and self.trainer.is_in_train:
            self.record(state.global_step // self.round_steps, metrics)

    def record(self, step: int, metrics: dict[str, float]) -> None:
        """`metrics` are those of the `out` splits of the domains trained on."""
        inside, outside = (self.trainer.predict(rows).metrics for rows in (self.inside, self.outside_test))
        scores = {**outside, **{name.replace("eval_", "test_", 1): value for name, value in metrics.items()}}
        accuracy = {
            name: {"in": inside[f"test_{name}_accuracy"], "out": scores[f"test_{name}_accuracy"]}
            for name in self.inside.domains
        }
        job = self.job
        self.records[step] = Record(
            dataset=job.dataset,
            algorithm=job.algorithm,
            model=job.model,
            test_envs=job.test_envs,
            trial_seed=job.trial_seed,
            hparams_seed=job.hparams_seed,
            step=step,
            accuracy=accuracy,
            hparams=job.hparams,
            args={
                "job": job.name,
                "data": job.data,
                "checkpoint": job.checkpoint,
                "steps": job.steps,
                "checkpoint_every": job.checkpoint_every,
                "holdout": job.holdout,
                "seed": job.seed,
            },
            setting=job.setting,
        )
        self._keep_weights(step)
        # Last, so that a step that is recorded has its weights.
        write_records(self.folder / "records.jsonl", self.records.values())

    def _keep_weights(self, step: int) -> None:
        steps = list(self.records)
        best = max(steps, key=lambda step: training_score(self.records[step]))
        kept = {"best": [best], "last": [steps[-1]], "all": steps, "none": []}[self.job.keep]
        weights = self.folder / "weights"
        if step in kept:
            half = weights / "half"
            shutil.rmtree(half, ignore_errors=True)
            self.trainer.save_model(str(half))
            (half / "training_args.bin").unlink(missing_ok=True)
            shutil.rmtree(weights / f"step-{step}", ignore_errors=True)
            os.replace(half, weights / f"step-{step}")
        for folder in weights.glob("step-*"):
            if int(folder.name.removeprefix("step-")) not in kept:
                shutil.rmtree(folder)


def run_job(folder: str | Path) -> None:
    """Runs the job in a folder, or goes on with it, and marks it as done."""
    with clock_in(Path(folder)) as clock:
        _run_job(Path(folder), clock)


def _run_job(folder: Path, clock: JobClock) -> None:
    job = Job.read(folder)
    set_seed(job.seed)
    model, processor, rows = _named(job.build)(job)
    inside, outside = split_rows(job, rows)
    shown = outside
    if isinstance(processor, PreTrainedTokenizerBase):
        inside, outside = (part.tokenize(processor, job.max_length) for part in (inside, outside))
    sources = [name for name in rows.domains if name not in job.test_envs]
    train, dev = _of(inside, sources), _of(outside, sources)
    # An algorithm that takes the domains one after another has done one step when each has had its turn.
    turns = len(sources) if ALGORITHMS[job.algorithm].one_domain_a_step else 1
    recorder = Recorder(job, folder, inside, outside, turns)
    with tensorboard_in(folder / "logs") as report_to:
        trainer = DomainTrainer(
            model=model,
            args=training_arguments(job, folder / "run", len(sources), turns, report_to),
            train_dataset=train,
            eval_dataset=dev,
            processing_class=processor,
            callbacks=[recorder, MetricLines(folder / "metrics.jsonl")],
        )
        recorder.trainer = trainer
        checkpoint = last_complete_checkpoint(folder / "run")
        recorder.go_on(0 if checkpoint is None else int(checkpoint.rpartition("-")[2]) // turns)
        if checkpoint is not None:
            print(f"It goes on from step {checkpoint.rpartition('-')[2]}.", flush=True)
        trainer.train(resume_from_checkpoint=checkpoint)
    if not recorder.records_evaluations:
        recorder.record(job.steps, trainer.evaluate())
    costs = {"seconds": round(clock.seconds, 2), "peak_memory_bytes": peak_memory(), **parameter_counts(trainer.model)}
    write_atomically(folder / "costs.json", json.dumps(costs) + "\n")
    if job.facts is not None:
        _keep_facts(job, folder, trainer, recorder, shown)
    shutil.rmtree(folder / "run", ignore_errors=True)
    clock.forget()
    write_atomically(folder / "done", "")


def _named(place: str):
    module, _, function = place.partition(":")
    return getattr(importlib.import_module(module), function)


def _keep_facts(job: Job, folder: Path, trainer: DomainTrainer, recorder: Recorder, rows: DomainDataset) -> None:
    """What a report shows, of the weights that validate best where they are kept. Without it, the job is done too."""
    best = max(recorder.records.values(), key=training_score)
    weights = folder / "weights" / f"step-{best.step}"
    try:
        if weights.is_dir():
            trainer._load_from_checkpoint(str(weights))
        _named(job.facts)(folder, trainer.model, trainer.processing_class, rows, max_length=job.max_length)
    except Exception:
        traceback.print_exc()


def split_rows(job: Job, rows: DomainDataset) -> tuple[DomainDataset, DomainDataset]:
    """The `in` and `out` splits of all domains. Other domains have no say in how one is split."""
    for name in job.test_envs:
        if name not in rows.domains:
            raise ValueError(f"`test_envs` names {name!r}; the rows have the domains {', '.join(rows.domains)}.")
    if job.on_overlap not in ("raise", "drop", "ignore"):
        raise ValueError(f"`on_overlap` is {job.on_overlap!r}; it must be 'raise', 'drop' or 'ignore'.")
    if job.on_overlap != "ignore":
        tests = _of(rows, job.test_envs)
        numbers = [row for row, name in enumerate(rows["domain"]) if name not in job.test_envs]
        trained = rows.select(numbers)
        if job.on_overlap == "raise":
            mend = 'Pass `on_overlap="drop"` to leave them out of training.'
            check_overlap(trained, tests, ("training domains", "domains left out"), mend)
        else:
            shared = {numbers[row] for row, _ in find_overlap(trained, tests)}
            rows = rows.select(row for row in range(len(rows)) if row not in shared)
    parts = split_domains(rows, job.holdout, job.trial_seed).values()
    return tuple(DomainDataset.concatenate([part[side] for part in parts]) for side in (0, 1))


def training_arguments(
    job: Job, output: Path, sources: int, turns: int, report_to: Sequence[str] = ()
) -> DomainTrainingArguments:
    """DomainBed's: the same number of rows of each domain in a step, a constant rate, no warm-up."""
    hparams = {name: value for name, value in job.hparams.items() if name != "dropout"}
    rows = hparams.pop("batch_size", 32)
    options = {name: hparams.pop(name) for name in ALGORITHMS[job.algorithm].options if name in hparams}
    arguments = {
        "output_dir": str(output),
        "algorithm": job.algorithm,
        "algorithm_kwargs": options or None,
        "max_steps": job.steps * turns,
        "per_device_train_batch_size": rows if turns > 1 else rows * sources,
        "per_device_eval_batch_size": 64,
        "lr_scheduler_type": "constant",
        "eval_strategy": "steps",
        "eval_steps": job.checkpoint_every * turns,
        "save_strategy": "steps",
        "save_steps": job.checkpoint_every * turns,
        "save_total_limit": 1,
        "logging_steps": job.checkpoint_every * turns,
        "disable_tqdm": True,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "report_to": list(report_to),
        "seed": job.seed,
        **hparams,
        **job.training,
    }
    return DomainTrainingArguments(**arguments)


def _of(rows: DomainDataset, domains: Sequence[str]) -> DomainDataset:
    return rows.select(row for row, name in enumerate(rows["domain"]) if name in domains)


def _end_with_the_sweep() -> None:
    """The sweep holds the other end of this pipe: when it is gone, however it went, so is this process."""

    def wait():
        # Not by `sys.stdin`, whose lock the interpreter wants when it ends.
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(folder: str) -> int:
    """Runs the job of a folder. The exit code is that of a full disk where it is full, by which the sweep knows it."""
    try:
        run_job(folder)
    except Exception as error:
        if not is_full(told_plainly(error, folder)):
            raise
        traceback.print_exc()
        return errno.ENOSPC
    return 0


if __name__ == "__main__":
    _end_with_the_sweep()
    logging.disable_progress_bar()
    sys.exit(main(sys.argv[1]))
