# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""How HMA's real memory is written, and how its momentum encoder follows."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from families import Case, leave_together
from tiny_backbones import QUIET
from transformers import ResNetConfig, ResNetModel, Trainer, TrainerCallback, TrainingArguments

from hf_memaug import DomainTrainingArguments, HMAForImageClassification, HMAHead, MemoryUpdateCallback
from hf_memaug.modeling import modeling_hma, modeling_hma_head
from hf_memaug.training import domain_trainer
from training.image_runs import image_trainer
from training.processes import run_in_two_processes
from training.replays import Replayed

IMAGES = Case("hma", "HMAForImageClassification")


def empty(**kwargs) -> HMAForImageClassification:
    model = IMAGES.model(**kwargs)
    model.head.memory.queue.clear()
    return model


def trainer(folder, model, rows: int = 10, callbacks=(), **kwargs) -> Trainer:
    inputs = IMAGES.inputs(rows=rows, labels=True)
    arguments = {**QUIET, "per_device_train_batch_size": 4, "num_train_epochs": 1, "learning_rate": 1e-2, "seed": 0}
    arguments |= kwargs
    return Trainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **arguments),
        train_dataset=[{name: value[row] for name, value in inputs.items()} for row in range(rows)],
        callbacks=[MemoryUpdateCallback(), *callbacks],
    )


class Watch(TrainerCallback):
    """What the memory and the encoders are after each step, and what each step was fed with."""

    def __init__(self):
        self.written, self.batches, self.gradients = [], [], []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.written.append(int(model.head.memory.queue.written))
        self.gradients.append([p.grad for p in model.momentum_backbone.parameters() if p.grad is not None])

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        model.register_forward_pre_hook(self.keep, with_kwargs=True)

    def keep(self, model, args, kwargs):
        if model.training:
            self.batches.append((kwargs["pixel_values"].clone(), kwargs["labels"].clone()))


class TestWriting:
    @pytest.mark.parametrize(
        ("kwargs", "written"),
        [
            ({}, [4, 8, 10]),  # the last batch has two rows
            ({"gradient_accumulation_steps": 2}, [8, 10]),
            ({"gradient_checkpointing": True}, [4, 8, 10]),
            ({"gradient_checkpointing": True, "gradient_accumulation_steps": 2}, [8, 10]),
            ({"per_device_train_batch_size": 3}, [3, 6, 9, 10]),
        ],
    )
    def test_each_row_is_written_once_after_its_step(self, kwargs, written, tmp_path):
        watch = Watch()
        trainer(tmp_path, empty(), callbacks=[watch], **kwargs).train()
        assert watch.written == written
        assert not any(watch.gradients), "the momentum encoder has a gradient"

    def test_what_is_written_is_the_momentum_feature_and_the_embedded_label(self, tmp_path):
        watch, model = Watch(), empty(momentum=1.0)
        model._begin_to_follow()
        # With λ = 1 the momentum encoder stays what the backbone was.
        before = {name: value.clone() for name, value in model.backbone.state_dict().items()}
        trainer(tmp_path, model, rows=8, callbacks=[watch], learning_rate=0.0).train()
        model.eval()
        assert all(torch.equal(value, before[name]) for name, value in model.momentum_backbone.state_dict().items())
        images, labels = (torch.cat(parts) for parts in zip(*watch.batches, strict=True))
        memory = model.head.memory
        with torch.no_grad():
            features = model._features(model.momentum_backbone, {"pixel_values": images, "return_dict": True})[0]
            expected = torch.cat([features, memory.label_embedding(labels)], dim=-1)
        torch.testing.assert_close(memory.queue.slots[:8], expected)
        assert memory.queue.slot_labels[:8].tolist() == labels.tolist()

    def test_rows_of_a_step_that_was_not_made_are_not_written(self, tmp_path):
        model = empty()
        model.train()(**IMAGES.inputs(labels=True))
        trainer(tmp_path, model, rows=8).train()
        assert int(model.head.memory.queue.written) == 8

    def test_evaluation_writes_nothing(self, tmp_path):
        model = empty()
        run = trainer(tmp_path, model)
        run.evaluate(run.train_dataset)
        model.train()
        with torch.no_grad():
            model(**IMAGES.inputs(labels=True))
        assert not model.head.memory.queue.filled.any() and not model.head._pending

    def test_rows_of_a_step_do_not_read_themselves_in_the_memory(self):
        """They are written after it."""
        model, inputs = empty().train(), IMAGES.inputs(labels=True)
        weights = model(**inputs, output_memory_weights=True).memory_weights
        assert weights[:, :, :24].eq(0).all() and weights[:, :, 24].eq(1).all()
        model.update_memory()
        weights = model(**inputs, output_memory_weights=True).memory_weights
        assert (weights[:, :, :3] > 0).all() and weights[:, :, 3:24].eq(0).all()


class TestRefusals:
    def test_labels_are_missing(self):
        with pytest.raises(ValueError, match="`labels` is missing.*`model.eval..`"):
            empty().train()(**IMAGES.inputs())
        # Without a real memory nothing is written.
        IMAGES.model(augmentation="abd+syn").train()(**IMAGES.inputs())

    def test_labels_that_are_not_embedded(self):
        """The embedding has one row more than there are classes, and that one is not for a class."""
        model, inputs = empty(), IMAGES.inputs()
        with pytest.raises(ValueError, match="`labels` has the label 3, .* 0 to 2.*`num_labels=4`"):
            model(**inputs, labels=torch.tensor([0, 3, 1]))

    def test_labels_that_are_no_classes_of_the_rows(self):
        model, inputs = empty(), IMAGES.inputs()
        for labels in (torch.rand(3), torch.eye(3), torch.eye(3).long(), torch.tensor([0, 1])):
            with pytest.raises(ValueError, match="`labels` of 3 rows have the shape .*one class for each row"):
                model(**inputs, labels=labels)

    def test_a_batch_that_does_not_fit(self):
        with pytest.raises(ValueError, match="`real_memory_size=24` is less than a batch of 25.*`real_memory_size=25`"):
            empty().train()(**IMAGES.inputs(rows=25, labels=True))

    def test_a_loop_that_never_updates(self, monkeypatch):
        said, model = [], empty().train()
        monkeypatch.setattr(modeling_hma_head.logger, "warning_once", said.append)
        for _ in range(9):  # three rows each, and room for 24
            model(**IMAGES.inputs(labels=True))
        assert len(said) == 1 and "callbacks=[MemoryUpdateCallback()]" in said[0]
        model.update_memory()
        with pytest.raises(RuntimeError, match="One optimizer step has more rows than `real_memory_size=24`"):
            for _ in range(9):
                model(**IMAGES.inputs(labels=True))

    def test_weights_in_which_the_momentum_encoder_would_stand_still(self):
        model = empty().to(torch.bfloat16).train()
        inputs = {**IMAGES.inputs(), "labels": torch.arange(3)}
        with pytest.raises(
            ValueError, match='bfloat16, in which the steps of the momentum encoder are rounded away.*`dtype="float32"`'
        ):
            model(**inputs)
        empty(momentum_encoder="none").to(torch.bfloat16).train()(**inputs)

    def test_mixup(self, tmp_path):
        with pytest.raises(ValueError, match='`algorithm="mixup"` would write mixed rows into the real memory'):
            image_trainer("gmoe", tmp_path, model=empty(num_labels=10), algorithm="mixup")
        model = IMAGES.model(num_labels=10, augmentation="abd+syn")
        image_trainer("gmoe", tmp_path, model=model, algorithm="mixup").train()


class Unseen(Replayed):
    """The rows that a replay leaves waiting are not where Python would leave them."""

    @contextmanager
    def unseen(self):
        heads = [one for one in self.function.__self__.model.modules() if isinstance(one, HMAHead)]
        waiting = [list(head._pending) for head in heads]
        yield
        for head, before in zip(heads, waiting, strict=True):
            head._pending = before


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kwargs", [{}, {"momentum_encoder": "none"}, {"augmentation": "abd+syn"}], ids=str)
def test_cuda_graphs_write_the_same_memory(kwargs, device, tmp_path, monkeypatch):
    """Replays and the eager steps write the same rows, of a last, smaller batch too."""
    if device == "cpu":
        monkeypatch.setattr(domain_trainer, "GraphedFunction", Unseen)
        monkeypatch.setattr(DomainTrainingArguments, "_check_cuda_graphs", lambda self: None)
    results = []
    for cuda_graphs in (False, True):
        model = (IMAGES.model if "augmentation" in kwargs else empty)(num_labels=10, **kwargs)
        # Not Adam: of a gradient that is nothing but rounding, as that of a key's bias, it makes whole steps.
        steps = {"per_device_train_batch_size": 7, "max_steps": 12, "learning_rate": 0.05, "optim": "sgd"}
        run = image_trainer("gmoe", tmp_path, model=model, use_cpu=device == "cpu", cuda_graphs=cuda_graphs, **steps)
        run.train()
        results.append({name: value.cpu() for name, value in run.model.state_dict().items()})
    recorded = len(run._graphed_loss._recorded)
    assert recorded == 2 and run.state.global_step == 12, "a whole batch, and the last of an epoch"
    eager, graphed = results
    if model.config.has("real"):
        assert eager["head.memory.queue.written"] > model.config.real_memory_size
    for name, value in eager.items():
        torch.testing.assert_close(graphed[name], value, rtol=1e-4, atol=1e-4, msg=name)


class TestMomentum:
    def test_it_follows_by_the_papers_rule_with_running_statistics(self):
        sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
        resnet = ResNetModel(ResNetConfig(**sizes))
        model = HMAForImageClassification.from_backbone(
            resnet, num_labels=3, real_memory_size=24, label_embedding_size=8, momentum=0.9
        ).train()
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5)
        expected = {name: value.clone() for name, value in model.backbone.state_dict().items()}
        for step in range(3):
            model(**IMAGES.inputs(seed=step, labels=True)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            model.update_memory()
            for name, value in model.backbone.state_dict().items():
                # E_m = λ E_m + (1 - λ) E, after the step
                expected[name] = 0.9 * expected[name] + 0.1 * value if value.is_floating_point() else value.clone()
        found = model.momentum_backbone.state_dict()
        assert any("running_mean" in name for name in found)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
        assert any(not torch.allclose(found[name], value) for name, value in model.backbone.state_dict().items())

    def test_it_is_frozen_in_eval_mode_and_not_in_the_optimizer(self, tmp_path):
        model = IMAGES.model().train()
        assert not model.momentum_backbone.training and model.backbone.training
        assert not any(p.requires_grad for p in model.momentum_backbone.parameters())
        run = trainer(tmp_path, model)
        run.create_optimizer()
        optimised = {id(p) for group in run.optimizer.param_groups for p in group["params"]}
        assert not optimised & {id(p) for p in model.momentum_backbone.parameters()}
        assert {id(p) for p in model.backbone.parameters()} <= optimised

    def test_none_writes_the_backbones_own_features(self):
        model = empty(momentum_encoder="none").train()
        assert model.momentum_backbone is None
        inputs = IMAGES.inputs(labels=True)
        features = model(**inputs).features
        model.update_memory()
        assert torch.equal(model.head.memory.queue.slots[:3, :32], features)

    @pytest.mark.parametrize("saved", [["memory", "classifier"], ["memory"], None])
    def test_fresh_memories_that_an_adapter_leaves_out_are_named(self, saved, monkeypatch):
        from peft import LoraConfig, get_peft_model

        said = []
        monkeypatch.setattr(modeling_hma.logger, "warning_once", said.append)
        model = get_peft_model(
            empty(), LoraConfig(r=2, target_modules=["q_proj", "v_proj"], modules_to_save=saved)
        ).train()
        for _ in range(2):
            model(**IMAGES.inputs(labels=True)).loss.backward()
            model.get_base_model().update_memory()
        assert len(said) == 2 - len(saved or []) and all(
            '`modules_to_save=["memory", "classifier"]`' in one for one in said
        )
        assert [one.split()[1] for one in said] == ["memories", "classifier"][len(saved or []) :]

    def test_adapters_are_followed_and_the_copy_learns_nothing(self):
        from peft import LoraConfig, get_peft_model

        whole = empty(momentum=0.5)
        lora = LoraConfig(
            r=2, target_modules=whole.adapter_targets, init_lora_weights=False, modules_to_save=["memory"]
        )
        model = get_peft_model(whole, lora)
        model.train()
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5)
        model(**IMAGES.inputs(labels=True)).loss.backward()
        optimizer.step()
        whole = model.get_base_model()
        assert all(p.grad is None for p in whole.momentum_backbone.parameters())
        whole.update_memory()
        assert int(whole.head.memory.queue.written) == 3
        leading, following = dict(whole.backbone.named_parameters()), dict(whole.momentum_backbone.named_parameters())
        name = next(name for name in leading if "lora_B" in name)
        assert not torch.equal(leading[name], following[name])
        for _ in range(40):
            whole.update_memory()
        torch.testing.assert_close(leading[name], following[name])

    @pytest.mark.parametrize(
        "reaches",
        [
            {"target_modules": r"backbone\.layers\.\d+\.attention\.q_proj"},
            {"target_modules": ["q_proj"], "exclude_modules": r"momentum_backbone.*"},
        ],
    )
    def test_adapters_that_the_copy_would_not_follow_are_refused(self, reaches):
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(empty(), LoraConfig(r=2, **reaches)).train()
        with pytest.raises(
            ValueError, match=r"cannot follow .*q_proj.*`target_modules=\[.q_proj.\]`.*`momentum_encoder"
        ):
            model(**IMAGES.inputs(labels=True))
        # On a memory that is full it is said at the first step.
        model = get_peft_model(IMAGES.model(), LoraConfig(r=2, **reaches)).train()
        with pytest.raises(ValueError, match="cannot follow"):
            model(**IMAGES.inputs(labels=True))
        alone = get_peft_model(empty(momentum_encoder="none"), LoraConfig(r=2, **reaches)).train()
        alone(**IMAGES.inputs(labels=True)).loss.backward()

    def test_fresh_adapters_on_a_full_memory_are_the_same_in_the_copy(self):
        from peft import LoraConfig, get_peft_model

        whole = IMAGES.model()
        assert int(whole.head.memory.queue.written) > 0
        kept = {name: value.clone() for name, value in whole.momentum_backbone.named_parameters()}
        model = get_peft_model(
            whole, LoraConfig(r=2, target_modules=whole.adapter_targets, modules_to_save=["memory"])
        ).train()
        name = next(name for name, _ in whole.backbone.named_parameters() if "lora_A" in name)
        pair = [dict(one.named_parameters()) for one in (whole.backbone, whole.momentum_backbone)]
        assert not torch.equal(pair[0][name], pair[1][name])
        model(**IMAGES.inputs(labels=True))
        assert torch.equal(pair[0][name], pair[1][name])
        # All else of the copy is as the checkpoint had it.
        for old, value in kept.items():
            found = pair[1].get(old, pair[1].get(old.replace(".weight", ".base_layer.weight")))
            found = pair[1][old.replace(".bias", ".base_layer.bias")] if found is None else found
            assert torch.equal(found, value), old


@pytest.mark.parametrize("algorithm", ["coral", "fish"])
def test_algorithms_of_domain_trainer(algorithm, tmp_path):
    pytest.importorskip("sklearn")
    model = empty(num_labels=10, real_memory_size=64)
    run = image_trainer("gmoe", tmp_path, model=model, algorithm=algorithm)
    run.train()
    assert run.state.global_step == 3 and int(model.head.memory.queue.written) >= 18


def _several() -> None:
    """One of two processes, with batches of different sizes at the end."""
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    model = empty(augmentation="rma")
    run = trainer(folder, model, rows=11, per_device_train_batch_size=2, dataloader_drop_last=False)
    run.train()
    queue = model.head.memory.queue
    torch.save(
        {name: value.clone() for name, value in queue.state_dict().items()}, folder / f"{run.args.process_index}.pt"
    )
    (folder / "processes.json").write_text(json.dumps(run.args.world_size))
    leave_together()


@pytest.mark.slow
def test_all_processes_hold_the_same_queue(tmp_path):
    run_in_two_processes("test_hma_training.py", tmp_path)
    assert json.loads((tmp_path / "processes.json").read_text()) == 2
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert int(first["written"]) >= 11 and len(set(first["slots"][:11, 0].tolist())) == 11


if __name__ == "__main__":
    _several()
