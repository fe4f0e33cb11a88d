# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Several processes go on from the same step of the same run, whatever files each of them sees."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, list[dict]]:
    """For each case what the two processes got."""
    output = tmp_path_factory.mktemp("agreement")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parents[1])]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*start, str(HERE / "agreeing_runs.py"), str(output)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    both = [json.loads((output / f"{rank}.json").read_text()) for rank in (0, 1)]
    return {name: [one[name] for one in both] for name in both[0]}


def places(several: list[dict]) -> list[str]:
    return ["/".join(Path(one["found"]).parts[-3:]) for one in several]


def test_one_process_of_a_machine_unpacks(found):
    assert places(found["shared-1"]) == ["all/_last/checkpoint-3"] * 2
    assert [one["unpacked"] for one in found["shared-1"]] == [1, 0]
    assert found["shared-1"][0]["warned"] == []


@pytest.mark.parametrize("machines", [1, 2])
def test_processes_with_files_of_their_own(found, machines):
    """As on two machines, or in two containers of one."""
    assert places(found[f"both-{machines}"]) == ["0/_last/checkpoint-3", "1/_last/checkpoint-3"]


@pytest.mark.parametrize("case", ["late-2", "torn-2", "cut-2"])
def test_what_one_cannot_read_none_goes_on_from(found, case):
    assert places(found[case]) == ["0/_last/checkpoint-2", "1/_last/checkpoint-2"]
    said = "Process 1 cannot read the checkpoint of step 3 that process 0 has; all go on from that of step 2."
    assert said in found[case][0]["warned"]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("other_run-2", "Process 1 cannot read the checkpoint of step 3 that process 0 has, nor is there another"),
        ("first_alone-2", "Process 1 cannot read the checkpoint of step 3 that process 0 has, nor is there another"),
        ("second_alone-2", "Process 1 has a checkpoint in .*, and process 0 none"),
    ],
)
def test_nothing_that_all_can_read(found, case, said):
    """To begin anew would throw away what was trained."""
    for one in found[case]:
        assert re.match(f"ValueError: {said}.*: let `output_dir` lie on a disk that all machines share", one["found"])


def test_nothing_at_all(found):
    assert [one["found"] for one in found["nothing-2"]] == [None, None]


def test_an_error_of_one_is_an_error_of_all(found):
    assert all("[Errno 28] No space left on device" in one["found"] for one in found["full"])


def test_paths_to_different_steps_are_refused(found):
    assert found["same_steps"][0]["found"] == found["same_steps"][1]["found"] != ""
    for one in found["steps"]:
        assert one["found"].startswith("ValueError: The processes would go on from different steps (5, 6). Give all")
