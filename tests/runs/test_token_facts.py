# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What is kept of models of tags and of questions is what their gates weigh."""

import json

import numpy as np
import pytest
import torch
from families import HEADS
from tiny_backbones import tiny_tokenizer
from transformers import AutoModelForTokenClassification

from hf_memaug import DomainDataset
from hf_memaug.data.spans import tokenize_questions, tokenize_tags
from hf_memaug.runs.facts import write_facts

TAGS = ["O", "B-Illness", "I-Illness", "B-Cure"]
TAGGED = [
    {"tokens": ["the", "bad", "phone", "lasts"], "ner_tags": ["O", "B-Illness", "I-Illness", "O"]},
    {"tokens": ["good", "book"], "ner_tags": ["B-Cure", "O"]},
    {"tokens": ["the", "film", "is", "a", "good", "film"], "ner_tags": ["O"] * 6},
]
DOMAINS = ["north", "south", "north"]


def model_of(head: str, tokenizer, **fields):
    case = next(case for case in HEADS if case.name == f"GMAPFor{head}")
    config = case.config(vocab_size=len(tokenizer))
    for part in (config.general, config.domain):
        part.num_hidden_layers = 4
    config = type(config)(general=config.general.to_dict(), domain=config.domain.to_dict(), **fields)
    torch.manual_seed(0)
    model = case.model_class(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


def dataset(rows, domains, labels=()) -> DomainDataset:
    return DomainDataset({**{name: [row[name] for row in rows] for name in rows[0]}, "domain": domains}, list(labels))


def kept(folder) -> dict:
    return json.loads((folder / "memory.json").read_text())


def gates(model, row) -> np.ndarray:
    """What the model itself says of one row."""
    with torch.no_grad():
        inputs = {name: torch.tensor([row[name]]) for name in ("input_ids", "token_type_ids")}
        return model(**inputs, output_memory_weights=True).memory_weights[0].numpy()


def share(weights) -> np.ndarray:
    total = np.sum(weights, axis=0)
    return total / total.sum()


def test_tags_by_domain(tmp_path):
    tokenizer = tiny_tokenizer("bert")
    rows = tokenize_tags(TAGGED, tokenizer, TAGS)
    model = model_of("TokenClassification", tokenizer, num_labels=len(TAGS)).train()
    assert write_facts(tmp_path, model, tokenizer, dataset(rows, DOMAINS, TAGS)) == [tmp_path / "memory.json"]
    assert model.training
    model.eval()
    weights, memory = [gates(model, row) for row in rows], kept(tmp_path)
    assert memory["what"] == "layer of the general encoder"
    # Padding is no read, and each row counts as much as another.
    np.testing.assert_allclose(memory["by_domain"]["south"], share(weights[1]), atol=1e-5)
    north = np.mean([share(weights[0]), share(weights[2])], axis=0)
    np.testing.assert_allclose(memory["by_domain"]["north"], north, atol=1e-5)


def test_questions_by_domain(tmp_path):
    tokenizer = tiny_tokenizer("bert")
    none = {"text": [], "answer_start": []}
    asked = [{"question": text, "context": "a good film", "answers": none} for text in ("the book", "the bad phone")]
    rows = tokenize_questions(asked, tokenizer, 32, 8)
    model = model_of("QuestionAnswering", tokenizer)
    write_facts(tmp_path, model, tokenizer, dataset(rows, ["north", "south"]))
    memory = kept(tmp_path)
    np.testing.assert_allclose(memory["by_domain"]["north"], share(gates(model.eval(), rows[0])), atol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "no gate"])
def test_without_a_memory_or_gates_there_is_none(tmp_path, backbones, kind):
    tokenizer = tiny_tokenizer("bert")
    rows = dataset(tokenize_tags(TAGGED, tokenizer, TAGS), DOMAINS, TAGS)
    (tmp_path / "memory.json").write_text("{}")  # of an earlier model
    if kind == "plain":
        model = AutoModelForTokenClassification.from_pretrained(backbones["bert"], num_labels=4)
    else:
        model = model_of("TokenClassification", tokenizer, num_labels=4, strategy="single")
    assert write_facts(tmp_path, model, tokenizer, rows) == [] and not (tmp_path / "memory.json").exists()
