# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Algorithms that do more than add a penalty, each against a case computed by hand, and all of them in a trainer."""

import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import TrainerCallback

from hf_memaug.data.sampling import DomainAfterDomainSampler
from hf_memaug.layers.real_memory import RealMemory
from hf_memaug.training.algorithms import ALGORITHMS, MLDG, SWAD, DomainBatch, Fish, GroupDRO, Mixup
from training.domain_runs import DOMAINS, Gradients, domain_trainer, rows, weights


def arguments(**kwargs):
    given = {"penalty_weight": None, "penalty_anneal_steps": 0, "algorithm_kwargs": None, "seed": 0}
    return types.SimpleNamespace(**{**given, "learning_rate": 0.1, **kwargs})


class Line(nn.Module):
    """Logits that are linear in the pixels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 3)

    def forward(self, pixel_values, labels=None):
        logits = self.head(pixel_values)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Pass:
    """The least that an algorithm needs of a forward pass."""

    def __init__(self, model, step=0):
        self.model, self.step, self.seen = model, step, []

    def __call__(self, inputs, domain_ids, weights=None):
        outputs = torch.func.functional_call(self.model, weights or {}, kwargs=inputs)
        self.seen.append((inputs, domain_ids))
        return DomainBatch(outputs["loss"], outputs["logits"], inputs["labels"], None, domain_ids, self.step)

    def averaged(self, gradient):
        return gradient


def a_batch(count: int = 9) -> tuple[dict, torch.Tensor]:
    torch.manual_seed(3)
    inputs = {"pixel_values": torch.randn(count, 4), "labels": torch.randint(0, 3, (count,))}
    return inputs, torch.arange(count) % 3


class TestGroupDRO:
    def test_the_domain_with_the_greatest_loss_counts_more(self):
        algorithm = GroupDRO(arguments(algorithm_kwargs={"rate": 0.5}), list(DOMAINS), None)
        logits = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]], requires_grad=True)
        batch = DomainBatch(torch.tensor(0.0), logits, torch.tensor([0, 0, 0]), None, torch.tensor([0, 1, 2]))
        losses = F.cross_entropy(logits, batch.labels, reduction="none").detach()
        batch.task_loss = losses.mean() + 7  # of which the model itself adds 7
        grown = [1 / 3 * torch.exp(0.5 * loss) for loss in losses]
        shares = [one / sum(grown) for one in grown]
        expected = sum(share * loss for share, loss in zip(shares, losses, strict=True))
        torch.testing.assert_close(algorithm.loss(batch), expected + 7)
        torch.testing.assert_close(algorithm.weights, torch.stack(shares))
        # A second batch without the third domain: its weight waits, and the others' make up the loss.
        less = DomainBatch(losses[:2].mean(), logits[:2], batch.labels[:2], None, batch.domain_ids[:2])
        grown = [share * torch.exp(0.5 * loss) for share, loss in zip(shares[:2], losses[:2], strict=True)]
        expected = sum(one * loss for one, loss in zip(grown, losses[:2], strict=True)) / sum(grown)
        torch.testing.assert_close(algorithm.loss(less), expected)


class TestMixup:
    def test_rows_are_mixed_with_rows_of_another_domain(self):
        algorithm = Mixup(arguments(), list(DOMAINS), None)
        _, domain_ids = a_batch()
        for _ in range(20):
            partners, kept = algorithm.draw(domain_ids)
            assert (domain_ids[partners] != domain_ids).all()
            assert ((kept >= 0) & (kept <= 1)).all()
            for domain in range(3):
                # One share for each pair of domains, and each row of the other once.
                assert len(set(kept[domain_ids == domain].tolist())) == 1
                assert len(set(partners[domain_ids == domain].tolist())) == 3
        torch.manual_seed(0)
        shares = torch.cat([algorithm.draw(domain_ids)[1] for _ in range(300)])
        # Beta(0.2, 0.2): a mean of 1/2 and a variance of 1 / (4 (2 * 0.2 + 1)).
        assert abs(shares.mean() - 0.5) < 0.05 and abs(shares.var() - 1 / 5.6) < 0.02

    def test_a_small_domain_is_used_again(self):
        algorithm = Mixup(arguments(), list(DOMAINS), None)
        partners, _ = algorithm.draw(torch.tensor([0, 0, 0, 1]))
        assert partners.tolist() == [3, 3, 3, 0]

    def test_images_and_labels_are_mixed_alike(self, monkeypatch):
        algorithm, model = Mixup(arguments(), list(DOMAINS), None), Line()
        inputs, domain_ids = a_batch(3)
        partners, kept = torch.tensor([1, 2, 0]), torch.tensor([0.9, 0.3, 0.6])
        monkeypatch.setattr(algorithm, "draw", lambda _: (partners, kept))
        expected = 0.0
        for row in range(3):
            other, share = int(partners[row]), float(kept[row])
            pixels = share * inputs["pixel_values"][row] + (1 - share) * inputs["pixel_values"][other]
            chances = model.head(pixels).softmax(-1)
            labels = inputs["labels"]
            expected -= (share * chances[labels[row]].log() + (1 - share) * chances[labels[other]].log()) / 3
        torch.testing.assert_close(algorithm.train_loss(Pass(model), inputs, domain_ids), expected)

    def test_texts_are_mixed_as_embeddings(self):
        algorithm = Mixup(arguments(), list(DOMAINS), None)
        table = nn.Embedding(9, 2)
        model = types.SimpleNamespace(get_input_embeddings=lambda: table)
        inputs = {
            "input_ids": torch.tensor([[1, 2, 0], [3, 4, 5]]),
            "attention_mask": torch.tensor([[1, 1, 0], [1] * 3]),
        }
        mixed = algorithm.mixed(model, inputs, torch.tensor([1, 0]), torch.tensor([0.25, 1.0]))
        assert set(mixed) == {"inputs_embeds", "attention_mask"}
        torch.testing.assert_close(mixed["inputs_embeds"][0, 1], 0.25 * table.weight[2] + 0.75 * table.weight[4])
        torch.testing.assert_close(mixed["inputs_embeds"][1], table.weight[[3, 4, 5]])
        assert mixed["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 1]]
        with pytest.raises(ValueError, match="Choose another algorithm"):
            algorithm.mixed(model, {"graph": torch.zeros(2)}, torch.tensor([1, 0]), torch.tensor([1.0, 1.0]))


class TestMLDG:
    def gradients(self, algorithm, model, inputs, domain_ids, step=0):
        loss = algorithm.train_loss(Pass(model, step), inputs, domain_ids)
        return loss, torch.autograd.grad(loss, list(model.parameters()))

    def test_the_gradient_is_that_of_both_halves(self):
        """By hand: the gradient here, and that of the unseen domain after a step."""
        algorithm = MLDG(arguments(penalty_weight=0.7), list(DOMAINS), None)
        assert algorithm.inner_rate == 0.1
        inputs, domain_ids = a_batch()
        drawn = set()
        for step in range(12):
            model, run = Line(), Pass(Line(), step)
            algorithm.train_loss(run, inputs, domain_ids)
            (unseen,) = set(run.seen[1][1].tolist())
            assert set(run.seen[0][1].tolist()) == {0, 1, 2} - {unseen}
            drawn.add(unseen)
            is_unseen = domain_ids == unseen
            first = model(**{name: value[~is_unseen] for name, value in inputs.items()})["loss"]
            here = torch.autograd.grad(first, list(model.parameters()))
            for value, gradient in zip(model.parameters(), here, strict=True):
                value.grad = gradient
            torch.optim.Adam(model.parameters(), lr=0.1).step()
            second = model(**{name: value[is_unseen] for name, value in inputs.items()})["loss"]
            there = torch.autograd.grad(second, list(model.parameters()))
            loss, found = self.gradients(algorithm, Line(), inputs, domain_ids, step)
            torch.testing.assert_close(loss, first + 0.7 * second)
            for one, a, b in zip(found, here, there, strict=True):
                torch.testing.assert_close(one, a + 0.7 * b)
        assert drawn == {0, 1, 2}

    @pytest.mark.parametrize("given", [{"penalty_weight": 0.0}, {"penalty_anneal_steps": 5}, {"one domain": True}])
    def test_without_a_second_half_it_is_erm(self, given):
        inputs, domain_ids = a_batch()
        if given.pop("one domain", False):
            domain_ids = torch.zeros_like(domain_ids)
        model = Line()
        loss, _ = self.gradients(MLDG(arguments(**given), list(DOMAINS), None), model, inputs, domain_ids)
        torch.testing.assert_close(loss, model(**inputs)["loss"])


class TestFish:
    def test_a_part_of_the_way_of_all_domains(self):
        algorithm, model = Fish(arguments(algorithm_kwargs={"meta_rate": 0.25}), list(DOMAINS), None), Line()
        inputs, domain_ids = a_batch()
        start = model.head.weight.detach().clone()
        for step in range(1, 4):
            algorithm.before_step(model)
            loss = algorithm.train_loss(Pass(model), inputs, domain_ids)
            torch.testing.assert_close(loss, model(**inputs)["loss"])
            with torch.no_grad():
                model.head.weight.add_(1.0)
            algorithm.after_step(model, is_last=False)
            moved = step if step < 3 else 0.25 * 3
            torch.testing.assert_close(model.head.weight, start + moved)
        # The next round begins there; a run that ends within it ends with a part of its way.
        algorithm.before_step(model)
        with torch.no_grad():
            model.head.weight.add_(1.0)
        algorithm.after_step(model, is_last=True)
        torch.testing.assert_close(model.head.weight, start + 0.75 + 0.25)

    @pytest.mark.parametrize("count", [40, 5])
    def test_each_step_has_one_domain_and_each_round_all(self, count):
        domains = [DOMAINS[row % 3] for row in range(count)]
        sampler = DomainAfterDomainSampler(domains, 4, seed=1)
        drawn = [domains[row] for row in sampler]
        assert len(drawn) == len(sampler) == (36 if count == 40 else 12)
        steps = [set(drawn[start : start + 4]) for start in range(0, len(drawn), 4)]
        assert all(len(step) == 1 for step in steps)
        rounds = [[next(iter(step)) for step in steps[start : start + 3]] for start in range(0, len(steps), 3)]
        assert all(sorted(one) == sorted(DOMAINS) for one in rounds)
        sampler.set_epoch(1)
        assert [domains[row] for row in sampler] != drawn or count == 5


class TestSWAD:
    """A model of one weight that grows by one a step, evaluated every second step: segment k has the mean 2k + 1.5."""

    def run(self, losses, **options):
        algorithm, model = SWAD(arguments(algorithm_kwargs=options), list(DOMAINS), None), nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        for loss in losses:
            for _ in range(2):
                with torch.no_grad():
                    model.weight.add_(1.0)
                algorithm.after_step(model, is_last=False)
            algorithm.after_evaluation({"eval_loss": loss})
        algorithm.after_training(model)
        return model.weight.item()

    @staticmethod
    def mean(*segments):
        return sum(2 * segment + 1.5 for segment in segments) / len(segments)

    def test_from_the_lowest_loss_to_the_end(self):
        # The first of three that is the least of them is the one with 1.0.
        found = self.run([3.0, 2.0, 1.0, 1.1, 1.2, 1.1], start_patience=3, end_patience=2)
        assert found == pytest.approx(self.mean(2, 3, 4, 5))

    def test_to_where_the_loss_rises(self):
        # The limit is 1.3 times the mean of 1.0, 1.1 and 1.2: 1.43. Two evaluations above it end the average.
        losses = [3.0, 2.0, 1.0, 1.1, 1.2, 1.3, 1.5, 1.4, 1.6, 1.7, 0.1]
        found = self.run(losses, start_patience=3, end_patience=2)
        assert found == pytest.approx(self.mean(2, 3, 4, 5, 6, 7))

    def test_a_loss_that_only_falls_leaves_the_last_weights(self):
        assert self.run([5.0, 4.0, 3.0, 2.0], start_patience=3) == pytest.approx(self.mean(3))

    def test_a_real_memory_is_that_of_the_end_of_the_average(self):
        options = {"start_patience": 3, "end_patience": 2}
        algorithm = SWAD(arguments(algorithm_kwargs=options), list(DOMAINS), None)
        queue = RealMemory(4, 1)
        model = nn.Sequential(queue, nn.Linear(1, 1))
        for number, loss in enumerate([3.0, 2.0, 1.0, 1.1, 1.2, 1.3, 1.5, 1.4, 1.6, 1.7, 0.1]):
            queue.write(torch.full((1, 1), float(number)), torch.tensor([number]))
            algorithm.after_step(model, is_last=False)
            algorithm.after_evaluation({"eval_loss": loss})
        algorithm.after_training(model)
        assert queue.slot_labels.tolist() == [4, 5, 6, 7] == queue.slots.flatten().tolist() and queue.written == 8

    def test_what_it_needs_is_asked_for(self, tmp_path):
        for option in ("tolerance", "start_patience"):
            with pytest.raises(ValueError, match=f"`{option}` is 0; it must be a .*number, 1 or more"):
                domain_trainer("bert", tmp_path, algorithm="swad", algorithm_kwargs={option: 0})
        with pytest.raises(ValueError, match="eval_strategy"):
            domain_trainer("bert", tmp_path, algorithm="swad", eval_strategy="no")
        steps = {"algorithm": "swad", "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}
        with pytest.raises(ValueError, match="leave `load_best_model_at_end` out"):
            domain_trainer("bert", tmp_path, load_best_model_at_end=True, save_strategy="steps", **steps)
        with pytest.raises(ValueError, match='algorithm="swad"` .*chooses the weights by them'):
            domain_trainer("bert", tmp_path, evaluate=rows(6, domains=("games",)), **steps)
        with pytest.raises(ValueError, match="give `eval_dataset` as one dataset"):
            domain_trainer("bert", tmp_path, evaluate={"one": rows(6)}, max_steps=2, **steps).train()


def test_swad_does_not_look_at_a_domain_that_is_left_out(tmp_path):
    class Curious(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                trainer.evaluate(rows(6, domains=("games",)))

    trainer = domain_trainer("bert", tmp_path, algorithm="swad", max_steps=6, callbacks=[Curious()])
    with pytest.raises(ValueError, match="rows of games, missing from `train_dataset`"):
        trainer.train()


def run(name: str, kind: str, output, **kwargs):
    return domain_trainer(kind, output, algorithm=name, **{"max_steps": 7, **kwargs})


@pytest.fixture(scope="module")
def erm_weights(tmp_path_factory):
    trainer = run("erm", "kv", tmp_path_factory.mktemp("erm"))
    trainer.train()
    return weights(trainer)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_every_parameter(name, erm_weights, tmp_path):
    gradients = Gradients()
    trainer = run(name, "kv", tmp_path, callbacks=[gradients])
    gradients.trainer = trainer
    before = weights(trainer)
    trainer.train()
    after = weights(trainer)
    assert gradients.missing == gradients.stale == set()
    assert all(value.isfinite().all() for value in after.values() if value.is_floating_point())
    learned = {f"algorithm.{key}" for key, _ in trainer.algorithm.named_parameters()}
    assert bool(learned) == (name == "dann")
    assert all(not torch.equal(before[key], after[key]) for key in learned)
    same = all(torch.equal(erm_weights[key], after[key]) for key in after if key.startswith("model."))
    assert same == (name == "erm"), "it did what ERM does"


@pytest.mark.parametrize("name", ["group_dro", "mixup", "mldg", "fish", "fishr", "swad", "erm"])
def test_a_run_that_was_broken_off_goes_on_the_same(name, tmp_path):
    averaged = {"weight_averaging": 0.3 if name == "erm" else None}
    whole = run(name, "bert", tmp_path / "whole", **averaged)
    whole.train()
    saved = {"save_strategy": "steps", "save_steps": 1, **averaged}
    run(name, "bert", tmp_path / "cut", **saved).train()
    again = run(name, "bert", tmp_path / "cut", **saved)
    again.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-4"))
    expected, found = weights(whole), weights(again)
    for key, value in expected.items():
        if isinstance(value, torch.Tensor) and key.startswith("model."):
            torch.testing.assert_close(found[key], value, rtol=0, atol=0, msg=key)
