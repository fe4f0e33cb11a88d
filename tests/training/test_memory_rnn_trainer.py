# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Memory RNNs in the library's trainer of domains."""

import pytest
import torch
from families import memory_rnn_config
from tiny_backbones import SENTENCES

from hf_memaug import DomainTrainer, DomainTrainingArguments, MemoryRNNForSequenceClassification, load_domains
from hf_memaug.data import word_tokenizer


def run(algorithm, tmp_path, **kwargs):
    rows = [
        {"text": f"{text} {i}", "label": i % 2, "domain": "ab"[i % 2 ^ i // 2 % 2]}
        for i, text in enumerate(SENTENCES * 4)
    ]
    if kwargs.get("sentence_pairs"):
        rows = [{**row, "text_pair": "it was long"} for row in rows]
    tokenizer = word_tokenizer([row["text"] for row in rows])
    torch.manual_seed(0)
    model = MemoryRNNForSequenceClassification(memory_rnn_config(vocab_size=len(tokenizer), num_labels=2, **kwargs))
    settings = {"max_steps": 2, "use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    arguments = DomainTrainingArguments(str(tmp_path), algorithm=algorithm, **settings)
    data = load_domains(rows).tokenize(tokenizer)
    return DomainTrainer(model, arguments, train_dataset=data, eval_dataset=data, processing_class=tokenizer)


@pytest.mark.parametrize("algorithm", ["erm", "dann", "fishr"])
def test_domain_algorithms_train_it(algorithm, tmp_path):
    trainer = run(algorithm, tmp_path)
    before = [parameter.detach().clone() for parameter in trainer.model.memory_parameters()]
    trainer.train()
    assert all(not torch.equal(a, b) for a, b in zip(before, trainer.model.memory_parameters(), strict=True))
    assert "eval_f1" in trainer.evaluate()


def test_pairs_have_two_features_of_a_row(tmp_path):
    run("vrex", tmp_path, sentence_pairs=True).train()
    with pytest.raises(ValueError, match='`algorithm="dann"` needs one feature of each row.*pairs of texts'):
        run("dann", tmp_path, sentence_pairs=True).train()
