# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds the tables in a source of any kind: one piece per file, dataset or folder of images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.labels import is_missing
from hf_memaug.data.messages import did_you_mean, listed, some_rows
from hf_memaug.data.readers import (
    Columns,
    class_names,
    columns_of,
    columns_of_dataset,
    columns_of_frame,
    image_files,
    label_file_names,
    read_table,
    table_suffix,
    visible,
)

SPLIT_NAMES = ("train", "training", "dev", "val", "valid", "validation", "eval", "test", "testing")


@dataclass(frozen=True)
class Piece:
    """Columns from one place, and what that place says of them."""

    columns: Columns
    origin: str
    # `key_domain` comes from the caller and overrides a domain column; `file_domain` only stands in for one.
    key_domain: str | None = None
    file_domain: str | None = None
    label_names: list[str] | None = None
    domain_names: list[str] | None = None
    split_done: bool = False
    # Whether the labels are the names of folders, which are made by hand in each domain.
    labels_are_folders: bool = False


@dataclass(frozen=True)
class ColumnNames:
    """The columns that the caller of `load_domains` named."""

    text: str | None
    text_pair: str | None
    label: str | None
    # None: all rows are of one.
    domain: str | None
    # What the caller calls `text`, for errors.
    option: str = "text"


def find_pieces(source: Any, names: ColumnNames, split: str | None) -> list[Piece]:
    library = type(source).__module__.partition(".")[0]
    if isinstance(source, (str, os.PathLike)):
        return _path_pieces(Path(source), names, split)
    if isinstance(source, DomainDataset):
        columns = {name: source[name] for name in source.column_names}
        return [Piece(columns, "the DomainDataset", label_names=source.label_names)]
    if library == "datasets" and isinstance(source, Mapping):
        check_split(split, list(source), "the DatasetDict")
        return [replace(_dataset_piece(source[split], names), split_done=True)]
    if library == "datasets" and hasattr(source, "with_format") and hasattr(source, "__len__"):
        return [_dataset_piece(source, names)]
    if isinstance(source, Mapping):
        if not source:
            raise ValueError("`source` is an empty dict; it must map each domain's name to its data.")
        pieces = []
        for name, part in source.items():
            if is_missing(name):
                raise ValueError(
                    f"`source` has the empty domain name {name!r} among its keys. Give that domain a name."
                )
            inner = find_pieces(part, names, split)
            pieces += [replace(p, key_domain=str(name), origin=f"{p.origin} of domain {str(name)!r}") for p in inner]
        return pieces
    if library == "pandas" and hasattr(source, "columns"):
        return [Piece(columns_of_frame(source), "the DataFrame")]
    if isinstance(source, Sequence) and not isinstance(source, bytes):
        odd = [row for row, value in enumerate(source) if not isinstance(value, Mapping)]
        if odd:
            kind = type(source[odd[0]]).__name__
            raise ValueError(f"`source` is a list whose entries must be dicts, but {some_rows(odd)} are not ({kind}).")
        return [Piece(columns_of(source), "the list")]
    raise TypeError(
        f"`source` is a {type(source).__name__}; give a path, a datasets.Dataset or DatasetDict, a DataFrame, a list "
        "of dicts, or a dict from domain names to one of these."
    )


def _dataset_piece(dataset: Any, names: ColumnNames) -> Piece:
    return Piece(
        columns_of_dataset(dataset),
        "the Dataset",
        label_names=class_names(dataset, names.label) if names.label else None,
        domain_names=class_names(dataset, names.domain),
    )


def _path_pieces(path: Path, names: ColumnNames, split: str | None) -> list[Piece]:
    if not path.exists():
        siblings = [other.name for other in visible(path.parent)] if path.parent.is_dir() else []
        there = (
            did_you_mean(path.name, siblings) if siblings else f"Its folder, {str(path.parent)!r}, has no data either."
        )
        raise FileNotFoundError(f"`source`: there is no {str(path)!r}. {there}")
    if path.is_file():
        return [Piece(read_table(path), path.name, label_names=label_file_names(path.parent))]
    # Only rows one to a line or to a record: a .json in a data folder is more often a note about it.
    files = [file for file in visible(path) if file.is_file() and table_suffix(file) not in (None, ".json", ".json.gz")]
    if not files:
        return _image_pieces(path, names, split)
    stems = {file: file.name[: -len(table_suffix(file))] for file in files}
    label_names = label_file_names(path)
    dotted = {file: stem.rpartition(".") for file, stem in stems.items() if "." in stem}
    if dotted:
        check_split(split, [part for _, _, part in dotted.values()], str(path))
        chosen = {file: name for file, (name, _, part) in dotted.items() if part == split}
        lacking = sorted({name for name, _, _ in dotted.values()} - set(chosen.values()))
        if lacking:
            raise ValueError(
                f"`split`: in {path} there is no {split!r} file for {listed(lacking)}. Choose a split that every "
                "domain has, or give the files wanted as a dict {domain: file}."
            )
    elif any(stem in SPLIT_NAMES for stem in stems.values()):
        check_split(split, list(stems.values()), str(path))
        chosen = {file: None for file, stem in stems.items() if stem == split}
    else:
        return [
            Piece(read_table(file), file.name, file_domain=stem, label_names=label_names)
            for file, stem in stems.items()
        ]
    return [
        Piece(read_table(file), file.name, file_domain=name, label_names=label_names, split_done=True)
        for file, name in chosen.items()
    ]


def _image_pieces(path: Path, names: ColumnNames, split: str | None) -> list[Piece]:
    folders = [folder for folder in visible(path) if folder.is_dir()]
    if folders and (split is not None or all(folder.name in SPLIT_NAMES for folder in folders)):
        check_split(split, [folder.name for folder in folders], str(path))
        path = path / split
        folders = [folder for folder in visible(path) if folder.is_dir()]
    images, classes, domains = [], [], []
    without = []
    for folder in folders:
        before = len(images)
        for class_folder in (child for child in visible(folder) if child.is_dir()):
            found = image_files(class_folder)
            images += [str(file) for file in found]
            classes += [class_folder.name] * len(found)
            domains += [folder.name] * len(found)
        if len(images) == before:
            without.append(folder.name)
    if not images and any(image_files(folder) for folder in folders):
        raise ValueError(
            f"`source`: the folder {path} has images in `class/*.jpg`, and it is not said of which domain they are. "
            "Put each domain's classes into a folder of its own: `domain/class/*.jpg`."
        )
    if not images:
        raise ValueError(
            f"`source`: the folder {path} is empty: it has neither data files (`<domain>.<split>.jsonl.gz`, `.csv`, "
            "`.parquet`, ...) nor images in `domain/class/*.jpg`."
        )
    if without:
        raise ValueError(
            f"`source`: the domain {listed(without)} in {path} is empty, it has no image in `class/*.jpg`. Put its "
            "images there, a folder for each class, or take the domain's folder away."
        )
    columns = {"image": images, names.domain: domains}
    if names.label is not None:
        columns[names.label] = classes
    label_names = label_file_names(path)
    return [
        Piece(columns, str(path), label_names=label_names, split_done=True, labels_are_folders=names.label is not None)
    ]


def check_class_folders(piece: Piece) -> None:
    """Refuses folders of which two domains each lack a class of the other: one class, most likely, under two names."""
    if not piece.labels_are_folders or piece.label_names is not None:
        return
    classes: dict[str, set[str]] = {}
    for domain, label in zip(piece.columns["domain"], piece.columns["label"], strict=True):
        classes.setdefault(domain, set()).add(label)
    for first, second in combinations(classes, 2):
        here, there = sorted(classes[first] - classes[second]), sorted(classes[second] - classes[first])
        if here and there:
            raise ValueError(
                f"`source`: the classes differ between domains of {piece.origin}: {first!r} has {listed(here)}, which "
                f"{second!r} has not, and {second!r} has {listed(there)}, which {first!r} has not. Give a class's "
                "folder one name in all domains; or, if they are different classes, pass all of them as `labels`."
            )


def check_split(split: str | None, present: Sequence[str], where: str) -> None:
    present = list(dict.fromkeys(present))
    if split is None:
        raise ValueError(f"`split` is needed: {where} has the splits {listed(present)}. Name one of them.")
    if split not in present:
        raise ValueError(f"`split` is {split!r}, which {where} does not have. {did_you_mean(split, present)}")
