# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The seconds of a job, of all processes that worked on it."""

import os
import signal
import time

from hf_memaug.runs import costs
from hf_memaug.runs.costs import JobClock


def test_a_job_that_was_killed_after_a_sleep(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "BEAT_SECONDS", 0.05)
    number = os.fork()
    if not number:
        try:
            with JobClock(tmp_path):
                time.sleep(1.0)
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == -signal.SIGKILL
    with JobClock(tmp_path) as clock:
        time.sleep(0.2)
        # But for what a beat may be late.
        assert 1.0 - 0.5 + 0.2 <= clock.seconds < 60


def test_it_is_kept_until_the_job_is_done(tmp_path):
    with JobClock(tmp_path):
        time.sleep(0.1)
    first = float((tmp_path / "seconds").read_text())
    assert first >= 0.1
    with JobClock(tmp_path) as clock:
        assert clock.seconds >= first
        clock.forget()
    assert os.listdir(tmp_path) == []


def test_one_of_several_processes_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with JobClock(tmp_path):
        pass
    assert os.listdir(tmp_path) == []
