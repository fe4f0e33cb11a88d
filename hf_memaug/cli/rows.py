# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of a command: loaded, checked and split once in a process, and described for data.json."""

import contextlib
import functools
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.cli.errors import DataRefused, UsageError
from hf_memaug.data import DomainDataset, check_images, leave_one_domain_out, load_domains, split_domains
from hf_memaug.data.overlap import find_overlap, row_hashes
from hf_memaug.training.sweep.building import GENERATED, MNIST, load_rows

# A target that stands for none: all domains are trained on.
NO_TARGET = "none"
COLUMNS = ("text", "text_pair", "label", "domain")
# How the library's errors name what is an option here.
_AS_OPTIONS = {'`on_overlap="drop"`': "`--on-overlap drop`", "`source`": "`--data`"}


# Whether long readings may show a bar on stderr.
_shows_bars = True


@contextlib.contextmanager
def bars():
    """Within, a bar shows what takes long, unless the command is to be quiet."""
    with contextlib.nullcontext() if _shows_bars else contextlib.redirect_stderr(io.StringIO()):
        yield


def source_of(options: Any) -> dict[str, Any]:
    """What says which rows are read, as it can be written into a file."""
    if options.data is None:
        raise UsageError(
            f"`--data` is missing: give a file, a folder, a dataset of the hub, or one that is made here: "
            f"{', '.join(GENERATED)}."
        )
    # A file may have changed since an earlier command of this process.
    for cached in (_loaded, _dev_rows, _split, _fingerprint):
        cached.cache_clear()
    global _shows_bars
    _shows_bars = not (getattr(options, "quiet", False) or getattr(options, "json", False))
    where = options.data
    if Path(where).exists():
        where = str(Path(where).resolve())
    names = (*COLUMNS, "split", "test_split", "dev_split")
    if getattr(options, "dev_split", None) is not None and options.test_split is None:
        raise UsageError("`--dev-split` says what to select on, and nothing what to test on: give `--test-split` too.")
    return {"data": where, **{name: getattr(options, name, None) for name in names}}


def load_labelled(source: Mapping[str, Any], labels: Sequence[str]) -> DomainDataset:
    """All rows, with the labels of a model that is there already."""
    try:
        rows = _read(source, source["split"], labels)
        with bars():
            return check_images(rows) if is_image(rows) else rows
    except (ValueError, OSError, TypeError, KeyError) as error:
        raise DataRefused(as_options(error)) from error


def load(source: Mapping[str, Any]) -> tuple[DomainDataset, DomainDataset | None]:
    """Rows to train on, and other rows to select and test on where there is a `test_split`."""
    return _loaded(json.dumps(dict(source), sort_keys=True))


@functools.lru_cache(maxsize=4)
def _loaded(source: str) -> tuple[DomainDataset, DomainDataset | None]:
    source = json.loads(source)
    try:
        rows = _read(source, source["split"])
        held_out = None
        if source["test_split"] is not None:
            held_out = _read(source, source["test_split"], rows.label_names)
        for part in (rows, held_out):
            if part is not None and is_image(part):
                with bars():
                    check_images(part)
    except (ValueError, OSError, TypeError, KeyError) as error:
        raise DataRefused(as_options(error)) from error
    return rows, held_out


@functools.lru_cache(maxsize=4)
def _dev_rows(source: str, on_overlap: str) -> DomainDataset:
    """Rows of `dev_split`. What is also a training row chooses nothing; test rows are scored as they are."""
    rows, held_out = _loaded(source)
    source = json.loads(source)
    try:
        dev = _read(source, source["dev_split"], rows.label_names)
        seen = {row for row, _ in find_overlap(dev, rows)}
        if on_overlap == "raise" and (seen or find_overlap(held_out, rows)):
            raise ValueError(
                f"{len(seen)} rows of `--dev-split` and {len(find_overlap(held_out, rows))} of `--test-split` are "
                'training rows too. `on_overlap="drop"` leaves the dev rows among them out and scores all test rows.'
            )
    except (ValueError, OSError, TypeError, KeyError) as error:
        raise DataRefused(as_options(error)) from error
    return dev.select(row for row in range(len(dev)) if row not in seen) if on_overlap == "drop" else dev


def as_options(error: Exception) -> str:
    """The library's sentence with the names of the command line."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    for written, option in _AS_OPTIONS.items():
        text = text.replace(written, option)
    return text


def _read(source: Mapping[str, Any], split: str | None, labels: Sequence[str] | None = None) -> DomainDataset:
    where = source["data"]
    if where in GENERATED or where.partition(":")[0] in MNIST:
        if split is not None:
            raise ValueError(f"`--split`: {where} has no splits. Leave it out.")
        return load_rows(where)
    columns = {name: source[name] for name in COLUMNS}
    if not Path(where).exists() and _is_hub_name(where):
        where = _from_hub(where, split)
    return load_domains(where, split=split, labels=labels, **columns)


def _is_hub_name(name: str) -> bool:
    return name.count("/") <= 1 and not name.startswith((".", "/", "~")) and not Path(name).suffix


def _from_hub(name: str, split: str | None):
    from datasets import load_dataset

    try:
        found = load_dataset(name)
        return next(iter(found.values())) if split is None and len(found) == 1 else found
    except Exception as error:  # the hub, the network and the dataset each fail in their own way
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"`--data` {name!r} is no file or folder, and no dataset of the hub could be loaded by this name ({said})."
        ) from error


def is_image(rows: DomainDataset) -> bool:
    return "image" in rows.column_names


def split_for(source: Mapping[str, Any], target: str, dev_fraction: float, on_overlap: str) -> dict[str, Any]:
    """`{"train", "dev", "test"}`, of which the last is None where no domain is left out."""
    return _split(json.dumps(dict(source), sort_keys=True), target, dev_fraction, on_overlap)


@functools.lru_cache(maxsize=32)
def _split(source: str, target: str, dev_fraction: float, on_overlap: str) -> dict[str, Any]:
    rows, held_out = _loaded(source)
    if json.loads(source).get("dev_split") is not None:
        if target != NO_TARGET:
            raise UsageError("`--dev-split` is for data of which no domain is left out: give `--target none` with it.")
        return {"train": rows, "dev": _dev_rows(source, on_overlap), "test": held_out}
    try:
        if target != NO_TARGET:
            split = leave_one_domain_out(rows, target, test=held_out, dev_fraction=dev_fraction, on_overlap=on_overlap)
            return {"train": split.train, "dev": split.dev, "test": split.test}
        if held_out is not None:
            return {"train": rows, "dev": held_out, "test": None}
        parts = split_domains(rows, dev_fraction).values()
        train, dev = (DomainDataset.concatenate([part[side] for part in parts]) for side in (0, 1))
        return {"train": train, "dev": dev, "test": None}
    except (ValueError, OSError) as error:
        raise DataRefused(as_options(error)) from error


def describe(source: Mapping[str, Any], splits: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """data.json: rows of each domain in each part, those that stand in two domains, and a hash of all."""
    rows, held_out = load(source)
    domains: dict[str, dict[str, Any]] = {}
    for name, by_label in rows.counts().items():
        domains[name] = {"train": 0, "dev": 0, "test": 0, "labels": by_label}
    for parts in splits.values():
        for part, dataset in parts.items():
            for name, count in Counter(dataset["domain"] if dataset is not None else ()).items():
                entry = domains.setdefault(name, {"train": 0, "dev": 0, "test": 0, "labels": {}})
                entry[part] = max(entry[part], count)
    return {
        "source": source["data"],
        "columns": {name: source[name] for name in COLUMNS if source[name] is not None},
        "domains": domains,
        "overlap": _overlap(rows, held_out),
        "hash": fingerprint(source),
    }


@functools.lru_cache(maxsize=4)
def _fingerprint(source: str) -> str:
    rows, held_out = _loaded(source)
    return rows.fingerprint() + (held_out.fingerprint() if held_out is not None else "")


def fingerprint(source: Mapping[str, Any]) -> str:
    import hashlib

    found = _fingerprint(json.dumps(dict(source), sort_keys=True))
    return hashlib.sha256(found.encode()).hexdigest()


def _overlap(rows: DomainDataset, held_out: DomainDataset | None) -> dict[str, Any]:
    """How many rows of one domain are also in another, and how many are in both splits."""
    hashes = row_hashes(rows)
    seen: dict[str, set[str]] = {}
    for value, domain in zip(hashes, rows["domain"], strict=True):
        seen.setdefault(domain, set()).add(value)
    names = list(seen)
    pairs = [
        {"domains": [first, second], "rows": len(seen[first] & seen[second])}
        for number, first in enumerate(names)
        for second in names[number + 1 :]
        if seen[first] & seen[second]
    ]
    found: dict[str, Any] = {"between_domains": pairs, "repeated_rows": len(hashes) - len(set(hashes))}
    if held_out is not None:
        found["in_both_splits"] = len(set(hashes) & set(row_hashes(held_out)))
    return found
