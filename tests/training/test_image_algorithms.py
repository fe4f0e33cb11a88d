# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Every algorithm with a GMoE, a ViT and a ResNet."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.forward_pass import ForwardPass, feature_size
from training.domain_runs import Gradients, States, logged
from training.image_runs import KINDS, digits, image_trainer

pytest.importorskip("sklearn")
pytest.importorskip("PIL")

every_kind = pytest.mark.parametrize("kind", KINDS)
FEATURES = [name for name, algorithm in ALGORITHMS.items() if algorithm.needs_features]


def trained_weights(kind, output, **kwargs) -> dict[str, torch.Tensor]:
    trainer = image_trainer(kind, output, **kwargs)
    trainer.train()
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


@pytest.fixture(scope="module")
def by_erm(tmp_path_factory):
    """The weights after the same steps of plain ERM."""
    return {kind: trained_weights(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@every_kind
@pytest.mark.parametrize("algorithm", ["coral", "fishr", "mixup"])
def test_every_algorithm_trains_every_parameter_and_is_not_erm(kind, algorithm, by_erm, tmp_path):
    gradients = Gradients()
    trainer = image_trainer(kind, tmp_path, algorithm=algorithm, callbacks=[gradients])
    gradients.trainer = trainer
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    logs = logged(trainer)
    assert len(logs) == gradients.steps == 3
    assert all(math.isfinite(loss) and math.isfinite(norm) for loss, norm in logs)
    assert gradients.missing == gradients.stale == set()
    for name, value in trainer.model.named_parameters():
        assert not torch.equal(value, before[name]), f"{name} was not trained"
        assert value.isfinite().all(), name
    found, expected = trainer.model.state_dict(), by_erm[kind]
    differ = [name for name in before if not torch.equal(found[name], expected[name])]
    # What a comparison of domains changes, it changes down to the first layer.
    assert len(differ) > len(before) / 2, f"{algorithm} did what ERM does, but for {differ}"


def one_pass(trainer):
    """A training batch after the forward pass, as an algorithm sees it."""
    inputs = dict(next(iter(trainer.get_train_dataloader())))
    ids = inputs.pop("domain_ids")
    return inputs, ForwardPass(trainer, trainer.model.train())(inputs, ids)


def last_layer(model) -> nn.Linear:
    return model.classifier[-1] if isinstance(model.classifier, nn.Sequential) else model.classifier


@every_kind
@pytest.mark.parametrize("algorithm", FEATURES)
def test_features_are_what_the_head_reads(kind, algorithm, tmp_path):
    trainer = image_trainer(kind, tmp_path, algorithm=algorithm)
    _, batch = one_pass(trainer)
    assert batch.features.shape == (6, feature_size(trainer.model))
    torch.testing.assert_close(last_layer(trainer.model)(batch.features), batch.logits)
    assert batch.features.std(dim=0).min() > 0, "the same for all images"


@pytest.mark.parametrize("kind", ["gmoe", "vit"])
def test_fishr_tells_the_head_from_layers_of_the_same_width(kind, tmp_path):
    trainer = image_trainer(kind, tmp_path, algorithm="fishr", config={"num_labels": 32})
    like_a_head = [one for one in trainer.model.modules() if isinstance(one, nn.Linear) and one.out_features == 32]
    assert len(like_a_head) > 1
    _, batch = one_pass(trainer)
    head = last_layer(trainer.model)
    assert batch.head_inputs.shape == (6, head.in_features)
    torch.testing.assert_close(F.linear(batch.head_inputs, head.weight, head.bias), batch.logits)


def test_swad_averages_what_norms_have_seen_too(tmp_path):
    """Weights that are a mean, with the statistics of the last step, would be those of no network."""
    states = States()
    trainer = image_trainer("resnet", tmp_path, algorithm="swad", callbacks=[states], max_steps=4, eval_steps=2)
    trainer.train()
    # The loss has had no time to rise: the mean since the evaluation before the last.
    kept = states.seen[2:]
    assert len(states.seen) == 4
    norms = 0
    for name, value in trainer.model.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, (kept[0][name] + kept[1][name]) / 2, msg=lambda text, n=name: n + text)
            assert not torch.equal(value, kept[1][name]), name
            norms += name.endswith("running_mean")
        else:
            assert name.endswith("num_batches_tracked") and value == 4 and value.dtype == torch.int64
    assert norms == 6
    metrics = trainer.evaluate()
    assert math.isfinite(metrics["eval_loss"])


class TestSmoothedLabels:
    """`label_smoothing_factor` leaves the experts' losses where they are."""

    def loss(self, tmp_path, weight, training=True, **kwargs):
        config = {"router_noise": 0.0, "aux_loss_weight": weight}
        trainer = image_trainer("gmoe", tmp_path, config=config, label_smoothing_factor=0.2, **kwargs)
        inputs = dict(next(iter(trainer.get_train_dataloader())))
        model = trainer.model.train(training)
        ids = inputs.pop("domain_ids")
        loss = trainer.compute_loss(model, {**inputs, "domain_ids": ids})
        return loss, model(**inputs), inputs["labels"], model

    def smoothed(self, outputs, labels):
        return F.cross_entropy(outputs.logits, labels, label_smoothing=0.2)

    @pytest.mark.parametrize("weight", [0.0, 2.0])
    def test_the_loss_is_the_smoothed_one_and_theirs(self, weight, tmp_path):
        loss, outputs, labels, model = self.loss(tmp_path, weight)
        assert outputs.aux_loss > 0.01
        expected = self.smoothed(outputs, labels) + weight * outputs.aux_loss
        torch.testing.assert_close(loss, expected)
        assert abs(self.smoothed(outputs, labels) - F.cross_entropy(outputs.logits, labels)) > 1e-3
        found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        for (name, _), one, other in zip(
            model.named_parameters(),
            found,
            torch.autograd.grad(expected, list(model.parameters()), allow_unused=True),
            strict=True,
        ):
            torch.testing.assert_close(one, other, msg=lambda text, n=name: n + text)

    def test_in_evaluation_there_is_the_smoothed_one_alone(self, tmp_path):
        loss, outputs, labels, _ = self.loss(tmp_path, 2.0, training=False)
        assert outputs.aux_loss is None
        torch.testing.assert_close(loss, self.smoothed(outputs, labels))


@every_kind
def test_a_model_learns_the_digits_it_is_shown(kind, tmp_path):
    """Images and labels belong together: a shuffled pairing would stay at chance."""
    trainer = image_trainer(
        kind, tmp_path, max_steps=60, learning_rate=3e-3, evaluate=digits(), per_device_train_batch_size=12
    )
    before = trainer.evaluate()["eval_accuracy"]
    trainer.train()
    after = trainer.evaluate()["eval_accuracy"]
    assert before < 0.35 and after > 0.8, (before, after)
