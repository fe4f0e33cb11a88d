# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The run folder and the runner, with jobs that do not train."""

import json
import os
import signal
from pathlib import Path

import pytest

from hf_memaug.runs.errors import DataRefused, Interrupted, UsageError
from hf_memaug.runs.folder import RunFolder
from hf_memaug.runs.job import Job
from hf_memaug.runs.results import read_run
from hf_memaug.runs.runner import _environments, run_jobs


class Notes:
    """A display that keeps what it is told."""

    def __init__(self):
        self.said = []

    def begin(self, total, done):
        self.said.append(("begin", total, done))

    def close(self):
        pass

    def start(self, job):
        self.said.append(("start", job.name))

    def event(self, job, event):
        self.said.append(("event", job.name))

    def done(self, job, record):
        self.said.append(("done", job.name))

    def failed(self, job, why, log):
        self.said.append(("failed", job.name, why, log))

    def interrupted(self):
        return "interrupted"


def quick(seed: int, **fields) -> Job:
    fields = {"name": f"m-seed{seed}", "method": "m", "source": {}, "target": "a", "data": "x", **fields}
    return Job(kind="quick", seed=seed, imports=["quick_job"], **fields)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def test_a_job_is_read_as_it_was_written(tmp_path):
    job = quick(3, settings={"learning_rate": 1e-3}, protocol={"metric": "f1"}, backbone="/some/encoder")
    job.write(tmp_path)
    assert Job.read(tmp_path) == job
    written = json.loads((tmp_path / "job.json").read_text())
    assert written["job"] == job.identity and job.identity["backbone"] == "encoder"
    assert job.identity["learning_rate"] == 1e-3 and job.identity["metric"] == "f1"


def test_jobs_that_are_done_are_skipped_and_failures_are_retried(folder):
    jobs, notes = [quick(1), quick(7), quick(2)], Notes()
    with folder.locked():
        failed = run_jobs(jobs, folder, notes)
        assert failed == [jobs[1]] and notes.said[0] == ("begin", 3, 0)
        _, name, why, log = next(one for one in notes.said if one[0] == "failed")
        assert name == "m-seed7" and why == "ValueError: no such luck" and "Traceback" in log.read_text()
        again = Notes()
        assert run_jobs(jobs, folder, again) == failed and again.said[0] == ("begin", 3, 2)
    assert [job.seed for job in read_run(folder.path).jobs] == [1, 2]
    # `keep="best"`: one checkpoint for each method and target.
    assert [path.parent.name for path in sorted(folder.path.glob("jobs/*/checkpoint"))] == ["m-seed2"]


def adapting(seed: int, **fields) -> Job:
    return quick(seed, name=f"k-seed{seed}", method="k", start=f"m-seed{seed}", **fields)


@pytest.mark.parametrize("keep, kept", [("best", ["k-seed2", "m-seed2"]), ("start", ["k-seed1", "k-seed2"])])
def test_a_checkpoint_stays_until_the_jobs_that_start_from_it_are_done(folder, keep, kept):
    first = [quick(1, keep=keep), quick(2, keep=keep)]
    # m-seed2 validates better, and k-seed1 still needs m-seed1.
    later = [adapting(one, keep="best" if keep == "best" else "none") for one in (1, 2)]
    with folder.locked():
        assert run_jobs([*first, *later], folder, Notes()) == []
        assert [path.parent.name for path in sorted(folder.path.glob("jobs/*/checkpoint"))] == kept
        # Another method that starts from m-seed1: it runs again, as its checkpoint is gone.
        notes, another = Notes(), quick(1, name="l-seed1", method="l", start="m-seed1", keep="all")
        assert run_jobs([first[0], another], folder, notes) == []
        assert [one[1] for one in notes.said if one[0] == "start"] == ["m-seed1", "l-seed1"]
    assert len(read_run(folder.path).jobs) == len(folder.records()) == 5


def test_jobs_fail_whose_start_failed(folder):
    notes = Notes()
    with folder.locked():
        failed = run_jobs([quick(7), adapting(7)], folder, notes)
    assert [job.name for job in failed] == ["m-seed7", "k-seed7"]


@pytest.mark.slow
def test_a_job_waits_for_its_start_where_several_run_at_once(folder):
    jobs = [adapting(1), quick(1), adapting(7), quick(7)]
    notes = Notes()
    with folder.locked():
        failed = run_jobs(jobs, folder, notes, at_once=4)
    assert [job.name for job in failed] == ["m-seed7", "k-seed7"]
    assert [one[1] for one in notes.said if one[0] == "done"] == ["m-seed1", "k-seed1"]


def test_other_settings_in_the_same_folder_raise(folder):
    with folder.locked():
        run_jobs([quick(1)], folder, Notes())
    for job, error, said in (
        (quick(1, protocol={"metric": "f1"}), UsageError, "`metric` is 'f1' for m-seed1, but in"),
        (quick(2, settings={"learning_rate": 1.0}), UsageError, "`learning_rate` is 1.0 for m-seed2"),
        (quick(2, data="y"), DataRefused, "holds other rows"),
    ):
        with pytest.raises(error, match=said):
            folder.check_jobs([job])
    # Draws of a sweep differ in what was drawn.
    drawn = quick(1, name="n", method="n", protocol={"draw": 1, "hparams": {"learning_rate": 1.0}})
    assert folder.check_jobs([drawn]) == set()


def test_a_broken_line_is_skipped_and_its_job_runs_again(folder):
    with folder.locked():
        run_jobs([quick(1), quick(2)], folder, Notes())
        path = folder.path / "runs.jsonl"
        path.write_text(path.read_text()[:-20])
        notes = Notes()
        run_jobs([quick(1), quick(2)], folder, notes)
    assert notes.said[0] == ("begin", 2, 1)
    assert {record["name"] for record in folder.records()} == {"m-seed1", "m-seed2"} and len(folder.warnings) == 1


def test_a_run_folder_changes_nothing_outside_of_it(folder, tmp_path):
    other = tmp_path / "other"
    (other / "checkpoint").mkdir(parents=True)
    record = {"job": quick(1).identity, "validation": 0.0, "scores": {}}
    for name in (str(other), "../../other", "", "jobs/../.."):
        with folder.locked():
            (folder.path / "runs.jsonl").write_text(json.dumps({**record, "name": name}) + "\n")
            for use, of in ((RunFolder.records, folder), (read_run, folder.path)):
                with pytest.raises(UsageError, match="not a folder in"):
                    use(of)
    (folder.path / "runs.jsonl").unlink()
    for name in ("jobs", "lock", "report.html"):
        (folder.path / name).unlink(missing_ok=True)
        (folder.path / name).symlink_to(other)
        with pytest.raises(UsageError, match=f"{name} is a link that leads out of the run folder"), folder.locked():
            pass
        with pytest.raises(UsageError, match="link"):
            read_run(folder.path)
        (folder.path / name).unlink()
    assert (other / "checkpoint").is_dir()


def test_two_runs_do_not_share_a_folder(folder):
    with folder.locked(), pytest.raises(UsageError, match="in use by another run"):
        with RunFolder(folder.path).locked():
            pass
    # The file stays, the lock does not.
    with folder.locked():
        pass


def test_each_job_gets_one_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert [one["CUDA_VISIBLE_DEVICES"] for one in _environments(3, 1)] == ["2", "5", "2"]
    # The processes of one job share them.
    assert [one["CUDA_VISIBLE_DEVICES"] for one in _environments(1, 2)] == ["2,5"]


@pytest.mark.slow
def test_several_jobs_at_once_and_an_interruption(folder):
    class Impatient(Notes):
        """Asks the command to stop when two jobs have ended. That of seed 8 runs until then."""

        def end(self):
            if sum(one[0] in ("done", "failed") for one in self.said) == 2:
                os.kill(os.getpid(), signal.SIGTERM)

        def done(self, *args):
            super().done(*args)
            self.end()

        def failed(self, *args):
            super().failed(*args)
            self.end()

    notes = Impatient()
    with folder.locked(), pytest.raises(Interrupted, match="interrupted"):
        run_jobs([quick(1), quick(7), quick(8)], folder, notes, at_once=3)
    assert [record["name"] for record in folder.records()] == ["m-seed1"]
    assert [one[1:3] for one in notes.said if one[0] == "failed"] == [("m-seed7", "ValueError: no such luck")]
