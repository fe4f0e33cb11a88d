# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""A continual run in a process that is killed, and in two processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from training.continual_runs import assert_near, continual_trainer, plain, weights

pytestmark = pytest.mark.usefixtures("light_collector")
HERE = Path(__file__).parent
SAVING = {"save_strategy": "steps", "save_steps": 1}


def run_script(*command, processes=1):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parents[1])]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    command = [*start, str(HERE / "continual_runs.py"), *map(str, command)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    strategies = ("f+m+v", "ewc", "progressive")
    done = run_script(",".join(strategies), tmp_path, 2, processes=2)
    assert done.returncode == 0, done.stderr[-3000:]
    for strategy in strategies:
        two = json.loads((tmp_path / f"{strategy}.json").read_text())
        assert two["processes"] == 2
        one = continual_trainer(strategy, tmp_path / "one", model=plain(strategy))
        one.train()
        assert two["record"] == one.record.to_dict(), strategy
        assert_near(torch.load(tmp_path / f"{strategy}.pt", weights_only=True), weights(one))
