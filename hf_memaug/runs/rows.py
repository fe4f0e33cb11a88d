# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The rows of a command: what says where they come from, loading, checks, and their description in data.json."""

import contextlib
import functools
import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from huggingface_hub.utils import disable_progress_bars

from hf_memaug import data
from hf_memaug.data import DomainDataset
from hf_memaug.data.graphs import holds_edges
from hf_memaug.data.overlap import row_hashes
from hf_memaug.data.sources import is_hub_name, load_from_hub
from hf_memaug.messages import listed
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.job import NONE
from hf_memaug.runs.settings import in_options
from hf_memaug.runs.tasks import CLASSES, REPLIES, TAGS, TASKS, kind_of, with_all_tags

COLUMNS = ("text", "text_pair", "label", "domain")
# What tables call the mean over the domains.
AVERAGE = "average"
GENERATED: dict[str, Callable[[], DomainDataset]] = {
    "generated_reviews": data.generated_reviews,
    "generated_digits": data.generated_digits,
    "coloured_digits": lambda: data.generated_digits("coloured"),
    "generated_graphs": data.generated_graphs,
}
# Followed by a colon and the folder of MNIST.
MNIST = {"rotated_mnist": "rotated", "coloured_mnist": "coloured"}
# Errors of the library name arguments that are options here.
_AS_OPTIONS = {
    ", or pass `text=None` for rows without text": "",
    ", or pass `label=None` for unlabelled rows": "",
    ", delete those rows, or pass `label=None`": ", or delete those rows",
    "Pass `label=None` for tags per token; the column is then kept under its own name if that is not 'label'.": (
        "Several labels are `--task labels`, tags of words `--task tags`."
    ),
    "Only classes are read: round the numbers": "Numbers are `--task numbers`. Of classes, round them",
    '`on_overlap="drop"`': "`--on-overlap drop`",
    '`broken="skip"`': "`--broken skip`",
    'pass `on_empty="drop"`': "give `--broken skip`",
    ", or lower `stride`": "",
    "give a dict {domain: source}, or `domain=None`": f"give `--domain {NONE}` where all are of one domain",
}
_ARGUMENTS = (*COLUMNS[1:], *"split dev_fraction holdout target max_length labels tokens tags answers".split())
# The errors that mean that the rows are wrong, not the library.
ROW_ERRORS = (ValueError, OSError, TypeError, KeyError, ImportError)
_CACHED: list = []


def source_of(options: Any) -> dict[str, Any]:
    """The options that say which rows are read, as a dictionary that fits into JSON."""
    if options.data is None:
        raise UsageError(
            "`--data` is missing. Set it to a file, a folder, a dataset of the hub, or generated data: "
            f"{', '.join(GENERATED)}."
        )
    for cached in _CACHED:
        cached.cache_clear()
    if getattr(options, "quiet", False) or getattr(options, "json", False):
        disable_progress_bars()
    task = getattr(options, "task", CLASSES)
    names = (*COLUMNS, *TASKS[task].columns) if task in TASKS else (*COLUMNS, "smiles")
    found = {name: getattr(options, name, None) for name in (*names, "split", "dev_split", "test_split")}
    if task == REPLIES:
        found["text_pair"] = found["text_pair"] or "text_pair"
    broken = getattr(options, "broken", "refuse")
    own = {"task": task} if task in TASKS else {}
    labels = getattr(options, "labels", None)
    if labels is not None:
        if task in TASKS or is_generated(options.data):
            raise UsageError("`--labels` names the classes of rows that are read from files. Leave it out.")
        own["labels"] = [str(name) for name in labels]
    return {"data": options.data, **found, **own, **({"broken": broken} if broken != "refuse" else {})}


@contextlib.contextmanager
def told_as_options(errors: tuple[type[Exception], ...] = (ValueError, OSError)):
    """Errors about rows, with the options' names in place of the arguments'."""
    try:
        yield
    except errors as error:
        raise DataRefused(as_options(error)) from error


def kept_for_a_command(function):
    """
    `functools.lru_cache` for functions of a source, until `source_of` is called again: a file may have changed since an
    earlier command.
    """
    cached = functools.lru_cache(maxsize=32)(lambda key, *rest: function(json.loads(key), *rest))
    _CACHED.append(cached)
    return functools.wraps(function)(lambda source, *rest: cached(json.dumps(dict(source), sort_keys=True), *rest))


@kept_for_a_command
@told_as_options(ROW_ERRORS)
def load(source: Mapping[str, Any]) -> tuple[DomainDataset, DomainDataset | None, DomainDataset | None]:
    """The rows to train on, and those of `test_split` and of `dev_split`, if there are any."""
    rows = _checked(_read(source, source["split"]), source)
    # A tag may occur in one split alone.
    labels = None if source.get("task") == TAGS else rows.label_names
    test, dev = (
        None if source.get(name) is None else _checked(_read(source, source[name], labels), source)
        for name in ("test_split", "dev_split")
    )
    if labels is None:
        return with_all_tags(rows, test, dev)
    found = {label for part in (rows, test, dev) if part is not None for label in part.labels or ()}
    if 2 < len(rows) == len(set(rows.labels or ())):
        raise ValueError("`label` has another value in each row, as an id has. Name the column with the class.")
    unused = [name for label, name in enumerate(source.get("labels") or ()) if label not in found]
    if unused:
        raise ValueError(f"`labels` names {listed(unused)}, which no row has. Leave that out.")
    return rows, test, dev


def load_labelled(source: Mapping[str, Any], labels: Sequence[str]) -> DomainDataset:
    """All rows, with the labels of a trained model."""
    try:
        return shuffled(_checked(_read(source, source["split"], labels), source))
    except ROW_ERRORS as error:
        # The labels are the model's.
        raise DataRefused(as_options(error).replace(", or add the label to `--labels`", "")) from error


def _checked(rows: DomainDataset, source: Mapping[str, Any]) -> DomainDataset:
    if AVERAGE in rows.domains:
        raise ValueError(
            f"A domain of `--data` is called {AVERAGE!r}, which tables use for the mean over the domains. Rename it."
        )
    check = {"image": data.check_images, "graph": data.check_graphs}.get(kind_of(rows))
    return rows if check is None else check(rows, source.get("broken", "refuse"))


def as_options(error: Exception) -> str:
    """The message of an error, with the options' names in place of the arguments'."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    for written, option in _AS_OPTIONS.items():
        text = text.replace(written, option)
    of_data = dict.fromkeys(("source", "rows", "dataset", "train_dataset"), "--data") | {"values": "--label"}
    return in_options(text, _ARGUMENTS, on_empty="--broken", **of_data)


def _read(source: Mapping[str, Any], split: str | None, labels: Sequence[str] | None = None) -> DomainDataset:
    where: Any = source["data"]
    labels = source.get("labels") if labels is None else labels
    if is_generated(where):
        if split is not None:
            raise ValueError(f"`--split`: {where} has no splits. Leave it out.")
        if where in GENERATED:
            return GENERATED[where]()
        kind, _, folder = where.partition(":")
        return data.mnist_domains(folder, MNIST[kind])
    task = TASKS.get(source.get("task") or "")
    has_edges = task is None and source.get("smiles") is None and holds_edges(where)
    if not Path(where).exists() and is_hub_name(where):
        try:
            where = load_from_hub(where, split)
        except ValueError as error:
            raise ValueError(f"`--data` {error}") from error
    if source["domain"] == NONE:
        where = {data_name(source["data"]): where}
    broken = source.get("broken", "refuse")
    shared = {"domain": source["domain"], "split": split, "on_empty": "drop" if broken == "skip" else "raise"}
    if task is not None:
        return task.read(where, source, shared, labels)
    shared |= {"label": source["label"], "labels": labels}
    if source.get("smiles") is not None:
        return data.load_molecules(where, smiles=source["smiles"], broken=broken, **shared)
    if has_edges:
        return data.load_graphs(where, **shared)
    return data.load_domains(where, text=source["text"], text_pair=source["text_pair"], **shared)


def shuffled(rows: DomainDataset) -> DomainDataset:
    """
    The rows in a random order. Files are often sorted by class, and a model whose rows read each other would otherwise
    be scored on batches of one class, which it never saw in training.
    """
    return rows.shuffle(0)


def is_generated(where: str) -> bool:
    return where in GENERATED or where.partition(":")[0] in MNIST


def data_name(source: str) -> str:
    """What tables and cards call the data: `reviews` for `some/reviews.csv.gz`."""
    name = os.path.basename(os.path.abspath(source))
    return name.split(".")[0] or name


def describe(source: Mapping[str, Any], splits: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """data.json: the rows of each domain in each part, those that stand in two domains, and a hash of all rows."""
    rows, held_out, _ = load(source)
    task = TASKS.get(kind_of(rows))
    empty = {"train": 0, "dev": 0, "test": 0, "labels": {}}
    counts = rows.counts() if task is None else task.counts(rows)
    domains: dict[str, dict[str, Any]] = {name: {**empty, "labels": by_label} for name, by_label in counts.items()}
    for parts in splits.values():
        for part, dataset in parts.items():
            for name, count in Counter(dataset["domain"] if dataset is not None else ()).items():
                entry = domains.setdefault(name, dict(empty))
                entry[part] = max(entry.get(part, 0), count)
    columns = (*COLUMNS, "smiles") if task is None else (*task.columns, "domain")
    overlap = _overlap(rows, held_out)
    if overlap["repeated_rows"] and not is_generated(source["data"]):
        warnings.warn(
            f"`--data` repeats rows: {overlap['repeated_rows']} are copies of an earlier one, and count again. Remove "
            "them if that is not meant.",
            stacklevel=2,
        )
    return {
        "source": source["data"],
        "columns": {name: source[name] for name in columns if source.get(name) is not None},
        "domains": domains,
        "overlap": overlap,
        "hash": fingerprint(source),
    }


@kept_for_a_command
def fingerprint(source: Mapping[str, Any]) -> str:
    hashes = "".join(part.fingerprint() for part in load(source) if part is not None)
    return hashlib.sha256(hashes.encode()).hexdigest()


def _overlap(rows: DomainDataset, held_out: DomainDataset | None) -> dict[str, Any]:
    """How many rows of one domain are also in another, and how many are in both splits."""
    hashes = row_hashes(rows)
    seen: dict[str, set[str]] = {}
    for value, domain in zip(hashes, rows["domain"], strict=True):
        seen.setdefault(domain, set()).add(value)
    pairs = [
        {"domains": [first, second], "rows": len(seen[first] & seen[second])}
        for first, second in combinations(seen, 2)
        if seen[first] & seen[second]
    ]
    found: dict[str, Any] = {"between_domains": pairs, "repeated_rows": len(hashes) - len(set(hashes))}
    if held_out is not None:
        found["in_both_splits"] = len(set(hashes) & set(row_hashes(held_out)))
    return found
