# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Every script in examples/ runs offline and leaves a checkpoint that loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Few steps, and settings that a reader would change.
SHORT = ["--max_steps", "2", "--eval_strategy", "no", "--save_strategy", "no", "--load_best_model_at_end", "false"]
RUNS = {
    "write_a_domain": ["--max_steps", "2"],
    "unseen_domain": ["--seeds", "1", *SHORT],
    "train_mil": ["--episodes", "1", "--episode_steps", "2", "--target", "films", *SHORT],
    "train_gmap": ["--strategy", "gated", *SHORT],
    "pretrain_gmap": ["--max_steps", "2"],
    "train_gmoe": ["--algorithm", "coral", *SHORT],
    "train_hma": ["--kind", "text", *SHORT],
    "train_continual": ["--strategy", "ewc", "--domains", "films", "books", "--max_steps", "2"],
    "train_dialogue": ["--num_train_epochs", "1"],
}


def run(script: str, *options: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "examples" / f"{script}.py"), "--output_dir", "output", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_script_is_run():
    scripts = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert scripts == {*RUNS, "small_encoder"}


@pytest.mark.slow
@pytest.mark.parametrize("script", RUNS)
def test_the_script_runs(script, tmp_path):
    run(script, *RUNS[script], folder=tmp_path)
    checkpoint = tmp_path / "output" / ("checkpoint" if script in ("unseen_domain", "write_a_domain") else "")
    from transformers import AutoConfig

    import hf_memaug  # noqa: F401

    assert AutoConfig.from_pretrained(checkpoint).model_type
    assert (checkpoint / "model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["image", "graph"])
def test_hma_reads_other_data(kind, tmp_path):
    if kind == "graph":
        pytest.importorskip("torch_geometric", reason="torch-geometric is not installed: the extra `graph`")
    run("train_hma", "--kind", kind, *SHORT, folder=tmp_path)


@pytest.mark.slow
def test_figures_are_drawn_from_committed_results(tmp_path):
    import shutil

    pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install hf_memaug[report]")
    results = ROOT / "docs/results"
    shutil.copytree(results / "gmap", tmp_path / "gmap", ignore=shutil.ignore_patterns("*.png", "*.jsonl"))
    for command in (
        ["gmap.py", "--backbone", "minilm", "--results", "gmap"],
        ["hma.py", str(results / "hma/coloured.json"), "--output", "gmap/figure2.png"],
    ):
        command = [sys.executable, str(ROOT / "examples/figures" / command[0]), *command[1:]]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    drawn = {path.name for path in (tmp_path / "gmap").glob("*.png")}
    assert drawn == {"figure1_minilm.png", "figure4_minilm.png", "figure2.png"}
