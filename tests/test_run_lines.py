# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs of tables: each becomes a line of the record when it is done, in whatever order."""

import json
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples" / "hma"
pytestmark = pytest.mark.usefixtures("here")


def work(job: float, more: str) -> dict:
    time.sleep(job)
    return {"job": job, "said": more}


def test_a_job_that_is_done_is_a_line_though_an_earlier_one_is_not(tmp_path):
    from run_lines import read_runs, run_in_processes

    record = tmp_path / "runs" / "record.jsonl"
    found = []
    for job, result, progress in run_in_processes([3.0, 0.0], work, ("hello",), 2, record):
        found.append(job)
        assert [one["job"] for one in read_runs(record)] == found, "the line is there when the job is spoken of"
        assert result["said"] == "hello" and "torch" in result["made_with"]
        assert progress.startswith(f"[{len(found)}/2, ")
    assert found == [0.0, 3.0]


def test_a_job_that_fails_says_so_when_the_others_are_done(tmp_path):
    from run_lines import run_in_processes

    record = tmp_path / "record.jsonl"
    with pytest.raises(RuntimeError, match="1 of 3 models failed, of which the first is no number") as found:
        for _ in run_in_processes([0.0, "no number", 0.01], work, ("hello",), 1, record):
            pass
    assert isinstance(found.value.__cause__, TypeError)
    assert [json.loads(line)["job"] for line in record.read_text().splitlines()] == [0.0, 0.01]


def test_a_record_that_a_kill_has_cut_goes_on(tmp_path, capsys):
    from run_lines import read_runs, run_in_processes

    record = tmp_path / "record.jsonl"
    for last, kept in (('{"job": 0.0, "sa', []), ('{"job": 0.0}', [0.0])):
        record.write_text('{"job": 9.0}\n' + last)
        assert [one["job"] for one in read_runs(record)] == [9.0, *kept]
        assert ("ends in the middle of a run" in capsys.readouterr().err) == (not kept)
        list(run_in_processes([0.01], work, ("hello",), 1, record))
        assert [one["job"] for one in read_runs(record)] == [9.0, *kept, 0.01]
    record.write_text('{"job": 9.0}\n{"jo\n{"job": 1.0}\n')
    with pytest.raises(ValueError, match="Line 2 of .*record.jsonl is no run. Delete that line"):
        read_runs(record)


class Circle:
    """Something that only a collection of what points at itself lets go."""

    there = 0

    def __init__(self):
        self.me = self
        Circle.there += 1

    def __del__(self):
        Circle.there -= 1


def circles(job: int) -> dict:
    before = Circle.there
    Circle()
    return {"job": job, "before": before}


def test_a_job_leaves_nothing_in_its_process(tmp_path):
    from run_lines import run_in_processes

    found = [result["before"] for _, result, _ in run_in_processes([0, 1, 2], circles, (), 1, tmp_path / "record")]
    assert found == [0, 0, 0]


def test_a_run_takes_the_place_of_one_from_before_a_setting_was_there(tmp_path):
    from run_lines import keep_runs, read_runs

    path = tmp_path / "runs.jsonl"
    keep_runs(path, [{"job": {"seed": 0}, "dev": 1.0}, {"job": {"seed": 1}, "dev": 1.0}])
    keep_runs(path, [{"job": {"seed": 0, "size": None}, "dev": 2.0}, {"job": {"seed": 1, "size": 3}, "dev": 2.0}])
    assert [(run["job"]["seed"], run["dev"]) for run in read_runs(path)] == [(0, 2.0), (1, 1.0), (1, 2.0)]
