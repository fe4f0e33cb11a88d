# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Sweeps by DomainBed's protocol. A job of a sweep is a `train` job with drawn hyper-parameters that records the scores of
all splits at each evaluation, in `records.jsonl` of its folder.
"""

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from hf_memaug.evaluation.domain_selection import (
    RECORDS_FILE,
    Choice,
    Record,
    best_of_trials,
    choose,
    read_records,
    training_score,
    write_records,
)
from hf_memaug.files import file_name, write_atomically
from hf_memaug.runs.cards import write_winner_card
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.folder import job_folder
from hf_memaug.runs.job import Job
from hf_memaug.runs.methods import Chosen, chosen
from hf_memaug.runs.rows import data_name

WINNER_FILE = "winner.json"
# The weights that each way to select may choose.
KEPT = {"training": "best", "oracle": "last", "leave_one_out": "all"}


def left_out_sets(domains: Sequence[str], targets: Sequence[str], selection: str) -> list[tuple[str, ...]]:
    """The domains that each run leaves out: one, and for `"leave_one_out"` also two."""
    least = 3 if selection == "leave_one_out" else 2
    if len(domains) < least:
        raise UsageError(
            f"`--data` has {len(domains)} domain(s), and `--selection {selection}` needs at least {least}. Use rows of "
            "more domains."
        )
    single: list[tuple[str, ...]] = [(domain,) for domain in targets]
    if selection != "leave_one_out":
        return single
    # A run without `a` and `b` validates for both.
    return [*single, *(pair for pair in itertools.combinations(domains, 2) if set(pair) & set(targets))]


def training_seed(job: Job) -> int:
    """Seeds weights and batches. It does not depend on the model, so that models see the same batches."""
    left_out, algorithm = job.protocol["left_out"], chosen(job.method).algorithm
    names = (data_name(job.source["data"]), algorithm, left_out, job.seed, job.protocol["draw"])
    return int.from_bytes(hashlib.sha256(json.dumps(names).encode()).digest()[:4], "big") % 2**31


def training_arguments(job: Job, one: Chosen, train, folder: Path):
    """DomainBed's: equally many rows of each domain in a step, a constant learning rate, no warm-up."""
    from hf_memaug.runs.training import common_arguments, make_arguments
    from hf_memaug.training.algorithms import ALGORITHMS

    _, given = one.split_settings(job.settings)
    hparams = {name: value for name, value in job.protocol["hparams"].items() if name != "dropout"}
    rows, turns = hparams.pop("batch_size", 32), _turns(one, len(train.domains))
    options = {name: hparams.pop(name) for name in ALGORITHMS[one.algorithm].options if name in hparams}
    every = job.protocol["checkpoint_every"] * turns
    is_best = job.protocol["weights"] == "best" and not ALGORITHMS[one.algorithm].chooses_by_evaluation
    fixed = {
        "algorithm": one.algorithm,
        "algorithm_kwargs": options or None,
        "max_steps": job.protocol["steps"] * turns,
        "per_device_train_batch_size": rows if turns > 1 else rows * len(train.domains),
        "lr_scheduler_type": "constant",
        "eval_strategy": "steps",
        "eval_steps": every,
        "save_strategy": "steps",
        "save_steps": every,
        "logging_steps": every,
        "load_best_model_at_end": is_best,
        "metric_for_best_model": "eval_accuracy" if is_best else None,
    }
    fields = {**common_arguments(folder, training_seed(job)), **fixed, **hparams, **given}
    return make_arguments("domain", fields)


def _turns(one: Chosen, sources: int) -> int:
    """An algorithm that takes one domain at a time has done one step when every domain had its turn."""
    from hf_memaug.training.algorithms import ALGORITHMS

    return sources if ALGORITHMS[one.algorithm].one_domain_a_step else 1


class Recorder(TrainerCallback):
    """
    Scores every split of every domain at each evaluation.

    Args:
        job, one, folder: the job, its method and its folder.
        ready: the rows as the trainer takes them: `"inside"` and the `"test"` rows of the domains left out.
    """

    def __init__(self, job: Job, one: Chosen, folder: Path, ready: Mapping[str, Any]):
        from hf_memaug.training.algorithms import ALGORITHMS

        self.job, self.one, self.folder, self.ready = job, one, folder, ready
        self.turns = _turns(one, len(ready["train"].domains))
        self.trainer: Any = None
        self.records: dict[int, Record] = {}
        # The weights of an algorithm that averages them at the end are not scored before.
        self.records_evaluations = not ALGORITHMS[one.algorithm].chooses_by_evaluation

    def on_train_begin(self, args, state, control, **kwargs):
        path = self.folder / RECORDS_FILE
        if path.is_file():
            found = read_records(path)
            self.records = {record.step: record for record in found if record.step * self.turns <= state.global_step}

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if self.records_evaluations and self.trainer.is_in_train:
            self._record(state.global_step // self.turns, metrics)

    def result(self, trainer) -> dict[str, Any]:
        """The scores of the job's record, of the step that validates best, and the weights that may be chosen."""
        if not self.records_evaluations:
            self._record(self.job.protocol["steps"], trainer.evaluate())
        best = max(self.records.values(), key=training_score)
        weights = self.job.protocol["weights"]
        if weights in ("best", "last"):
            self._save_weights(best.step if weights == "best" else max(self.records))
        left_out = self.job.protocol["left_out"]
        scores = {
            name: {"accuracy": 100 * parts["in" if name in left_out else "out"]}
            for name, parts in best.accuracy.items()
        }
        settings = {**self.job.protocol["hparams"], "steps": self.job.protocol["steps"], "best_step": best.step}
        return {"validation": 100 * training_score(best), "scores": scores, "settings": settings}

    def _record(self, step: int, metrics: Mapping[str, float]) -> None:
        """`metrics` are those of the `out` rows of the sources."""
        job, protocol = self.job, self.job.protocol
        inside, outside = (self.trainer.predict(self.ready[name]).metrics for name in ("inside", "test"))
        outside = {**outside, **{name.replace("eval_", "test_", 1): value for name, value in metrics.items()}}
        accuracy = {
            name: {"in": inside[f"test_{name}_accuracy"], "out": outside[f"test_{name}_accuracy"]}
            for name in self.ready["inside"].domains
        }
        args = {"job": job.name, "data": job.source["data"], "checkpoint": job.backbone, "seed": training_seed(job)}
        args |= {name: protocol[name] for name in ("steps", "checkpoint_every", "holdout")}
        self.records[step] = Record(
            dataset=data_name(job.source["data"]),
            algorithm=self.one.algorithm,
            model=protocol["model"],
            test_envs=tuple(protocol["left_out"]),
            trial_seed=job.seed,
            hparams_seed=protocol["draw"],
            step=step,
            accuracy=accuracy,
            hparams=protocol["hparams"],
            args=args,
        )
        if protocol["weights"] == "all":
            self._save_weights(step)
        # Last, so that a recorded step has its weights.
        if self.trainer.is_world_process_zero():
            write_records(self.folder / RECORDS_FILE, self.records.values())

    def _save_weights(self, step: int) -> None:
        partial, place = (self.folder / "weights" / name for name in ("partial", f"step-{step}"))
        self.trainer.save_model(str(partial))
        if self.trainer.is_world_process_zero():
            (partial / "training_args.bin").unlink(missing_ok=True)
            shutil.rmtree(place, ignore_errors=True)
            os.replace(partial, place)


def choices(jobs: Sequence[Job], folder: Path, selection: str) -> list[tuple[Choice, Job]]:
    """What a way to select chooses among the jobs that are done, with the job of each."""
    by_name = {job.name: job for job in jobs}
    if not jobs:
        return []
    records = read_records(*(job_folder(folder, name) / RECORDS_FILE for name in by_name))
    return [(choice, by_name[choice.record.args["job"]]) for choice in choose(records, selection)]


def keep_winners(jobs: Sequence[Job], done: Sequence[Job], folder: Path, selection: str) -> list[Path]:
    """
    Puts the selected checkpoint of each method and target into `selected/<data>/<model>/<algorithm>/<target>`, with a
    `winner.json`, and deletes the weights of the jobs. With `"leave_one_out"`, the weights of a method stay until all
    of its jobs are done, because the last one may change the winner.

    Args:
        jobs: all jobs of the folder.
        done: those that are done.
    """
    found = choices(done, folder, selection)
    best = best_of_trials([choice for choice, _ in found])
    kept = [_keep(choice, job, selection, folder, jobs, done) for choice, job in found if choice in best]
    names = {job.name for job in done}
    waiting = {job.method for job in jobs if job.name not in names} if selection == "leave_one_out" else set()
    for job in done:
        if job.method not in waiting:
            shutil.rmtree(job_folder(folder, job.name) / "weights", ignore_errors=True)
    return kept


def _keep(choice: Choice, job: Job, selection: str, folder: Path, jobs, done) -> Path:
    record = choice.record
    target = folder / "selected" / Path(*map(file_name, (*choice.row[:1], record.model, record.algorithm)))
    target /= file_name(choice.test_env)
    rivals = [one for one in jobs if one.method == job.method and choice.test_env in one.protocol["left_out"]]
    finished = {one.name for one in done}
    winner = {
        "dataset": record.dataset,
        "model": record.model,
        "algorithm": record.algorithm,
        "test_envs": list(record.test_envs),
        "selection": selection,
        "score": choice.score,
        "test_accuracy": {choice.test_env: choice.accuracy},
        "trial_seed": record.trial_seed,
        "hparams_seed": record.hparams_seed,
        "hparams": record.hparams,
        "step": record.step,
        "job": job.name,
        "chosen_among": {"finished": sum(one.name in finished for one in rivals), "planned": len(rivals)},
        "record": json.loads(record.to_json()),
    }
    weights = job_folder(folder, job.name) / "weights" / f"step-{record.step}"
    if weights.is_dir():
        partial = target.with_name(f".{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(weights, partial)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
    elif _winner(target) != (job.name, record.step):
        raise UsageError(
            f"The weights of step {record.step} of {job.name} are missing. Delete {weights.parent.parent} and its line "
            "in runs.jsonl, then rerun the command."
        )
    write_winner_card(target, winner, job)
    write_atomically(target / WINNER_FILE, json.dumps(winner, indent=2, ensure_ascii=False) + "\n")
    return target


def _winner(folder: Path) -> tuple[str, int] | None:
    try:
        found = json.loads((folder / WINNER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found["job"], found["step"]
