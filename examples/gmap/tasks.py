# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the G-MAP tables are scored on: classes of texts, tags of words, answers to questions."""

import numpy as np
import torch
from fusion import PlainClassifier
from torch.nn import functional as F
from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification

from hf_memaug import GMAPForQuestionAnswering, GMAPForSequenceClassification, GMAPForTokenClassification
from hf_memaug.data.overlap import normalize_text
from hf_memaug.data.spans import (
    IGNORED,
    answers_from_logits,
    tag_names,
    tags_from_logits,
    tokenize_questions,
    tokenize_tags,
)
from hf_memaug.evaluation import answer_scores, entity_f1, macro_f1, micro_f1


class Classification:
    """
    Macro- or micro-F1. Where test texts are also in the training or dev rows, also without those; dev rows that are
    training rows choose nothing.
    """

    name = "classification"
    plain, gmap = PlainClassifier, GMAPForSequenceClassification
    reads_padding = False

    def __init__(self, rows: dict[str, list[dict]], tokenizer, length: int, metric: str = "macro_f1"):
        self.pad, self.metric = tokenizer.pad_token_id, {"macro_f1": macro_f1, "micro_f1": micro_f1}[metric]
        self.num_labels = 1 + max(row["label"] for part in rows.values() for row in part)
        self.parts = {}
        for split, part in rows.items():
            encoded = tokenizer([row["text"] for row in part], truncation=True, max_length=length)["input_ids"]
            self.parts[split] = [
                {"input_ids": ids, "labels": row["label"]} for ids, row in zip(encoded, part, strict=True)
            ]
        seen: set[str] = set()
        self.unseen = {}
        for split, part in rows.items():  # train, dev, test
            texts = [normalize_text(row["text"]) for row in part]
            self.unseen[split] = np.array([text not in seen for text in texts])
            seen |= set(texts)

    def labels(self, split: str, length: int) -> torch.Tensor:
        return torch.tensor([row["labels"] for row in self.parts[split]])

    @staticmethod
    def logits(outputs) -> torch.Tensor:
        return outputs.logits

    @staticmethod
    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, labels)

    def scores(self, split: str, logits: np.ndarray) -> dict[str, float]:
        predicted, labels = logits.argmax(-1), np.array([row["labels"] for row in self.parts[split]])
        everything, unseen = np.ones(len(labels), dtype=bool), self.unseen[split]
        chosen = {"f1": unseen if split == "dev" else everything}
        if split == "test" and not unseen.all():
            chosen["f1_unseen_texts"] = unseen
        return {
            name: 100 * self.metric(predicted[rows], labels[rows], num_labels=self.num_labels)
            for name, rows in chosen.items()
        }


class Tagging:
    """F1 of whole entities."""

    name = "tagging"
    plain, gmap = AutoModelForTokenClassification, GMAPForTokenClassification
    reads_padding = False

    def __init__(self, rows: dict[str, list[dict]], tokenizer, length: int):
        self.pad, self.names = tokenizer.pad_token_id, tag_names(row for part in rows.values() for row in part)
        self.num_labels = len(self.names)
        self.parts = {split: tokenize_tags(part, tokenizer, self.names, length) for split, part in rows.items()}

    def labels(self, split: str, length: int) -> torch.Tensor:
        rows = self.parts[split]
        found = torch.full((len(rows), length), IGNORED)
        for number, row in enumerate(rows):
            found[number, : len(row["labels"])] = torch.tensor(row["labels"])
        return found

    logits = staticmethod(Classification.logits)

    @staticmethod
    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)

    def scores(self, split: str, logits: np.ndarray) -> dict[str, float]:
        return {"f1": 100 * entity_f1(*tags_from_logits(logits, self.parts[split], self.names))["f1"]}


class Answering:
    """Exact match and F1 of the answers' words."""

    name = "answering"
    plain, gmap = AutoModelForQuestionAnswering, GMAPForQuestionAnswering
    num_labels = 2
    # Padding is among the places that an answer could begin at, and so in the loss, as in transformers.
    reads_padding = True

    def __init__(self, rows: dict[str, list[dict]], tokenizer, length: int):
        self.pad, self.rows = tokenizer.pad_token_id, rows
        self.parts = {split: tokenize_questions(part, tokenizer, length) for split, part in rows.items()}

    def labels(self, split: str, length: int) -> torch.Tensor:
        return torch.tensor([[row["start_positions"], row["end_positions"]] for row in self.parts[split]])

    @staticmethod
    def logits(outputs) -> torch.Tensor:
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)

    @staticmethod
    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        start, end = (F.cross_entropy(logits[..., which], labels[:, which]) for which in (0, 1))
        return (start + end) / 2

    def scores(self, split: str, logits: np.ndarray) -> dict[str, float]:
        rows = self.rows[split]
        predicted = answers_from_logits(logits[..., 0], logits[..., 1], self.parts[split], rows)
        references = [row["answers"]["text"] for row in rows]
        return {name: 100 * value for name, value in answer_scores(predicted, references).items()}


TASKS = {task.name: task for task in (Classification, Tagging, Answering)}
