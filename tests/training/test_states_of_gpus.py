# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""States of runs on a GPU: what can be seen of them without one, and a run that is killed there."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers.training_args import ParallelMode

from hf_memaug.kernels.cuda_graphs import GraphedFunction
from hf_memaug.training import last_complete_checkpoint, snapshots
from hf_memaug.training.snapshots import ALL_DEVICES, Snapshots, SnapshotTrainer, _random_numbers
from hf_memaug.training.state_files import StateFiles, saved_states
from training.domain_runs import domain_trainer, weights

HERE = Path(__file__).parent


class OnTheGPU(torch.Tensor):
    """A tensor that says it lies on the second GPU."""

    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    device = property(lambda self: torch.device("cuda", 1))


def test_a_state_is_whole_when_the_device_is_done(tmp_path, monkeypatch):
    seen, files = [], StateFiles(tmp_path)
    monkeypatch.setattr(
        torch.cuda, "synchronize", lambda device: seen.append((device, [step for step, _ in saved_states(tmp_path)]))
    )
    for step in (1, 2, 3):
        given = {"more.pt": {"a": torch.ones(3).as_subclass(OnTheGPU) * step, "b": torch.full((2,), step)}}
        files.save(step, given)
    # Step 3 is written over step 1, and is not there before the device is done.
    assert seen == [(torch.device("cuda", 1), []), (torch.device("cuda", 1), [1]), (torch.device("cuda", 1), [2])]
    files.save(4, {"more.pt": {"b": torch.ones(2)}})
    assert len(seen) == 3, "nothing to wait for"


@pytest.fixture
def two_gpus(monkeypatch):
    """Their random numbers, which can be set."""
    held = [torch.tensor([10], dtype=torch.uint8), torch.tensor([20], dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda.random, "get_rng_state", lambda: held[0].clone())
    monkeypatch.setattr(torch.cuda.random, "get_rng_state_all", lambda: [one.clone() for one in held])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: held.__setitem__(device, state))
    return held


def test_the_random_numbers_of_every_device(two_gpus, tmp_path):
    def numbers(mode, count):
        return _random_numbers(SimpleNamespace(parallel_mode=mode, n_gpu=count))

    # One process for each device has them all, as `Trainer` has.
    assert [int(one) for one in numbers(ParallelMode.DISTRIBUTED, 1)["cuda"]] == [10, 20]
    alone = numbers(ParallelMode.NOT_DISTRIBUTED, 1)
    assert int(alone["cuda"]) == 10 and ALL_DEVICES not in alone
    several = numbers(ParallelMode.NOT_DISTRIBUTED, 2)
    assert int(several["cuda"]) == 10 and [int(one) for one in several[ALL_DEVICES]] == [10, 20]

    class Base:
        def _load_rng_state(self, checkpoint):
            two_gpus[0] = torch.load(f"{checkpoint}/rng_state.pth", weights_only=False)["cuda"]

    class Resumed(SnapshotTrainer, Base):
        args = SimpleNamespace(n_gpu=2)

    StateFiles(tmp_path / "_last").save(1, {"rng_state.pth": several, "trainer_state.json": {"global_step": 1}})
    two_gpus[:] = [torch.tensor([0], dtype=torch.uint8)] * 2
    Resumed()._load_rng_state(last_complete_checkpoint(tmp_path))
    assert [int(one) for one in two_gpus] == [10, 20]


def test_the_scale_of_the_loss(tmp_path, monkeypatch):
    """As under fp16, where it grows and shrinks with the gradients."""
    monkeypatch.setattr(snapshots, "save_share", lambda args: 1e9)
    monkeypatch.setattr(snapshots, "SPARE_SECONDS", 1e9)

    def trainer(folder, steps):
        one = domain_trainer("bert", folder, max_steps=steps, callbacks=[Snapshots()], lr_scheduler_type="constant")
        one.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        return one

    whole = trainer(tmp_path / "whole", 5)
    whole.train()
    trainer(tmp_path / "again", 3).train()
    again = trainer(tmp_path / "again", 5)
    again.train(resume_from_checkpoint=True)
    assert again.accelerator.scaler.state_dict() == whole.accelerator.scaler.state_dict()
    assert whole.accelerator.scaler.get_scale() == 32.0 and whole.accelerator.scaler._get_growth_tracker() == 1
    one, other = weights(whole), weights(again)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_recording_draws_no_random_numbers(monkeypatch):
    """A run that goes on records its graphs anew, at another step than one that was never killed."""
    drawn, replayed = [0], []

    def function(inputs):
        drawn[0] += 1
        return inputs

    class Graph:
        def replay(self):
            replayed.append(drawn[0])

        def pool(self):
            return None

    stream = SimpleNamespace(wait_stream=lambda other: None)
    fakes = {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda one: contextlib.nullcontext(),
        "CUDAGraph": Graph,
        "graph": lambda graph, pool: contextlib.nullcontext(),
        "get_rng_state": lambda: drawn[0],
        "set_rng_state": lambda number: drawn.__setitem__(0, number),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    drawn[0] = 7
    GraphedFunction(function)({"x": torch.ones(2)})
    assert replayed == [7]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_kill_at_any_moment_on_a_gpu(tmp_path, precision):
    """Killed twice by SIGKILL, and at the end the same weights to the bit."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parents[1])]),
        "HF_HUB_OFFLINE": "1",
        # Else cuBLAS may add in another order from run to run.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    command = [sys.executable, str(HERE / "killed_gpu_runs.py"), str(tmp_path), precision]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["device"].startswith("cuda") and found["repeats"], "two runs that nobody disturbed are the same"
    assert all(0 <= reached - step <= 2 for reached, step in found["kills"]), found
    assert found["same"], "to the bit"
    assert found["scaled"] == (precision == "fp16")
