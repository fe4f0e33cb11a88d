# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The output of a command, on a terminal and elsewhere."""

import io
import sys

from hf_memaug.runs import display as module
from hf_memaug.runs.display import Display
from hf_memaug.runs.job import Job

JOB = Job(name="mil-books-seed0", method="mil", target="books", seed=0, source={})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_for_each_job(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    display = Display("f1", False, False)
    record = {"job": JOB.identity, "validation": 90.0, "scores": {"books": {"f1": 81.25}}, "seconds": 3.0}
    display.begin(2, 1)
    display.start(JOB)
    for phase in ("meta_train", "train"):
        display.event(JOB, {"event": "step", "phase": phase, "step": 5, "of": 10})
        display.bars[JOB.name].refresh()
    display.done(JOB, record)
    display.close()
    said = display.out.getvalue()
    assert "1 of 2 jobs are already done." in said and "2/2" in said
    assert "mil books seed 0 of meta_train:  50%" in said and "mil books seed 0:  50%" in said and "5/10" in said
    assert "[2/2] mil books seed 0: validation 90.0, books 81.2 (00:03)" in said


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.0)
    display = Display("f1", False, False)
    display.begin(1, 0)
    display.start(JOB)
    display.event(JOB, {"event": "resumed", "phase": "train", "step": 40})
    display.event(JOB, {"event": "step", "phase": "train", "step": 60, "of": 100})
    display.close()
    out = capsys.readouterr().out
    assert out.splitlines() == ["mil books seed 0: resumed from step 40.", "  mil books seed 0: step 60/100"]
