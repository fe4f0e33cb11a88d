# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""States in mapped files: whole or not taken."""

import errno
import os
import pickle
import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers.trainer_callback import TrainerState

from hf_memaug.training import checkpoints, last_complete_checkpoint, state_files
from hf_memaug.training.state_files import StateFiles, saved_states, unpack


def states(step: int, size: int = 3) -> dict:
    weight = torch.nn.Parameter(torch.full((size, 5), float(step)))
    odd = torch.arange(step, step + 3, dtype=torch.uint8)
    return {
        "model.safetensors": {"a": weight, "tied": weight, "half": torch.full((2,), step, dtype=torch.bfloat16)},
        "optimizer.pt": {"state": {0: {"step": torch.tensor(float(step)), "odd": odd, "none": torch.empty(0, 4)}}},
        "more.pt": OrderedDict(rate=0.1 * step, type=torch.float16, turned=torch.arange(6).view(2, 3).T),
        "rng_state.pth": {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()},
        "trainer_state.json": vars(TrainerState(global_step=step, log_history=[{"loss": np.float64(step)}] * step)),
    }


def step_of(checkpoint: str | None) -> int | None:
    return None if checkpoint is None else int(checkpoint.rpartition("-")[2])


@pytest.fixture
def run(tmp_path):
    """A run folder, and the files in its `_last`."""
    return tmp_path, StateFiles(tmp_path / checkpoints.LAST)


def test_a_state_becomes_a_checkpoint_as_trainer_has_it(run):
    folder, files = run
    for step in (1, 2, 3):
        files.save(step, states(step))
    checkpoint = last_complete_checkpoint(folder)
    assert checkpoint == str(folder / "_last" / "checkpoint-3")
    assert sorted(os.listdir(checkpoint)) == sorted(states(3))
    weights, optimizer = (
        load_file(f"{checkpoint}/model.safetensors"),
        torch.load(f"{checkpoint}/optimizer.pt", weights_only=True)["state"][0],
    )
    assert (weights["a"] == 3).all() and (weights["tied"] == 3).all() and weights["half"].dtype == torch.bfloat16
    assert optimizer["step"] == 3 and optimizer["odd"].tolist() == [3, 4, 5] and optimizer["none"].shape == (0, 4)
    # Not with the whole file behind it.
    assert os.path.getsize(f"{checkpoint}/optimizer.pt") < 4000
    more = torch.load(f"{checkpoint}/more.pt", weights_only=True)
    assert more["type"] == torch.float16 and more["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert random.getstate() == torch.load(f"{checkpoint}/rng_state.pth", weights_only=False)["python"]
    assert TrainerState.load_from_json(f"{checkpoint}/trainer_state.json").log_history == [{"loss": 3.0}] * 3


def test_a_checkpoint_of_trainer_that_is_newer_comes_first(run):
    folder, files = run
    files.save(3, states(3))
    for step in (3, 5):
        (folder / f"checkpoint-{step}").mkdir()
    TrainerState(global_step=3).save_to_json(str(folder / "checkpoint-3" / "trainer_state.json"))
    # That of step 5 is not whole, and of step 3 there is one.
    assert last_complete_checkpoint(folder) == str(folder / "checkpoint-3")
    files.save(4, states(4))
    assert last_complete_checkpoint(folder) == str(folder / "_last" / "checkpoint-4")
    # Another run's, as `accept` says.
    assert last_complete_checkpoint(folder, lambda checkpoint: not checkpoint.endswith("-4")) == str(
        folder / "checkpoint-3"
    )


@pytest.mark.parametrize("place", ["before", "tensors", "structure"])
def test_a_state_that_is_torn_is_never_taken(run, monkeypatch, place):
    """Broken off at each place of a copy, the one before is there."""
    folder, files = run
    for step in (1, 2, 3):
        files.save(step, states(step))

    class Killed(BaseException):
        pass

    def broken(*args):
        if place == "structure":
            copy(*args)
        elif place == "tensors":
            copy(args[0][:2], args[1][:2])
        raise Killed

    copy = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", broken)
    with pytest.raises(Killed):
        files.save(4, states(4))
    assert sorted(step for step, _ in saved_states(folder / "_last")) == [3]
    assert step_of(last_complete_checkpoint(folder)) == 3


def test_a_state_that_is_written_while_it_is_read_is_not_taken(run, monkeypatch):
    folder, files = run
    files.save(1, states(1))
    (path,) = (path for _, path in saved_states(folder / "_last"))
    original = state_files._write

    def write(path, state):
        if path.name == "optimizer.pt":
            for step in (2, 3):
                files.save(step, states(step))
        original(path, state)

    monkeypatch.setattr(state_files, "_write", write)
    assert unpack(path) is None
    monkeypatch.undo()
    assert sorted(os.listdir(folder / "_last")) == ["state-0", "state-1"]
    assert step_of(last_complete_checkpoint(folder)) == 3


def test_models_that_grow_and_logs_that_do(run):
    folder, files = run
    for step, size in ((1, 3), (2, 3), (3, 70_000), (4, 2), (3000, 2)):
        files.save(step, states(step, size))
        checkpoint = last_complete_checkpoint(folder)
        weights = load_file(f"{checkpoint}/model.safetensors")
        assert step_of(checkpoint) == step and weights["a"].shape == (size, 5) and (weights["a"] == step).all()


def test_room_is_made_once_for_each_file(run):
    _, files = run
    spent = [files.save(step, states(step, 5000)) for step in range(1, 6)]
    assert spent[0] > 0 and spent[1] > 0 and spent[2:] == [0, 0, 0]


def test_another_start_of_the_machine(run, monkeypatch):
    """Only what was waited for is believed then, and is not written again before the next is there."""
    folder, files = run

    def found():
        with monkeypatch.context() as patched:
            patched.setattr(state_files, "_boot", b"another")
            return [step for step, _ in saved_states(folder / "_last")]

    files.save(1, states(1))
    assert found() == [] and len(saved_states(folder / "_last")) == 1
    for step in range(2, 20):
        files.save(step, states(step))
        if step % 5 == 0:
            files.hold()
        if step % 5 == 2 and step > 5:
            # Two steps later, as by a thread.
            files.keep()
        assert found() == ([] if step < 7 else [5] if step < 12 else [10] if step < 17 else [15]), step
    assert len(os.listdir(folder / "_last")) == state_files.FILES
    files.close()
    assert [step for step, _ in saved_states(folder / "_last")] == [19]


def test_a_full_disk_is_an_error_and_leaves_what_is_whole(run, monkeypatch):
    folder, files = run
    files.save(1, states(1))

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError) as caught:
        files.save(2, states(2))
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(folder / "_last")
    assert os.listdir(folder / "_last") == ["state-0"] and step_of(last_complete_checkpoint(folder)) == 1
    monkeypatch.undo()
    # A file system that copies on writing would end the process; so a disk without room is asked for before.
    monkeypatch.setattr("hf_memaug.files.LEAST_ROOM", 2**62)
    with pytest.raises(OSError, match="No space left"):
        files.save(3, states(3))


def test_a_state_runs_no_code(run):
    class Bad:
        def __reduce__(self):
            return os.mkdir, (str(run[0] / "made"),)

    folder, files = run
    files.save(1, states(1))
    files.save(2, {**states(2), "bad.pt": Bad()})
    with pytest.warns(UserWarning, match="cannot be read.*an older checkpoint is taken"):
        assert step_of(last_complete_checkpoint(folder)) == 1
    assert not (folder / "made").exists()
    with pytest.raises(NotImplementedError):
        pickle.loads(pickle.dumps(state_files._tensor))(0)
