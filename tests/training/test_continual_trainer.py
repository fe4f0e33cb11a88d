# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What `ContinualTrainer` trains, scores, records and refuses."""

import json

import pytest
import torch
from families import vit_gmoe_config

from hf_memaug.data import DomainDataset
from hf_memaug.evaluation import continual_scores
from hf_memaug.training import STRATEGIES
from hf_memaug.training.continual import FineTuning
from hf_memaug.training.continual_trainer import SEEDS_APART
from training.continual_runs import GrowingClassifier, continual_trainer, word_tokenizer
from training.domain_runs import DOMAINS, domain_trainer, rows, tiny_model

BEST = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
BEST |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_accuracy"}
pytestmark = pytest.mark.usefixtures("light_collector")


def by_hand(tmp_path, train, model, number):
    """One stage, by the trainer that everybody knows."""
    trainer = domain_trainer("kv", tmp_path / "by_hand", model=model, train=train, per_device_train_batch_size=4)
    trainer.args.seed = SEEDS_APART * number
    torch.manual_seed(SEEDS_APART * number)
    trainer.train()
    return trainer


@pytest.mark.parametrize("strategy", ["f", "in_domain", "multi_task"])
def test_it_is_the_chain_of_runs_that_it_says(strategy, tmp_path):
    trainer = continual_trainer(strategy, tmp_path / "run", model=tiny_model("kv"))
    output = trainer.train()
    data, test = rows(), rows(15, 2)
    model, expected = tiny_model("kv"), []
    for number, name in enumerate(DOMAINS):
        if strategy == "in_domain":
            model = tiny_model("kv")
        train = data if strategy == "multi_task" else data.domain(name)
        found = by_hand(tmp_path, train, model, number)
        metrics = found.evaluate(test)
        expected.append([metrics[f"eval_{domain}_accuracy"] for domain in DOMAINS])
        if strategy == "multi_task":
            break
    assert trainer.record.matrix() == expected
    for name, value in model.state_dict().items():
        assert torch.equal(value, trainer.model.state_dict()[name]), name
    start = domain_trainer("kv", tmp_path, model=tiny_model("kv")).evaluate(test)
    baseline = [start[f"eval_{domain}_accuracy"] for domain in DOMAINS]
    if strategy == "f":
        assert trainer.figures() == continual_scores(expected, baseline)
    else:
        cells = expected[-1] if strategy == "multi_task" else [expected[i][i] for i in range(3)]
        assert trainer.figures() == {"acc": pytest.approx(sum(cells) / 3), "bwt": None, "fwt": None, "forgetting": None}
    assert output.metrics == {name: value for name, value in trainer.figures().items() if value is not None}


def test_each_domain_is_trained_without_the_others(seen, tmp_path):
    order = ["phones", "books", "films"]
    trainer = continual_trainer("f", tmp_path, domains=order, eval_dataset=rows(12, 3))
    trainer.train()
    assert seen == [({name}, {name}) for name in order]
    assert trainer.record.trained == order and trainer.record.row_names == order
    assert [list(stage["scores"]) for stage in trainer.record.stages] == [list(DOMAINS)] * 3
    assert all(stage["rows"] == 8 and stage["steps"] == 4 for stage in trainer.record.stages)


@pytest.mark.parametrize("strategy", ["f+m", "f+h", "f+m+v", "f+h+v"])
def test_the_model_grows_before_every_domain_but_the_first(strategy, tmp_path):
    trainer = continual_trainer(strategy, tmp_path)
    before = trainer.model.num_parameters()
    trainer.train()
    stages = trainer.record.stages
    assert stages[0]["growth"] == {} and all(stage["growth"] for stage in stages[1:])
    assert trainer.model.num_parameters() > before
    if "m" in strategy:
        assert trainer.model.config.memory_slots == [5, 3, 3]
    if "v" in strategy:
        assert len(trainer.processing_class) == trainer.model.config.vocab_size > len(word_tokenizer())
    again = type(trainer.model).from_pretrained(tmp_path / "_stages" / "2-phones")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in trainer.model.state_dict().items())


def test_what_grows_is_drawn_anew_for_each_domain(tmp_path, monkeypatch):
    drawn = []
    grow = GrowingClassifier.grow_memory

    def noted(self, slots):
        drawn.append(torch.rand(1).item())
        grow(self, slots)

    monkeypatch.setattr(GrowingClassifier, "grow_memory", noted)
    for _ in range(2):
        continual_trainer("f+m", tmp_path).train()
    assert drawn[0] != drawn[1], "slots of two domains must not equal each other"
    assert drawn[:2] == drawn[2:], "and hang on the seed alone"


@pytest.mark.parametrize("strategy", ["ewc", "lwf", "progressive", "replay"])
def test_what_is_against_forgetting_has_an_effect_from_the_second_domain_on(strategy, tmp_path):
    plain = continual_trainer("f", tmp_path / "f")
    plain.train()
    other = continual_trainer(strategy, tmp_path / strategy)
    other.train()
    from safetensors.torch import load_file

    def stage(name, folder):
        found = load_file(tmp_path / name / "_stages" / folder / "model.safetensors")
        return {key.removeprefix("columns.0."): value for key, value in found.items()}

    if strategy != "replay":  # which shuffles otherwise
        assert all(torch.equal(v, stage(strategy, "0-books")[k]) for k, v in stage("f", "0-books").items())
    changed = stage(strategy, "1-films")
    assert any(not torch.equal(value, changed[name]) for name, value in stage("f", "1-films").items())


def test_a_progressive_network_keeps_its_earlier_columns(tmp_path):
    trainer = continual_trainer("progressive", tmp_path)
    trainer.train()
    from hf_memaug.training.continual.progressive import ProgressiveColumns

    first = ProgressiveColumns.from_pretrained(tmp_path / "_stages" / "0-books").columns[0].state_dict()
    for name, value in trainer.model.columns[0].state_dict().items():
        assert torch.equal(value, first[name]), name
    assert any(not torch.equal(v, first[n]) for n, v in trainer.model.column.state_dict().items())
    assert trainer.model.config.columns == 3 and len(trainer.model.laterals) == 2
    assert all(lateral.weight.any() for lateral in trainer.model.laterals)


@pytest.mark.parametrize("strategy", ["ewc", "progressive"])
def test_images_and_experts(strategy, tmp_path):
    from transformers import set_seed

    from hf_memaug import ViTGMoEForImageClassification

    set_seed(0)
    pixels = torch.randn(18, 3, 16, 16).tolist()
    data = DomainDataset(
        {"pixel_values": pixels, "labels": [n % 3 for n in range(18)], "domain": [DOMAINS[n // 6] for n in range(18)]}
    )
    model = ViTGMoEForImageClassification(vit_gmoe_config())
    from tiny_backbones import tiny_image_processor

    trainer = continual_trainer(
        strategy, tmp_path, model=model, train=data, test=data, processing_class=tiny_image_processor(), max_steps=1
    )
    trainer.train()
    assert trainer.figures()["acc"] is not None


def test_a_class_and_a_row_add_a_strategy(tmp_path, monkeypatch):
    class Halved(FineTuning):
        """Half of the loss."""

        options = {"share": 0.5}

        def loss(self, batch, inputs, model):
            return self.share * batch.task_loss

    monkeypatch.setitem(STRATEGIES, "halved", Halved)
    trainer = continual_trainer("halved", tmp_path, strategy_kwargs='{"share": 0.25}', optim="sgd")
    trainer.train()
    assert trainer.strategy.share == 0.25 and trainer.record.strategy == {"name": "halved", "options": {"share": 0.25}}


def test_the_checkpoint_of_a_stage_is_chosen_on_its_own_dev_rows(seen, tmp_path):
    trainer = continual_trainer("f", tmp_path, eval_dataset=rows(18, 3), **BEST, greater_is_better=True)
    trainer.train()
    assert all(dev == train for train, dev in seen)
    for number, name in enumerate(DOMAINS):
        folder = tmp_path / "_stages" / f"{number}-{name}"
        state = json.loads((folder / "checkpoint-4" / "trainer_state.json").read_text())
        scores = [entry["eval_accuracy"] for entry in state["log_history"] if "eval_accuracy" in entry]
        assert state["best_metric"] == max(scores) and len(scores) == 4
        best = folder / f"checkpoint-{state['best_global_step']}" / "model.safetensors"
        assert best.read_bytes() == (folder / "model.safetensors").read_bytes()


def test_callbacks_hear_of_each_stage_and_stop_each_by_itself(tmp_path):
    from transformers import EarlyStoppingCallback, TrainerCallback

    class Listener(TrainerCallback):
        def __init__(self):
            self.heard, self.steps = [], 0

        def on_step_end(self, args, state, control, **kwargs):
            self.steps += 1

        def on_stage_end(self, args, state, control, record=None, **kwargs):
            self.heard.append(record.trained)

    listener = Listener()
    given = {"callbacks": [listener, EarlyStoppingCallback(1)], "eval_dataset": rows(12, 3)}
    trainer = continual_trainer("f", tmp_path, compute_metrics=lambda prediction: {"accuracy": 0.5}, **given, **BEST)
    trainer.train()
    assert listener.heard == [["books"], ["books", "films"], list(DOMAINS)]
    assert listener.steps == 6 == trainer.state.global_step, "two steps of each domain: the second is no better"
