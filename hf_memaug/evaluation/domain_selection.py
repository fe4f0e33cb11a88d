# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Which checkpoint of which run counts: the three methods of DomainBed (Gulrajani and Lopez-Paz, 2021, section 3).

| `selection` | chosen by | step |
|---|---|---|
| `"training"` | mean accuracy on the `out` splits of the domains trained on | the best |
| `"leave_one_out"` | mean accuracy on a second domain left out, over runs that leave out each in turn | the best |
| `"oracle"` | accuracy on the `out` split of the test domain | the last |

The reported score is the accuracy on the `in` split of the test domain.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_memaug.evaluation.checks import check_name
from hf_memaug.files import write_atomically

RECORDS_FILE = "records.jsonl"


@dataclass(frozen=True)
class Record:
    """
    The scores of one checkpoint of one run: a line of `records.jsonl`.

    Args:
        dataset, algorithm, model (`str`): the data, the algorithm and the model of the run.
        test_envs (`tuple[str, ...]`): the domains left out: one, or two in runs that only validate.
        trial_seed, hparams_seed, step (`int`): the trial, the draw of hyper-parameters (0: defaults), the steps done.
        accuracy (`dict[str, dict[str, float]]`): for each domain the accuracy, from 0 to 1, on its `"in"` split
            (trained on, unless the domain is left out) and on its `"out"` split (never trained on).
        hparams, args (`dict`): hyper-parameters, and other facts of the run.
    """

    dataset: str
    algorithm: str
    model: str
    test_envs: tuple[str, ...]
    trial_seed: int
    hparams_seed: int
    step: int
    accuracy: dict[str, dict[str, float]]
    hparams: dict[str, Any] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        object.__setattr__(self, "test_envs", tuple(self.test_envs))

    @property
    def train_envs(self) -> list[str]:
        return [name for name in self.accuracy if name not in self.test_envs]


def read_records(*paths: str | os.PathLike) -> list[Record]:
    """The records of files, or of every `records.jsonl` in folders. Fields of older versions are skipped."""
    files = (sorted(path.rglob(RECORDS_FILE)) if path.is_dir() else [path] for path in map(Path, paths))
    lines = (line for several in files for file in several for line in file.read_text(encoding="utf-8").splitlines())
    known = Record.__dataclass_fields__
    return [Record(**{name: value for name, value in json.loads(line).items() if name in known}) for line in lines]


def write_records(path: str | os.PathLike, records: Iterable[Record]) -> None:
    """Replaces a file by these records, in one step."""
    lines = (json.dumps(asdict(record), ensure_ascii=False, allow_nan=False) for record in records)
    write_atomically(path, "".join(line + "\n" for line in lines))


@dataclass(frozen=True)
class Choice:
    """
    Args:
        record (`Record`): of the chosen run and step.
        test_env (`str`): the domain that is reported.
        score (`float`): the score it was chosen by, from 0 to 1.
    """

    record: Record
    test_env: str
    score: float

    @property
    def accuracy(self) -> float:
        """The reported score, from 0 to 1."""
        return self.record.accuracy[self.test_env]["in"]


def choose(records: Iterable[Record], selection: str = "training") -> list[Choice]:
    """
    One choice for each data set, algorithm, model, test domain and trial whose records suffice. Of equal scores, the
    first step of the first draw of hyper-parameters counts.
    """
    check_name("selection", selection, SELECTIONS)
    # Runs with two domains left out belong to the groups of both.
    groups: dict[tuple, dict[int, list[Record]]] = {}
    for record in records:
        for env in record.test_envs:
            key = (record.dataset, record.algorithm, record.model, env, record.trial_seed)
            groups.setdefault(key, {}).setdefault(record.hparams_seed, []).append(record)
    choices = []
    for (_, _, _, env, _), draws in groups.items():
        by_step = [sorted(draws[seed], key=attrgetter("step")) for seed in sorted(draws)]
        candidates = [choice for found in by_step for choice in SELECTIONS[selection](found, env)]
        if candidates:
            choices.append(max(candidates, key=attrgetter("score")))
    return choices


def _tests(records: list[Record]) -> list[Record]:
    return [record for record in records if len(record.test_envs) == 1]


def training_score(record: Record) -> float:
    """Mean accuracy on what was held out of the domains trained on; the others are not looked at."""
    return fmean(record.accuracy[name]["out"] for name in record.train_envs)


def _training(records: list[Record], env: str) -> list[Choice]:
    return [Choice(record, env, training_score(record)) for record in _tests(records)]


def _oracle(records: list[Record], env: str) -> list[Choice]:
    return [Choice(record, env, record.accuracy[env]["out"]) for record in _tests(records)[-1:]]


def _leave_one_out(records: list[Record], env: str) -> list[Choice]:
    by_step: dict[int, list[Record]] = {}
    for record in records:
        by_step.setdefault(record.step, []).append(record)
    choices = []
    for at_step in by_step.values():
        tests = [record for record in at_step if record.test_envs == (env,)]
        # The whole of the domain left out was unseen there, hence its larger split.
        held_out = {
            other: record.accuracy[other]["in"] for record in at_step for other in record.test_envs if other != env
        }
        # A mean over some of the domains would be another quantity.
        if tests and set(held_out) == set(tests[0].train_envs):
            choices.append(Choice(tests[0], env, fmean(held_out.values())))
    return choices


# The candidates among the records of one draw of hyper-parameters; the best score counts.
SELECTIONS = {"training": _training, "leave_one_out": _leave_one_out, "oracle": _oracle}
