# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Which runs a sweep is made of."""

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_memaug.evaluation.checks import check_name
from hf_memaug.evaluation.domain_selection import SELECTIONS
from hf_memaug.evaluation.records import SETTINGS
from hf_memaug.files import write_atomically

BUILD = "hf_memaug.runs.small_models:build"


@dataclass(frozen=True)
class Job:
    """
    One run.

    Args:
        dataset, data (`str`):
            The name of the data in records and tables, and where its rows come from: see `load_rows`.
        model, checkpoint (`str`):
            The name of the model in records and tables, and what it is made of: see `build`.
        algorithm (`str`):
            One of `ALGORITHMS`.
        test_envs (`tuple[str]`):
            The domains left out.
        trial_seed, hparams_seed (`int`):
            The trial, which says how each domain is split, and the draw of hyper-parameters.
        hparams (`dict`):
            What was drawn.
        steps, checkpoint_every (`int`):
            Steps in all, and between two checkpoints. A step sees `batch_size` rows of each domain.
        holdout (`float`):
            The part of each domain's rows that is its `out` split.
        setting (`str`):
            `"multi_source"`, or `"single_source"` where `test_envs` are all domains but one.
        keep (`str`):
            Whose weights are kept: `"best"` (by training-domain validation), `"last"`, `"all"` or `"none"`.
        on_overlap (`str`):
            What to do with training rows that are also in a domain left out: `"raise"`, `"drop"` or `"ignore"`.
        broken_images (`str`):
            What to do with images that cannot be decoded: `"refuse"` or `"skip"`.
        columns, training (`dict`):
            More arguments of `load_domains`, and of `DomainTrainingArguments`.
        max_length (`int`, *optional*):
            Longest text in tokens.
        build (`str`):
            `module:function` that makes model, processor and rows of a job.
        facts (`str`, *optional*):
            `module:function` that is called with the folder of the run, the chosen model, its processor, the `out` rows
            of all domains and `max_length`, to keep what a report shows.
    """

    dataset: str
    data: str
    model: str
    checkpoint: str
    algorithm: str
    test_envs: tuple[str, ...]
    trial_seed: int = 0
    hparams_seed: int = 0
    hparams: dict[str, Any] = field(default_factory=dict)
    steps: int = 5000
    checkpoint_every: int = 300
    holdout: float = 0.2
    setting: str = "multi_source"
    keep: str = "best"
    on_overlap: str = "raise"
    broken_images: str = "refuse"
    columns: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    max_length: int | None = None
    build: str = BUILD
    facts: str | None = None

    @property
    def name(self) -> str:
        """The folder of the run."""
        setting = ("single_source",) if self.setting == "single_source" else ()
        parts = (self.dataset, self.model, self.algorithm, *setting, *self.test_envs)
        return f"{file_name(*parts)}-trial{self.trial_seed}-draw{self.hparams_seed}"

    @property
    def seed(self) -> int:
        """Of everything but the split. It does not depend on the model, so that models meet the same batches."""
        names = (self.dataset, self.algorithm, self.test_envs, self.trial_seed, self.hparams_seed)
        return int.from_bytes(hashlib.sha256(json.dumps(names).encode()).digest()[:4], "big") % 2**31

    def write(self, folder: str | Path) -> None:
        write_atomically(Path(folder) / "job.json", json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, folder: str | Path) -> "Job":
        found = json.loads((Path(folder) / "job.json").read_text(encoding="utf-8"))
        return cls(**{**found, "test_envs": tuple(found["test_envs"])})


def file_name(*parts: str) -> str:
    """The parts with hyphens between them; a hash tells names apart that a file system, or a reader, might confuse."""
    readable = "-".join(parts)
    plain = re.sub(r"[^\w.+%-]+", "_", readable).lstrip(".")[:80]
    if plain != readable or (len(parts) > 1 and any("-" in part for part in parts)):
        plain += "-" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
    return plain


def plan_jobs(
    datasets: Mapping[str, tuple[str, Sequence[str]]],
    models: Mapping[str, str],
    algorithms: Sequence[str],
    *,
    trials: int = 3,
    draws: int = 1,
    selection: str = "training",
    setting: str = "multi_source",
    test_domains: Sequence[str] | None = None,
    hparams: Mapping[str, Any] | None = None,
    keep_checkpoints: bool = False,
    **common,
) -> list[Job]:
    """
    All runs of a sweep, trial by trial, so that what is there after a break is complete for the trials it has.

    Args:
        datasets: name -> (where the rows come from, its domains).
        models: name -> what it is made of.
        algorithms: names out of `ALGORITHMS`.
        trials, draws: how many of each; draw 0 is the defaults.
        selection: `"leave_one_out"` adds the runs that leave a second domain out.
        setting: `"single_source"` trains on each domain alone.
        test_domains (*optional*): the domains to leave out in turn (single-source: to train on). Default: all.
        hparams (*optional*): hyper-parameters that are the same in all runs, whatever is drawn.
        keep_checkpoints: whether the weights of every checkpoint are kept.
        common: other fields of `Job`, the same for all runs.
    """
    # Here, because these bring torch, and what a job is can be said without.
    from hf_memaug.runs.hyperparameters import draw, known_names
    from hf_memaug.training.algorithms import ALGORITHMS
    from hf_memaug.training.arguments import DomainTrainingArguments

    check_name("selection", selection, SELECTIONS)
    check_name("setting", setting, SETTINGS)
    counts = {name: common.get(name, 1) for name in ("steps", "checkpoint_every")}
    for name, value in {"trials": trials, "draws": draws, **counts}.items():
        if value < 1:
            raise ValueError(f"`{name}` is {value}; it must be 1 or more.")
    if not 0 < common.get("holdout", Job.holdout) < 1:
        raise ValueError(f"`holdout` is {common['holdout']}; it must lie between 0 and 1, both excluded.")
    for algorithm in algorithms:
        check_name("algorithms", algorithm, ALGORITHMS)
        for name in hparams or {}:
            check_name("hparams", name, sorted(known_names(algorithm)))
    for name in common.get("training", ()):
        check_name("training_arguments", name, DomainTrainingArguments.__dataclass_fields__)
    if setting == "single_source" and selection == "leave_one_out":
        raise ValueError('`selection="leave_one_out"` needs several domains to train on: choose another `selection`.')
    left_out = {}
    for name, (_, domains) in datasets.items():
        left_out[name] = _left_out(name, list(domains), selection, setting, test_domains)
        fewest = min(len(domains) - len(envs) for envs in left_out[name])
        for algorithm in algorithms:
            if fewest < 2 and ALGORITHMS[algorithm].compares_domains:
                raise ValueError(
                    f"`algorithms`: {algorithm!r} compares domains, and in some runs on {name!r} there is one to train "
                    "on. Leave it out, or give data with more domains."
                )
    keep = {"training": "best", "oracle": "last", "leave_one_out": "all"}[selection]
    jobs = []
    for trial, (dataset, (data, _)) in itertools.product(range(trials), datasets.items()):
        for model, algorithm, number in itertools.product(models, algorithms, range(draws)):
            drawn = draw(algorithm, number, trial, common.get("steps", Job.steps))
            for envs in left_out[dataset]:
                is_test = setting == "single_source" or len(envs) == 1
                jobs.append(
                    Job(
                        dataset=dataset,
                        data=data,
                        model=model,
                        checkpoint=models[model],
                        algorithm=algorithm,
                        test_envs=envs,
                        trial_seed=trial,
                        hparams_seed=number,
                        hparams={**drawn, **(hparams or {})},
                        setting=setting,
                        # Runs that only validate are never chosen.
                        keep="all" if keep_checkpoints else keep if is_test else "none",
                        **common,
                    )
                )
    return jobs


def _left_out(name: str, domains: list[str], selection: str, setting: str, wanted) -> list[tuple[str, ...]]:
    chosen = domains if wanted is None else list(wanted)
    for domain in chosen:
        check_name("test_domains", domain, domains)
    least = 3 if selection == "leave_one_out" else 2
    if len(domains) < least:
        raise ValueError(
            f"`data` {name!r} has {len(domains)} domain(s); it takes at least {least} to leave "
            f"{'two' if least == 3 else 'one'} out and train on another. Add rows of another domain."
        )
    if setting == "single_source":
        return [tuple(other for other in domains if other != domain) for domain in chosen]
    single = [(domain,) for domain in chosen]
    if selection != "leave_one_out":
        return single
    # One run with `a` and `b` left out validates for both.
    pairs = [pair for pair in itertools.combinations(domains, 2) if set(pair) & set(chosen)]
    return [*single, *pairs]
