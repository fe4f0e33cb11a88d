# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The command in this process, or in one of its own, on tiny checkpoints and generated rows."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from cli.row_files import write_pictures

ROOT = Path(__file__).parents[2]


@pytest.fixture
def reviews(tmp_path) -> Path:
    """A CSV of three shops."""
    from hf_memaug.data import generated_reviews

    rows = generated_reviews(rows_per_domain=12, domains=["books", "films", "phones"])
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "stars", "shop"])
        writer.writerows((row["text"], rows.label_names[row["label"]], row["domain"]) for row in rows)
    return path


@pytest.fixture
def columns(reviews) -> list[str]:
    return ["--data", str(reviews), "--label", "stars", "--domain", "shop"]


@pytest.fixture
def encoder(tmp_path) -> str:
    """A tiny BERT."""
    from tiny_backbones import save_backbone

    return save_backbone("bert", tmp_path / "encoder")


@pytest.fixture
def pictures(tmp_path) -> Path:
    """A folder `domain/class/*.png`."""
    return write_pictures(tmp_path / "pictures", 12)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """`command(*words)` runs `hf-memaug` in a fresh folder: (exit code, stdout, stderr)."""
    import transformers

    from hf_memaug_cli.app import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hf-memaug"])
    verbosity = transformers.logging.get_verbosity()

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    yield run
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()


@pytest.fixture
def no_report():
    """`with no_report():` no run draws its report, which takes longer than the few steps of these runs."""
    return lambda: mock.patch("hf_memaug.reporting.html_report.write_report", return_value="none")


@pytest.fixture
def started(tmp_path):
    """`started(*words)` begins `hf-memaug` in a process of its own."""
    processes = []

    def start(*words: object, **kwargs) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        one = subprocess.Popen(
            [sys.executable, "-m", "hf_memaug.cli", *map(str, words)],
            cwd=tmp_path,
            env={**environment, **kwargs.pop("env", {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **kwargs,
        )
        processes.append(one)
        return one

    yield start
    for one in processes:
        if one.poll() is None:
            one.kill()
            one.wait()


QUICK = ["--max-steps", "2", "--evaluations", "1", "--per-device-train-batch-size", "8"]
MEMORY = ["--memory-slots", "8", "--memory-key-size", "8"]


@pytest.fixture
def quick() -> list[str]:
    return QUICK


@pytest.fixture
def memory() -> list[str]:
    return MEMORY


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def read_lines():
    return lines
