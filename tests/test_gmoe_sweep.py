# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The recipe that compares GMoE with the vision transformer it is made of."""

import os
import subprocess
import sys
from pathlib import Path

from transformers import AutoModelForImageClassification

ROOT = Path(__file__).parents[1]


def sweep(folder: Path, *options: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "examples" / "gmoe" / "sweep.py"), *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_six_angles_two_models_three_trials(tmp_path):
    assert "36 jobs, 0 of them done" in sweep(tmp_path, "--dry-run")


def test_the_selected_model_has_a_card(tmp_path):
    settings = ("--steps", "2", "--checkpoint-every", "2", "--trials", "1", "--jobs", "2")
    sweep(tmp_path, "--data", "digits=coloured_digits", "--test-domains=+90%", *settings)
    selected = tmp_path / "runs" / "gmoe" / "selected" / "digits"
    assert sorted(path.parent.parent.parent.name for path in selected.rglob("winner.json")) == ["gmoe", "vit"]
    folder = selected / "gmoe" / "erm" / "+90%"
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| Domain left out | +90% |" in card and "| **+90%** (left out) | test | seed 0 |" in card
    assert AutoModelForImageClassification.from_pretrained(folder).config.num_experts == 6
    assert not (selected / "vit" / "erm" / "+90%" / "README.md").exists()
