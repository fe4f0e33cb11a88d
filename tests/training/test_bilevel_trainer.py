# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""MIL's two phases: who learns what, and runs that must come out the same."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from hf_memaug import BilevelTrainingArguments, DomainTrainer
from hf_memaug.training import collation, domain_trainer, meta_trainer
from training.episodes import make_trainer, weights_of
from training.processes import run_in_two_processes
from training.replays import Replayed

PROMPTED = "BertWithKVMemoryForPromptClassification"


def memory_names(trainer) -> set[str]:
    return {name for name in weights_of(trainer) if ".memory." in name}


def equal(first: dict, second: dict) -> list[str]:
    return [name for name in first if not torch.equal(first[name], second[name])]


def test_meta_training_teaches_the_memory_and_puts_the_rest_back(tmp_path):
    trainer = make_trainer(tmp_path)
    before = weights_of(trainer)
    trainer.meta_train()
    after = weights_of(trainer)
    memory = memory_names(trainer)
    assert memory and memory <= set(equal(before, after)), "a part of the memory was not learned"
    assert set(equal(before, after)) == memory, "encoder and head must begin the meta-test as they were given"
    assert set(load_file(tmp_path / "meta_train" / "memory.safetensors")) == memory
    trainer.meta_test()
    final = weights_of(trainer)
    changed = set(equal(after, final))
    assert not changed & memory, "the memory is frozen in the meta-test"
    assert "classifier.dense.weight" in changed and any("encoder.layer" in name for name in changed)
    assert all(not parameter.requires_grad for parameter in trainer.model.memory_parameters())


def test_each_player_moves_as_algorithm_2_says(tmp_path):
    """One outer step by hand: the memory climbs the domain loss, its discriminator descends, nothing else moves."""
    trainer = make_trainer(tmp_path, dropout=0.0, episodes=1, episode_steps=1, optim="sgd", learning_rate=0.5)
    meta = trainer._meta_trainer()
    seen = {}
    outer_step = meta.outer_step

    def watched():
        seen["encoder"] = {name: p.detach().clone() for name, p in meta.model.named_parameters()}
        seen["adversary"] = {name: p.detach().clone() for name, p in meta.discriminators.named_parameters()}
        seen["batch"] = meta._outer_batches[0]
        outer_step()

    meta.outer_step = watched
    start = weights_of(trainer)
    meta.train()
    target = meta.episodes.meta_targets[0]
    memory = memory_names(trainer)

    # Line 8: encoder and head have made their step before the domain loss is taken, and the memory has not.
    moved = {name for name, value in seen["encoder"].items() if not torch.equal(value, start[name])}
    assert moved and not moved & memory
    # Lines 9 to 11 by hand, on the updated encoder: Adam's first step is the sign of the gradient times the rate.
    model = meta.model.eval()
    learned = {name: p.detach().clone() for name, p in model.named_parameters()}
    adversary = {name: p.detach().clone() for name, p in meta.discriminators.named_parameters()}
    model.load_state_dict(seen["encoder"], strict=False)
    meta.discriminators.load_state_dict(seen["adversary"])
    model.freeze_memory(False)
    rows = seen["batch"]["input_ids"].shape[0]
    assert rows == 16, "eight rows of the meta-source domains and as many of the meta-target"
    logits = meta.discriminators(model.base_model(**seen["batch"]).augmented_features, target)
    labels = torch.tensor([0.0] * 8 + [1.0] * 8)
    loss = F.binary_cross_entropy_with_logits(logits, labels)
    loss.backward()
    for name, parameter in model.named_parameters():
        if name not in memory:
            continue
        step = learned[name] - seen["encoder"][name]
        strong = parameter.grad.abs() > 1e-7
        assert strong.any(), name
        assert torch.equal(step.sign()[strong], parameter.grad.sign()[strong]), f"{name} must climb"
    index = meta.domains.index(target)
    for name, parameter in meta.discriminators.named_parameters():
        step = adversary[name] - seen["adversary"][name]
        if f"discriminators.{index}." not in name:
            assert not step.any(), "only the meta-target's discriminator plays"
            continue
        strong = parameter.grad.abs() > 1e-7
        assert torch.equal(step.sign()[strong], -parameter.grad.sign()[strong]), f"{name} must descend"


def test_the_first_order_step_builds_no_graph_of_the_encoder(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    meta = trainer._meta_trainer()
    seen = []
    augment = meta.encoder.augment

    def watched(features):
        # In training steps the features carry a graph, in outer steps they must not.
        if not meta.model.training or any(p.requires_grad for p in meta.model.memory_parameters()):
            seen.append((features.requires_grad, torch.is_grad_enabled()))
        return augment(features)

    monkeypatch.setattr(meta.encoder, "augment", watched)
    meta.train()
    assert seen and not any(requires_grad for requires_grad, _ in seen)


@pytest.mark.parametrize("hypergradient", ["first_order", "exact"])
def test_mixed_precision_reaches_the_outer_step(hypergradient, tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, bf16=True, hypergradient=hypergradient)
    meta = trainer._meta_trainer()
    seen = set()
    layer = meta.encoder.encoder.layer[0].intermediate.dense
    layer.register_forward_hook(lambda module, inputs, output: seen.add((meta.model.training, output.dtype)))
    meta.train()
    assert seen == {(True, torch.bfloat16), (False, torch.bfloat16)}
    assert all(parameter.isfinite().all() for parameter in meta.memory.values())


@pytest.mark.parametrize("hypergradient", ["first_order", "exact"])
def test_what_is_logged(hypergradient, tmp_path):
    trainer = make_trainer(tmp_path, hypergradient=hypergradient, episodes=6)
    trainer.meta_train()
    log = [entry for entry in trainer.meta_log if "task_loss" in entry]
    assert len(log) == 12
    targets = {name.removeprefix("domain_loss_") for entry in log for name in entry if name.startswith("domain_loss_")}
    assert len(targets) >= 2 and targets <= set("abc")
    for entry in log:
        (target,) = (name.removeprefix("domain_loss_") for name in entry if name.startswith("domain_loss_"))
        assert 0 <= entry[f"discriminator_accuracy_{target}"] <= 1
        assert 0 < entry["slot_entropy"] <= 1 and 1 <= entry["slots_used"] <= 12
        assert entry["task_loss"] == pytest.approx(entry["loss"], rel=1e-4)
    assert json.loads((tmp_path / "meta_train" / "log.json").read_text()) == trainer.meta_log


def test_replays_are_the_eager_run(tmp_path, monkeypatch):
    """With dropout, and with gradients that are clipped after the replay."""
    monkeypatch.setattr(BilevelTrainingArguments, "_check_cuda_graphs", lambda self: None)
    monkeypatch.setattr(collation, "GRAPH_LENGTHS", 1)
    for module in (domain_trainer, meta_trainer):
        monkeypatch.setattr(module, "GraphedFunction", Replayed)
    memories = []
    for cuda_graphs in (False, True):
        settings = {"dtype": torch.float64, "episodes": 6, "inner_steps": 2, "max_grad_norm": 0.05}
        trainer = make_trainer(tmp_path / str(cuda_graphs), cuda_graphs=cuda_graphs, **settings)
        trainer.meta_train()
        memories.append(load_file(trainer.meta_folder / "memory.safetensors"))
    for name, value in memories[0].items():
        torch.testing.assert_close(memories[1][name], value, rtol=1e-7, atol=1e-9)


@pytest.mark.gpu
def test_cuda_graphs_are_the_eager_run(tmp_path):
    settings = {"use_cpu": False, "dropout": 0.0, "episodes": 4}
    eager = make_trainer(tmp_path / "eager", **settings)
    graphed = make_trainer(tmp_path / "graphed", cuda_graphs=True, **settings)
    for trainer in (eager, graphed):
        trainer.train()
    for one, other in zip(eager.meta_log, graphed.meta_log, strict=True):
        for name in one:
            if name.startswith(("task_loss", "domain_loss", "slot_entropy", "grad_norm")):
                assert one[name] == pytest.approx(other[name], rel=5e-3, abs=1e-4), name
    for name, value in weights_of(eager).items():
        torch.testing.assert_close(value, weights_of(graphed)[name], rtol=1e-2, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("hypergradient", ["first_order", "exact"])
def test_bf16_on_a_gpu(hypergradient, tmp_path):
    trainer = make_trainer(tmp_path, use_cpu=False, bf16=True, hypergradient=hypergradient)
    trainer.meta_train()
    assert all(parameter.isfinite().all() for parameter in trainer.model.memory_parameters())


@pytest.mark.slow
def test_accumulation_is_one_batch(tmp_path):
    whole = make_trainer(tmp_path / "whole", rows=8, accumulation=1, dropout=0.0)
    parts = make_trainer(tmp_path / "parts", rows=2, accumulation=4, dropout=0.0)
    for trainer in (whole, parts):
        trainer.train()
    for name, value in weights_of(whole).items():
        torch.testing.assert_close(value, weights_of(parts)[name], rtol=2e-3, atol=5e-4)
    for one, other in zip(whole.meta_log, parts.meta_log, strict=True):
        for name in one:
            if name.startswith(("task_loss", "domain_loss", "grad_norm")):
                assert one[name] == pytest.approx(other[name], rel=2e-3), name


@pytest.mark.slow
@pytest.mark.parametrize("hypergradient", ["first_order", "exact"])
def test_two_processes_are_one(hypergradient, tmp_path):
    settings = {"hypergradient": hypergradient, "dropout": 0.0, "episodes": 2, "max_steps": 4}
    (tmp_path / "two").mkdir()
    run_in_two_processes("episodes.py", "train", tmp_path / "two", json.dumps({"rows": 4, **settings}))
    logs = json.loads((tmp_path / "two" / "logs.json").read_text())
    assert logs["processes"] == 2, "torchrun started one process only"
    one = make_trainer(tmp_path / "one", rows=8, **settings)
    one.train()
    for mine, theirs in zip(one.meta_log, logs["meta"], strict=True):
        for name in mine:
            if name.startswith(("task_loss", "domain_loss", "discriminator", "grad_norm", "slot_entropy")):
                assert mine[name] == pytest.approx(theirs[name], rel=2e-3, abs=1e-5), name
    for name, value in torch.load(tmp_path / "two" / "weights.pt").items():
        torch.testing.assert_close(value, weights_of(one)[name], rtol=2e-3, atol=5e-4)


@pytest.mark.slow
def test_phases_alone_are_both_in_one_call(tmp_path):
    both = make_trainer(tmp_path / "both")
    both.train()
    first = make_trainer(tmp_path / "alone")
    first.meta_train()
    second = make_trainer(tmp_path / "alone")
    second.meta_test()
    assert not equal(weights_of(both), weights_of(second))
    assert second.meta_log == first.meta_log


class TestOtherDomains:
    """A run that goes on with other sources would score as unseen what it has trained on."""

    def test_a_run_of_other_domains_is_not_resumed(self, tmp_path):
        settings = {"save_strategy": "steps", "save_steps": 2}
        make_trainer(tmp_path, **settings).train()
        other = make_trainer(tmp_path, **settings)
        other.train_dataset = other.train_dataset.select(
            [row for row, domain in enumerate(other.train_dataset["domain"]) if domain != "c"]
        )
        other.domains = ["a", "b"]
        with pytest.raises(ValueError, match=r"was learned on \['a', 'b', 'c'\].*another `output_dir`"):
            other.train(resume_from_checkpoint=True)
        # As where the memory is of these domains, and the classifier's checkpoint is not.
        with pytest.raises(ValueError, match=r"the run has the domains \['a', 'b', 'c'\]"):
            DomainTrainer.train(other, resume_from_checkpoint=True)


def test_callbacks_reach_the_phase_that_they_are_for(tmp_path):
    from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback

    class Seen(TrainerCallback):
        folders: set = set()

        def on_train_begin(self, args, state, control, **kwargs):
            self.folders.add(Path(args.output_dir).name)

    trainer = make_trainer(tmp_path / "run", callbacks=[EarlyStoppingCallback()], eval_on_start=False)
    trainer.add_callback(Seen)
    trainer.remove_callback(PrinterCallback)
    kinds = {type(callback) for callback in trainer._meta_trainer().callback_handler.callbacks}
    assert Seen in kinds and not kinds & {EarlyStoppingCallback, PrinterCallback}
    trainer.meta_train()
    assert Seen.folders == {"meta_train"}


def test_a_memory_that_would_become_nan_is_not_taught(tmp_path):
    from hf_memaug.training import NonFiniteGradientError

    trainer = make_trainer(tmp_path)
    meta = trainer._meta_trainer()
    with torch.no_grad():
        for parameter in meta.discriminators.parameters():
            parameter.fill_(float("nan"))
    with pytest.raises(NonFiniteGradientError, match="NaN or infinite at step 1"):
        meta.train()
    assert all(parameter.isfinite().all() for parameter in meta.memory.values())


def test_prompted_models_learn_too(tmp_path):
    trainer = make_trainer(tmp_path, name=PROMPTED)
    rows, mask = trainer.train_dataset, trainer.model.config.mask_token_id
    trainer.train_dataset = rows.with_columns(input_ids=[[ids[0], mask, *ids[2:]] for ids in rows["input_ids"]])
    trainer.train()
    assert all(math.isfinite(entry["task_loss"]) for entry in trainer.meta_log if "task_loss" in entry)
