# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The seconds of a job, of all processes that worked on it."""

import os
import time

from hf_memaug.runs import costs
from hf_memaug.runs.costs import JobClock


def test_the_seconds_of_a_killed_process_count(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "BEAT_SECONDS", 0.05)
    killed = JobClock(tmp_path)
    time.sleep(0.2)
    killed.tick()
    again = JobClock(tmp_path)
    assert 0.2 <= float((tmp_path / "seconds").read_text()) <= again.seconds < 60
    again.forget()
    assert os.listdir(tmp_path) == []


def test_the_clock_writes_now_and_then(tmp_path):
    clock = JobClock(tmp_path)
    clock.tick()
    assert os.listdir(tmp_path) == []
