# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The quick collator against transformers' own, and what the domains add to any collator."""

import pytest
import torch
from tiny_backbones import SENTENCES, tiny_tokenizer
from transformers import DataCollatorWithPadding, default_data_collator

from hf_memaug.data.collators import DomainCollator, PaddingCollator

kinds = pytest.mark.parametrize("kind", ["bert", "roberta"])
sides = pytest.mark.parametrize("side", ["right", "left"])


@pytest.fixture
def tokenizer(kind, side):
    tokenizer = tiny_tokenizer(kind)
    tokenizer.padding_side = side
    return tokenizer


def rows_of(tokenizer, pairs: bool = False, **kwargs) -> list[dict]:
    encoded = tokenizer(SENTENCES, SENTENCES[::-1] if pairs else None, **kwargs)
    return [{name: values[row] for name, values in encoded.items()} for row in range(len(SENTENCES))]


def assert_same_batch(found: dict, expected) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), name


@kinds
@sides
class TestPaddingCollator:
    @pytest.mark.parametrize("pairs", [False, True])
    @pytest.mark.parametrize("multiple", [1, 8, 32])
    def test_it_is_the_batch_of_transformers(self, tokenizer, pairs, multiple):
        rows = [{**row, "label": number % 2} for number, row in enumerate(rows_of(tokenizer, pairs))]
        assert len({len(row["input_ids"]) for row in rows}) > 1, "nothing would be padded"
        expected = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple)(rows)
        found = PaddingCollator(tokenizer, multiple)(rows)
        assert_same_batch(found, expected)
        assert found["input_ids"].shape[1] % multiple == 0

    def test_a_missing_attention_mask_is_made(self, tokenizer):
        rows = rows_of(tokenizer, return_attention_mask=False)
        assert "attention_mask" not in rows[0]
        found = PaddingCollator(tokenizer)(rows)
        assert_same_batch(found, DataCollatorWithPadding(tokenizer)(rows))
        assert found["attention_mask"].sum().item() == sum(len(row["input_ids"]) for row in rows)
        assert "attention_mask" not in rows[0], "the rows of the dataset were changed"

    @pytest.mark.parametrize("name", ["label", "labels", "label_ids"])
    def test_labels_by_any_of_their_names(self, tokenizer, name):
        rows = [{**row, name: number % 3} for number, row in enumerate(rows_of(tokenizer))]
        found = PaddingCollator(tokenizer)(rows)
        assert_same_batch(found, DataCollatorWithPadding(tokenizer)(rows))
        assert found["labels"].tolist() == [0, 1, 2, 0, 1, 2]

    @pytest.mark.parametrize("label", [0.5, [0.0, 1.0, 1.0]], ids=["regression", "several labels"])
    def test_labels_that_are_no_class_ids(self, tokenizer, label):
        rows = [{**row, "labels": label} for row in rows_of(tokenizer)]
        assert_same_batch(PaddingCollator(tokenizer)(rows), DataCollatorWithPadding(tokenizer)(rows))


class TestDomainCollator:
    ROWS = [
        {"input_ids": [5, 6], "labels": 1, "text": "good", "domain": "films"},
        {"input_ids": [7, 8], "labels": 0, "text": "bad", "domain": "books"},
        {"input_ids": [9, 9], "labels": 1, "text": "fine", "domain": "hotels"},
    ]

    def collator(self, inner=default_data_collator) -> DomainCollator:
        return DomainCollator(inner, ["books", "films"], ["input_ids", "labels", "attention_mask"])

    def test_ids_are_places_among_the_domains_and_an_unknown_one_is_minus_one(self):
        batch = self.collator()(self.ROWS)
        assert batch["domain_ids"].tolist() == [1, 0, -1]
        assert batch["domain_ids"].dtype == torch.int64

    def test_the_inner_collator_gets_only_the_columns_that_the_model_takes(self):
        seen = []

        def inner(rows):
            seen.extend(rows)
            return default_data_collator(rows)

        batch = self.collator(inner)(self.ROWS)
        assert [set(row) for row in seen] == [{"input_ids", "labels"}] * 3
        assert set(batch) == {"input_ids", "labels", "domain_ids"}
        assert batch["input_ids"].tolist() == [[5, 6], [7, 8], [9, 9]] and batch["labels"].tolist() == [1, 0, 1]
        assert set(self.ROWS[0]) == {"input_ids", "labels", "text", "domain"}, "the rows were changed"
