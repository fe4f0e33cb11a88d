# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The checkpoints that were selected, ready for `from_pretrained`, with what won beside them."""

import dataclasses
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from hf_memaug.evaluation.domain_selection import Choice, best_of_trials, choose
from hf_memaug.evaluation.records import read_records
from hf_memaug.files import write_atomically
from hf_memaug.training.sweep.plan import Job, file_name
from hf_memaug.training.sweep.runner import is_done, job_folder


def keep_winners(
    jobs: Sequence[Job], folder: str | Path, selection: str = "training", keep_checkpoints: bool = False
) -> list[Path]:
    """
    Selects among the finished jobs of a folder, those of earlier calls too. Puts for each data set, model, algorithm
    and test domain (single-source: domain trained on) the chosen checkpoint into
    `selected/<data set>/<model>/<algorithm>/<domain>`, with a `winner.json`, and returns these folders. The weights of
    the jobs are then deleted, unless `keep_checkpoints`. Where each domain is judged by runs without it and another
    (`"leave_one_out"`), they stay until all of a group have ended: whom the last one makes the winner is not known yet.
    """
    folder = Path(folder)
    before = [Job.read(path.parent) for path in sorted(folder.glob("jobs/*/job.json"))]
    jobs = list({job.name: job for job in (*before, *jobs)}.values())
    done = {job.name: job for job in jobs if is_done(folder, job)}
    if not done:
        return []
    records = read_records(*(job_folder(folder, job) / "records.jsonl" for job in done.values()))
    winners = [_keep(choice, selection, done, jobs, folder) for choice in best_of_trials(choose(records, selection))]
    waiting = {_group(job) for job in jobs if job.name not in done} if selection == "leave_one_out" else set()
    for job in done.values():
        if not keep_checkpoints and _group(job) not in waiting:
            shutil.rmtree(job_folder(folder, job) / "weights", ignore_errors=True)
    return winners


def _group(job: Job) -> tuple[str, str, str]:
    return job.dataset, job.model, job.algorithm


def _keep(choice: Choice, selection: str, done: dict[str, Job], jobs: Sequence[Job], folder: Path) -> Path:
    record = choice.record
    name = record.args["job"]
    left_out = choice.test_env if choice.source is None else None
    parts = (record.dataset, record.model, record.algorithm, left_out or f"trained_on_{choice.source}")
    target = folder / "selected" / Path(*map(file_name, parts))
    group = [job for job in jobs if _group(job) == parts[:3]]
    group = [job for job in group if set(record.test_envs) <= set(job.test_envs)]
    winner = {
        "dataset": record.dataset,
        "model": record.model,
        "algorithm": record.algorithm,
        "test_envs": list(record.test_envs),
        "selection": selection,
        "score": choice.score,
        # Of what is reported: `in` of the domain left out; single-source, `out` of each.
        "test_accuracy": {env: dataclasses.replace(choice, test_env=env).accuracy for env in record.test_envs},
        "trial_seed": record.trial_seed,
        "hparams_seed": record.hparams_seed,
        "hparams": record.hparams,
        "step": record.step,
        "job": name,
        "chosen_among": {"finished": sum(job.name in done for job in group), "planned": len(group)},
        "record": json.loads(record.to_json()),
    }
    weights = job_folder(folder, done[name]) / "weights" / f"step-{record.step}"
    if weights.is_dir():
        half = target.with_name(f".{target.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(weights, half)
        write_atomically(half / "winner.json", json.dumps(winner, indent=2, ensure_ascii=False) + "\n")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(half, target)
    elif _is_there(target, name, record.step):
        # It won before, with fewer rivals.
        write_atomically(target / "winner.json", json.dumps(winner, indent=2, ensure_ascii=False) + "\n")
    else:
        raise RuntimeError(
            f"the weights of step {record.step} of the job {name} are gone. Delete {job_folder(folder, done[name])} "
            "and run the sweep again to train it anew."
        )
    return target


def _is_there(target: Path, job: str, step: int) -> bool:
    if not (target / "winner.json").is_file():
        return False
    before = json.loads((target / "winner.json").read_text(encoding="utf-8"))
    return (before["job"], before["step"]) == (job, step)
