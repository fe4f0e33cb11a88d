# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Rows that `DomainTrainer` cannot use raise an error that says the fix."""

import warnings

import datasets
import pytest
import torch
from tiny_backbones import tiny_tokenizer
from transformers import AutoModel, DataCollatorWithPadding

from hf_memaug.data import load_domains
from training.domain_runs import domain_trainer, rows, tiny_model


def arrow(**changed) -> datasets.Dataset:
    plain = rows()
    columns = {name: list(plain[name]) for name in plain.column_names}
    return datasets.Dataset.from_dict({**columns, **changed})


class TestDomains:
    def test_a_stream(self, tmp_path):
        stream = arrow().to_iterable_dataset()
        with pytest.raises(ValueError, match="`train_dataset` is a stream. Use rows that have a length"):
            domain_trainer("kv", tmp_path, train=stream)

    def test_a_row_without_one(self, tmp_path):
        with pytest.raises(ValueError, match="`train_dataset` has the domain None in row 3"):
            domain_trainer("kv", tmp_path, train=arrow(domain=["a"] * 3 + [None] + ["b"] * 20))


class TestLabels:
    @pytest.mark.parametrize(("label", "said"), [("good", "'good'"), (True, "True")])
    def test_what_is_no_number(self, label, said, tmp_path):
        with pytest.raises(ValueError, match=f"the label {said} in row 0, and a model takes numbers.*class_encode"):
            domain_trainer("kv", tmp_path, train=arrow(labels=[label] * 24)).train()

    def test_a_row_without_one(self, tmp_path):
        with pytest.raises(ValueError, match="`train_dataset` has no label in row 5. Leave such rows out"):
            domain_trainer("kv", tmp_path, train=arrow(labels=[1] * 5 + [None] + [2] * 18)).train()

    def test_a_row_that_has_no_loss(self, tmp_path):
        given = {"train": arrow(labels=[1] * 5 + [-100] + [2] * 18)}
        with pytest.raises(ValueError, match=r'no label \(-100\) in row 5, and `algorithm="vrex"` looks at'):
            domain_trainer("kv", tmp_path, algorithm="vrex", **given).train()
        # Those that look at the loss of the batch leave it out.
        domain_trainer("kv", tmp_path / "erm", algorithm="coral", max_steps=1, **given).train()

    def test_classes_for_a_model_of_numbers(self, tmp_path):
        named = load_domains(
            [{"text": "a film", "label": "np"[row % 2], "domain": "ab"[row // 2 % 2]} for row in range(8)]
        ).tokenize(tiny_tokenizer("roberta"))
        with pytest.raises(ValueError, match="has 2 classes, but the model has `num_labels=1`.*`num_labels=2`"):
            domain_trainer("kv", tmp_path, config={"num_labels": 1}, train=named).train()

    def test_none(self, tmp_path):
        trainer = domain_trainer("kv", tmp_path, train=rows().without_columns("labels"))
        with pytest.raises(ValueError, match="ForSequenceClassification` returns no loss for 'input_ids'.*Rows need"):
            trainer.train()

    def test_a_model_without_a_head(self, tmp_path):
        headless = AutoModel.from_config(tiny_model("bert").config)
        with pytest.raises(ValueError, match="`BertModel` returns no loss.*and the model a head"):
            domain_trainer("bert", tmp_path, model=headless).train()


class TestModels:
    def test_bfloat16_is_said(self, tmp_path):
        with pytest.warns(UserWarning, match='learns in bfloat16.*`dtype="float32"`'):
            domain_trainer("kv", tmp_path, model=tiny_model("kv").to(torch.bfloat16))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            domain_trainer("kv", tmp_path, model=tiny_model("kv"))

    @pytest.mark.parametrize(("pooling", "refused"), [("cls", True), ("mean", False)])
    def test_padding_before_the_first_token(self, pooling, refused, tmp_path):
        tokenizer = tiny_tokenizer("roberta")
        tokenizer.padding_side = "left"
        trainer = domain_trainer("kv", tmp_path, config={"memory_pooling": pooling}, processing_class=tokenizer)
        if not refused:
            # RoBERTa counts no padding, and the mean leaves it out.
            one, many = (
                domain_trainer(
                    "kv", tmp_path, model=trainer.model, processing_class=tokenizer, per_device_eval_batch_size=size
                ).predict(rows())
                for size in (1, 8)
            )
            assert abs(one.predictions[0] - many.predictions[0]).max() < 1e-5
            trainer.train()
            return
        with pytest.raises(ValueError, match='`processing_class` pads on the left.*`tokenizer.padding_side = "right"`'):
            trainer.train()


class TestTexts:
    def test_of_several_lengths_with_nothing_that_pads(self, tmp_path):
        with pytest.raises(ValueError, match="texts of several lengths, and nothing pads them.*`processing_class`"):
            domain_trainer("kv", tmp_path, processing_class=None).train()
        collator = DataCollatorWithPadding(tiny_tokenizer("roberta"))
        domain_trainer("kv", tmp_path, processing_class=None, data_collator=collator).train()

    def test_without_a_mask_on_a_disk(self, tmp_path):
        asked = {"memory_pooling": "mask", "mask_token_id": 98, "template": "{text} it was {mask}"}
        ids = [[98, *row] for row in rows()["input_ids"]]
        ids[5] = ids[5][1:]
        data = arrow(input_ids=ids, attention_mask=[[1] * len(row) for row in ids])
        with pytest.raises(ValueError, match=r"Row 5 has no mask token \(98\)"):
            domain_trainer("kv", tmp_path, config=asked, train=data).train()
