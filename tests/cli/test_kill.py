# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What `kill -9` costs: little, and never the result."""

import errno
import json
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
from families import save_backbone
from safetensors.torch import load_file

from hf_memaug.training import last_complete_checkpoint, snapshots

JOB = "jobs/erm-books-seed0"


def weights(folder: Path) -> dict:
    return load_file(folder / JOB / "checkpoint" / "model.safetensors")


def same(first: dict, second: dict) -> bool:
    return first.keys() == second.keys() and all((first[name] == second[name]).all() for name in first)


def test_a_kill_at_any_moment(started, command, columns, read_lines, tmp_path):
    words = ["train", *columns, "--target", "books", "--max-steps", 100, "--logging-steps", 1, "--evaluations", 1]
    words += ["--per-device-train-batch-size", 4, "--learning-rate", "1e-3", "--lr-scheduler-type", "linear"]
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
    assert saved.parent.name == "_last", "no checkpoint of `Trainer` is due before the end"
    code, out, error = command(*words, "--output", "killed")
    assert code == 0, error
    step = int(re.search(r"goes on from step (\d+)\.", out)[1])
    # Each step takes less than twenty saves; tests/training/test_snapshots.py has longer ones.
    assert step == int(saved.name.rpartition("-")[2]) and reached - 20 <= step <= reached + 1
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    whole, killed = (read_lines(tmp_path / name / JOB / "metrics.jsonl") for name in ("whole", "killed"))
    steps = [line["step"] for line in killed if "loss" in line]
    assert steps == list(range(1, 101))
    losses = [[line["loss"] for line in lines if "loss" in line] for lines in (whole, killed)]
    assert losses[0] == losses[1]
    # Both parts count, but for the last second before the kill; a busy machine may be late to write it.
    (record,) = read_lines(tmp_path / "killed" / "runs.jsonl")
    again = next(line["train_runtime"] for line in killed if "train_runtime" in line)
    assert record["seconds"] >= max(0.0, spent - 2.5) + again
    assert not (tmp_path / "killed" / JOB / "seconds").exists()


GRAPHS = ["--data", "graphs.jsonl", "--method", "hma", "--backbone", "gin-2x8", "--real-memory-size", 8]
QUESTIONS = ["--data", "questions.jsonl", "--task", "questions", "--method", "gmap", "--general", "encoder"]
QUESTIONS += ["--backbone", "encoder"]


class Killed(BaseException):
    """As abrupt as a kill: no callback hears of it."""


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--method", "mil", "--episodes", 2, "--episode-steps", 3, "--inner-steps", 2, "--max-steps", 4],
        ["train", "--method", "dann", "--max-steps", 8],
        ["continual", "--strategies", "ewc", "--max-steps", 4, "--order", "films,books"],
        # These in the second domain.
        ["continual", "--strategies", "replay", "--max-steps", 3, *GRAPHS],
        ["continual", "--strategies", "lwf", "--max-steps", 3, *QUESTIONS],
        ["pretrain", "--max-steps", 8, "--length", 32],
    ],
    ids=lambda words: words[0] if words[0] != "train" else words[2],
)
def test_every_step_can_be_gone_on_from(command, columns, tmp_path, monkeypatch, words):
    """All kinds of job, saved at each step, killed in the middle, and at the same end."""
    if "graphs.jsonl" in words:
        rows = []
        for size in range(3, 43):
            edges = [[one, one + 1] for one in range(size - 1)] + [[0, size - 1]] * (size % 2)
            rows.append({"num_nodes": size, "edges": edges, "label": size % 2, "domain": "ab"[size > 22]})
        (tmp_path / "graphs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif "questions" in words:
        save_backbone("bert", tmp_path / "encoder")
        rows = [
            {"question": "where ?", "context": f"in ward {number}", "domain": "ab"[number % 2]} for number in range(40)
        ]
        answers = {"text": ["ward"], "answer_start": [3]}
        lines = "".join(json.dumps({**row, "answers": answers}) + "\n" for row in rows)
        (tmp_path / "questions.jsonl").write_text(lines)
    elif words[0] != "pretrain" and "--data" not in words:
        words = [*words, *columns, *(["--target", "books", "--evaluations", 1] if words[0] == "train" else [])]
        words += ["--memory-slots", 8, "--memory-key-size", 8] if "mil" in words else []
    words = [*words, "--per-device-train-batch-size", 4]
    assert command(*words, "--output", "whole")[0] == 0
    monkeypatch.setattr(snapshots, "save_share", lambda args: 1e9)
    original, seen = snapshots.Snapshots._save, []

    def save(self, trainer):
        spent = original(self, trainer)
        seen.append(trainer.state.global_step)
        if len(seen) == 3:
            raise Killed
        return spent

    monkeypatch.setattr(snapshots.Snapshots, "_save", save)
    with pytest.raises(Killed):
        command(*words, "--output", "killed")
    code, out, error = command(*words, "--output", "killed")
    assert code == 0, error
    assert f"goes on from step {seen[2]}" in out and len(seen) > 3
    files = [sorted((tmp_path / name).rglob("model.safetensors")) for name in ("whole", "killed")]
    files = [[file for file in of if "jobs" in file.parts or words[0] == "pretrain"] for of in files]
    assert files[0] and len(files[0]) == len(files[1])
    assert all(same(load_file(a), load_file(b)) for a, b in zip(*files, strict=True))


def test_saving_takes_no_more_than_its_share(command, columns, monkeypatch):
    """By the clock of the run: with nothing to spare it saves nothing, with all the time in the world each step."""
    original, seen = snapshots.Snapshots._save, []
    monkeypatch.setattr(
        snapshots.Snapshots,
        "_save",
        lambda self, trainer: (seen.append(trainer.state.global_step), original(self, trainer))[1],
    )
    words = ["train", *columns, "--target", "books", "--max-steps", 6, "--save-steps", 6, "--eval-steps", 6]
    monkeypatch.setattr(snapshots, "save_share", lambda args: 1e-9)
    monkeypatch.setattr(snapshots, "SPARE_SECONDS", 0.0)
    assert command(*words, "--output", "seldom")[0] == 0
    # The first tells what the others would take.
    assert seen == [1]
    seen.clear()
    monkeypatch.setattr(snapshots, "save_share", lambda args: 1e9)
    monkeypatch.setattr(snapshots, "SPARE_SECONDS", 1e9)
    assert command(*words, "--output", "often")[0] == 0
    # The last is a checkpoint of `Trainer`.
    assert seen == [1, 2, 3, 4, 5]


def test_files_that_do_not_fit_are_not_made(command, columns, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "_free_memory", lambda: 1000.0)
    monkeypatch.setattr(snapshots, "save_share", lambda args: 1e9)
    kept = []
    original = snapshots.Snapshots.on_train_end
    monkeypatch.setattr(
        snapshots.Snapshots,
        "on_train_end",
        lambda self, args, *a, **k: (
            kept.append((len(self._files), last_complete_checkpoint(args.output_dir))),
            original(self, args, *a, **k),
        ),
    )
    words = ["train", *columns, "--target", "books", "--max-steps", 3, "--save-steps", 50, "--eval-steps", 50]
    assert command(*words, "--no-load-best-model-at-end", "--output", "tight")[0] == 0
    assert kept[0][0] == 0 and Path(kept[0][1]).parent.name == "run"


def test_a_disk_that_fills_up_while_a_job_is_saved(command, columns, tmp_path, monkeypatch):
    """It is the error of the job, by its name, and the next call goes on from what is whole."""
    allocate, asked = os.posix_fallocate, []

    def full(file, start, size):
        asked.append(size)
        if len(asked) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(file, start, size)

    words = ["train", *columns, "--target", "books", "--max-steps", 4, "--evaluations", 1, "--output", "full"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        code, _, error = command(*words)
    assert code == 1 and "the disk is full" in error, error
    assert not (tmp_path / "full" / "runs.jsonl").exists()
    assert [file.name for file in (tmp_path / "full" / JOB / "run" / "_last").iterdir()] == ["state-0"]
    code, out, error = command(*words)
    assert code == 0 and "goes on from step 1." in out, error


def test_another_share_goes_on_in_the_same_folder(command, columns, tmp_path):
    """It changes nothing of the result: whoever wants it after a kill need not begin anew."""
    words = ["train", *columns, "--target", "books", "--max-steps", 3, "--output", "run"]
    assert command(*words)[0] == 0
    code, out, error = command(*words, "--save-share", 1)
    assert code == 0 and "already" in out, error
    code, _, error = command(*words, "--learning-rate", 1)
    assert code == 2 and "`learning_rate` is 1.0" in error
    words = ["sweep", *columns, "--methods", "erm", "--steps", 2, "--trials", 1, "--draws", 1, "--output", "sweep"]
    assert command(*words, "--target", "books")[0] == 0
    code, out, error = command(*words, "--target", "books", "--save-share", 0.5)
    assert code == 0, error
