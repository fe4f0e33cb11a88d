# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The seconds of a job, of all processes that worked on it."""

import json
import os
import signal
import time
from pathlib import Path

from transformers.trainer_callback import TrainerState

from hf_memaug.training import costs, last_complete_checkpoint, snapshots
from hf_memaug.training.checkpoints import note_of
from hf_memaug.training.costs import MetricLines, clock_in
from hf_memaug.training.snapshots import Snapshots
from training.domain_runs import domain_trainer


def test_a_job_that_was_killed_after_a_sleep(tmp_path, monkeypatch):
    """With no state yet that could say it."""
    monkeypatch.setattr(costs, "BEAT_SECONDS", 0.05)
    number = os.fork()
    if not number:
        try:
            with clock_in(tmp_path):
                time.sleep(1.0)
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == -signal.SIGKILL
    with clock_in(tmp_path) as clock:
        time.sleep(0.2)
        # But for what a beat may be late.
        assert 1.0 - 0.5 + 0.2 <= clock.seconds < 60


def test_it_is_kept_until_the_job_is_done(tmp_path):
    with clock_in(tmp_path):
        time.sleep(0.1)
    first = float((tmp_path / "seconds").read_text())
    assert first >= 0.1
    with clock_in(tmp_path) as clock:
        assert clock.seconds >= first
        clock.forget()
    assert os.listdir(tmp_path) == []


def test_one_of_several_processes_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with clock_in(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_every_state_has_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "save_share", lambda args: 1e9)
    monkeypatch.setattr(snapshots, "SPARE_SECONDS", 1e9)
    monkeypatch.setattr(costs, "BEAT_SECONDS", 1e9)

    def train(steps: int) -> float:
        with clock_in(tmp_path) as clock:
            lines = MetricLines(tmp_path / "metrics.jsonl")
            trainer = domain_trainer("bert", tmp_path / "run", max_steps=steps, callbacks=[lines, Snapshots()])
            trainer.train(resume_from_checkpoint=last_complete_checkpoint(tmp_path / "run"))
            return clock.seconds

    def noted() -> dict:
        state = Path(last_complete_checkpoint(tmp_path / "run")) / "trainer_state.json"
        return note_of(TrainerState(**json.loads(state.read_text())))

    train(2)
    (tmp_path / "seconds").unlink()
    first = noted()
    assert first["seconds"] > 0
    taken = train(4)
    assert taken > first["seconds"] and noted()["seconds"] > first["seconds"] and noted()["run"] == first["run"]
    # What a state of this process says is counted already.
    with clock_in(tmp_path / "other") as clock:
        state = TrainerState()
        note_of(state)["seconds"] = 50.0
        clock.go_on_from(state)
        assert 50 <= clock.seconds < 60
        clock.stamp(state)
        note_of(state)["seconds"] += 40.0
        clock.go_on_from(state)
        assert clock.seconds < 60
