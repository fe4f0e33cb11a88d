# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Encoder-decoders, and rows with a label for each token, in `DomainTrainer` and `ContinualTrainer`."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForTokenClassification

from hf_memaug import DomainTrainer, DomainTrainingArguments, MemoryRNNConfig, MemoryRNNForConditionalGeneration
from hf_memaug.data import DomainDataset, word_tokenizer
from hf_memaug.training.continual import STRATEGIES
from hf_memaug.training.continual.consolidation import answers, diagonal_fisher
from training.continual_runs import continual_trainer

PAIRS = {
    "films": [("who are you", "i am the captain"), ("where is he", "he is gone"), ("is he here", "no")],
    "help": [("who has root", "sudo gives root"), ("where is grub", "grub is in boot"), ("is it up", "yes it is up")],
}


def rows(times: int = 4) -> DomainDataset:
    found = [(text, reply, name) for name, pairs in PAIRS.items() for text, reply in pairs * times]
    return DomainDataset(dict(zip(("text", "text_pair", "domain"), map(list, zip(*found, strict=True)), strict=True)))


def parts():
    texts = [text for pair in PAIRS["films"] for text in pair]
    tokenizer = word_tokenizer(texts, end_of_text=True)
    ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.bos_token_id,
    }
    torch.manual_seed(0)
    config = MemoryRNNConfig(
        vocab_size=len(tokenizer), cell="gru", hidden_size=10, embedding_size=6, memory_slots=[4], **ids
    )
    return MemoryRNNForConditionalGeneration(config), tokenizer


def run(strategy: str, folder, **kwargs):
    model, tokenizer = parts()
    options = {"f+h": {"slots": 3}, "f+h+v": {"slots": 3}}
    if strategy in options:
        kwargs["strategy_kwargs"] = options[strategy]
    return continual_trainer(
        strategy, folder, model=model, processing_class=tokenizer, train=rows(), test=rows(1), **kwargs
    )


class TestContinual:
    @pytest.mark.parametrize("strategy", ["f+m+v", "f+h", "ewc", "lwf", "progressive", "replay"])
    def test_strategies_learn_to_reply(self, strategy, tmp_path):
        trainer = run(strategy, tmp_path, num_train_epochs=8, learning_rate=3e-2)
        trainer.train()
        scores = trainer.record.stages[-1]["scores"]
        assert set(scores) == set(PAIRS)
        # A word that is said always would reach a quarter.
        assert scores["help"] > 0.45, scores
        assert trainer.record.baseline["help"] < 0.3

    def test_the_score_is_that_of_each_word_after_those_before(self, tmp_path):
        trainer = run("f", tmp_path, max_steps=3)
        trainer.train()
        model, tokenizer = trainer.model.eval(), trainer.processing_class
        right = words = 0
        for text, reply in PAIRS["help"]:
            labels = tokenizer(reply, return_tensors="pt")["input_ids"]
            with torch.no_grad():
                logits = model(**tokenizer(text, return_tensors="pt"), labels=labels).logits
            right, words = right + int((logits.argmax(-1) == labels).sum()), words + labels.numel()
        assert trainer.record.stages[-1]["scores"]["help"] == pytest.approx(right / words)

    def test_rows_without_a_reply_are_refused(self, tmp_path):
        model, tokenizer = parts()
        alone = rows().select(range(12))
        alone = DomainDataset({"text": alone["text"], "domain": alone["domain"]})
        trainer = continual_trainer(
            "f", tmp_path, model=model, processing_class=tokenizer, train=alone, test=alone, max_steps=1
        )
        with pytest.raises(ValueError, match="needs a column 'text_pair' with the replies"):
            trainer.train()

    def test_padding_has_no_part_in_what_is_distilled(self):
        model, tokenizer = parts()
        lwf = STRATEGIES["lwf"](SimpleNamespace(strategy="lwf", strategy_kwargs=None))
        lwf.begin(model, 1)
        text = tokenizer(["who are you", "is he here"], return_tensors="pt")
        labels = torch.tensor([[4, 5, 6], [7, -100, -100]])
        generator, losses = torch.Generator().manual_seed(0), []
        logits = torch.randn(2, 3, len(tokenizer), generator=generator)
        for shift in (0.0, 5.0):
            logits[1, 1:, 4] += shift
            batch = SimpleNamespace(task_loss=torch.zeros(()), logits=logits, labels=labels)
            losses.append(lwf.loss(batch, {**text, "labels": labels}, model))
        assert torch.equal(*losses)
        logits[1, 0, 4] += 5.0
        assert not torch.equal(lwf.loss(batch, {**text, "labels": labels}, model), losses[0])

    def test_the_fisher_information_of_replies(self):
        """Row by row, of the words that are there; drawn words are drawn after those before."""
        model, tokenizer = parts()
        model = model.double().eval()
        text = tokenizer(["who are you", "is he here"], padding=True, return_tensors="pt")
        labels = tokenizer(["he is gone", "no"], padding=True, return_tensors="pt")["input_ids"]
        labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
        single = [{**{name: value[row : row + 1] for name, value in text.items()}, "labels": labels[row : row + 1]}
                  for row in range(2)]  # fmt: skip
        found = diagonal_fisher(model, iter(single), 2, "empirical", 0)
        expected = torch.zeros_like(model.lm_head.bias)
        for one in single:
            model.zero_grad()
            said = answers(model, one).log_softmax(-1)[0]
            kept = one["labels"][0] != -100
            (-F.nll_loss(said[kept], one["labels"][0][kept], reduction="sum")).backward()
            expected += model.lm_head.bias.grad.square() / 2
        torch.testing.assert_close(found["lm_head.bias"], expected)


class TestDomains:
    def trainer(self, model, data, folder, processing_class=None, **kwargs) -> DomainTrainer:
        arguments = DomainTrainingArguments(
            str(folder),
            **{"max_steps": 2, "report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", **kwargs},
        )
        return DomainTrainer(model, arguments, train_dataset=data, eval_dataset=data, processing_class=processing_class)

    def test_replies_in_domains_and_what_an_algorithm_cannot_see(self, tmp_path):
        model, tokenizer = parts()
        data = rows().tokenize(tokenizer, replies=True)
        trainer = self.trainer(model, data, tmp_path, tokenizer)
        trainer.train()
        found = trainer.evaluate()
        assert 0 <= found["eval_films_accuracy"] <= 1 and "eval_films_f1" not in found
        assert json.dumps(found)
        trainer = self.trainer(model, data, tmp_path, tokenizer, algorithm="vrex")
        with pytest.raises(ValueError, match='label for each token.*such as "erm"'):
            trainer.train()

    def test_labels_of_tokens_are_padded_and_scored_where_there_are_some(self, tmp_path):
        _, tokenizer = parts()
        data = rows(2).tokenize(tokenizer)
        columns = {name: data[name] for name in data.column_names}
        columns["labels"] = [[-100, *(word % 3 for word in ids[1:])] for ids in columns["input_ids"]]
        data = DomainDataset(columns)
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            num_labels=3,
        )
        trainer = self.trainer(BertForTokenClassification(config), data, tmp_path, tokenizer)
        trainer.train()
        found = trainer.predict(data)
        for name in PAIRS:
            mine = np.asarray([domain == name for domain in data["domain"]])
            labels, predicted = found.label_ids[mine], found.predictions[mine].argmax(-1)
            kept = labels != -100
            assert found.metrics[f"test_{name}_accuracy"] == pytest.approx((predicted == labels)[kept].mean())
