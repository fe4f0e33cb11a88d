# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Batches of graphs go through the trainers as they are."""

import math

import pytest
import torch
from tiny_backbones import QUIET
from transformers import Trainer, TrainingArguments

from hf_memaug import (
    DomainTrainer,
    DomainTrainingArguments,
    GraphNetworkConfig,
    GraphNetworkModel,
    HMAForGraphClassification,
)
from hf_memaug.data import DomainDataset, GraphCollator, feature_sizes, generated_graphs, leave_one_domain_out
from hf_memaug.evaluation.scores import auroc, matthews_correlation

SPLIT = leave_one_domain_out(generated_graphs(rows_per_domain=25), "wheel")
SETTINGS = {**QUIET, "per_device_train_batch_size": 6, "per_device_eval_batch_size": 4, "max_steps": 4}
SETTINGS |= {"learning_rate": 1e-2, "remove_unused_columns": False}


def classifier(num_labels: int = 3) -> HMAForGraphClassification:
    torch.manual_seed(0)
    sizes = feature_sizes(SPLIT.train, SPLIT.dev, SPLIT.test)._asdict()
    network = GraphNetworkModel(GraphNetworkConfig(num_hidden_layers=2, hidden_size=8, dropout=0.0, **sizes))
    return HMAForGraphClassification.from_backbone(network, augmentation="none", num_labels=num_labels)


def test_the_unmodified_trainer(tmp_path):
    model = classifier()
    before = {name: value.clone() for name, value in model.named_parameters()}
    arguments = TrainingArguments(str(tmp_path), **SETTINGS)
    trainer = Trainer(model, arguments, train_dataset=SPLIT.train, data_collator=GraphCollator())
    trainer.train()
    assert any(not torch.equal(value, before[name]) for name, value in model.named_parameters())
    # Five rows in batches of four: each counts as one row, however many nodes it has.
    few = SPLIT.test[:5]
    prediction = trainer.predict(few)
    assert prediction.predictions.shape == (5, 3) and prediction.label_ids.tolist() == few.labels
    batch = GraphCollator()(list(few))
    with torch.no_grad():
        output = model.eval()(**batch)
    assert prediction.predictions == pytest.approx(output.logits.numpy(), abs=1e-5)
    assert prediction.metrics["test_loss"] == pytest.approx(output.loss.item(), abs=1e-5)


@pytest.mark.parametrize("algorithm", ["erm", "coral", "irm"])
def test_the_domain_trainer(tmp_path, algorithm):
    arguments = DomainTrainingArguments(str(tmp_path), algorithm=algorithm, **SETTINGS)
    trainer = DomainTrainer(
        classifier(), arguments, train_dataset=SPLIT.train, eval_dataset=SPLIT.dev, data_collator=GraphCollator()
    )
    assert math.isfinite(trainer.train().training_loss)
    metrics = trainer.evaluate()
    assert {"eval_path_accuracy", "eval_tree_accuracy", "eval_ladder_accuracy", "eval_accuracy"} < set(metrics)
    assert "test_wheel_f1" in trainer.predict(SPLIT.test).metrics


def test_the_domain_trainer_joins_graphs_itself(tmp_path):
    settings = {name: value for name, value in SETTINGS.items() if name != "remove_unused_columns"}
    arguments = DomainTrainingArguments(str(tmp_path), **settings)
    noted = SPLIT.train.with_columns(note=["of no use to the model"] * len(SPLIT.train))
    trainer = DomainTrainer(classifier(), arguments, train_dataset=noted, eval_dataset=SPLIT.dev)
    assert math.isfinite(trainer.train().training_loss)
    assert "test_wheel_f1" in trainer.predict(SPLIT.test).metrics


def test_scores_of_two_labels_and_of_one(tmp_path):
    two = SPLIT.test.with_columns(label=[min(label, 1) for label in SPLIT.test["label"]])
    two = DomainDataset({name: two[name] for name in two.column_names}, ["cycle", "other"])
    arguments = DomainTrainingArguments(str(tmp_path), **SETTINGS)
    trainer = DomainTrainer(classifier(2), arguments, eval_dataset=two)
    prediction = trainer.predict(two)
    margins = prediction.predictions[:, 1] - prediction.predictions[:, 0]
    assert prediction.metrics["test_wheel_auroc"] == pytest.approx(auroc(margins, two["label"]))
    expected = matthews_correlation(prediction.predictions.argmax(-1), two["label"])
    assert prediction.metrics["test_mcc"] == pytest.approx(expected)
    # A domain with rows of one label has no area, and so there is no mean of them.
    alike = two.select(row for row, label in enumerate(two["label"]) if label == 1)
    mixed = DomainDataset.concatenate([two, alike.with_columns(domain=["alike"] * len(alike))])
    metrics = trainer.predict(mixed).metrics
    assert "test_wheel_auroc" in metrics and not {"test_alike_auroc", "test_auroc"} & set(metrics)
