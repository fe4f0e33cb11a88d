# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`kill -9` in the middle of a run, and the same final weights after it is resumed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_every_trainer_resumes_to_the_same_weights(tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parents[1])]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, str(HERE / "killed_runs.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 12
    for name, run in found.items():
        assert -signal.SIGKILL in run["codes"], name
        assert run["checkpoints"], f"{name}: it began again"
        assert run["same"], name
