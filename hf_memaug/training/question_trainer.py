# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Trainers for spans: extractive question answering, scored by answers, and tags of words, scored by entities."""

from typing import Any

import numpy as np
from transformers import EvalPrediction

from hf_memaug.data.spans import IGNORED, answers_from_logits, tags_from_logits
from hf_memaug.evaluation.text_scores import answer_scores, entity_f1
from hf_memaug.training.continual_trainer import ContinualTrainer
from hf_memaug.training.domain_trainer import DomainTrainer, first_of
from hf_memaug.training.masked_lm import share_of_step


class RowTrainer(DomainTrainer):
    """A `DomainTrainer` whose scores need more columns of a row than the labels."""

    default_f1 = "f1"

    def _score_by_domain(self, prediction: EvalPrediction) -> dict[str, float]:
        # The numbers of the rows, of which each domain's stay with its predictions.
        prediction.inputs = np.arange(len(first_of(prediction.predictions)))
        return super()._score_by_domain(prediction)


class TagTrainer(RowTrainer):
    """
    `DomainTrainer` for tags: F1 of whole entities (`f1`) and the accuracy of the words' tags (`accuracy`) of each
    domain. Rows are those of `tokenize_tags` with a `domain`. Words that were cut off count as tagged "O". The loss of
    a step is the mean over its words, in however many batches and processes.
    """

    def __init__(self, model=None, args=None, **kwargs):
        super().__init__(model=model, args=args, **kwargs)
        # So that `Trainer` counts the words of a step.
        self.model_accepts_loss_kwargs = True

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if not model.training or num_items_in_batch is None:
            return super().compute_loss(model, inputs, return_outputs)
        words = (inputs["labels"] != IGNORED).sum()
        return super().compute_loss(model, inputs) * share_of_step(self, words, num_items_in_batch)

    def _default_scores(self, prediction: Any) -> dict[str, float]:
        names = [self.model.config.id2label[number] for number in range(self.model.config.num_labels)]
        rows = [self._scored_rows[int(number)] for number in prediction.inputs]
        predicted, true = tags_from_logits(first_of(prediction.predictions), rows, names)
        right = [mine == theirs for two in zip(predicted, true, strict=True) for mine, theirs in zip(*two, strict=True)]
        return {"f1": entity_f1(predicted, true)["f1"], "accuracy": float(np.mean(right))}


class ContinualTagTrainer(TagTrainer, ContinualTrainer):
    """`ContinualTrainer` for the rows of `TagTrainer`."""

    stage_class = TagTrainer


class QuestionTrainer(RowTrainer):
    """
    `DomainTrainer` for questions: exact match (`exact_match`) and F1 (`f1`) of the answers of each domain. A long
    context is split into several rows, of which the best answer counts. Rows are those of `tokenize_questions` with a
    `domain`, `context` and `references` (the correct answers). Algorithms that read the loss of each row are not
    supported.
    """

    def __init__(self, model=None, args=None, **kwargs):
        if args is not None and args.label_smoothing_factor:
            raise ValueError("`label_smoothing_factor` is not supported for questions. Leave it out.")
        super().__init__(model=model, args=args, **kwargs)

    def _default_scores(self, prediction: Any) -> dict[str, float]:
        asked: dict[int, dict] = {}
        features = []
        for number in prediction.inputs:
            row = self._scored_rows[int(number)]
            question = asked.setdefault(row["row"], {"place": len(asked), **row})
            features.append({"row": question["place"], "offsets": row["offsets"]})
        questions = list(asked.values())
        starts, ends = prediction.predictions[:2]
        answers = answers_from_logits(starts, ends, features, questions)
        return answer_scores(answers, [question["references"] for question in questions])


class ContinualQuestionTrainer(QuestionTrainer, ContinualTrainer):
    """
    `ContinualTrainer` for the rows of `QuestionTrainer`. Strategies that grow the model and `"progressive"` are not
    supported.
    """

    stage_class = QuestionTrainer
