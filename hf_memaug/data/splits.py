# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Leave one domain out: train and select on the others, test on that one."""

import logging
import random
from dataclasses import dataclass
from typing import NamedTuple

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.overlap import check_overlap, find_overlap, row_hashes
from hf_memaug.messages import did_you_mean, listed, table

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DomainSplit:
    """
    Args:
        train (`DomainDataset`): rows of the source domains to train on.
        dev (`DomainDataset`): other rows of the source domains, to select on.
        test (`DomainDataset`): rows of the target domain.
        sources, target (`list[str]`, `str`): the names of the source domains, and of the domain left out.
    """

    train: DomainDataset
    dev: DomainDataset
    test: DomainDataset
    sources: list[str]
    target: str

    def summary(self) -> str:
        """Rows per domain, part and label, as a plain-text table."""
        rows = [
            [part, domain, *counts.values(), sum(counts.values())]
            for part, dataset in (("train", self.train), ("dev", self.dev), ("test", self.test))
            for domain, counts in dataset.counts().items()
        ]
        names = self.train.label_names if self.train.labels is not None else ["unlabelled"]
        return f"target: {self.target}\n" + table(["part", "domain", *names, "rows"], rows, left=2)


class DomainParts(NamedTuple):
    """The rows of a domain to train on, and its other rows, to select on, or to test on if it is the target."""

    inside: DomainDataset
    out: DomainDataset


def split_domains(dataset: DomainDataset, holdout: float = 0.2, seed: int = 0) -> dict[str, DomainParts]:
    """
    Splits every domain in two, as DomainBed does before it leaves one out. Unlike there, the split is stratified by
    label, and equal rows stay together.

    Args:
        dataset (`DomainDataset`): rows of all domains.
        holdout (`float`, *optional*, defaults to 0.2): the share of each domain's and label's rows that is held out.
        seed (`int`, *optional*, defaults to 0): selects the rows, the same ones as in `leave_one_domain_out`.
    """
    _check_share("holdout", holdout)
    parts = {}
    for name, rows in dataset.by_domain().items():
        parts[name] = DomainParts(*_split_dev(rows, holdout, seed))
        if not all(map(len, parts[name])):
            raise ValueError(
                f"`dataset`: the domain {name!r} has {len(rows)} rows, too few to hold some out (a label needs at "
                "least two different ones). Add rows of it, or leave the domain out."
            )
    return parts


def leave_one_domain_out(
    train: DomainDataset,
    target: str,
    *,
    test: DomainDataset | None = None,
    dev_fraction: float = 0.2,
    seed: int = 0,
    on_overlap: str = "raise",
) -> DomainSplit:
    """
    Splits data into source domains, to train and select on, and one target domain, to test on.

    Args:
        train (`DomainDataset`): the rows to train on. With `test`, the target's rows among them are never used.
        target (`str`): the domain to leave out.
        test (`DomainDataset`, *optional*): held-out rows of all domains: those of the sources become `dev`, those of
            the target `test`. By default `dev` is taken from the sources' rows, and `test` is every row of the target.
        dev_fraction (`float`, *optional*, defaults to 0.2): the share of each domain's and label's rows that becomes
            `dev` if no `test` is given.
        seed (`int`, *optional*, defaults to 0): selects the rows of `dev`, in each domain for itself.
        on_overlap (`str`, *optional*, defaults to `"raise"`): what to do with rows of `train` or `dev` that are also
            test rows: `"raise"` an error; `"drop"` them (and rows of `train` that are in `dev`); or `"ignore"` them.
    """
    _check_on_overlap(on_overlap)
    _check_share("dev_fraction", dev_fraction)
    held_out = train if test is None else test
    if train.label_names != held_out.label_names:
        raise ValueError(
            f"`test` has the labels {listed(held_out.label_names)}, but `train` has {listed(train.label_names)}. Load "
            "both with the same `labels`."
        )
    if target not in held_out.domains:
        raise ValueError(
            f"`target` is {target!r}, but there is no such domain to test on. {did_you_mean(target, held_out.domains)}"
        )
    sources = [name for name in train.domains if name != target]
    if not sources:
        raise ValueError(f"`train` has no source domain beside the target {target!r}. Add rows of another domain.")
    target_rows, source_rows = held_out.domain(target), train.of_domains(sources)
    if test is None:
        train_part, dev_part = _split_dev(source_rows, dev_fraction, seed)
    else:
        train_part, dev_part = source_rows, test.of_domains(sources)
    # Before the overlap check, which would otherwise complain about a missing part.
    _check_parts(train_part, dev_part, target_rows, sources, target)
    train_part, dev_part = _all_without_overlap(train_part, dev_part, target_rows, on_overlap)
    if on_overlap == "drop":
        _check_parts(train_part, dev_part, target_rows, sources, target, " once the overlap is dropped")
    return DomainSplit(train=train_part, dev=dev_part, test=target_rows, sources=sources, target=target)


def check_given_splits(
    train: DomainDataset, dev: DomainDataset, test: DomainDataset, *, on_overlap: str = "raise"
) -> tuple[DomainDataset, DomainDataset]:
    """
    Checks the splits of data that comes with its own, where no domain is left out. Domains and labels that are missing
    from `train` raise an error.

    Args:
        train, dev, test (`DomainDataset`): rows to train, to select and to test on.
        on_overlap (`str`, *optional*, defaults to `"raise"`): see `leave_one_domain_out`; or `"drop_dev"`, which drops
            rows of `dev` that are in `train` and keeps all of `train` and `test`.

    Returns:
        `train` and `dev` without overlap.
    """
    _check_on_overlap(on_overlap, "drop_dev")
    for name, part in (("dev", dev), ("test", test)):
        unseen = [domain for domain in part.domains if domain not in train.domains]
        if unseen:
            raise ValueError(
                f"`{name}` has rows of the domain {listed(unseen)}, missing from `train`, which has "
                f"{listed(train.domains)}. Remove them, or leave that domain out as the target."
            )
        _check_labels(train, part, f"`{name}`")
    train, dev = _all_without_overlap(train, dev, test, on_overlap)
    for name, part in (("train", train), ("dev", dev)):
        if not len(part):
            raise ValueError(f"`{name}` has no row once the overlap is dropped. Add rows to it.")
    return train, dev


def _check_share(name: str, share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"`{name}` is {share}; it must lie between 0 and 1, both excluded.")


def _check_on_overlap(on_overlap: str, *also: str) -> None:
    allowed = ("raise", "drop", "ignore", *also)
    if on_overlap not in allowed:
        raise ValueError(f"`on_overlap` is {on_overlap!r}; here it must be one of {listed(allowed)}.")


def without_overlap(
    rows: DomainDataset, others: DomainDataset, on_overlap: str, names: tuple[str, str]
) -> DomainDataset:
    """`rows` without those that are also in `others` (`"drop"`), or an error if there are some (`"raise"`)."""
    if on_overlap == "raise":
        check_overlap(rows, others, names, 'Pass `on_overlap="drop"` to leave them out.')
    shared = {row for row, _ in find_overlap(rows, others)} if on_overlap == "drop" else set()
    if not shared:
        return rows
    logger.warning("%d of %d rows of `%s` are also in `%s` and were dropped.", len(shared), len(rows), *names)
    return rows.select(row for row in range(len(rows)) if row not in shared)


def _all_without_overlap(
    train: DomainDataset, dev: DomainDataset, test: DomainDataset, on_overlap: str
) -> tuple[DomainDataset, DomainDataset]:
    """`train` and `dev`, as `on_overlap` says."""
    if on_overlap == "drop_dev":
        return train, without_overlap(dev, train, "drop", ("dev", "train"))
    train = without_overlap(train, test, on_overlap, ("train", "test"))
    dev = without_overlap(dev, test, on_overlap, ("dev", "test"))
    if on_overlap == "drop":
        train = without_overlap(train, dev, on_overlap, ("train", "dev"))
    elif on_overlap == "raise" and (shared := len(find_overlap(train, dev))):
        advice = 'which flatters it; `on_overlap="drop"` leaves them out.'
        logger.warning("%d of %d rows of `train` are also in `dev`, %s", shared, len(train), advice)
    return train, dev


def _check_parts(
    train: DomainDataset, dev: DomainDataset, test: DomainDataset, sources: list[str], target: str, when: str = ""
) -> None:
    more = {"train": "to `train`", "dev": "to `test` (or to `train`, if no `test` is given: a label needs two or more)"}
    for part, rows in (("train", train), ("dev", dev)):
        for name in sources:
            if name not in rows.domains:
                raise ValueError(
                    f"the domain {name!r} has no {part} row{when}. Add rows {more[part]}, or leave the domain out."
                )
    _check_labels(train, test, f"`target` {target!r}", when)


def _check_labels(train: DomainDataset, other: DomainDataset, name: str, when: str = "") -> None:
    unseen = sorted(set(other.labels or ()) - set(train.labels or ()))
    if unseen:
        raise ValueError(
            f"{name} has the label {listed(train.label_names[label] for label in unseen)}, which no row of `train` "
            f"has{when}, so no model can learn it. Remove those rows."
        )


def _split_dev(rows: DomainDataset, dev_fraction: float, seed: int) -> tuple[DomainDataset, DomainDataset]:
    labels = rows.labels if rows.labels is not None else [0] * len(rows)
    # Equal rows go to one side together: a dev row that is also trained on would be memorised.
    groups: dict[tuple[str, int], dict[str, list[int]]] = {}
    for row, key in enumerate(zip(rows["domain"], labels, row_hashes(rows), strict=True)):
        groups.setdefault(key[:2], {}).setdefault(key[2], []).append(row)
    dev: set[int] = set()
    for (domain, label), by_hash in groups.items():
        units = list(by_hash.values())
        # Seeded by name and not by position, so that the choice does not depend on other domains.
        random.Random(f"{seed}/{domain}/{label}").shuffle(units)
        total = sum(map(len, units))
        left = min(max(round(total * dev_fraction), 1), total - 1)
        for unit in units:
            if len(unit) <= left:
                dev.update(unit)
                left -= len(unit)
    return rows.select(row for row in range(len(rows)) if row not in dev), rows.select(sorted(dev))
