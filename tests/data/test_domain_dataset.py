# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import torch

from hf_memaug.data import DomainDataset


@pytest.fixture
def dataset():
    return DomainDataset(
        {
            "text": ["a b", "c", "d e f", "g", "h i"],
            "label": [0, 1, 1, 0, 1],
            "domain": ["books", "films", "books", "hotels", "films"],
        },
        ["negative", "positive"],
    )


@pytest.fixture
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghi"]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", model_input_names=names
    )


class TestAccess:
    def test_rows_columns_and_names(self, dataset):
        assert len(dataset) == 5
        assert dataset.domains == ["books", "films", "hotels"]
        assert dataset.column_names == ["text", "label", "domain"]
        assert dataset.label_names == ["negative", "positive"] and dataset.num_labels == 2
        assert dataset[2] == {"text": "d e f", "label": 1, "domain": "books"}
        assert dataset[-1] == dataset[4] == dataset[np.int64(4)] == dataset[torch.tensor(4)]
        assert [row["text"] for row in dataset] == dataset["text"]

    def test_slices_and_lists_give_datasets(self, dataset):
        assert dataset[1:4]["text"] == ["c", "d e f", "g"]
        assert dataset[::-1]["label"] == [1, 0, 1, 1, 0]
        assert dataset[[3, 0]]["text"] == ["g", "a b"]
        assert dataset[np.array([3, 0])]["text"] == ["g", "a b"]
        assert dataset[[]]["text"] == [] and dataset[[]].label_names == dataset.label_names

    def test_rows_that_are_not_there(self, dataset):
        with pytest.raises(IndexError, match="row 5 is not in a dataset of 5 rows"):
            dataset[5]
        with pytest.raises(IndexError):
            dataset[-6]
        with pytest.raises(TypeError, match="not a mask"):
            dataset.select([True, False, True, False, False])
        with pytest.raises(TypeError, match="not a mask"):
            dataset.select(np.array([True, False]))
        with pytest.raises(KeyError, match="Did you mean 'text'"):
            dataset["texts"]

    def test_torch_data_loader(self, dataset):
        loader = torch.utils.data.DataLoader(dataset, batch_size=2, shuffle=True)
        assert sorted(text for batch in loader for text in batch["text"]) == sorted(dataset["text"])
        first, second = torch.utils.data.random_split(dataset, [3, 2])
        assert len(first) == 3 and set(second[0]) == {"text", "label", "domain"}

    def test_domain_and_by_domain(self, dataset):
        assert dataset.domain("films")["text"] == ["c", "h i"]
        parts = dataset.by_domain()
        assert list(parts) == dataset.domains and [len(part) for part in parts.values()] == [2, 2, 1]
        with pytest.raises(ValueError, match="`name` is 'flims'.*Did you mean 'films'"):
            dataset.domain("flims")

    def test_counts_hold_zeros_and_add_up(self, dataset):
        assert dataset.counts() == {
            "books": {"negative": 1, "positive": 1},
            "films": {"negative": 0, "positive": 2},
            "hotels": {"negative": 1, "positive": 0},
        }
        assert dataset.without_columns("label").counts()["films"] == {"unlabelled": 2}


class TestImmutability:
    def test_neither_attributes_nor_columns_change(self, dataset):
        before = dataset.fingerprint()
        dataset["label"][0] = 1
        dataset.label_names.append("other")
        dataset.domains.clear()
        dataset[0]["text"] = "changed"
        assert dataset.fingerprint() == before and dataset.domains == ["books", "films", "hotels"]

    def test_with_and_without_columns_leave_the_first_alone(self, dataset):
        more = dataset.with_columns(weight=[1, 2, 3, 4, 5], text=list("vwxyz"))
        assert more["weight"] == [1, 2, 3, 4, 5] and more[0]["text"] == "v"
        assert "weight" not in dataset.column_names and dataset[0]["text"] == "a b"
        assert more.without_columns("weight", "text").column_names == ["label", "domain"]
        with pytest.raises(KeyError, match="wieght.*Did you mean 'weight'"):
            more.without_columns("wieght")
        with pytest.raises(ValueError, match="same length"):
            dataset.with_columns(weight=[1])


class TestConstruction:
    def test_domain_column_is_needed(self):
        with pytest.raises(ValueError, match="no column 'domain'. Did you mean 'Domain'"):
            DomainDataset({"text": ["a"], "Domain": ["x"]})

    @pytest.mark.parametrize("name", ["", "  ", None, 3])
    def test_domain_names_are_strings_and_not_empty(self, name):
        with pytest.raises(ValueError, match=r"non-empty string in every row, but does not in 1 row \(1\)"):
            DomainDataset({"text": ["a", "b"], "domain": ["x", name]})

    def test_labels_are_ids_within_the_names(self):
        with pytest.raises(ValueError, match=r"must hold int ids, but 1 row \(0\).*'good'"):
            DomainDataset({"label": ["good"], "domain": ["x"]})
        with pytest.raises(ValueError, match="between 0 and 1.*the first is 2"):
            DomainDataset({"label": [0, 2], "domain": ["x", "x"]}, ["a", "b"])
        with pytest.raises(ValueError, match="names a label twice"):
            DomainDataset({"label": [0], "domain": ["x"]}, ["a", "a"])
        assert DomainDataset({"label": [np.int64(2)], "domain": ["x"]}).label_names == ["0", "1", "2"]


class TestMakingNewOnes:
    def test_concatenate_undoes_by_domain(self, dataset):
        joined = DomainDataset.concatenate(list(dataset.by_domain().values()))
        assert joined["text"] == ["a b", "d e f", "c", "h i", "g"] and joined.label_names == dataset.label_names

    def test_concatenate_refuses_what_does_not_fit(self, dataset):
        with pytest.raises(ValueError, match=r"`datasets\[1\]` has the columns"):
            DomainDataset.concatenate([dataset, dataset.without_columns("label")])
        other = DomainDataset({name: dataset[name] for name in dataset.column_names}, ["positive", "negative"])
        with pytest.raises(ValueError, match=r"`datasets\[1\]` has the labels"):
            DomainDataset.concatenate([dataset, other])
        with pytest.raises(ValueError, match="`datasets` is empty"):
            DomainDataset.concatenate([])

    def test_shuffle_is_seeded_and_keeps_rows_whole(self):
        dataset = DomainDataset({"text": [str(i) for i in range(50)], "label": list(range(50)), "domain": ["x"] * 50})
        shuffled = dataset.shuffle(1)
        assert shuffled["label"] == dataset.shuffle(1)["label"] != dataset.shuffle(2)["label"]
        assert sorted(shuffled["label"]) == list(range(50))
        assert all(row["text"] == str(row["label"]) for row in shuffled)

    def test_fingerprint_sees_order_values_and_names(self, dataset):
        same = DomainDataset({name: dataset[name] for name in reversed(dataset.column_names)}, dataset.label_names)
        assert same.fingerprint() == dataset.fingerprint() and len(dataset.fingerprint()) == 64
        others = [
            dataset[::-1],
            dataset[:4],
            dataset.without_columns("label"),
            dataset.with_columns(text=["a b", "c", "d e f", "g", "h  i"]),
            # The same letters with the border between two cells moved.
            dataset.with_columns(text=["a bc", "", "d e f", "g", "h i"]),
            DomainDataset({name: dataset[name] for name in dataset.column_names}, ["no", "yes"]),
        ]
        assert len({other.fingerprint() for other in [dataset, *others]}) == len(others) + 1

    def test_fingerprint_of_an_image_is_its_content(self, tmp_path):
        prints = []
        for folder in ("here", "there"):
            path = tmp_path / folder / "a.png"
            path.parent.mkdir()
            path.write_bytes(b"picture")
            prints.append(DomainDataset({"image": [str(path)], "domain": ["x"]}).fingerprint())
        assert prints[0] == prints[1]


class TestTokenize:
    def test_columns_and_special_tokens(self, dataset, tokenizer):
        tokenized = dataset.tokenize(tokenizer)
        assert "text" not in tokenized.column_names and "label" not in tokenized.column_names
        assert tokenized[0]["input_ids"] == [2, 4, 5, 3] and tokenized[1]["input_ids"] == [2, 6, 3]
        assert [len(mask) for mask in tokenized["attention_mask"]] == [len(ids) for ids in tokenized["input_ids"]]
        assert tokenized["labels"] == tokenized.labels == dataset["label"]
        assert tokenized["domain"] == dataset["domain"] and tokenized.counts() == dataset.counts()

    def test_truncation(self, dataset, tokenizer):
        assert max(len(ids) for ids in dataset.tokenize(tokenizer)["input_ids"]) == 5
        assert max(len(ids) for ids in dataset.tokenize(tokenizer, max_length=4)["input_ids"]) == 4
        tokenizer.model_max_length = 3
        assert {len(ids) for ids in dataset.tokenize(tokenizer)["input_ids"]} == {3}

    def test_pairs_and_words(self, dataset, tokenizer):
        pairs = dataset.with_columns(text_pair=list("vwabc")).tokenize(tokenizer)
        assert pairs[2]["input_ids"] == [2, 7, 8, 9, 3, 4, 3] and pairs[2]["token_type_ids"] == [0, 0, 0, 0, 0, 1, 1]
        words = DomainDataset({"tokens": [["a", "b"], ["c"]], "domain": ["x", "y"]}).tokenize(tokenizer)
        assert words["input_ids"] == [[2, 4, 5, 3], [2, 6, 3]] and "labels" not in words.column_names

    def test_needs_text(self, tokenizer):
        with pytest.raises(ValueError, match="needs a column 'text' or 'tokens'"):
            DomainDataset({"image": ["a.jpg"], "domain": ["x"]}).tokenize(tokenizer)
