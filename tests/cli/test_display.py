# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The output of a command, on a terminal and elsewhere."""

import io
import re
import sys

from hf_memaug.cli import display as module
from hf_memaug.cli.display import Display
from hf_memaug.runs.job import Job

JOB = Job(name="mil-books-seed0", method="mil", target="books", seed=0, source={})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_live_table(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stdout", Terminal())
    display = Display("f1", False, False, ["erm", "mil"], ["books"])
    record = {
        "name": JOB.name,
        "job": JOB.identity,
        "validation": 90.0,
        "scores": {"books": {"f1": 81.25}},
        "seconds": 3.0,
    }
    display.begin(2, 1, 1, [])
    with display:
        display.start(JOB)
        display.event(JOB, {"event": "step", "phase": "meta_train", "step": 5, "of": 10})
        display._live.refresh()
        display.event(JOB, {"event": "step", "phase": "train", "step": 5, "of": 10})
        display._live.refresh()
        display.done(JOB, record)
    said = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", display.out.getvalue())
    assert "1 of 2 jobs are already done." in said and "step 5/10, " in said
    assert "step 5/10 of meta_train" in said and "steps/s" in said
    assert "mil books seed 0: validation 90.0, books 81.2 (3 s)" in said
    assert said.rstrip().rpartition("erm")[2].split()[:3] == ["-", "mil", "81.2"]


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.0)
    display = Display("f1", False, False, ["mil"], ["books"])
    display.begin(1, 0, 1, [])
    with display:
        display.start(JOB)
        display.event(JOB, {"event": "resumed", "phase": "train", "step": 40})
        display.event(JOB, {"event": "step", "phase": "train", "step": 60, "of": 100})
    out = capsys.readouterr().out
    assert "mil books seed 0: resumed from step 40." in out and "step 60/100, " in out and "\x1b" not in out
