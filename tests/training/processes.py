# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Starts the scripts of this folder in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def run_script(script: str, *arguments, under=()) -> str:
    """Runs `tests/training/<script>`: its output."""
    paths = os.pathsep.join(map(str, (TESTS, TESTS.parent)))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *under, str(TESTS / "training" / script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_in_two_processes(script: str, *arguments) -> None:
    run_script(script, *arguments, under=["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"])
