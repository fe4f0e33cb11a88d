# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of a command: loaded, checked and split once in a process, and described for data.json."""

import contextlib
import functools
import io
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.data import (
    DomainDataset,
    check_given_splits,
    check_graphs,
    check_images,
    generated_graphs,
    holds_edges,
    leave_one_domain_out,
    load_domains,
    load_graphs,
    load_molecules,
    split_domains,
)
from hf_memaug.data.hub_names import is_hub_name, load_from_hub
from hf_memaug.data.messages import did_you_mean
from hf_memaug.data.overlap import check_overlap, find_overlap, row_hashes
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.small_models import GENERATED, MNIST, load_rows
from hf_memaug.runs.tasks import CLASSES, QUESTIONS, REPLIES, TAGS, TASKS, check_types, with_all_tags

# A target that stands for none: all domains are trained on. And a column of domains: all rows are of one.
NO_TARGET = NO_DOMAINS = "none"
COLUMNS = ("text", "text_pair", "label", "domain")
AVERAGE = "average"
# How the library's errors name what is an option here.
_AS_OPTIONS = {
    ", or pass `label=None` for unlabelled rows": "",
    ", delete those rows, or pass `label=None`": ", or delete those rows",
    "Pass `label=None` for tags per token; the column is then kept under its own name if that is not 'label'.": (
        "Tags of words are `--task tags`."
    ),
    '`on_overlap="drop"`': "`--on-overlap drop`",
    '`broken="skip"`': "`--broken skip`",
    'pass `on_empty="drop"`': "give `--broken skip`",
    "`on_empty`": "`--broken`",
    "`source`": "`--data`",
    "`rows`": "`--data`",
    "`dataset`": "`--data`",
    "`target`": "`--target`",
    "`max_length`": "`--max-length`",
    "`labels`": "`--labels`",
    ", or lower `stride`": "",
    "give a dict {domain: source}, or `domain=None`": f"give `--domain {NO_DOMAINS}` where all are of one domain",
}
BROKEN = ("refuse", "skip")
MADE_HERE = {**GENERATED, "generated_graphs": generated_graphs}


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
            f"{', '.join(MADE_HERE)}."
        )
    # A file may have changed since an earlier command of this process.
    for cached in (_loaded, _split, _fingerprint):
        cached.cache_clear()
    global _shows_bars
    _shows_bars = not (getattr(options, "quiet", False) or getattr(options, "json", False))
    where = options.data
    if Path(where).exists():
        where = str(Path(where).resolve())
    task = getattr(options, "task", CLASSES)
    names = (*COLUMNS, *TASKS[task].columns) if task in TASKS else (*COLUMNS, "smiles")
    found = {name: getattr(options, name, None) for name in (*names, "split", "dev_split", "test_split")}
    if task == REPLIES:
        found["text_pair"] = found["text_pair"] or "text_pair"
    broken = getattr(options, "broken", "refuse")
    if broken not in BROKEN:
        raise UsageError(f"`--broken` is {broken!r}. {did_you_mean(broken, BROKEN)}")
    own = {"task": task} if task in TASKS else {}
    labels = getattr(options, "labels", None)
    if labels is not None:
        if task in TASKS or is_made_here(where):
            raise UsageError("`--labels` names classes of rows that are read from files. Leave it out.")
        own["labels"] = [str(name) for name in labels]
    return {"data": where, **found, **own, **({"broken": broken} if broken != "refuse" else {})}


def load_labelled(source: Mapping[str, Any], labels: Sequence[str]) -> DomainDataset:
    """All rows, with the labels of a model that is there already."""
    try:
        return shuffled(_checked(_read(source, source["split"], labels), source))
    except (ValueError, OSError, TypeError, KeyError, ImportError) as error:
        # A model's labels are what they are.
        raise DataRefused(as_options(error).replace(", or add the label to `--labels`", "")) from error


def load(source: Mapping[str, Any]) -> tuple[DomainDataset, DomainDataset | None]:
    """Rows to train on, and other rows to select and test on where there is a `test_split`."""
    return _loaded(json.dumps(dict(source), sort_keys=True))[:2]


def load_dev(source: Mapping[str, Any]) -> DomainDataset | None:
    """The rows of `dev_split`, where there is one."""
    return _loaded(json.dumps(dict(source), sort_keys=True))[2]


@functools.lru_cache(maxsize=4)
def _loaded(source: str) -> tuple[DomainDataset, DomainDataset | None, DomainDataset | None]:
    source = json.loads(source)
    try:
        rows = _checked(_read(source, source["split"]), source)
        # Tags that are in one split alone are labels all the same.
        labels = None if source.get("task") == TAGS else rows.label_names
        others = [
            None if source.get(name) is None else _checked(_read(source, source[name], labels), source)
            for name in ("test_split", "dev_split")
        ]
        if labels is None:
            rows, *others = with_all_tags([rows, *others])
    except (ValueError, OSError, TypeError, KeyError, ImportError) as error:
        raise DataRefused(as_options(error)) from error
    return rows, *others


def _checked(rows: DomainDataset, source: Mapping[str, Any]) -> DomainDataset:
    if AVERAGE in rows.domains:
        raise ValueError(f"A domain of `--data` is called {AVERAGE!r}, as tables call the mean of all. Rename it.")
    with bars():
        check = {"image": check_images, "graph": check_graphs}.get(kind_of(rows))
        return rows if check is None else check(rows, source.get("broken", "refuse"))


def as_options(error: Exception) -> str:
    """The library's sentence with the names of the command line."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    for written, option in _AS_OPTIONS.items():
        text = text.replace(written, option)
    return text


def _read(source: Mapping[str, Any], split: str | None, labels: Sequence[str] | None = None) -> DomainDataset:
    where: Any = source["data"]
    labels = source.get("labels") if labels is None else labels
    if is_made_here(where):
        if split is not None:
            raise ValueError(f"`--split`: {where} has no splits. Leave it out.")
        return MADE_HERE[where]() if where in MADE_HERE else load_rows(where)
    task = TASKS.get(source.get("task"))
    has_edges = task is None and source.get("smiles") is None and holds_edges(where)
    if not Path(where).exists() and is_hub_name(where):
        try:
            where = load_from_hub(where, split)
        except ValueError as error:
            raise ValueError(f"`--data` {error}") from error
    if source["domain"] == NO_DOMAINS:
        where = {data_name(source["data"]): where}
    broken = source.get("broken", "refuse")
    shared = {"domain": source["domain"], "split": split, "on_empty": "drop" if broken == "skip" else "raise"}
    if task is not None:
        return task.read(where, source, shared, labels)
    shared |= {"label": source["label"], "labels": labels}
    if source.get("smiles") is not None:
        with bars():
            return load_molecules(where, smiles=source["smiles"], broken=broken, **shared)
    if has_edges:
        return load_graphs(where, **shared)
    return load_domains(where, text=source["text"], text_pair=source["text_pair"], **shared)


def is_made_here(where: str) -> bool:
    return where in MADE_HERE or where.partition(":")[0] in MNIST


def data_name(source: str) -> str:
    """`reviews` of `some/reviews.csv.gz`: what tables and cards call the data."""
    name = Path(source.rstrip("/")).name
    return name.split(".")[0] or name


def kind_of(rows: DomainDataset) -> str:
    """What the rows are: "text", "image" or "graph", each with a class; or the name of another task."""
    columns = rows.column_names
    found = next((kind for kind in ("image", "graph") if kind in columns), None)
    if found is not None or "label" in columns:
        return found or "text"
    others = {TAGS: "tags", QUESTIONS: "answers", REPLIES: "text_pair"}
    return next((kind for kind, column in others.items() if column in columns), "text")


def in_words(kind: str) -> str:
    """`texts`, `tags`: what rows of a kind are called."""
    return kind if kind in TASKS else f"{kind}s"


def check_splits(options: Any, targets: Sequence[str]) -> None:
    """Refuses a `--dev-split` beside what it does not go with."""
    given = {name: getattr(options, name) for name in ("split", "dev_split", "test_split")}
    if given["dev_split"] is None:
        if options.on_overlap == "drop_dev":
            raise UsageError("`--on-overlap drop_dev` drops rows of `--dev-split`: give one, or choose drop or ignore.")
        return
    if list(targets) != [NO_TARGET]:
        raise UsageError(
            "`--dev-split` is for data whose splits all have the same domains: add `--target none`. Where a domain is "
            "left out, the other domains' rows of `--test-split` are those to select on."
        )
    for name, what in (("split", "to train on"), ("test_split", "to score")):
        if given[name] is None:
            mend = " To select and score on the same rows, give `--test-split` alone." if name == "test_split" else ""
            option = name.replace("_", "-")
            raise UsageError(f"`--dev-split` needs `--{option}` beside it, the rows {what}.{mend}")
    if len(set(given.values())) < 3:
        raise UsageError(
            f"`--split`, `--dev-split` and `--test-split` are {', '.join(given.values())}: name three different ones."
        )


def split_for(source: Mapping[str, Any], target: str, dev_fraction: float, on_overlap: str) -> dict[str, Any]:
    """`{"train", "dev", "test"}`, of which the last is None where no domain is left out."""
    return _split(json.dumps(dict(source), sort_keys=True), target, dev_fraction, on_overlap)


def shuffled(rows: DomainDataset | None) -> DomainDataset | None:
    """
    In an order that is no file's: there, rows of one class often lie side by side, and a model whose rows read each
    other would be scored on batches of one class, which it has never seen.
    """
    if rows is None:
        return None
    order = list(range(len(rows)))
    random.Random(0).shuffle(order)
    return rows.select(order)


def without_overlap(train: DomainDataset, scored: DomainDataset, on_overlap: str) -> DomainDataset:
    """Rows to train on: refused if some are scored too, or without those."""
    if on_overlap == "raise":
        mend = 'Pass `on_overlap="drop"` to leave them out.'
        check_overlap(train, scored, ("--split", "--test-split"), mend)
    if on_overlap != "drop":
        return train
    seen = {row for row, _ in find_overlap(train, scored)}
    return train.select(row for row in range(len(train)) if row not in seen)


@functools.lru_cache(maxsize=32)
def _split(source: str, target: str, dev_fraction: float, on_overlap: str) -> dict[str, Any]:
    parts = _parts(source, target, dev_fraction, on_overlap)
    if kind_of(parts["train"]) == TAGS:
        try:
            check_types(parts["train"], dev=parts["dev"], test=parts["test"])
        except ValueError as error:
            raise DataRefused(as_options(error)) from error
    return parts


def _parts(source: str, target: str, dev_fraction: float, on_overlap: str) -> dict[str, Any]:
    rows, held_out, _ = _loaded(source)
    try:
        if target != NO_TARGET:
            split = leave_one_domain_out(rows, target, test=held_out, dev_fraction=dev_fraction, on_overlap=on_overlap)
            return {"train": split.train, "dev": shuffled(split.dev), "test": shuffled(split.test)}
        dev = load_dev(json.loads(source))
        if dev is not None:
            train, dev = check_given_splits(rows, dev, held_out, on_overlap=on_overlap)
            return {"train": train, "dev": shuffled(dev), "test": shuffled(held_out)}
        train, dev = rows, held_out
        if held_out is None:
            parts = split_domains(rows, dev_fraction).values()
            train, dev = (DomainDataset.concatenate([part[side] for part in parts]) for side in (0, 1))
            # Within a domain none is on both sides.
            on_overlap = "ignore" if on_overlap == "raise" else on_overlap
        return {"train": without_overlap(train, dev, on_overlap), "dev": shuffled(dev), "test": None}
    except (ValueError, OSError) as error:
        raise DataRefused(as_options(error)) from error


def describe(source: Mapping[str, Any], splits: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """data.json: rows of each domain in each part, those that stand in two domains, and a hash of all."""
    rows, held_out = load(source)
    domains: dict[str, dict[str, Any]] = {}
    kind = kind_of(rows)
    for name, by_label in (TASKS[kind].counts(rows) if kind in TASKS else rows.counts()).items():
        domains[name] = {"train": 0, "dev": 0, "test": 0, "labels": by_label}
    for parts in splits.values():
        for part, dataset in parts.items():
            for name, count in Counter(dataset["domain"] if dataset is not None else ()).items():
                entry = domains.setdefault(name, {"train": 0, "dev": 0, "test": 0, "labels": {}})
                entry[part] = max(entry[part], count)
    return {
        "source": source["data"],
        "columns": _columns(source),
        "domains": domains,
        "overlap": _overlap(rows, held_out),
        "hash": fingerprint(source),
    }


def _columns(source: Mapping[str, Any]) -> dict[str, str]:
    task = TASKS.get(source.get("task"))
    names = (*COLUMNS, "smiles") if task is None else (*task.columns, "domain")
    return {name: source[name] for name in names if source.get(name) is not None}


@functools.lru_cache(maxsize=4)
def _fingerprint(source: str) -> str:
    return "".join(part.fingerprint() for part in _loaded(source) if part is not None)


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
