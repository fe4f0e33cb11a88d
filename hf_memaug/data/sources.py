# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Finds the tables in a source of any kind: one piece per file, dataset or folder of images."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.labels import is_missing
from hf_memaug.data.readers import IMAGE_SUFFIXES, Columns, columns_of, read_table, table_stem, table_suffix, visible
from hf_memaug.messages import did_you_mean, listed, some_rows

SPLIT_NAMES = ("train", "training", "dev", "val", "valid", "validation", "eval", "test", "testing")


@dataclass(frozen=True)
class Piece:
    """Columns from one place, with the label names that the place brings."""

    columns: Columns
    origin: str
    label_names: list[str] | None = None
    # Whether the place itself was chosen by `split`.
    split_done: bool = False
    # Whether the labels are names of folders.
    is_image_folder: bool = False

    def with_domain(self, column: str, name: str) -> Piece:
        """All rows in one domain."""
        count = len(next(iter(self.columns.values()), ()))
        return replace(self, columns={**self.columns, column: [name] * count})


# The columns that the caller of `load_domains` named as `text`, `text_pair`, `label` and `domain`.
ColumnNames = Mapping[str, Any]


def find_pieces(source: Any, names: ColumnNames, split: str | None) -> list[Piece]:
    library = type(source).__module__.partition(".")[0]
    if isinstance(source, (str, os.PathLike)):
        return _path_pieces(Path(source), names, split)
    if isinstance(source, DomainDataset):
        columns = {name: source[name] for name in source.column_names}
        return [Piece(columns, "the DomainDataset", label_names=source.label_names)]
    if library == "datasets" and isinstance(source, Mapping):
        chosen = source[check_split(split, list(source), "the DatasetDict")]
        return [replace(_dataset_piece(chosen, names), split_done=True)]
    if library == "datasets" and hasattr(source, "with_format") and hasattr(source, "__len__"):
        return [_dataset_piece(source, names)]
    if isinstance(source, Mapping):
        if not source:
            raise ValueError("`source` is an empty dict; it must map each domain's name to its data.")
        if any(map(is_missing, source)):
            raise ValueError("`source` has an empty domain name among its keys. Give that domain a name.")
        return [
            replace(piece, origin=f"{piece.origin} of domain {str(name)!r}").with_domain(names["domain"], str(name))
            for name, part in source.items()
            for piece in find_pieces(part, names, split)
        ]
    if isinstance(source, Sequence) and not isinstance(source, bytes):
        odd = [row for row, value in enumerate(source) if not isinstance(value, Mapping)]
        if odd:
            kind = type(source[odd[0]]).__name__
            raise ValueError(f"`source` is a list whose entries must be dicts, but {some_rows(odd)} are not ({kind}).")
        return [Piece(columns_of(source), "the list")]
    raise TypeError(
        f"`source` is a {type(source).__name__}; give a path, a datasets.Dataset or DatasetDict, a list of dicts, "
        "or a dict from domain names to one of these."
    )


def _dataset_piece(dataset: Any, names: ColumnNames) -> Piece:
    # Through arrow: it honours selected and shuffled rows, and decodes no image.
    columns = dataset.with_format("arrow")[:].to_pydict()
    # What a `datasets.ClassLabel` calls its ids.
    domains, labels = (getattr(dataset.features.get(names[one]), "names", None) for one in ("domain", "label"))
    if domains is not None:
        columns[names["domain"]] = [domains[one] if isinstance(one, int) else one for one in columns[names["domain"]]]
    return Piece(columns, "the Dataset", label_names=labels)


def _path_pieces(path: Path, names: ColumnNames, split: str | None) -> list[Piece]:
    if not path.exists():
        siblings = [other.name for other in visible(path.parent) if other.exists()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"`source`: there is no {str(path)!r}. {did_you_mean(path.name, siblings)}")
    if not path.is_dir():
        return [Piece(read_table(path), path.name, label_names=_label_file_names(path.parent))]
    # A .json in a data folder is more often a note about the data than data.
    files = [file for file in visible(path) if file.is_file() and table_suffix(file) not in (None, ".json", ".json.gz")]
    if not files:
        return [_image_piece(path, names, split)]
    # Files are called `<domain>.<split>`, `<split>` or `<domain>`.
    stems = {file: table_stem(file) for file in files}
    dotted = {file: stem.rpartition(".") for file, stem in stems.items() if "." in stem}
    domains: dict[Path, str | None]
    if dotted:
        check_split(split, [part for _, _, part in dotted.values()], str(path))
        domains = {file: name for file, (name, _, part) in dotted.items() if part == split}
        missing = sorted({name for name, _, _ in dotted.values()} - {*domains.values()})
        if missing:
            raise ValueError(
                f"`split`: in {path} there is no {split!r} file for {listed(missing)}. Choose a split that every "
                "domain has, or give the files as a dict {domain: file}."
            )
    elif any(stem in SPLIT_NAMES for stem in stems.values()):
        check_split(split, list(stems.values()), str(path))
        domains = {file: None for file, stem in stems.items() if stem == split}
    else:
        domains = dict(stems)
    pieces, label_names, by_split = [], _label_file_names(path), domains != stems
    for file, name in domains.items():
        piece = Piece(read_table(file), file.name, label_names, by_split)
        if name is not None and names["domain"] not in piece.columns:
            piece = piece.with_domain(names["domain"], name)
        pieces.append(piece)
    return pieces


def _image_piece(path: Path, names: ColumnNames, split: str | None) -> Piece:
    folders = [folder for folder in visible(path) if folder.is_dir()]
    if folders and (split is not None or all(folder.name in SPLIT_NAMES for folder in folders)):
        path = path / check_split(split, [folder.name for folder in folders], str(path))
        folders = [folder for folder in visible(path) if folder.is_dir()]
    classes = [(folder, child) for folder in folders for child in visible(folder) if child.is_dir()]
    rows = [(str(file), folder.name, child.name) for folder, child in classes for file in _image_files(child)]
    if not rows:
        if any(_image_files(folder) for folder in folders):
            raise ValueError(
                f"`source`: the folder {path} has images in `class/*.jpg`, without their domain. Put each domain's "
                "classes into a folder of its own: `domain/class/*.jpg`."
            )
        raise ValueError(
            f"`source`: the folder {path} is empty: it has neither data files (`<domain>.<split>.jsonl.gz`, `.csv`, "
            "`.parquet`, ...) nor images in `domain/class/*.jpg`."
        )
    images, domains, labels = map(list, zip(*rows, strict=True))
    empty = [folder.name for folder in folders if folder.name not in domains]
    if empty:
        raise ValueError(
            f"`source`: the domain {listed(empty)} in {path} is empty, it has no image in `class/*.jpg`. Put its "
            "images there, or remove the domain's folder."
        )
    columns = {"image": images, names["domain"]: domains, names["label"]: labels}
    columns.pop(None, None)
    return Piece(columns, str(path), label_names=_label_file_names(path), split_done=True, is_image_folder=True)


def _label_file_names(folder: Path) -> list[str] | None:
    """The names in a folder's `labels.json`, a list."""
    path = folder / "labels.json"
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"`source`: {path} is not valid JSON ({error}).") from error
    if not isinstance(content, list):
        raise ValueError(f"`source`: {path} must hold a list of label names.")
    return [str(name) for name in content]


def _image_files(folder: Path) -> list[Path]:
    """The image files of a folder, sorted by name because the order of a listing differs between machines."""
    return sorted(path for path in visible(folder) if path.is_file() and path.suffix.lower() in IMAGE_SUFFIXES)


def check_class_folders(columns: Columns, origin: str) -> None:
    """Raises an error if two domains each lack a class of the other: probably one class under two names."""
    classes: dict[str, set[str]] = {}
    for domain, label in zip(columns["domain"], columns["label"], strict=True):
        classes.setdefault(domain, set()).add(label)
    for first, second in combinations(classes, 2):
        here, there = sorted(classes[first] - classes[second]), sorted(classes[second] - classes[first])
        if here and there:
            raise ValueError(
                f"`source`: the classes differ between domains of {origin}: {first!r} has {listed(here)}, missing in "
                f"{second!r}, and {second!r} has {listed(there)}, missing in {first!r}. Give a class's folder the same "
                "name in all domains; or, if they are different classes, pass all of them as `labels`."
            )


def check_split(split: str | None, present: Sequence[str], where: str) -> str:
    """The split, which must be one of those that are there."""
    present = list(dict.fromkeys(present))
    if split is None:
        raise ValueError(f"`split` is needed: {where} has the splits {listed(present)}. Name one of them.")
    if split not in present:
        raise ValueError(f"`split` is {split!r}, which {where} does not have. {did_you_mean(split, present)}")
    return split


def is_hub_name(name: str) -> bool:
    """Whether it has the form of the name of a dataset on the hub: `name` or `owner/name`, and not of a file path."""
    return name.count("/") <= 1 and not name.startswith((".", "/", "~")) and not Path(name).suffix


def load_from_hub(name: str, split: str | None = None) -> Any:
    """A source for `load_domains`: a dataset with its splits, or the one that it has where none is asked for."""
    try:
        from datasets import load_dataset

        found = load_dataset(name)
        return next(iter(found.values())) if split is None and len(found) == 1 else found
    except Exception as error:  # the hub, the network, the dataset and a missing library each fail in their own way
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{name!r} is no file or folder, and no dataset of the hub could be loaded by this name ({said})."
        ) from error
