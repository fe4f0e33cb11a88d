# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Which checkpoint of which run counts: the three methods of DomainBed (Gulrajani and Lopez-Paz, 2021, section 3).

| `selection` | chosen by | step |
|---|---|---|
| `"training"` | mean accuracy on the `out` splits of the domains trained on | the best |
| `"leave_one_out"` | mean accuracy on a second domain left out, over runs that leave out each in turn | the best |
| `"oracle"` | accuracy on the `out` split of the test domain | the last |

What is reported is the accuracy on the `in` split of the test domain. In the single-source setting it is that on the
`out` split, so that the domain trained on can stand beside the others (GMoE, Table 3).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

from hf_memaug.evaluation.checks import check_name
from hf_memaug.evaluation.records import Record


@dataclass(frozen=True)
class Choice:
    """
    Args:
        record (`Record`): of the chosen run and step.
        test_env (`str`): the domain that is reported.
        score (`float`): what it was chosen by, from 0 to 1.
    """

    record: Record
    test_env: str
    score: float

    @property
    def source(self) -> str | None:
        """The domain trained on, where there is only one by design."""
        return self.record.train_envs[0] if self.record.setting == "single_source" else None

    @property
    def accuracy(self) -> float:
        """What is reported, from 0 to 1."""
        return self.record.accuracy[self.test_env]["in" if self.source is None else "out"]

    @property
    def row(self) -> tuple[str, str, str, str | None]:
        """The row of a table it belongs to: data set, algorithm, model, and the domain trained on if it is one."""
        return (self.record.dataset, self.record.algorithm, self.record.model, self.source)


def choose(records: Iterable[Record], selection: str = "training") -> list[Choice]:
    """
    One choice for each data set, algorithm, model, test domain and trial whose records suffice. Of equal scores, the
    first step of the first draw of hyper-parameters counts.
    """
    check_name("selection", selection, SELECTIONS)
    # Runs with two domains left out belong to the groups of both.
    groups: dict[tuple, dict[int, list[Record]]] = {}
    for record in records:
        source = record.train_envs[0] if record.setting == "single_source" else None
        if source is not None and selection == "leave_one_out":
            raise ValueError(
                '`selection="leave_one_out"` needs several domains to train on; the records are of the single-source '
                'setting. Choose "training" or "oracle".'
            )
        for env in record.test_envs:
            key = (record.dataset, record.algorithm, record.model, source, env, record.trial_seed)
            groups.setdefault(key, {}).setdefault(record.hparams_seed, []).append(record)
    choices = []
    for (_, _, _, _, env, _), draws in groups.items():
        candidates = [SELECTIONS[selection](sorted(draws[seed], key=_step), env) for seed in sorted(draws)]
        candidates = [choice for choice in candidates if choice is not None]
        if candidates:
            choices.append(max(candidates, key=_score))
    return choices


def best_of_trials(choices: Iterable[Choice]) -> list[Choice]:
    """Of each row and test domain the trial with the highest score: the one checkpoint to keep."""
    best: dict[tuple, Choice] = {}
    for choice in sorted(choices, key=lambda choice: choice.record.trial_seed):
        # One model of one source serves all domains that it was not trained on.
        key = (*choice.row, choice.test_env if choice.source is None else None)
        if key not in best or choice.score > best[key].score:
            best[key] = choice
    return list(best.values())


def _tests(records: list[Record]) -> list[Record]:
    return [record for record in records if record.setting == "single_source" or len(record.test_envs) == 1]


def training_score(record: Record) -> float:
    """Mean accuracy on what was held out of the domains trained on; the others are not looked at."""
    return fmean(record.accuracy[name]["out"] for name in record.train_envs)


def _training(records: list[Record], env: str) -> Choice | None:
    choices = [Choice(record, env, training_score(record)) for record in _tests(records)]
    return max(choices, key=_score, default=None)


def _oracle(records: list[Record], env: str) -> Choice | None:
    tests = _tests(records)
    return Choice(tests[-1], env, tests[-1].accuracy[env]["out"]) if tests else None


def _leave_one_out(records: list[Record], env: str) -> Choice | None:
    by_step: dict[int, list[Record]] = {}
    for record in records:
        by_step.setdefault(record.step, []).append(record)
    choices = []
    for at_step in by_step.values():
        tests = [record for record in at_step if record.test_envs == (env,)]
        # The whole of the domain left out was unseen there, hence its larger split.
        held_out = {
            other: record.accuracy[other]["in"]
            for record in at_step
            if len(record.test_envs) == 2
            for other in record.test_envs
            if other != env
        }
        # A mean over some of the domains would be another quantity.
        if tests and set(held_out) == set(tests[0].train_envs):
            choices.append(Choice(tests[0], env, fmean(held_out.values())))
    return max(choices, key=_score, default=None)


def _step(record: Record) -> int:
    return record.step


def _score(choice: Choice) -> float:
    return choice.score


SELECTIONS: dict[str, Callable[[list[Record], str], Choice | None]] = {
    "training": _training,
    "leave_one_out": _leave_one_out,
    "oracle": _oracle,
}
