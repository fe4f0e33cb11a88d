# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Each algorithm against its definition, domain by domain in plain loops."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch.nn import functional as F

from hf_memaug.training.algorithms import ALGORITHMS, DANN, ERM, DomainBatch, Fishr
from hf_memaug.training.arguments import DomainTrainingArguments
from training.domain_runs import DOMAINS, domain_trainer

WIDTH, LABELS = 6, 3
# Which domain each row is from: all three, one missing, one with a single row, one row in all.
BATCHES = {
    "all": [0, 1, 2, 2, 1, 0, 0, 1, 2, 1],
    "one missing": [0, 2, 2, 0, 0, 2],
    "a single row": [0, 1, 1, 1, 0, 2, 0],
    "one domain": [1, 1, 1, 1],
    "one row": [2],
}
every_batch = pytest.mark.parametrize("domain_ids", BATCHES.values(), ids=BATCHES.keys())
every_algorithm = pytest.mark.parametrize("name", sorted(ALGORITHMS))


def make(name: str, tmp_path, **kwargs) -> ERM:
    arguments = DomainTrainingArguments(
        output_dir=str(tmp_path), algorithm=name, discriminator_hidden_size=5, use_cpu=True, report_to=[], **kwargs
    )
    torch.manual_seed(0)
    return ALGORITHMS[name](arguments, list(DOMAINS), WIDTH)


class Encoder(torch.nn.Module):
    """A small model whose batch can be made as often as a test needs a gradient of it."""

    def __init__(self, domain_ids: list[int]):
        super().__init__()
        torch.manual_seed(1)
        self.inputs = torch.randn(len(domain_ids), 4)
        self.labels = torch.randint(0, LABELS, (len(domain_ids),))
        self.domain_ids = torch.tensor(domain_ids)
        self.encoder, self.head = torch.nn.Linear(4, WIDTH), torch.nn.Linear(WIDTH, LABELS)

    def batch(self, step: int = 0) -> DomainBatch:
        features = torch.tanh(self.encoder(self.inputs))
        logits = self.head(features)
        loss = F.cross_entropy(logits, self.labels)
        return DomainBatch(loss, logits, self.labels, features, self.domain_ids, step, head_inputs=features)

    def gradients(self, loss: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(loss, list(self.parameters()), allow_unused=True, materialize_grads=True))


def assert_same_gradients(first, second) -> None:
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def slow_irm(batch: DomainBatch) -> torch.Tensor:
    penalties = []
    for domain in batch.domain_ids.unique():
        rows = batch.domain_ids == domain
        scale = torch.ones((), requires_grad=True)
        risk = F.cross_entropy(scale * batch.logits[rows], batch.labels[rows])
        (gradient,) = torch.autograd.grad(risk, scale, create_graph=True)
        penalties.append(gradient**2)
    return torch.stack(penalties).mean()


def slow_coral(batch: DomainBatch) -> torch.Tensor:
    covariances = []
    for domain in range(len(DOMAINS)):
        rows = batch.features[batch.domain_ids == domain]
        if len(rows) > 1:
            covariances.append(torch.cov(rows.T))
    distances = [(one - other).pow(2).sum() / (4 * WIDTH**2) for one, other in combinations(covariances, 2)]
    return torch.stack(distances).mean() if distances else 0 * batch.features.sum()


def slow_vrex(batch: DomainBatch) -> torch.Tensor:
    risks = [
        F.cross_entropy(batch.logits[batch.domain_ids == domain], batch.labels[batch.domain_ids == domain])
        for domain in batch.domain_ids.unique()
    ]
    mean = sum(risks) / len(risks)
    return sum((risk - mean) ** 2 for risk in risks) / len(risks)


def slow_mmd(batch: DomainBatch) -> torch.Tensor:
    def likeness(first, second):
        pairs = [
            sum(torch.exp(-gamma * (one - other).square().sum()) for gamma in (0.001, 0.01, 0.1, 1, 10, 100, 1000))
            for one in first
            for other in second
        ]
        return sum(pairs) / len(pairs)

    parts = [batch.features[batch.domain_ids == domain] for domain in batch.domain_ids.unique()]
    distances = [
        likeness(one, one) + likeness(other, other) - 2 * likeness(one, other) for one, other in combinations(parts, 2)
    ]
    return sum(distances) / len(distances) if distances else 0 * batch.features.sum()


def slow_fishr(batch: DomainBatch) -> torch.Tensor:
    """Row by row, from the gradient of the head's last layer that autograd gives."""
    variances = []
    for domain in batch.domain_ids.unique():
        gradients = []
        for row in (batch.domain_ids == domain).nonzero()[:, 0]:
            error = batch.logits[row].softmax(-1) - F.one_hot(batch.labels[row], LABELS)
            gradients.append(torch.cat([torch.outer(error, batch.head_inputs[row]).flatten(), error]))
        variances.append(torch.stack(gradients).var(dim=0, correction=0))
    mean = sum(variances) / len(variances)
    return sum((one - mean).square().mean() for one in variances) / len(variances)


SLOW = {"irm": slow_irm, "coral": slow_coral, "vrex": slow_vrex, "mmd": slow_mmd, "fishr": slow_fishr}


def slow_dann(batch: DomainBatch, algorithm: DANN) -> torch.Tensor:
    losses = []
    for domain, name in enumerate(DOMAINS):
        chances = torch.sigmoid(algorithm.discriminators(batch.features, name))
        for chance, own in zip(chances, batch.domain_ids.tolist(), strict=True):
            others = len(DOMAINS) - 1
            losses.append(-others * torch.log(chance) if own == domain else -torch.log(1 - chance))
    return torch.stack(losses).mean()


@every_batch
@pytest.mark.parametrize("name, slow", SLOW.items(), ids=SLOW)
def test_a_penalty_is_its_definition_domain_by_domain(name, slow, domain_ids, tmp_path):
    algorithm, model = make(name, tmp_path, penalty_weight=0.7), Encoder(domain_ids)
    batch = model.batch()
    expected = slow(batch)

    def fresh():
        # One that remembers nothing of an earlier batch.
        return make(name, tmp_path, penalty_weight=0.7)

    torch.testing.assert_close(algorithm.penalty(batch), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(fresh().loss(batch), batch.task_loss + 0.7 * expected, rtol=1e-5, atol=1e-6)
    assert_same_gradients(model.gradients(fresh().penalty(model.batch())), model.gradients(slow(model.batch())))
    if len(set(domain_ids)) > 1:
        assert expected > 1e-6, "there was nothing to compare"


@every_batch
@pytest.mark.parametrize("weight", [0.0, 0.3, 2.0])
def test_dann_turns_the_encoder_against_discriminators_that_learn_at_full_strength(weight, domain_ids, tmp_path):
    algorithm, model = make("dann", tmp_path, penalty_weight=weight), Encoder(domain_ids)
    game = slow_dann(model.batch(), algorithm)
    found = algorithm.loss(model.batch())
    torch.testing.assert_close(found, model.batch().task_loss + game)
    # By hand: the task's gradient less the weight times the discriminators' gradient.
    task, against = model.gradients(model.batch().task_loss), model.gradients(game)
    expected = [one - weight * other for one, other in zip(task, against, strict=True)]
    assert_same_gradients(model.gradients(algorithm.loss(model.batch())), expected)
    own = list(algorithm.parameters())
    assert len(own) == 4 * len(DOMAINS)
    expected = torch.autograd.grad(slow_dann(model.batch(), algorithm), own)
    assert_same_gradients(torch.autograd.grad(algorithm.loss(model.batch()), own), expected)


def test_dann_cannot_win_by_always_saying_another(tmp_path):
    """With equal shares of the domains, a discriminator that knows nothing is best at a chance of one half."""
    algorithm, model = make("dann", tmp_path), Encoder([0, 1, 2] * 4)
    batch = model.batch()
    for parameter in algorithm.parameters():
        torch.nn.init.zeros_(parameter)
    biases = [discriminator[-1].bias for discriminator in algorithm.discriminators.discriminators]
    for gradient in torch.autograd.grad(algorithm.loss(batch), biases):
        torch.testing.assert_close(gradient, torch.zeros(1))


@pytest.mark.parametrize("name", sorted([*SLOW, "dann"]))
def test_without_a_weight_every_algorithm_trains_the_model_like_erm(name, tmp_path):
    algorithm, model = make(name, tmp_path, penalty_weight=0.0), Encoder(BATCHES["all"])
    erm = model.gradients(make("erm", tmp_path).loss(model.batch()))
    assert_same_gradients(model.gradients(algorithm.loss(model.batch())), erm)


@pytest.mark.parametrize("name", sorted([*SLOW, "dann"]))
def test_the_penalty_sets_in_after_the_anneal_steps(name, tmp_path):
    algorithm, model = make(name, tmp_path, penalty_anneal_steps=3, penalty_weight=1.0), Encoder(BATCHES["all"])
    erm = model.gradients(model.batch().task_loss)
    for step in range(6):
        found = model.gradients(algorithm.loss(model.batch(step)))
        same = all(torch.allclose(one, other, atol=1e-6) for one, other in zip(found, erm, strict=True))
        assert same == (step < 3), step


def test_fishr_remembers_the_variances(tmp_path):
    """By hand: what is kept of before, and the new, both before they are compared."""
    first, second = Encoder(BATCHES["all"]), Encoder(BATCHES["all"])
    with torch.no_grad():
        second.head.weight.add_(0.5)
    one, other, both = (make("fishr", tmp_path) for _ in range(3))
    one.penalty(first.batch())
    other.penalty(second.batch())
    assert isinstance(both, Fishr) and both.variances is None
    both.penalty(first.batch())
    both.penalty(second.batch())
    torch.testing.assert_close(both.variances, 0.95 * one.variances + other.variances)
    waiting = make("fishr", tmp_path, penalty_anneal_steps=5)
    batch = first.batch(step=2)
    assert waiting.loss(batch) is batch.task_loss
    torch.testing.assert_close(waiting.variances, one.variances)
    again = make("fishr", tmp_path)
    again.load_state_dict(both.state_dict())
    torch.testing.assert_close(again.penalty(first.batch()), both.penalty(first.batch()))


def test_a_penalty_of_ones_own_adds_something():
    class Own(ERM):
        def penalty(self, batch):
            return batch.logits.mean()

    class Quiet(Own):
        default_penalty_weight = 0.5

    assert (ERM.default_penalty_weight, Own.default_penalty_weight, Quiet.default_penalty_weight) == (0.0, 1.0, 0.5)


@pytest.mark.parametrize("name", ["irm", "coral", "vrex", "mmd", "fishr"])
def test_low_precision_is_measured_in_float32(name, tmp_path):
    batch = Encoder(BATCHES["all"]).batch()
    logits, features = batch.logits.bfloat16(), batch.features.bfloat16()
    low = replace(batch, logits=logits, features=features, head_inputs=features)
    rounded = replace(batch, logits=logits.float(), features=features.float(), head_inputs=features.float())
    penalty = make(name, tmp_path).penalty(low)
    assert penalty.dtype == torch.float32
    torch.testing.assert_close(penalty, make(name, tmp_path).penalty(rounded))


def test_an_algorithm_is_a_class_and_a_row(tmp_path, monkeypatch):
    """A sixth algorithm, with a parameter of its own, trained end to end without touching another file."""

    class Thermometer(ERM):
        """The domain with the highest temperature counts most."""

        needs_features = True
        default_penalty_weight = 0.5

        def __init__(self, arguments, domains, feature_size):
            super().__init__(arguments, domains, feature_size)
            self.temperatures = torch.nn.Parameter(torch.zeros(len(domains)))
            self.widths = []

        def penalty(self, batch):
            self.widths.append(batch.features.shape[-1])
            shares, _ = batch.shares(len(self.domains))
            losses = F.cross_entropy(batch.logits, batch.labels, reduction="none")
            return self.temperatures.softmax(-1) @ (shares @ losses)

    monkeypatch.setitem(ALGORITHMS, "thermometer", Thermometer)
    trainer = domain_trainer("kv", tmp_path, algorithm="thermometer", max_steps=4)
    trainer.train()
    assert isinstance(trainer.algorithm, Thermometer) and trainer.algorithm.penalty_weight == 0.5
    assert trainer.algorithm.widths == [32] * 4
    assert trainer.algorithm.temperatures.detach().abs().min() > 0, "its own parameter was not trained"
