# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`load_domains`: any source of rows to a checked `DomainDataset`."""

import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from hf_memaug.data.domains import INPUT_COLUMNS, DomainDataset
from hf_memaug.data.labels import is_missing, resolve_labels
from hf_memaug.data.readers import Columns
from hf_memaug.data.sources import ColumnNames, Piece, check_class_folders, check_split, find_pieces
from hf_memaug.messages import did_you_mean, listed, some_rows

logger = logging.getLogger(__name__)


def load_domains(
    source: Any,
    *,
    text: str | None = "text",
    text_pair: str | None = None,
    label: str | None = "label",
    domain: str | None = "domain",
    split: str | None = None,
    labels: Sequence[str] | None = None,
    on_empty: str = "raise",
    values: str | None = None,
) -> DomainDataset:
    """
    Loads rows from several domains and checks them before training.

    Args:
        source (`Any`): one of: a file (`.jsonl`, `.json`, `.csv`, `.tsv`, each also with `.gz`, or `.parquet`); a
            folder of `<domain>.<split>.*`, `<split>.*` or `<domain>.*` files, where `labels.json` may name the label
            ids; a folder of images `domain/class/*.jpg`; a `datasets.Dataset` or `DatasetDict`; a
            list of dicts; a `DomainDataset`; or a dict from a domain's name to any of these.
        text (`str`, *optional*, defaults to `"text"`): the column with the text. Not needed where there is a column
            `tokens`, `image` or `graph`. `None`: no text.
        text_pair (`str`, *optional*): the column with the second text. By default `text_pair` where there is one.
        label (`str`, *optional*, defaults to `"label"`): the column with the class, as a name or an id. `None`: the
            rows are taken as unlabelled.
        domain (`str`, *optional*, defaults to `"domain"`): the column that says where a row comes from. `None`: all
            rows are of one domain, which is called "all".
        split (`str`, *optional*): the split to read from a folder or a `DatasetDict`; of another source, the rows with
            this value in `split`.
        labels (`Sequence[str]`, *optional*): the label names in the order of their ids. By default those that the
            source brings; else the ids found, or the names found in sorted order.
        on_empty (`str`, *optional*, defaults to `"raise"`): what to do with rows whose input is empty: `"raise"` or
            `"drop"`.
        values (`str`, *optional*): a column to keep as it is under the name `values`, such as one with numbers.

    The columns named by `text`, `text_pair`, `label` and `domain` get these names; other columns are kept as they are.
    """
    if on_empty not in ("raise", "drop"):
        raise ValueError(f"`on_empty` is {on_empty!r}; it must be 'raise' or 'drop'.")
    if domain is None:
        source, domain = source if type(source) is dict else {"all": source}, "domain"
    names = {"text": text, "text_pair": text_pair, "label": label, "domain": domain, "values": values}
    pieces = [_finish(piece, names, split, on_empty) for piece in find_pieces(source, names, split)]
    columns = _joined(pieces)
    if label is None:
        return DomainDataset(columns, labels)
    for piece in pieces:
        if piece.is_image_folder and labels is None and piece.label_names is None:
            check_class_folders(piece.columns, piece.origin)
    parts = [(piece.origin, piece.columns["label"], piece.label_names) for piece in pieces]
    ids, label_names = resolve_labels(parts, labels)
    columns["label"] = [label_id for part in ids for label_id in part]
    return DomainDataset(columns, label_names)


def _finish(piece: Piece, names: ColumnNames, split: str | None, on_empty: str) -> Piece:
    """Picks the split, renames the columns, and checks every row."""
    columns, origin = dict(piece.columns), piece.origin
    if not columns or not len(next(iter(columns.values()))):
        raise ValueError(f"`source`: {origin} is empty, it has no row. Remove it or fill it.")
    if split is not None and not piece.split_done:
        if "split" not in columns:
            raise ValueError(f"`split` is {split!r}, but {origin} has no column 'split'. Remove the argument `split`.")
        check_split(split, columns["split"], origin)
        columns = _kept(columns, [value == split for value in columns["split"]])
    columns = _renamed(columns, origin, names)
    for name in ("text", "text_pair"):
        _refuse_rows(
            [not isinstance(value, str) and not is_missing(value) for value in columns.get(name, ())],
            f"`{name}` must hold strings, but",
            f"of {origin} do not. Write text.",
        )
        _refuse_rows(
            [isinstance(one, str) and one.encode(errors="ignore").decode() != one for one in columns.get(name, ())],
            f"`{name}` has half a character (a lone surrogate) in",
            f"of {origin}. Write whole characters.",
        )
    if "image" in columns:
        # As `datasets` stores an image, in memory and in Parquet.
        images = columns["image"]
        columns["image"] = [one.get("bytes") or one.get("path") if isinstance(one, dict) else one for one in images]
    if names["label"] is not None:
        labels = columns["label"]
        advice = f"of {origin}. Fill it in, delete those rows, or pass `label=None`."
        _refuse_rows(map(is_missing, labels), "`label` is missing in", advice)
        _refuse_rows(
            [isinstance(value, (list, dict)) for value in labels],
            "`label` must hold one class per row, but",
            f"of {origin} hold several. Pass `label=None` for tags per token; the column is then kept under its own "
            "name if that is not 'label'.",
        )
        columns["label"] = [value.strip() if isinstance(value, str) else value for value in labels]
    advice = f"of {origin}. Fill it in or delete them."
    _refuse_rows(map(is_missing, columns["domain"]), "`domain` is missing or an empty name in", advice)
    columns["domain"] = [sys.intern(str(value).strip()) for value in columns["domain"]]
    return replace(piece, columns=_without_empty(columns, names, origin, on_empty))


def _refuse_rows(wrong: Iterable[bool], before: str, after: str) -> None:
    """Raises an error that names the wrong rows between two parts of a sentence."""
    rows = [row for row, is_wrong in enumerate(wrong) if is_wrong]
    if rows:
        raise ValueError(f"{before} {some_rows(rows)} {after}")


def _renamed(columns: Columns, origin: str, names: ColumnNames) -> Columns:
    has_other_input = names["text"] == "text" and any(name in columns for name in ("tokens", "image", "graph"))
    for option, what in (
        ("domain", "the domain, or give a dict {domain: source}, or `domain=None`."),
        ("label", "the class, or pass `label=None` for unlabelled rows."),
        ("text", "the text, or pass `text=None` for rows without text."),
        ("text_pair", "the second text."),
        ("values", "the labels or the number."),
    ):
        name = names[option]
        if name is not None and name not in columns and not (option == "text" and has_other_input):
            raise ValueError(
                f"`{option}` is {name!r}, but {origin} has no such column. {did_you_mean(name, columns)} Name the "
                f"column with {what}"
            )
    pair = names["text_pair"]
    if pair is None and not all(is_missing(value) for value in columns.get("text_pair", ())):
        pair = "text_pair"
    wanted = {**names, "text_pair": pair}
    chosen = {new: columns[old] for new, old in wanted.items() if old is not None and old in columns}
    others = {name: values for name, values in columns.items() if name not in wanted and name not in wanted.values()}
    named = {**chosen, **others}
    order = [name for name in (*INPUT_COLUMNS, "label", "domain") if name in named]
    return {name: named[name] for name in dict.fromkeys([*order, *named])}


def _without_empty(columns: Columns, names: ColumnNames, origin: str, on_empty: str) -> Columns:
    keep = [True] * len(columns["domain"])
    for name in INPUT_COLUMNS:
        values = columns.get(name, ())
        empty = [is_missing(value) or (isinstance(value, (list, dict)) and not value) for value in values]
        if on_empty == "raise":
            column = names.get(name) or name
            advice = f'of {origin}. Fill it in, or pass `on_empty="drop"` to leave such rows out.'
            _refuse_rows(empty, f"`{column}` is empty in", advice)
        keep = [kept and not is_empty for kept, is_empty in zip(keep, empty, strict=True)] if empty else keep
    if all(keep):
        return columns
    kept = _kept(columns, keep)
    lost = sorted(set(columns["domain"]) - set(kept["domain"]))
    if lost:
        raise ValueError(
            f"`on_empty`: every row of the domain {listed(lost)} in {origin} is empty. Leave that domain out."
        )
    logger.warning("%s: %d rows with an empty input dropped.", origin, keep.count(False))
    return kept


def _kept(columns: Columns, keep: list[bool]) -> Columns:
    return {name: list(compress(values, keep)) for name, values in columns.items()}


def _joined(pieces: Sequence[Piece]) -> Columns:
    first, inputs = pieces[0], [{*piece.columns} & {*INPUT_COLUMNS} for piece in pieces]
    for piece, found in zip(pieces, inputs, strict=True):
        if found != inputs[0]:
            raise ValueError(
                f"`source`: {first.origin} has the inputs {listed(sorted(inputs[0]))}, but {piece.origin} has "
                f"{listed(sorted(found))}. All domains need the same ones."
            )
    joined: Columns = {name: [] for piece in pieces for name in piece.columns}
    for piece in pieces:
        missing = [None] * len(piece.columns["domain"])
        for name, values in joined.items():
            values.extend(piece.columns.get(name, missing))
    return joined
