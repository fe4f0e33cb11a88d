# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""How a run saves itself: `kill -9` takes back the step under way, and nothing else."""

import errno
import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, set_seed

from hf_memaug.training import MaskedLMTrainer, SavingArguments, last_complete_checkpoint, snapshots, state_files
from hf_memaug.training.snapshots import Snapshots
from training.continual_runs import continual_trainer
from training.domain_runs import domain_trainer, rows
from training.episodes import make_trainer, weights_of

HERE = Path(__file__).parent
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.fixture
def broken_off(monkeypatch):
    """Ends a run after so many saves; gives the list of steps that are saved, before and after."""

    def broken_off(saves: int) -> list[int]:
        original, seen = Snapshots._save, []

        def save(self, trainer):
            spent = original(self, trainer)
            seen.append(trainer.state.global_step)
            if len(seen) == saves:
                raise KeyboardInterrupt
            return spent

        monkeypatch.setattr(Snapshots, "_save", save)
        return seen

    return broken_off


def test_kills_at_any_moment(tmp_path):
    """With steps of a tenth of a second: long beside a copy. In one process, and in two."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parents[1])]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, str(HERE / "killed_runs.py"), str(tmp_path), "1", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    # One process saves each step; several agree on one four times a second, here on every other or third.
    for found, most in zip(json.loads(done.stdout.splitlines()[-1]), (1, 4), strict=True):
        assert all(0 <= reached - step <= most for reached, step in found["kills"]), found
        assert found["kills"][0][1] + 4 <= found["kills"][1][0], "the second goes on from the first"
        assert found["same"], "to the bit"
        # `Trainer` saves nothing here, so the last state stays.
        assert len(found["left"]) == 1 and found["left"][0].startswith("state-")


def trained(folder, steps: int = 4, **kwargs) -> Snapshots:
    callback = Snapshots()
    domain_trainer("bert", folder, max_steps=steps, callbacks=[callback], **kwargs).train()
    return callback


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(snapshots, "save_share", lambda args: 1e9)
    monkeypatch.setattr(snapshots, "SPARE_SECONDS", 1e9)


def test_the_end_leaves_one_state_or_the_checkpoint_of_trainer(tmp_path, often):
    trained(tmp_path / "none")
    assert os.listdir(tmp_path / "none" / "_last") in (["state-0"], ["state-1"])
    assert last_complete_checkpoint(tmp_path / "none") == str(tmp_path / "none" / "_last" / "checkpoint-4")
    trained(tmp_path / "steps", save_strategy="steps", save_steps=4)
    assert os.listdir(tmp_path / "steps") == ["checkpoint-4"]


def test_a_machine_that_falls_after_training_leaves_the_last_state(tmp_path, often, monkeypatch):
    trained(tmp_path)
    monkeypatch.setattr(state_files, "_boot", b"another")
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "_last" / "checkpoint-4")


def test_the_last_state_stays_where_trainer_keeps_the_best_alone(tmp_path, often):
    """The jobs of the command line: what is left to be scored is not trained for again."""
    every = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
    trained(tmp_path, save_total_limit=1, evaluate=rows(12, 2), **every, **best)
    assert sorted(os.listdir(tmp_path)) == ["_last", "checkpoint-2"]
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "_last" / "checkpoint-3")


def test_the_end_of_an_epoch_is_scored_before_it_is_saved(tmp_path, often):
    """A run that goes on from it begins the next epoch, and would never score this one."""
    seen, each = [], {"eval_strategy": "epoch", "logging_strategy": "no", "evaluate": rows(12, 2)}

    class Seen(Snapshots):
        def _save(self, trainer):
            scored = [line["step"] for line in trainer.state.log_history if "eval_loss" in line]
            seen.append((trainer.state.global_step, scored))
            return super()._save(trainer)

    trainer = domain_trainer("bert", tmp_path, max_steps=-1, num_train_epochs=2, callbacks=[Seen()], **each)
    trainer.train()
    ends = [trainer.state.max_steps // 2, trainer.state.max_steps]
    assert [step for step, _ in seen] == list(range(1, ends[1] + 1)), "once each"
    assert dict(seen)[ends[0]] == ends[:1] and dict(seen)[ends[1]] == ends and dict(seen)[ends[0] - 1] == []
    # Also where the steps are over before the epoch is.
    seen.clear()
    domain_trainer("bert", tmp_path / "few", max_steps=3, callbacks=[Seen()], **each).train()
    assert seen == [(1, []), (2, []), (3, [3])]


def test_a_state_is_brought_to_the_disk_now_and_then(tmp_path, often, monkeypatch):
    """So that a machine that falls leaves one; what the run went on from is not needed any longer then."""
    monkeypatch.setattr(snapshots, "KEEP_SECONDS", 0.0)
    folder, seen = tmp_path / "_last", []
    original = Snapshots._keep
    monkeypatch.setattr(
        Snapshots,
        "_keep",
        lambda self, files: (
            original(self, files),
            seen.append([step for step, path in state_files.saved_states(folder)]),
        ),
    )
    trained(tmp_path)
    last_complete_checkpoint(tmp_path)
    trainer = domain_trainer("bert", tmp_path, max_steps=8, callbacks=[Snapshots()])
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-4"))
    assert seen and not (folder / "checkpoint-4").exists()
    monkeypatch.setattr(state_files, "_boot", b"another")
    trained(tmp_path / "kept", steps=1)
    monkeypatch.setattr(state_files, "_boot", None)
    assert last_complete_checkpoint(tmp_path / "kept") is not None


def test_what_another_run_left_is_not_taken(tmp_path, often):
    trained(tmp_path, steps=6)
    assert last_complete_checkpoint(tmp_path).endswith("-6")
    # From the beginning, and killed before the first step is saved.
    callback = Snapshots()
    callback.after_step = lambda trainer: None
    domain_trainer("bert", tmp_path, max_steps=1, callbacks=[callback]).train()
    assert last_complete_checkpoint(tmp_path) is None


def test_a_disk_whose_files_cannot_be_mapped(tmp_path, often, monkeypatch):
    """`Trainer` writes its own checkpoints there."""

    def refused(*args, **kwargs):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", refused)
        trained(tmp_path, save_total_limit=1)
    assert os.listdir(tmp_path) == ["checkpoint-4"] or not os.listdir(tmp_path / "_last")
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")


def test_a_state_that_cannot_be_copied(tmp_path, often, monkeypatch):
    def refused(*args, **kwargs):
        raise RuntimeError("no such memory")

    monkeypatch.setattr(state_files.StateFiles, "save", refused)
    with pytest.warns(UserWarning, match="could not be copied .no such memory."):
        trained(tmp_path, save_total_limit=1)
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")


def test_a_slow_save_is_paid_back(tmp_path, monkeypatch):
    """A tenth of the time for saves: one that takes as long as ten steps keeps the next hundred from it."""
    monkeypatch.setattr(snapshots, "SPARE_SECONDS", 0.0)
    monkeypatch.setattr(snapshots, "save_share", lambda args: 0.1)
    now, seen = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def save(self, trainer):
        seen.append(trainer.state.global_step)
        now[0] += 10.0 if len(seen) == 1 else 0.05
        return 0.0

    class Clock(Snapshots):
        def on_step_begin(self, args, state, control, **kwargs):
            now[0] += 1.0

    monkeypatch.setattr(Snapshots, "_save", save)
    domain_trainer("bert", tmp_path, max_steps=100, callbacks=[Clock()], logging_strategy="no").train()
    assert seen[0] == 1 and 85 <= seen[1] <= 100 and seen[1:] == list(range(seen[1], 101))


@pytest.mark.parametrize("share", [None, 1.0])
def test_a_share_of_one_saves_after_every_step(tmp_path, monkeypatch, share):
    """Whatever it takes, and without a callback of the caller's; without a share a trainer copies nothing."""
    now, seen = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    original = Snapshots._save

    def save(self, trainer):
        seen.append(trainer.state.global_step)
        now[0] += 100.0
        return original(self, trainer)

    monkeypatch.setattr(Snapshots, "_save", save)
    trainer = domain_trainer("bert", tmp_path, max_steps=6, logging_strategy="no", save_share=share)
    trainer.train()
    assert seen == ([] if share is None else [1, 2, 3, 4, 5, 6])
    assert (last_complete_checkpoint(tmp_path) is None) == (share is None)


def test_a_callback_of_the_callers_is_not_doubled(tmp_path):
    trainer = domain_trainer("bert", tmp_path, save_share=0.5, callbacks=[Snapshots()])
    assert sum(isinstance(one, Snapshots) for one in trainer.callback_handler.callbacks) == 1


@pytest.mark.parametrize("share", [0.0, 1.5, -1.0])
def test_a_share_that_is_none(tmp_path, share):
    with pytest.raises(ValueError, match="`save_share` is .*above 0 and at most 1"):
        domain_trainer("bert", tmp_path, save_share=share)
    with pytest.raises(ValueError, match="`save_only_model=True` leaves out what a run goes on from"):
        domain_trainer("bert", tmp_path, save_share=0.5, save_only_model=True)


@pytest.mark.parametrize("limit", [None, 2])
def test_checkpoints_that_a_share_asked_for_do_not_pile_up(tmp_path, monkeypatch, limit):
    """Where the files do not fit, `Trainer` writes: those of its own stay, of the others the last."""
    monkeypatch.setattr(snapshots, "_free_memory", lambda: 1000.0)
    own = {"save_strategy": "steps", "save_steps": 4, "save_total_limit": limit}
    domain_trainer("bert", tmp_path, max_steps=10, save_share=1.0, logging_strategy="no", **own).train()
    found = {path.name for path in tmp_path.glob("checkpoint-*")}
    assert found == ({"checkpoint-4", "checkpoint-8", "checkpoint-10"} if limit is None else {"checkpoint-10"})


def test_masked_language_models_go_on_by_their_share(tmp_path, broken_off):
    def trainer():
        set_seed(0)
        config = BertConfig(**TINY, vocab_size=99)
        rows = [
            {"input_ids": torch.full((6,), 5 + row % 7), "labels": torch.full((6,), 5 + row % 7)} for row in range(8)
        ]
        arguments = {"max_steps": 5, "per_device_train_batch_size": 2, "report_to": [], "use_cpu": True}
        arguments = SavingArguments(str(tmp_path), save_strategy="no", save_share=1.0, disable_tqdm=True, **arguments)
        return MaskedLMTrainer(BertForMaskedLM(config), arguments, train_dataset=rows)

    seen = broken_off(3)
    with pytest.raises(KeyboardInterrupt):
        trainer().train()
    trainer().train(resume_from_checkpoint=True)
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind, kill_at", [("bilevel", 2), ("bilevel", 9), ("continual", 2), ("continual", 7)])
def test_trainers_of_several_phases_go_on_by_their_share(tmp_path, broken_off, kind, kill_at):
    """Without a checkpoint of `Trainer`, in whichever phase or stage it was, to the bits of a run left alone."""

    def trainer(name, share=1.0):
        if kind == "bilevel":
            return make_trainer(tmp_path / name, save_share=share)
        set_seed(0)
        return continual_trainer("f+m", tmp_path / name, save_share=share)

    whole = trainer("whole", None)
    whole.train()
    seen = broken_off(kill_at)
    with pytest.raises(KeyboardInterrupt):
        trainer("killed").train()
    broken = trainer("killed")
    broken.train(resume_from_checkpoint=True)
    assert len(seen) > kill_at and seen[kill_at] == seen[kill_at - 1] + 1, "it began again"
    one, other = weights_of(whole), weights_of(broken)
    assert one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)
    if kind == "continual":
        assert not list(tmp_path.rglob("state-*")), "a stage that is done needs none"
