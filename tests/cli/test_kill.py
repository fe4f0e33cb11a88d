# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A job of the command that is killed resumes to the same weights."""

import random
import re
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hf_memaug.training import last_complete_checkpoint

JOB = "jobs/erm-books-seed0"


def weights(folder: Path) -> dict:
    return load_file(folder / JOB / "checkpoint" / "model.safetensors")


def same(first: dict, second: dict) -> bool:
    return first.keys() == second.keys() and all((first[name] == second[name]).all() for name in first)


@pytest.mark.slow
def test_a_kill_at_any_moment(started, command, columns, no_report, read_lines, tmp_path):
    words = ["train", *columns, "--target", "books", "--max-steps", 100, "--logging-steps", 1, "--evaluations", 10]
    words += ["--per-device-train-batch-size", 4, "--learning-rate", "1e-3", "--lr-scheduler-type", "linear"]
    with no_report():
        assert command(*words, "--output", "whole")[0] == 0
    one = started(*words, "--output", "killed")
    log = tmp_path / "killed" / JOB / "metrics.jsonl"
    begun, end = None, time.monotonic() + 60
    while not (log.is_file() and log.read_text().count("\n") > 30):
        assert one.poll() is None and time.monotonic() < end, one.stderr.read()
        if begun is None and log.parent.is_dir():
            begun = time.monotonic()
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.3))
    one.send_signal(signal.SIGKILL)
    one.wait(timeout=30)
    spent = time.monotonic() - begun
    reached = read_lines(log)[-1]["step"]
    assert 30 <= reached < 100
    saved = Path(last_complete_checkpoint(tmp_path / "killed" / JOB / "run"))
    with no_report():
        code, out, error = command(*words, "--output", "killed")
    assert code == 0, error
    step = int(re.search(r"resumed from step (\d+)\.", out)[1])
    assert step == int(saved.name.rpartition("-")[2]) and reached - 11 <= step <= reached
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    whole, killed = (read_lines(tmp_path / name / JOB / "metrics.jsonl") for name in ("whole", "killed"))
    steps = [line["step"] for line in killed if "loss" in line]
    assert steps == list(range(1, 101))
    losses = [[line["loss"] for line in lines if "loss" in line] for lines in (whole, killed)]
    assert losses[0] == losses[1]
    # Both parts count, as far as the killed one had logged.
    (record,) = read_lines(tmp_path / "killed" / "runs.jsonl")
    again = next(line["train_runtime"] for line in killed if "train_runtime" in line)
    assert record["seconds"] >= max(0.0, spent - 2.5) + again
