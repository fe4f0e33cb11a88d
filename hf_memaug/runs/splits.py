# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""How the rows of a job are split into rows to train on, to select on and to score."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hf_memaug.data import DomainDataset, check_given_splits, leave_one_domain_out, split_domains
from hf_memaug.data.overlap import check_overlap, find_overlap
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.job import NONE
from hf_memaug.runs.rows import as_key, as_options, kept_for_a_command, load, load_dev, shuffled
from hf_memaug.runs.tasks import TAGS, check_types, kind_of, prepare

ON_OVERLAP = ("raise", "drop", "ignore", "drop_dev")


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


def split_rows(
    source: Mapping[str, Any], target: str, dev_fraction: float, on_overlap: str
) -> dict[str, DomainDataset | None]:
    """`{"train", "dev", "test"}`. "test" is None where no domain is left out and there is no `dev_split`."""
    parts = _split(as_key(source), target, dev_fraction, on_overlap)
    if kind_of(parts["train"]) == TAGS:
        try:
            check_types(parts["train"], dev=parts["dev"], test=parts["test"])
        except ValueError as error:
            raise DataRefused(as_options(error)) from error
    return parts


@kept_for_a_command(32)
def _split(key: str, target: str, dev_fraction: float, on_overlap: str) -> dict[str, Any]:
    source = json.loads(key)
    rows, held_out = load(source)
    dev = load_dev(source)
    try:
        if target != NONE:
            split = leave_one_domain_out(rows, target, test=held_out, dev_fraction=dev_fraction, on_overlap=on_overlap)
            return {"train": split.train, "dev": shuffled(split.dev), "test": shuffled(split.test)}
        if dev is not None:
            train, dev = check_given_splits(rows, dev, held_out, on_overlap=on_overlap)
            return {"train": train, "dev": shuffled(dev), "test": shuffled(held_out)}
        if held_out is not None:
            return {"train": without_overlap(rows, held_out, on_overlap), "dev": shuffled(held_out), "test": None}
        train, dev = halves(split_domains(rows, dev_fraction))
        # Repeated rows of one domain are always on the same side.
        on_overlap = "ignore" if on_overlap == "raise" else on_overlap
        return {"train": without_overlap(train, dev, on_overlap), "dev": shuffled(dev), "test": None}
    except (ValueError, OSError) as error:
        raise DataRefused(as_options(error)) from error


def split_for_sweep(
    source: Mapping[str, Any], left_out: Sequence[str], holdout: float, trial: int, on_overlap: str
) -> tuple[DomainDataset, DomainDataset]:
    """
    DomainBed's split: the `in` and `out` rows of all domains. The split of a domain depends on the trial alone, not on
    the other domains.
    """
    rows, _ = load(source)
    try:
        if on_overlap != "ignore":
            tests = of_domains(rows, left_out)
            trained = of_domains(rows, [name for name in rows.domains if name not in left_out])
            kept = without_overlap(trained, tests, on_overlap, ("training domains", "domains left out"))
            if len(kept) < len(trained):
                rows = DomainDataset.concatenate([kept, tests])
        return halves(split_domains(rows, holdout, trial))
    except ValueError as error:
        raise DataRefused(as_options(error)) from error


def split_for_continual(
    source: Mapping[str, Any],
    order: Sequence[str],
    holdout: float,
    dev_fraction: float = 0.0,
    seed: int = 0,
    on_overlap: str = "raise",
) -> dict[str, dict[str, DomainDataset]]:
    """`{"train", "dev", "test"}`, each by domain. "dev" is empty if `dev_fraction` is 0."""
    rows, held_out = load(source)
    try:
        if held_out is not None:
            rows = without_overlap(rows, held_out, on_overlap)
            train, test = ({name: part.domain(name) for name in order} for part in (rows, held_out))
        else:
            pairs = {name: split_domains(rows.domain(name), holdout)[name] for name in order}
            train, test = ({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
        dev = {}
        if dev_fraction:
            # Depends on the seed, and is the same for all strategies.
            pairs = {name: split_domains(test[name], 1 - dev_fraction, seed)[name] for name in order}
            dev, test = ({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
    except ValueError as error:
        raise DataRefused(as_options(error)) from error
    dev, test = ({name: shuffled(part) for name, part in several.items()} for several in (dev, test))
    return {"train": train, "dev": dev, "test": test}


def of_domains(rows: DomainDataset, domains: Sequence[str]) -> DomainDataset:
    return rows.select(row for row, name in enumerate(rows["domain"]) if name in domains)


def halves(parts: Mapping[str, tuple[DomainDataset, DomainDataset]]) -> tuple[DomainDataset, DomainDataset]:
    """The first and the second halves of all domains."""
    first, second = (DomainDataset.concatenate([part[side] for part in parts.values()]) for side in (0, 1))
    return first, second


def without_overlap(
    train: DomainDataset,
    scored: DomainDataset,
    on_overlap: str,
    names: tuple[str, str] = ("--split", "--test-split"),
) -> DomainDataset:
    """The rows to train on, without those that are scored too (`"drop"`), or an error (`"raise"`)."""
    if on_overlap == "raise":
        hint = 'Pass `on_overlap="drop"` to leave them out.'
        check_overlap(train, scored, names, hint)
    if on_overlap != "drop":
        return train
    seen = {row for row, _ in find_overlap(train, scored)}
    return train.select(row for row in range(len(train)) if row not in seen)


def prepared(rows: DomainDataset, processor, max_length: int | None, model=None) -> DomainDataset:
    """The rows as a trainer takes them. Raises an error for texts longer than the model has positions for."""
    from hf_memaug.training.checks import check_positions, tokens_of

    try:
        found = prepare(rows, processor, max_length)
        if model is not None:
            check_positions(model, tokens_of(found))
    except ValueError as error:
        raise DataRefused(as_options(error)) from error
    return found
