# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""How the rows of a job are split into rows to train on, to select on and to score."""

from collections.abc import Mapping, Sequence
from typing import Any

from hf_memaug.data import DomainDataset, check_given_splits, leave_one_domain_out, split_domains
from hf_memaug.data.splits import without_overlap
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.job import NONE
from hf_memaug.runs.rows import kept_for_a_command, load, shuffled, told_as_options
from hf_memaug.runs.tasks import TAGS, TASKS, check_types, kind_of

# The options that name the rows to train on and the rows to score.
OPTIONS = ("--split", "--test-split")


def check_splits(options: Any, targets: Sequence[str]) -> None:
    """Raises an error for a `--dev-split` that does not fit the other options."""
    given = {name: getattr(options, name) for name in ("split", "dev_split", "test_split")}
    if given["dev_split"] is None:
        if options.on_overlap == "drop_dev":
            raise UsageError("`--on-overlap drop_dev` drops rows of `--dev-split`. Set that, or use drop or ignore.")
        return
    if list(targets) != [NONE]:
        raise UsageError(
            "`--dev-split` is for data whose splits all have the same domains: add `--target none`. Where a domain is "
            "left out, the other domains' rows of `--test-split` are those to select on."
        )
    for name, what in (("split", "to train on"), ("test_split", "to score")):
        if given[name] is None:
            hint = " To select and score on the same rows, set `--test-split` alone." if name == "test_split" else ""
            raise UsageError(f"`--dev-split` needs `--{name.replace('_', '-')}`, the rows {what}.{hint}")
    if len(set(given.values())) < 3:
        raise UsageError(
            f"`--split`, `--dev-split` and `--test-split` are {', '.join(given.values())}. Name three different ones."
        )


@kept_for_a_command
@told_as_options()
def split_rows(
    source: Mapping[str, Any], target: str, dev_fraction: float, on_overlap: str, shots: bool = False
) -> dict[str, DomainDataset | None]:
    """
    `{"train", "dev", "test"}`. "test" is None where no domain is left out and there is no `dev_split`. With `shots`,
    "pool" has the rows of the target that may be drawn, and half of the dev rows are test rows instead.
    """
    train, test, dev = load(source)
    more: dict[str, DomainDataset | None] = {}
    if target != NONE:
        split = leave_one_domain_out(train, target, test=test, dev_fraction=dev_fraction, on_overlap=on_overlap)
        pool = None if test is None else train.of_domains([target])
        train, dev, test = split.train, split.dev, split.test
        if shots:
            # Whatever the seed and the number of shots: all jobs are scored on the same rows.
            if pool is None:
                pool, test = halves(split_domains(test, 0.5))
            dev, old = halves(split_domains(dev, 0.5))
            test = DomainDataset.concatenate([old, test])
            # Drawn rows are never scored, also where other overlap is ignored.
            more["pool"] = without_overlap(pool, test, "raise" if on_overlap == "raise" else "drop", OPTIONS)
    elif dev is not None and test is not None:
        train, dev = check_given_splits(train, dev, test, on_overlap=on_overlap)
    elif test is not None:
        train, dev, test = without_overlap(train, test, on_overlap, OPTIONS), test, None
    else:
        train, dev = halves(split_domains(train, dev_fraction))
        # Repeated rows of one domain are always on the same side.
        train = without_overlap(train, dev, "ignore" if on_overlap == "raise" else on_overlap, OPTIONS)
    if kind_of(train) == TAGS:
        check_types(train, dev=dev, test=test)
    return {"train": train, "dev": shuffled(dev), "test": None if test is None else shuffled(test), **more}


@told_as_options()
def split_for_sweep(
    source: Mapping[str, Any], left_out: Sequence[str], holdout: float, trial: int, on_overlap: str
) -> tuple[DomainDataset, DomainDataset]:
    """
    DomainBed's split: the `in` and `out` rows of all domains. The split of a domain depends on the trial alone, not on
    the other domains.
    """
    rows = load(source)[0]
    tests = rows.of_domains(left_out)
    trained = rows.of_domains([name for name in rows.domains if name not in left_out])
    kept = without_overlap(trained, tests, on_overlap, ("training domains", "domains left out"))
    if len(kept) < len(trained):
        rows = DomainDataset.concatenate([kept, tests])
    return halves(split_domains(rows, holdout, trial))


@told_as_options()
def split_for_continual(
    source: Mapping[str, Any],
    order: Sequence[str],
    holdout: float,
    dev_fraction: float = 0.0,
    seed: int = 0,
    on_overlap: str = "raise",
) -> dict[str, dict[str, DomainDataset]]:
    """`{"train", "dev", "test"}`, each by domain. "dev" is empty if `dev_fraction` is 0."""
    rows, held_out, _ = load(source)
    if held_out is not None:
        rows = without_overlap(rows, held_out, on_overlap, OPTIONS)
        train, test = ({name: part.domain(name) for name in order} for part in (rows, held_out))
    else:
        train, test = _split_each({name: rows.domain(name) for name in order}, holdout)
    dev: dict[str, DomainDataset] = {}
    if dev_fraction:
        # Depends on the seed, and is the same for all strategies.
        dev, test = _split_each(test, 1 - dev_fraction, seed)
    dev, test = ({name: shuffled(part) for name, part in several.items()} for several in (dev, test))
    return {"train": train, "dev": dev, "test": test}


def _split_each(
    parts: Mapping[str, DomainDataset], holdout: float, seed: int = 0
) -> tuple[dict[str, DomainDataset], dict[str, DomainDataset]]:
    pairs = {name: split_domains(part, holdout, seed)[name] for name, part in parts.items()}
    return {name: pair.inside for name, pair in pairs.items()}, {name: pair.out for name, pair in pairs.items()}


def halves(parts: Mapping[str, tuple[DomainDataset, DomainDataset]]) -> tuple[DomainDataset, DomainDataset]:
    """The first and the second halves of all domains."""
    first, second = (DomainDataset.concatenate([part[side] for part in parts.values()]) for side in (0, 1))
    return first, second


@told_as_options()
def prepared(rows: DomainDataset, processor, max_length: int | None, model) -> DomainDataset:
    """
    The rows as a trainer takes them: texts as tokens, with the labels of their task. Raises an error for texts longer
    than the model has positions for.
    """
    from transformers import PreTrainedTokenizerBase

    from hf_memaug.training.checks import check_positions, tokens_of

    if isinstance(processor, PreTrainedTokenizerBase):
        task = TASKS.get(kind_of(rows))
        rows = (DomainDataset.tokenize if task is None else task.prepare)(rows, processor, max_length)
    check_positions(model, tokens_of(rows))
    return rows
