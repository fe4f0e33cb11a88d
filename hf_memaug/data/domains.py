# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The one shape of data in this package: rows with an input, a label and a domain."""

from __future__ import annotations

import hashlib
import operator
import os
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from huggingface_hub.utils import tqdm

from hf_memaug.data.hashing import feed, image_bytes
from hf_memaug.messages import did_you_mean, listed, some_rows

TOKENIZED_AT_ONCE = 256
INPUT_COLUMNS = ("text", "text_pair", "tokens", "image", "graph")


class DomainDataset:
    """
    A table of rows from several domains, and a map-style dataset for torch. Methods return a new table.

    Args:
        columns (`Mapping[str, Sequence]`): the columns, all of one length. `domain` (strings) must be there; `label`,
            where it is there, holds ids from 0 to `len(label_names) - 1`. The inputs are called `text`, `text_pair`,
            `tokens`, `image`, `graph`.
        label_names (`Sequence[str]`, *optional*): the name of each label id. By default the ids themselves, up to the
            largest one present.
    """

    def __init__(self, columns: Mapping[str, Sequence], label_names: Sequence[str] | None = None):
        store = {str(name): list(values) for name, values in columns.items()}
        if "domain" not in store:
            raise ValueError(
                f"`columns` has no column 'domain'. {did_you_mean('domain', store)} Rename the one that says where a "
                "row comes from, or load the data with `load_domains(..., domain=...)`."
            )
        lengths = {name: len(values) for name, values in store.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"`columns` must all have the same length, but they have {lengths}.")
        nameless = [row for row, name in enumerate(store["domain"]) if not isinstance(name, str) or not name.strip()]
        if nameless:
            raise ValueError(
                f"`columns['domain']` must hold a non-empty string in every row, but does not in {some_rows(nameless)}."
            )
        # Integers of numpy and torch become plain ones.
        for row, label in enumerate(store.get("label", ())):
            if hasattr(label, "__index__") and not isinstance(label, bool):
                store["label"][row] = operator.index(label)
        self._columns = store
        self._num_rows = len(store["domain"])
        self._domains = tuple(dict.fromkeys(store["domain"]))
        self._label_names = _checked_label_names(store, label_names)

    @property
    def label_names(self) -> list[str]:
        return list(self._label_names)

    @property
    def num_labels(self) -> int:
        return len(self._label_names)

    @property
    def domains(self) -> list[str]:
        """Domain names in the order of their first row."""
        return list(self._domains)

    @property
    def labels(self) -> list[int] | None:
        """The label id of each row, before and after `tokenize`; `None` where rows have no single label."""
        values = self._columns.get("label", self._columns.get("labels"))
        return None if values is None or any(not isinstance(value, int) for value in values) else list(values)

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[row] for row in range(self._num_rows))

    def __getitem__(self, key):
        """`int` gives a row as a dict, a slice or a list of ints a `DomainDataset`, a column name a list."""
        if isinstance(key, str):
            return list(self._column(key))
        if isinstance(key, slice):
            return self.select(range(*key.indices(self._num_rows)))
        if hasattr(key, "__index__") and getattr(key, "shape", ()) == ():
            row = self._row_number(key)
            return {name: values[row] for name, values in self._columns.items()}
        return self.select(key)

    def __repr__(self) -> str:
        domains = ", ".join(f"{name} {count}" for name, count in Counter(self._columns["domain"]).items())
        return (
            f"DomainDataset({self._num_rows} rows, columns: {', '.join(self._columns)}, labels: "
            f"{', '.join(self._label_names) or 'none'}, domains: {domains or 'none'})"
        )

    def select(self, indices: Iterable[int]) -> DomainDataset:
        """The rows with these numbers, in this order."""
        rows = [self._row_number(index) for index in indices]
        return self._replace({name: [values[row] for row in rows] for name, values in self._columns.items()})

    def domain(self, name: str) -> DomainDataset:
        """The rows of one domain."""
        if name not in self._domains:
            raise ValueError(f"`name` is {name!r}, which is not a domain here. {did_you_mean(name, self._domains)}")
        return self.of_domains([name])

    def of_domains(self, names: Collection[str]) -> DomainDataset:
        """The rows of these domains, as far as they are here, in the order of the rows."""
        return self.select(row for row, domain in enumerate(self._columns["domain"]) if domain in names)

    def by_domain(self) -> dict[str, DomainDataset]:
        """One dataset per domain, in the order of `domains`."""
        rows: dict[str, list[int]] = {name: [] for name in self._domains}
        for row, name in enumerate(self._columns["domain"]):
            rows[name].append(row)
        return {name: self.select(indices) for name, indices in rows.items()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Rows per domain and label name; without a label column, under `"unlabelled"`."""
        labels, names = self.labels, self._label_names
        if labels is None:
            labels, names = [0] * self._num_rows, ("unlabelled",)
        found = Counter(zip(self._columns["domain"], labels, strict=True))
        return {domain: {name: found[domain, label] for label, name in enumerate(names)} for domain in self._domains}

    def with_columns(self, **columns: Sequence) -> DomainDataset:
        """A dataset with these columns added or replaced."""
        return self._replace({**self._columns, **columns})

    def without_columns(self, *names: str) -> DomainDataset:
        """A dataset without these columns."""
        for name in names:
            self._column(name)
        return self._replace({name: values for name, values in self._columns.items() if name not in names})

    @staticmethod
    def concatenate(datasets: Sequence[DomainDataset]) -> DomainDataset:
        """All rows one after another; the datasets must agree in their columns and in `label_names`."""
        datasets = list(datasets)
        if not datasets:
            raise ValueError("`datasets` is empty; give at least one DomainDataset.")
        first = datasets[0]
        for number, other in enumerate(datasets):
            for what, theirs, ours, advice in (
                ("columns", sorted(other._columns), sorted(first._columns), "Drop others with `without_columns`."),
                ("labels", other._label_names, first._label_names, "Load both with the same `labels`."),
            ):
                if theirs != ours:
                    those = f"the {what} {listed(theirs)}, but `datasets[0]` has {listed(ours)}"
                    raise ValueError(f"`datasets[{number}]` has {those}. {advice}")
        columns = {name: [value for one in datasets for value in one._columns[name]] for name in first._columns}
        return first._replace(columns)

    def shuffle(self, seed: int) -> DomainDataset:
        """The same rows in an order set by `seed`."""
        rows = list(range(self._num_rows))
        random.Random(seed).shuffle(rows)
        return self.select(rows)

    def fingerprint(self) -> str:
        """SHA-256 over the label names and the rows in their order. An image counts by its content, not its path."""
        digest = hashlib.sha256()
        feed(digest, list(self._label_names))
        names = sorted(self._columns)
        feed(digest, names)
        for row in range(self._num_rows):
            for name in names:
                value = self._columns[name][row]
                if name == "image" and isinstance(value, (str, os.PathLike)):
                    value = image_bytes(value)
                feed(digest, value)
        return digest.hexdigest()

    def tokenize(self, tokenizer, max_length: int | None = None, replies: bool = False) -> DomainDataset:
        """
        Replaces the text by what `tokenizer` makes of it; the rows are truncated but not padded, which is left to the
        collator. Gives the tokenizer's columns, `labels` where there are labels, and `domain`.

        Args:
            tokenizer (`PreTrainedTokenizerBase`): the tokenizer. A `tokens` column is passed to it as words that are
                already split.
            max_length (`int`, *optional*): longest row in tokens. By default what the tokenizer says of its model.
            replies (`bool`, *optional*, defaults to `False`): for encoder-decoders: `text_pair` is the reply to `text`,
                and its tokens are the `labels`.
        """
        text_name = next((name for name in ("text", "tokens") if name in self._columns), None)
        if text_name is None:
            raise ValueError(f"`tokenize` needs a column 'text' or 'tokens'; there are: {listed(self._columns)}.")
        if max_length is None and tokenizer.model_max_length < 10**9:
            # Tokenizers without a limit say 10**30 and warn when asked to truncate to it.
            max_length = tokenizer.model_max_length
        texts, pairs = self._columns[text_name], self._columns.get("text_pair") if text_name == "text" else None
        if replies and pairs is None:
            raise ValueError(
                f"`replies=True` needs a column 'text_pair' with the replies; there are: {listed(self._columns)}. Name "
                "it with `load_domains(..., text_pair=...)`."
            )
        limits = {"truncation": max_length is not None, "max_length": max_length, "padding": False}
        encoded: dict[str, list] = {}
        starts = range(0, self._num_rows, TOKENIZED_AT_ONCE)
        for start in tqdm(starts, desc="Tokenizing", unit="batch", disable=self._num_rows <= 2000):
            stop = start + TOKENIZED_AT_ONCE
            batch = tokenizer(
                texts[start:stop],
                pairs[start:stop] if pairs is not None and not replies else None,
                is_split_into_words=text_name == "tokens",
                **limits,
            )
            longest = max(map(len, batch["input_ids"]))
            if max_length is not None and longest > max_length:
                # Tokenizers cut nothing off where what they add is longer than the limit by itself.
                raise ValueError(
                    f"`max_length` is {max_length}, and a text has {longest} tokens: the tokens that the tokenizer or "
                    "its template adds leave no room for the text. Give more."
                )
            for name, values in batch.items():
                encoded.setdefault(name, []).extend(values)
            if replies and pairs is not None:
                said = tokenizer(text_target=pairs[start:stop], **limits)["input_ids"]
                encoded.setdefault("labels", []).extend(said)
        if "label" in self._columns and not replies:
            encoded["labels"] = self._columns["label"]
        return self._replace({**encoded, "domain": self._columns["domain"]})

    def _column(self, name: str) -> list:
        if name not in self._columns:
            raise KeyError(f"there is no column {name!r}. {did_you_mean(name, self._columns)}")
        return self._columns[name]

    def _row_number(self, index: Any) -> int:
        # A mask of True and False would otherwise pass as rows 1 and 0.
        if isinstance(index, bool) or type(index).__name__ in ("bool", "bool_"):
            raise TypeError("`indices` must be row numbers, not a mask of booleans.")
        row = operator.index(index)
        if not -self._num_rows <= row < self._num_rows:
            raise IndexError(f"row {row} is not in a dataset of {self._num_rows} rows.")
        return row % self._num_rows

    def _replace(self, columns: Mapping[str, Sequence]) -> DomainDataset:
        return DomainDataset(columns, self._label_names)


def _checked_label_names(columns: Mapping[str, list], label_names: Sequence[str] | None) -> tuple[str, ...]:
    labels = columns.get("label", ())
    wrong = [row for row, label in enumerate(labels) if type(label) is not int]
    if wrong:
        raise ValueError(
            f"`columns['label']` must hold int ids, but {some_rows(wrong)} do not (the first is "
            f"{labels[wrong[0]]!r}). `load_domains` turns names into ids."
        )
    if label_names is None:
        label_names = [str(label) for label in range(max(labels, default=-1) + 1)]
    names = tuple(str(name) for name in label_names)
    if len(set(names)) != len(names):
        raise ValueError(f"`label_names` names a label twice: {listed(names)}.")
    unknown = [row for row, label in enumerate(labels) if not 0 <= label < len(names)]
    if unknown:
        raise ValueError(
            f"`columns['label']` must lie between 0 and {len(names) - 1}, the ids that `label_names` names, but "
            f"{some_rows(unknown)} do not (the first is {labels[unknown[0]]})."
        )
    return names
