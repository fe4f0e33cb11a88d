# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`class_weights`: the loss by hand, whatever the size of the batches, and what they are refused for."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from hf_memaug import BilevelTrainingArguments, ContinualTrainingArguments
from training.domain_runs import domain_trainer, logged, rows


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("per_device", "accumulation"), [(24, 1), (6, 4)])
def test_the_loss_is_the_mean_over_the_classes(tmp_path, per_device, accumulation, smoothing):
    sizes = {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": accumulation, "max_steps": 1}
    options = {"class_weights": "balanced", "label_smoothing_factor": smoothing, "learning_rate": 0.0}
    trainer = domain_trainer("bert", tmp_path, **sizes, **options)
    labels = torch.tensor(rows()["labels"])
    assert len(labels.bincount().unique()) > 1
    trainer.train()
    logits = torch.tensor(trainer.predict(rows()).predictions)
    losses = cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    expected = torch.stack([losses[labels == label].mean() for label in range(3)]).mean()
    assert logged(trainer)[0][0] == pytest.approx(float(expected), rel=1e-5)


def test_a_class_that_counts_twice_is_as_if_its_rows_were_there_twice(tmp_path):
    few, counts = rows(6), [1, 2, 3]
    repeated = few.select([row for row, label in enumerate(few["labels"]) for _ in range(counts[label])])
    losses = []
    for train, given in ((few, [1.0, 2.0, 3.0]), (repeated, None)):
        own = {"balanced_batches": False, "per_device_train_batch_size": 64, "max_steps": 1}
        trainer = domain_trainer("bert", tmp_path, train=train, class_weights=given, **own)
        trainer.train()
        losses.append(logged(trainer)[0][0])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("given", ["balancd", [1.0, 0.0, 1.0], "1,2"])
def test_wrong_weights(tmp_path, given):
    with pytest.raises(ValueError, match='`class_weights` is .* Use "balanced", or 3 numbers above 0.'):
        domain_trainer("bert", tmp_path, class_weights=given)


def test_refused_where_they_would_be_ignored(tmp_path):
    with pytest.raises(ValueError, match="`class_weights` needs one of 3 classes in each row of `train_dataset`"):
        domain_trainer("bert", tmp_path, train=rows().with_columns(labels=[[0, 1]] * 24), class_weights="balanced")
    for kind in (BilevelTrainingArguments, ContinualTrainingArguments):
        with pytest.raises(ValueError, match=f"`class_weights` is not supported by `{kind.__name__[:-17]}Trainer`"):
            kind(str(tmp_path), class_weights="balanced", use_cpu=True)
