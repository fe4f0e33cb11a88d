# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Each algorithm against its definition, domain by domain in plain loops."""

from itertools import combinations

import pytest
import torch
from torch.nn import functional as F

from hf_memaug.training.algorithms import ALGORITHMS, DANN, ERM, IRM, DeepCORAL, DomainBatch
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
        return DomainBatch(F.cross_entropy(logits, self.labels), logits, self.labels, features, self.domain_ids, step)

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


def slow_dann(batch: DomainBatch, algorithm: DANN) -> torch.Tensor:
    losses = []
    for domain, name in enumerate(DOMAINS):
        chances = torch.sigmoid(algorithm.discriminators(batch.features, name))
        for chance, own in zip(chances, batch.domain_ids.tolist(), strict=True):
            others = len(DOMAINS) - 1
            losses.append(-others * torch.log(chance) if own == domain else -torch.log(1 - chance))
    return torch.stack(losses).mean()


@every_batch
@pytest.mark.parametrize("name, slow", [("irm", slow_irm), ("coral", slow_coral)])
def test_a_penalty_is_its_definition_domain_by_domain(name, slow, domain_ids, tmp_path):
    algorithm, model = make(name, tmp_path, penalty_weight=0.7), Encoder(domain_ids)
    batch = model.batch()
    expected = slow(batch)
    torch.testing.assert_close(algorithm.penalty(batch), expected, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(algorithm.loss(batch), batch.task_loss + 0.7 * expected, rtol=1e-5, atol=1e-6)
    assert_same_gradients(model.gradients(algorithm.penalty(model.batch())), model.gradients(slow(model.batch())))
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


@every_algorithm
def test_without_a_weight_every_algorithm_trains_the_model_like_erm(name, tmp_path):
    algorithm, model = make(name, tmp_path, penalty_weight=0.0), Encoder(BATCHES["all"])
    erm = model.gradients(make("erm", tmp_path).loss(model.batch()))
    assert_same_gradients(model.gradients(algorithm.loss(model.batch())), erm)


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"erm"}))
def test_the_penalty_sets_in_after_the_anneal_steps(name, tmp_path):
    algorithm, model = make(name, tmp_path, penalty_anneal_steps=3, penalty_weight=1.0), Encoder(BATCHES["all"])
    erm = model.gradients(model.batch().task_loss)
    for step in range(6):
        found = model.gradients(algorithm.loss(model.batch(step)))
        same = all(torch.allclose(one, other, atol=1e-6) for one, other in zip(found, erm, strict=True))
        assert same == (step < 3), step


def test_discriminators_learn_while_the_encoder_waits(tmp_path):
    algorithm, model = make("dann", tmp_path, penalty_anneal_steps=3), Encoder(BATCHES["all"])
    own = list(algorithm.parameters())
    waiting, playing = (torch.autograd.grad(algorithm.loss(model.batch(step)), own) for step in (0, 3))
    assert_same_gradients(waiting, playing)
    assert all(gradient.any() for gradient in waiting[:2])


@every_algorithm
def test_every_algorithm_comes_from_the_arguments_with_a_weight_of_its_own(name, tmp_path):
    algorithm = make(name, tmp_path)
    assert type(algorithm) is ALGORITHMS[name]
    assert algorithm.penalty_weight == {"erm": 0.0, "irm": 1.0, "coral": 1.0, "dann": 0.1}[name]
    if name != "erm":  # which has none to weigh
        assert make(name, tmp_path, penalty_weight=0.25).penalty_weight == 0.25
    assert algorithm.needs_features == (name in ("coral", "dann"))
    loss = algorithm.loss(Encoder(BATCHES["all"]).batch())
    assert loss.shape == () and torch.isfinite(loss)


def test_the_table_names_each_class_once():
    assert ALGORITHMS == {"erm": ERM, "irm": IRM, "coral": DeepCORAL, "dann": DANN}


@pytest.mark.parametrize("algorithm", [IRM, DeepCORAL])
def test_low_precision_is_measured_in_float32(algorithm, tmp_path):
    name = next(name for name, found in ALGORITHMS.items() if found is algorithm)
    batch = Encoder(BATCHES["all"]).batch()
    low = DomainBatch(
        batch.task_loss, batch.logits.bfloat16(), batch.labels, batch.features.bfloat16(), batch.domain_ids
    )
    rounded = DomainBatch(batch.task_loss, low.logits.float(), batch.labels, low.features.float(), batch.domain_ids)
    made = make(name, tmp_path)
    assert made.penalty(low).dtype == torch.float32
    torch.testing.assert_close(made.penalty(low), made.penalty(rounded))


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
