# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Sweeps by DomainBed's protocol. A job of a sweep is a `train` job with drawn hyper-parameters that records the scores of
all splits at each evaluation, in `records.jsonl` of its folder.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from hf_memaug.evaluation import domain_selection
from hf_memaug.evaluation.domain_selection import RECORDS_FILE, Choice, Record, training_score
from hf_memaug.runs.arguments import seed_of, turns_of
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.job import Job, job_folder
from hf_memaug.runs.methods import Chosen
from hf_memaug.runs.rows import data_name
from hf_memaug.training.algorithms import ALGORITHMS


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


def choices(jobs: Sequence[Job], folder: Path, selection: str) -> list[tuple[Choice, Job]]:
    """What a way to select chooses among the jobs that are done, with the job of each."""
    by_name = {job.name: job for job in jobs}
    records = domain_selection.read_records(*(job_folder(folder, name) / RECORDS_FILE for name in by_name))
    return [(choice, by_name[choice.record.args["job"]]) for choice in domain_selection.choose(records, selection)]


class Recorder(TrainerCallback):
    """Scores every split of every domain at each evaluation. `ready` has the splits as the trainer takes them."""

    def __init__(self, job: Job, one: Chosen, folder: Path, ready: Mapping[str, Any]):
        self.job, self.one, self.file, self.ready = job, one, folder / RECORDS_FILE, ready
        self.turns = turns_of(one, ready["train"])
        self.trainer: Any = None
        self.records: dict[int, Record] = {}
        # The weights of an algorithm that averages them at the end are not scored before.
        self.records_evaluations = not ALGORITHMS[one.algorithm].chooses_by_evaluation

    def on_train_begin(self, args, state, control, **kwargs):
        found = domain_selection.read_records(self.file) if self.file.is_file() else []
        self.records = {record.step: record for record in found if record.step * self.turns <= state.global_step}

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if self.records_evaluations and self.trainer.is_in_train:
            self._record(state.global_step // self.turns, metrics)

    def result(self) -> dict[str, Any]:
        """The scores of the job's record: those of the step that validates best."""
        protocol = self.job.protocol
        if not self.records_evaluations:
            self._record(protocol["steps"], self.trainer.evaluate())
        best = max(self.records.values(), key=training_score)
        scores = {
            name: {"accuracy": 100 * parts["in" if name in protocol["left_out"] else "out"]}
            for name, parts in best.accuracy.items()
        }
        settings = {**protocol["hparams"], "steps": protocol["steps"], "best_step": best.step}
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
        names = ("steps", "checkpoint_every", "holdout")
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
            args={"job": job.name, "seed": seed_of(job), **{name: protocol[name] for name in names}},
        )
        if self.trainer.is_world_process_zero():
            domain_selection.write_records(self.file, self.records.values())
