# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Tags: a step learns from each tagged word alike, in however many batches and processes and by whichever trainer. Also a
script, so that it can be started under torchrun.
"""

import os
import sys
from pathlib import Path

import pytest
import torch
from tiny_backbones import QUIET, SIZES, tiny_tokenizer
from transformers import BertConfig, BertForTokenClassification

from hf_memaug import ContinualTrainingArguments, DomainTrainingArguments
from hf_memaug.data import DomainDataset
from hf_memaug.data.spans import tokenize_tags
from hf_memaug.training.question_trainer import ContinualTagTrainer, TagTrainer
from training.processes import run_in_two_processes

NAMES = ["O", "B-Disease", "I-Disease"]
WORDS = ["the", "film", "was", "good", "and", "the", "book", "was", "bad"]


def rows_of(domains: tuple[str, ...]) -> DomainDataset:
    """Two to nine tagged words a row."""
    lengths = [2 + 3 * number % 8 for number in range(16)]
    rows = [
        {"tokens": WORDS[:length], "ner_tags": ["O", "B-Disease", *["I-Disease"] * (length - 2)]} for length in lengths
    ]
    found = tokenize_tags(rows, tiny_tokenizer("bert"), NAMES)
    columns = {name: [row[name] for row in found] for name in ("input_ids", "attention_mask", "labels", "cut_off")}
    return DomainDataset({**columns, "domain": [domains[number % len(domains)] for number in range(16)]})


def tag_trainer(kind: str, folder, callbacks=(), **kwargs):
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer("bert")
    names = {"id2label": dict(enumerate(NAMES)), "label2id": {name: number for number, name in enumerate(NAMES)}}
    sizes = {**SIZES, "vocab_size": len(tokenizer), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForTokenClassification(BertConfig(**sizes, **names))
    arguments = {**QUIET, "output_dir": str(folder), "per_device_train_batch_size": 4, "max_steps": 4}
    arguments |= {"learning_rate": 0.1, "optim": "sgd", "logging_steps": 1, **kwargs}
    rows = rows_of(("north", "south"))
    given = {"train_dataset": rows, "processing_class": tokenizer, "callbacks": callbacks}
    if kind == "domain":
        return TagTrainer(model, DomainTrainingArguments(**arguments), **given)
    return ContinualTagTrainer(
        model, ContinualTrainingArguments(**arguments, strategy="ewc"), test_dataset=rows, **given
    )


def run(kind: str, per_device: int, accumulation: int, folder) -> tuple[list, dict]:
    sizes = {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": accumulation}
    trainer = tag_trainer(kind, folder, **sizes)
    trainer.train()
    losses = [(entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "loss" in entry]
    return losses, {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


@pytest.mark.parametrize("kind", ["domain", "continual"])
def test_accumulation_4x1_is_1x4(kind, tmp_path):
    (whole, weights), (parts, accumulated) = (run(kind, *sizes, tmp_path / str(sizes[0])) for sizes in ((4, 1), (1, 4)))
    if kind == "domain":
        assert len(whole) == 4
        torch.testing.assert_close(torch.tensor(parts), torch.tensor(whole), rtol=1e-4, atol=1e-4)
    for name, value in weights.items():
        torch.testing.assert_close(accumulated[name], value, rtol=1e-4, atol=1e-5, msg=lambda t, n=name: f"{n}: {t}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["domain", "continual"])
def test_two_processes_are_one(kind, tmp_path):
    _, alone = run(kind, 4, 1, tmp_path / "alone")
    run_in_two_processes("test_tag_trainer.py", kind, tmp_path)
    together = torch.load(tmp_path / "together.pt")
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=1e-4, atol=1e-5, msg=lambda t, n=name: f"{n}: {t}")


if __name__ == "__main__":
    from families import leave_together

    _, found = run(sys.argv[1], 2, 1, Path(sys.argv[2]) / "together")
    assert os.environ["WORLD_SIZE"] == "2"
    if os.environ["RANK"] == "0":
        torch.save({name.removeprefix("module."): value for name, value in found.items()}, f"{sys.argv[2]}/together.pt")
    leave_together()
