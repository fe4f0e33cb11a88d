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


def test_a_job_that_fails_says_so_and_those_that_are_done_stay(tmp_path):
    from run_lines import run_in_processes

    record = tmp_path / "record.jsonl"
    with pytest.raises(TypeError):
        for _ in run_in_processes([0.0, "no number"], work, ("hello",), 1, record):
            pass
    assert [json.loads(line)["job"] for line in record.read_text().splitlines()] == [0.0]
