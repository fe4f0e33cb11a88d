# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Algorithms that would do nothing, or something else than they are called for."""

import pytest
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification

from hf_memaug import DomainTrainingArguments
from hf_memaug.training.forward_pass import DomainBatch, watched_features
from training.domain_runs import domain_trainer, rows


def decoder(**kwargs):
    torch.manual_seed(0)
    sizes = {"vocab_size": 99, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 32}
    return GPT2ForSequenceClassification(GPT2Config(**sizes, num_labels=3, pad_token_id=0, **kwargs))


class TestDecoders:
    def test_features_are_those_that_the_head_reads(self):
        model = decoder().eval()
        ids = torch.tensor([[5, 7, 8, 0], [5, 9, 11, 12]])
        with watched_features(model) as features:
            logits = model(input_ids=ids, attention_mask=ids.ne(0).long()).logits
        torch.testing.assert_close(model.score(features[0]), logits)

    def test_also_in_a_pair_and_under_an_adapter(self):
        from modeling.test_gmap_decoder import SIZES
        from peft import LoraConfig, get_peft_model

        from hf_memaug import GMAPConfig, GMAPForSequenceClassification

        ids = torch.tensor([[5, 7, 8, 0], [5, 9, 11, 12]])
        encoders = {part: {"model_type": "gpt2", **SIZES} for part in ("general", "domain")}
        pair = GMAPForSequenceClassification(GMAPConfig(**encoders, num_labels=3)).eval()
        adapted = get_peft_model(decoder(), LoraConfig(task_type="SEQ_CLS", target_modules=["c_attn"])).eval()
        for model in (pair, adapted):
            with watched_features(model) as features:
                logits = model(input_ids=ids, attention_mask=ids.ne(0).long()).logits
            head = pair.classifier if model is pair else adapted.get_base_model().score
            torch.testing.assert_close(head(features[0]), logits)

    def test_a_penalty_on_them_counts(self, tmp_path):
        trainer = domain_trainer("gpt2", tmp_path, model=decoder(), algorithm="coral", max_steps=3, penalty_weight=100)
        trainer.train()
        entries = [entry for entry in trainer.state.log_history if "task_loss" in entry]
        assert len(entries) == 3 and all(entry["loss"] > entry["task_loss"] + 1e-3 for entry in entries)

    def test_mixed_vectors_have_no_last_token(self, tmp_path):
        with pytest.raises(ValueError, match="a decoder does not find the last one"):
            domain_trainer("gpt2", tmp_path, model=decoder(), algorithm="mixup")


class TestSmoothedLabels:
    def test_each_row_is_smoothed(self):
        torch.manual_seed(0)
        logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
        smoothed = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.3)
        batch = DomainBatch(smoothed, logits, labels, None, torch.zeros(6).long(), label_smoothing=0.3)
        torch.testing.assert_close(batch.row_losses().mean(), smoothed)
        torch.testing.assert_close(batch.rest_of_loss(), torch.tensor(0.0), atol=1e-6, rtol=0)


class TestBatches:
    def test_one_row_is_compared_with_nothing(self, tmp_path):
        with pytest.raises(ValueError, match="compares the rows of a batch: `per_device_train_batch_size` must be 2"):
            domain_trainer("kv", tmp_path, algorithm="vrex", per_device_train_batch_size=1)


class TestOptions:
    @pytest.mark.parametrize(
        ("algorithm", "given", "said"),
        [
            ("mixup", {"alpha": 0}, "`alpha` is 0; it must be a number, more than 0"),
            ("mixup", {"alpha": None}, "`alpha` is None; it must be a number, more than 0, such as 0.2"),
            ("group_dro", {"rate": -1}, "`rate` is -1; it must be a number, 0 or more"),
            ("mmd", {"gammas": []}, r"`gammas` is \[\]; it must be a list of numbers"),
            ("fishr", {"decay": 1.0}, "`decay` is 1.0; it must be a number, 0 or more and below 1"),
            ("swad", {"start_patience": 2.5}, "`start_patience` is 2.5; it must be a whole number"),
            ("mixup", "3", "`algorithm_kwargs` is 3. Name the options in it"),
        ],
    )
    def test_values_that_are_none(self, algorithm, given, said, tmp_path):
        more = {"eval_strategy": "steps"} if algorithm == "swad" else {}
        with pytest.raises(ValueError, match=said):
            DomainTrainingArguments(str(tmp_path), algorithm=algorithm, algorithm_kwargs=given, use_cpu=True, **more)


class TestLabelsThatAreNumbers:
    def trainer(self, tmp_path, **kwargs):
        data = rows().with_columns(labels=[row / 10 for row in range(24)])
        return domain_trainer("kv", tmp_path, config={"num_labels": 1}, train=data, evaluate=data, **kwargs)

    def test_they_are_learned_and_scored(self, tmp_path):
        trainer = self.trainer(tmp_path, max_steps=2)
        trainer.train()
        assert {"eval_books_r2", "eval_books_pearson"} <= set(trainer.evaluate())
        assert self.trainer(tmp_path, compute_metrics=lambda one: {"x": 1.0}).evaluate()["eval_x"] == 1.0

    def test_no_row_has_a_cross_entropy(self, tmp_path):
        with pytest.raises(ValueError, match="the rows have numbers for labels"):
            self.trainer(tmp_path, algorithm="vrex", max_steps=1).train()


def test_a_run_of_another_algorithm_is_not_resumed(tmp_path):
    saves = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    domain_trainer("kv", tmp_path, algorithm="group_dro", **saves).train()
    trainer = domain_trainer("kv", tmp_path, algorithm="vrex", **{**saves, "max_steps": 4})
    with pytest.raises(ValueError, match="the run has the algorithm 'group_dro', and `args` has 'vrex'"):
        trainer.train(resume_from_checkpoint=True)


def test_a_collator_of_ones_own_may_cut_texts(tmp_path):
    from tiny_backbones import tiny_tokenizer
    from transformers import DataCollatorWithPadding

    pad = DataCollatorWithPadding(tiny_tokenizer("roberta"))
    names = ("input_ids", "attention_mask")
    long = rows().with_columns(
        input_ids=[[*ids, *[5] * 90] for ids in rows()["input_ids"]],
        attention_mask=[[1] * (len(ids) + 90) for ids in rows()["input_ids"]],
    )

    def cut(batch):
        return pad([{**row, **{name: row[name][:16] for name in names}} for row in batch])

    trainer = domain_trainer("kv", tmp_path, train=long, data_collator=cut, max_steps=2)
    trainer.train()
    assert "test_f1" in trainer.predict(long).metrics
    with pytest.raises(ValueError, match="Set `max_length`"):
        domain_trainer("kv", tmp_path, train=long).train()
