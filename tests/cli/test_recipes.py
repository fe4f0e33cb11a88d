# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The values of options and recipes, and the output while a command runs."""

import io
import re
from typing import Literal

import pytest

from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.settings import Setting


@pytest.mark.parametrize(
    "hint, given, converted",
    [
        (float, "2e-5", 2e-5),
        (int, "1e3", 1000),
        (float | int, "2", 2),
        (float | int, "0.5", 0.5),
        (bool | None, "false", False),
        (int | None, "none", None),
        (str | None, "none", "none"),
        (str | None, 5, "5"),
        (list[int] | int | None, "64", 64),
        (list[int] | int | None, "64,32", [64, 32]),
        (list[int] | tuple[int, ...] | None, "10", [10]),
        (list[str], ["a", 1], ["a", "1"]),
        (str | list[str], "a,b", "a,b"),
        (dict | str | None, '{"slots": 5}', {"slots": 5}),
        (dict[str, str] | None, {"a": "b"}, {"a": "b"}),
        (Literal[1, 2], "2", 2),
        (Literal["float16"] | None, "none", None),
    ],
)
def test_values_have_the_types_of_their_fields(hint, given, converted):
    value = Setting("name", hint, None, "").convert(given)
    assert value == converted and type(value) is type(converted)


@pytest.mark.parametrize("hint, given", [(int, "2.5"), (int, True), (float, [1]), (list[int], "a"), (str, {"a": 1})])
def test_values_of_other_types_raise(hint, given):
    with pytest.raises(UsageError, match="`--some-name` is .* It must be of type"):
        Setting("some_name", hint, None, "").convert(given)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_live_table(monkeypatch):
    import sys

    from hf_memaug.cli.display import Display

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stdout", Terminal())
    display = Display("f1", False, False, ["erm", "mil"], ["books"])
    spec = {"name": "mil-books-seed0", "job": {"method": "mil", "target": "books", "seed": 0}}
    record = {**spec, "validation": 90.0, "scores": {"books": {"f1": 81.25}}, "seconds": 3.0}
    display.begin(2, 1, 1, [])
    with display:
        display.start(spec)
        display.event(spec, {"event": "step", "phase": "meta_train", "step": 5, "of": 10})
        display._live.refresh()
        display.event(spec, {"event": "step", "phase": "train", "step": 5, "of": 10})
        display._live.refresh()
        display.done(spec, record)
    said = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", display.out.getvalue())
    assert "1 of 2 jobs are already done." in said and "step 5/10, " in said
    assert "step 5/10 of meta_train" in said and "steps/s" in said
    assert "mil books seed 0: validation 90.0, books 81.2 (3 s)" in said
    assert said.rstrip().rpartition("erm")[2].split()[:3] == ["-", "mil", "81.2"]


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    from hf_memaug.cli import display as module
    from hf_memaug.cli.display import Display

    monkeypatch.setattr(module, "EVERY", 0.0)
    display = Display("f1", False, False, ["mil"], ["books"])
    spec = {"name": "mil-books-seed0", "job": {"method": "mil", "target": "books", "seed": 0}}
    display.begin(1, 0, 1, [])
    with display:
        display.start(spec)
        display.event(spec, {"event": "resumed", "phase": "train", "step": 40})
        display.event(spec, {"event": "step", "phase": "train", "step": 60, "of": 100})
    out = capsys.readouterr().out
    assert "mil books seed 0: resumed from step 40." in out and "step 60/100, " in out and "\x1b" not in out
