# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Settings of `DomainTrainer` that must give the same trajectory do; a run that was killed goes on where it was."""

import json
import shutil

import numpy as np
import pytest
import torch

from hf_memaug.training import last_complete_checkpoint
from hf_memaug.training.algorithms import ALGORITHMS
from training.domain_runs import domain_trainer, logged, scored, weights
from training.processes import run_in_two_processes

both_models = pytest.mark.parametrize("kind", ["kv", "bert"])
# The others are not means over rows: they see the pairs of rows, or the domains, that are in one batch.
ADDITIVE = ("erm", "dann")
# Two processes here have rows of all domains each; of one row, nothing can be unseen.
ON_TWO_PROCESSES = (*ADDITIVE, "fish", "mldg")
additive = pytest.mark.parametrize("algorithm", ADDITIVE)


def assert_same_run(first, second) -> None:
    np.testing.assert_allclose(logged(first), logged(second), rtol=2e-4, atol=2e-4)
    assert_same_weights(weights(first), weights(second))


def assert_same_weights(first, second) -> None:
    assert set(first) == set(second)
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-3, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}")


@both_models
@additive
def test_accumulation_4x1_is_1x4(kind, algorithm, tmp_path):
    runs = []
    for per_device, accumulation in ((4, 1), (1, 4)):
        trainer = domain_trainer(
            kind,
            tmp_path,
            algorithm=algorithm,
            per_device_train_batch_size=per_device,
            gradient_accumulation_steps=accumulation,
        )
        trainer.train()
        runs.append(trainer)
    assert len(logged(runs[0])) == 12
    assert any(name.startswith("algorithm.") for name in weights(runs[0])) == (algorithm == "dann")
    assert_same_run(*runs)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_the_same_seed_is_the_same_run_and_another_is_not(algorithm, tmp_path):
    def run(seed):
        trainer = domain_trainer("kv", tmp_path, algorithm=algorithm, max_steps=3, data_seed=seed)
        trainer.train()
        return weights(trainer)

    first, second, other = run(0), run(0), run(1)
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert any(not torch.equal(value, other[name]) for name, value in first.items())


def test_an_algorithm_with_parameters_draws_nothing_from_the_training(tmp_path):
    """With dropout on, runs that differ by the discriminators alone see the same random numbers."""

    def first_loss(algorithm):
        trainer = domain_trainer("bert", tmp_path, algorithm=algorithm, config={"hidden_dropout_prob": 0.2})
        seen = []
        loss = trainer.algorithm.loss
        trainer.algorithm.loss = lambda batch: (seen.append(batch.task_loss.item()), loss(batch))[1]
        trainer.train()
        return seen[0]

    assert first_loss("erm") == first_loss("dann")


class TestResume:
    def make(self, folder, algorithm="dann", seed=0, **kwargs):
        # Dropout on, so that the state of the random numbers has to come back as well.
        kwargs |= {"config": {"hidden_dropout_prob": 0.1}, "save_strategy": "steps", "save_steps": 2}
        return domain_trainer("kv", folder, algorithm=algorithm, seed=seed, **kwargs)

    @pytest.mark.parametrize("step", [2, 6])
    def test_it_is_bit_equal(self, step, tmp_path, algorithm="dann"):
        straight = self.make(tmp_path, algorithm)
        straight.train()
        for later in range(step + 2, 10, 2):
            shutil.rmtree(tmp_path / f"checkpoint-{later}", ignore_errors=True)
        again = self.make(tmp_path, algorithm, seed=7)
        for parameter in again.algorithm.parameters():
            torch.nn.init.constant_(parameter, 0.1)
        again.train(resume_from_checkpoint=True)
        assert again.state.global_step == 8
        expected = weights(straight)
        for name, value in weights(again).items():
            assert torch.equal(value, expected[name]), name
        assert logged(again) == logged(straight)

    def test_the_last_complete_checkpoint(self, tmp_path):
        assert last_complete_checkpoint(tmp_path / "nowhere") is None
        for step in (9, 10, 100):
            (tmp_path / f"checkpoint-{step}").mkdir()
            state = json.dumps({"global_step": step})
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
        for step, state in ((200, None), (201, '{"global_st'), (202, ""), (203, '{"global_step": 100}')):
            (tmp_path / f"checkpoint-{step}").mkdir()
            if state is not None:
                (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
        (tmp_path / "checkpoint-best").mkdir()
        (tmp_path / "checkpoint-300").write_text("a file")
        assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-100")
        (tmp_path / "checkpoint-100" / "optimizer.pt").write_bytes(b"cut off")
        assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
        (tmp_path / "checkpoint-10" / "model.safetensors").write_bytes(b"cut off")
        assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-9")
        assert last_complete_checkpoint(tmp_path, lambda checkpoint: False) is None

    def test_with_half_a_checkpoint_only_the_refusal_says_so(self, tmp_path):
        trainer = self.make(tmp_path, max_steps=2)
        trainer.train()
        (tmp_path / "checkpoint-2" / "trainer_state.json").unlink()
        with pytest.raises(ValueError, match="(?i)no (valid|complete|whole) checkpoint"):
            self.make(tmp_path, max_steps=4).train(resume_from_checkpoint=True)


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    run_in_two_processes("domain_runs.py", tmp_path, 3, *ON_TWO_PROCESSES)
    for algorithm in ON_TWO_PROCESSES:
        two = json.loads((tmp_path / f"{algorithm}.json").read_text())
        assert two["processes"] == 2, "torchrun started one process only"
        one = domain_trainer("kv", tmp_path, algorithm=algorithm)
        one.train()
        assert len(two["logs"]) == (6 if algorithm == "fish" else 8)  # which takes whole rounds only
        np.testing.assert_allclose(logged(one), two["logs"], rtol=2e-4, atol=2e-4)
        assert_same_weights(weights(one), torch.load(tmp_path / f"{algorithm}.pt"))
    two = json.loads((tmp_path / "metrics.json").read_text())
    for name, value in scored(tmp_path).items():
        # The loss counts the rows that fill up the last batch of a process; the scores must not.
        if name.endswith(("f1", "accuracy")):
            assert two[name] == pytest.approx(value), name


@pytest.mark.gpu
@both_models
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if ALGORITHMS[name].can_be_graphed])
def test_cuda_graphs_are_the_eager_run(kind, algorithm, tmp_path):
    has_penalty = ALGORITHMS[algorithm].default_penalty_weight > 0

    def run(**kwargs):
        # The penalty sets in between two replays of the same shape.
        kwargs |= {"use_cpu": False, "max_steps": 10, "learning_rate": 1e-3}
        kwargs["penalty_anneal_steps"] = 4 if has_penalty else 0
        trainer = domain_trainer(kind, tmp_path, algorithm=algorithm, **kwargs)
        trainer.train()
        return trainer

    eager, graphed = run(), run(cuda_graphs=True)
    # One recording without the penalty, and one with it.
    assert len(logged(eager)) == 10 and len(graphed._graphed_loss._recorded) == (2 if has_penalty else 1)
    np.testing.assert_allclose(logged(graphed), logged(eager), rtol=1e-4, atol=1e-4)
    assert_same_weights(weights(graphed), weights(eager))


@pytest.mark.parametrize("algorithm", ["erm", "swad"])
def test_a_run_that_is_over_takes_no_further_step(algorithm, tmp_path):
    def run():
        return domain_trainer("bert", tmp_path, algorithm=algorithm, max_steps=7, save_strategy="steps", save_steps=1)

    first, again = run(), run()
    first.train()
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == first.state.global_step == 7
    for name, value in weights(first).items():
        assert torch.equal(weights(again)[name], value), name
