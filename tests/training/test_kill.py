# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`kill -9` in the middle of a run, and the same final weights after it is resumed."""

import json
import signal

import pytest

from training.processes import run_script


@pytest.mark.slow
def test_every_trainer_resumes_to_the_same_weights(tmp_path):
    found = json.loads(run_script("killed_runs.py", tmp_path).splitlines()[-1])
    assert len(found) == 8
    for name, run in found.items():
        assert -signal.SIGKILL in run["codes"], name
        assert run["checkpoints"], f"{name}: it began again"
        assert run["same"], name
