# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Triton kernels without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_interpreted(file: str, cases: int) -> None:
    """
    Runs a test file in Triton's interpreter, where it says "the same" of each of its cases. In a process of its own:
    what is interpreted there would be compiled elsewhere.
    """
    here = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
    path = os.pathsep.join([*here, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, timeout=900)
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter cannot count to an argument beside this NumPy")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["the", "same"] * cases
