# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Batches that know which domain each row comes from."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch

from hf_memaug.data.spans import IGNORED


class PaddingCollator:
    """
    Pads tokenized rows to the longest of a batch, as `DataCollatorWithPadding(tokenizer)` does, but faster. `labels`
    that are lists (one per token) are padded with -100.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): says what to pad with, and on which side.
        multiple_of (`int`): lengths are rounded up to a multiple of it, so that few different shapes occur.
    """

    def __init__(self, tokenizer, multiple_of: int = 1):
        if tokenizer.pad_token_id is None:
            raise ValueError("`tokenizer` has no padding token. Set one, such as `tokenizer.pad_token = ...`.")
        self.padding = {
            "input_ids": tokenizer.pad_token_id,
            "token_type_ids": tokenizer.pad_token_type_id,
            "attention_mask": 0,
            "special_tokens_mask": 1,
            "labels": IGNORED,
        }
        self.left = tokenizer.padding_side == "left"
        self.multiple_of = multiple_of

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        batch = {}
        if "attention_mask" not in rows[0]:
            rows = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in rows]
        for name in rows[0]:
            if name not in self.padding or (name == "labels" and not _has_ids(rows[0][name])):
                batch["labels" if name in ("label", "label_ids") else name] = torch.tensor([row[name] for row in rows])
                continue
            longest = max(len(row[name]) for row in rows)
            length = -(-longest // self.multiple_of) * self.multiple_of
            array = np.full((len(rows), length), self.padding[name], dtype=np.int64)
            for number, row in enumerate(rows):
                count = len(row[name])
                array[number, length - count if self.left else 0 : length if self.left else count] = row[name]
            batch[name] = torch.from_numpy(array)
        return batch


def _has_ids(labels) -> bool:
    """Whether the labels are a list of ids, not a single label or a list of numbers."""
    return isinstance(labels, (list, tuple)) and bool(labels) and type(labels[0]) is int


class DomainCollator:
    """
    Wraps any collator: hands it only the columns that the model takes, and adds `domain_ids`, the place of each row's
    domain in `domains` (-1 for a domain that is not there, such as the one left out).

    Args:
        domains (`Sequence[str]`): the domains, in the order of their ids.
        columns (`Collection[str]`, *optional*): the columns that `collator` gets. By default all.
    """

    def __init__(self, collator: Callable, domains: Sequence[str], columns: Collection[str] | None = None):
        self.collator = collator
        self.ids: dict[Any, int] = {name: index for index, name in enumerate(domains)}
        self.columns = None if columns is None else frozenset(columns)

    def __call__(self, rows: list[dict]) -> dict:
        columns = self.columns
        kept = rows if columns is None else [{name: row[name] for name in row if name in columns} for row in rows]
        batch = self.collator(kept)
        # Rows without a domain can still be predicted.
        batch["domain_ids"] = torch.tensor([self.ids.get(row.get("domain"), -1) for row in rows])
        return batch
