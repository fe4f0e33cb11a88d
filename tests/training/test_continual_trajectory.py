# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A continual run that was killed goes on where it was; settings that must give the same run do."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_memaug.training import STRATEGIES
from training.continual_runs import assert_near, assert_same, continual_trainer, plain, weights
from training.domain_runs import tiny_model
from training.processes import run_in_two_processes

pytestmark = pytest.mark.usefixtures("light_collector")
# The others are not means over rows, or come by as these do.
ADDITIVE = ("f+m", "ewc", "lwf", "progressive")


class Killed(Exception):
    pass


def kill_at(stage: str, step: int):
    from transformers import TrainerCallback

    class Kill(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if Path(args.output_dir).name.endswith(stage) and state.global_step == step:
                raise Killed

    return Kill()


SAVING = {"save_strategy": "steps", "save_steps": 1}


# Rows are written from texts: test_writing_strategy.py.
@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"write"}))
def test_a_run_that_was_broken_off_goes_on_to_the_bit(strategy, tmp_path):
    straight = continual_trainer(strategy, tmp_path / "straight", **SAVING)
    straight.train()
    stage = "films-phones" if strategy == "multi_task" else "films"
    with pytest.raises(Killed):
        continual_trainer(strategy, tmp_path / "broken", callbacks=[kill_at(stage, 3)], **SAVING).train()
    again = continual_trainer(strategy, tmp_path / "broken", **SAVING)
    with torch.no_grad():  # nothing may hang on the weights that it is given
        for value in again.model.parameters():
            value.fill_(0.1)
    output = again.train(resume_from_checkpoint=True)
    assert_same(again, straight)
    assert output.global_step == straight.state.global_step
    assert json.loads((tmp_path / "broken" / "continual.json").read_text()) == straight.record.to_dict()


def test_a_run_that_is_done_stays_as_it_is(tmp_path):
    straight = continual_trainer("f+m", tmp_path)
    straight.train()
    again = continual_trainer("f+m", tmp_path)
    again.train(resume_from_checkpoint=True)
    assert_same(again, straight)


def test_a_new_run_takes_nothing_from_an_old_one(tmp_path):
    continual_trainer("f", tmp_path, seed=3).train()
    (tmp_path / "_stages" / "7-old").mkdir()
    again = continual_trainer("f", tmp_path)
    again.train()
    straight = continual_trainer("f", tmp_path / "straight")
    straight.train()
    assert_same(again, straight)
    assert sorted(path.name for path in (tmp_path / "_stages").iterdir()) == ["0-books", "1-films", "2-phones", "start"]


@pytest.mark.parametrize("strategy", ADDITIVE)
def test_accumulation_4x1_is_1x4(strategy, tmp_path):
    runs, losses = [], []
    for per_device, accumulation in ((4, 1), (1, 4)):
        sizes = {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": accumulation}
        saves = {"save_strategy": "steps", "save_steps": 4}
        trainer = continual_trainer(strategy, tmp_path / str(per_device), model=plain(strategy), **sizes, **saves)
        trainer.train()
        runs.append(trainer)
        logs = [
            json.loads((folder / "checkpoint-4" / "trainer_state.json").read_text())["log_history"]
            for folder in sorted((tmp_path / str(per_device) / "_stages").glob("[0-9]*"))
        ]
        losses.append([(e["loss"], e["grad_norm"]) for log in logs for e in log if "loss" in e])
    assert len(losses[0]) == 12
    np.testing.assert_allclose(*losses, rtol=2e-3, atol=2e-3)
    assert_near(weights(runs[0]), weights(runs[1]))
    assert runs[0].record == runs[1].record


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    strategies = ("f+m+v", "ewc", "progressive")
    run_in_two_processes("continual_runs.py", ",".join(strategies), tmp_path, 2)
    for strategy in strategies:
        two = json.loads((tmp_path / f"{strategy}.json").read_text())
        assert two["processes"] == 2
        one = continual_trainer(strategy, tmp_path / "one", model=plain(strategy))
        one.train()
        assert two["record"] == one.record.to_dict(), strategy
        assert_near(torch.load(tmp_path / f"{strategy}.pt", weights_only=True), weights(one))


def test_mixed_precision_holds_for_every_stage(tmp_path):
    model = tiny_model("kv")
    dtypes = []
    dense = model.roberta.encoder.layer[0].output.dense

    def note(module, inputs, output):
        if module.training:
            dtypes.append(output.dtype)

    dense.register_forward_hook(note)
    trainer = continual_trainer("f", tmp_path, model=model, bf16=True)
    trainer.train()
    assert dtypes == [torch.bfloat16] * 12
    # The trained model has its own `forward` again, with its decorators.
    assert isinstance(trainer.model(torch.ones(1, 4, dtype=torch.long), return_dict=False), tuple)
