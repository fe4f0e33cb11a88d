# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""MIL's second phase has the memory of its first, whatever it is called with, and nothing else."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import TrainerCallback, TrainingArguments

from hf_memaug import BilevelTrainer, BilevelTrainingArguments
from training.domain_runs import StopAt, rows, tiny_model
from training.episodes import make_trainer, weights_of

SAVES = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}


def learned(folder) -> dict:
    return load_file(folder / "meta_train" / "memory.safetensors")


def has_memory(trainer, memory: dict) -> bool:
    weights = weights_of(trainer)
    return all(torch.equal(weights[name], value) for name, value in memory.items())


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    """A finished run whose memory is another."""
    folder = tmp_path_factory.mktemp("another")
    make_trainer(folder, episodes=1, **SAVES).train()
    return folder


class TestCheckpointsOfAnotherMemory:
    def test_the_last_one_is_passed_over(self, another, tmp_path):
        trainer = make_trainer(tmp_path, **SAVES)
        trainer.meta_train()
        (another / "checkpoint-4").rename(tmp_path / "checkpoint-4")
        try:
            trainer.meta_test(True)
            assert has_memory(trainer, learned(tmp_path))
        finally:
            (tmp_path / "checkpoint-4").rename(another / "checkpoint-9")

    def test_a_path_is_refused(self, another, tmp_path):
        make_trainer(tmp_path, **SAVES).train()
        trainer = make_trainer(tmp_path, **SAVES)
        with pytest.raises(ValueError, match=r"checkpoint-2'\) was trained with another memory.*or `True`"):
            trainer.train(resume_from_checkpoint=str(another / "checkpoint-2"))


def test_meta_training_that_was_stopped_leaves_no_memory_and_goes_on(tmp_path):
    whole = make_trainer(tmp_path / "whole")
    whole.train()
    trainer = make_trainer(tmp_path / "stopped", callbacks=[StopAt(3)])
    with pytest.warns(UserWarning, match="stopped after 3 of 6 steps, without a memory. Resume"):
        output = trainer.train()
    assert output.global_step == 3 and not (tmp_path / "stopped" / "meta_train" / "memory.safetensors").is_file()
    again = make_trainer(tmp_path / "stopped")
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 8
    for name, value in weights_of(whole).items():
        assert torch.equal(weights_of(again)[name], value), name


def test_saves_wait_for_the_outer_step(tmp_path):
    kwargs = {"inner_steps": 2, "save_strategy": "steps", "save_steps": 0.25, "logging_steps": 0.5}
    trainer = make_trainer(tmp_path, hypergradient="exact", **kwargs)
    trainer.meta_train()
    # A quarter of twelve steps is three.
    found = {path.name for path in (tmp_path / "meta_train").glob("checkpoint-*")}
    assert found == {"checkpoint-4", "checkpoint-6", "checkpoint-10", "checkpoint-12"}
    # Half of them is more than an episode.
    assert [log["step"] for log in trainer.meta_log if "loss" in log] == [4, 8, 12]


def test_loggers_are_there_once(tmp_path):
    class Logger(TrainerCallback):
        begun = 0

        def on_train_begin(self, args, state, control, **kwargs):
            self.begun += 1

    logger = Logger()
    trainer = make_trainer(tmp_path, callbacks=[logger])
    trainer.args.report_to = ["tensorboard"]
    inner = trainer._meta_trainer()
    assert inner.args.report_to == [] and trainer.args.report_to == ["tensorboard"]
    assert sum(one is logger for one in inner.callback_handler.callbacks) == 1
    trainer.args.report_to = []
    trainer.train()
    assert logger.begun == 2


class TestRefusals:
    def trainer(self, tmp_path, model=None, **kwargs):
        args = BilevelTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
        given = make_trainer(tmp_path)
        return BilevelTrainer(model=model or given.model, args=args, **{"train_dataset": given.train_dataset, **kwargs})

    def test_a_schedule_that_would_be_dropped(self, tmp_path):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
        with pytest.raises(ValueError, match="`optimizers` is not supported.*Give `optimizer_cls_and_kwargs`"):
            self.trainer(tmp_path, optimizers=(None, schedule))

    def test_models_without_a_memory_that_is_read_last(self, tmp_path):
        with pytest.raises(TypeError, match="meet no key-value memory"):
            self.trainer(tmp_path, tiny_model("bert"))
        adapted = get_peft_model(make_trainer(tmp_path).model, LoraConfig(target_modules=["query"]))
        with pytest.raises(TypeError, match="`model` has adapters of PEFT.*`DomainTrainer` trains one"):
            self.trainer(tmp_path, adapted)
        with pytest.raises(TypeError, match="Give a `BilevelTrainingArguments`"):
            BilevelTrainer(model=adapted, args=TrainingArguments(output_dir=str(tmp_path)))

    def test_no_rows(self, tmp_path):
        with pytest.raises(ValueError, match=r"`train_dataset` has the domains \[\]; MIL needs two or more"):
            self.trainer(tmp_path, train_dataset=rows(0))
        with pytest.raises(ValueError, match="`train_dataset` is missing: give the rows"):
            self.trainer(tmp_path, train_dataset=None).train()

    def test_files_that_are_none(self, tmp_path):
        trainer = make_trainer(tmp_path, **SAVES)
        with pytest.raises(FileNotFoundError, match=r"has no learned memory. Call `meta_train\(\)` first"):
            trainer.meta_test()
        trainer.meta_train()
        other = make_trainer(tmp_path, **SAVES)
        other.model.roberta.memory.slot_keys = torch.nn.Parameter(torch.zeros(5, 8))
        with pytest.raises(ValueError, match="does not fit the model"):
            other.meta_test()
        (tmp_path / "meta_train" / "start.safetensors").unlink()
        (tmp_path / "meta_train" / "memory.safetensors").unlink()
        with pytest.raises(FileNotFoundError, match="start.safetensors`.* is missing. Leave"):
            make_trainer(tmp_path, **SAVES).train(resume_from_checkpoint=True)
