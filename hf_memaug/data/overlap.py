# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Finds rows that are in two datasets at once."""

import hashlib
import unicodedata

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.hashing import feed, image_bytes
from hf_memaug.messages import listed


class _Punctuation(dict):
    """A `str.translate` table that learns each character when it first sees it."""

    def __missing__(self, code: int) -> int | None:
        # Marks and symbols stay: vowel signs, emoji and "+" mean something. Tokenized corpora quote with backticks.
        character = chr(code)
        self[code] = None if unicodedata.category(character)[0] in "PZC" or character == "`" else code
        return self[code]


_PUNCTUATION = _Punctuation()


def normalize_text(text: str) -> str:
    """
    What two texts must share to count as one: NFKC, case folded, and without white space and punctuation, because
    copies of a corpus differ in these most of all ("it's" and "it 's"). A text of one word keeps its punctuation.
    """
    # Folding can undo the normal form (and the other way round), so it is applied on both sides of it.
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    words = text.split()
    if len(words) > 1:
        # Without a space it may be a formula, a SMILES or a link, where punctuation is all the difference.
        letters = "".join(words).translate(_PUNCTUATION)
        if letters:
            return letters
    return " ".join(words)


def row_hashes(dataset: DomainDataset) -> list[str]:
    """
    SHA-256 of each row's input: of `text`, `text_pair` and `image` where they are there, else of `tokens`, `graph` or
    `input_ids`. Label and domain do not count: a text under another label is the same text.
    """
    together, alone = ("text", "text_pair", "image"), ("tokens", "graph", "input_ids")
    present = [name for name in together if name in dataset.column_names]
    present = present or [name for name in alone if name in dataset.column_names][:1]
    if not present:
        raise ValueError(
            "`dataset` has no column 'text', 'tokens', 'image', 'graph' or 'input_ids' to compare rows by; it has: "
            f"{listed(dataset.column_names)}."
        )
    hashes = []
    for values in zip(*(dataset[name] for name in present), strict=True):
        digest = hashlib.sha256()
        for name, value in zip(present, values, strict=True):
            if name == "image":
                value = image_bytes(value)
            elif name == "tokens":
                value = normalize_text(" ".join(value))
            elif isinstance(value, str):
                value = normalize_text(value)
            feed(digest, value)
        hashes.append(digest.hexdigest())
    return hashes


def find_overlap(a: DomainDataset, b: DomainDataset) -> list[tuple[int, int]]:
    """For each row of `a` that is also in `b`: its number, and that of the first row of `b` it equals."""
    first_row: dict[str, int] = {}
    for row, row_hash in enumerate(row_hashes(b)):
        first_row.setdefault(row_hash, row)
    return [(row, first_row[row_hash]) for row, row_hash in enumerate(row_hashes(a)) if row_hash in first_row]


def check_overlap(
    train: DomainDataset, test: DomainDataset, names: tuple[str, str] = ("train", "test"), hint: str | None = None
) -> None:
    """
    Raises an error if two datasets share rows.

    Args:
        train (`DomainDataset`): the rows to train or select on.
        test (`DomainDataset`): the rows to test on.
        names (`tuple[str, str]`, *optional*, defaults to `("train", "test")`): what the error calls the two.
        hint (`str`, *optional*): the last sentence of the error. By default it says how to remove the rows.
    """
    pairs = find_overlap(train, test)
    if not pairs:
        return
    shared = len({row for _, row in pairs})
    examples = " and ".join(f"row {a} of `{names[0]}` is row {b} of `{names[1]}`" for a, b in pairs[:2])
    raise ValueError(
        f"`{names[0]}` and `{names[1]}` overlap: {len(pairs)} of {len(train)} rows of `{names[0]}` are also in "
        f"`{names[1]}` ({shared} of its {len(test)}); for example {examples}. "
        + (hint or f"Remove them from `{names[0]}` with `find_overlap` and `select`.")
    )
