# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""How a sweep runs its jobs: several at a time, once each, and what is left after failures, kills and interruptions."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hf_memaug.evaluation import read_records
from hf_memaug.evaluation.records import Record, write_records
from hf_memaug.reporting.domain_tables import main as tables
from hf_memaug.runs.small_models import small_vit
from hf_memaug.training.sweep import Job, keep_winners, plan_jobs, run_jobs, runner
from hf_memaug.training.sweep.__main__ import main

QUICK_JOB = (sys.executable, str(Path(__file__).with_name("quick_job.py")))
DOMAINS = {"data": ("", ["a", "b", "c"])}


@pytest.fixture(autouse=True)
def quick_jobs(monkeypatch):
    monkeypatch.setattr(runner, "COMMAND", QUICK_JOB)


def jobs_of(*trials: int, draws: int = 1, domains="abc") -> list[Job]:
    jobs = plan_jobs(DOMAINS, {"m": "x"}, ["erm"], trials=9, draws=draws, test_domains=list(domains))
    return [job for job in jobs if job.trial_seed in trials]


def spans(folder, jobs) -> list[tuple[float, float]]:
    """When each job began and ended."""
    found = [(folder / "jobs" / job.name / "times.txt").read_text().splitlines() for job in jobs]
    return [(float(first.split()[1]), float(last.split()[1])) for first, last in found]


def test_several_at_a_time_and_no_more(tmp_path, capsys):
    jobs = jobs_of(0, 1)
    assert run_jobs(jobs, tmp_path, at_once=2) == []
    times = spans(tmp_path, jobs)
    together = [sum(begin <= moment < end for begin, end in times) for moment, _ in times]
    assert max(together) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and lines[-1].startswith("[6/6, ") and "0 s left" in lines[-1] and "a minute" in lines[0]
    assert "validation 50.0" in lines[0]


def test_what_is_done_is_not_done_again(tmp_path, capsys):
    jobs = jobs_of(0)
    run_jobs(jobs[:2], tmp_path)
    before = {job.name: (tmp_path / "jobs" / job.name / "records.jsonl").stat().st_mtime_ns for job in jobs[:2]}
    run_jobs(jobs, tmp_path)
    assert "2 of 3 jobs are done already" in capsys.readouterr().out
    for name, changed in before.items():
        assert (tmp_path / "jobs" / name / "records.jsonl").stat().st_mtime_ns == changed
        assert len((tmp_path / "jobs" / name / "times.txt").read_text().splitlines()) == 2
    assert len(read_records(tmp_path)) == 3


def test_a_job_that_fails_is_told_and_the_others_go_on(tmp_path, capsys):
    jobs = jobs_of(0, 7, domains="ab")
    failed = run_jobs(jobs, tmp_path)
    assert [(job.trial_seed, job.test_envs) for job in failed] == [(7, ("a",)), (7, ("b",))]
    said = capsys.readouterr().out
    assert said.count("FAILED (ValueError: no such luck; see ") == 2 and said.count("validation") == 2
    log = tmp_path / "jobs" / failed[0].name / "log.txt"
    assert "Traceback" in log.read_text()
    # They are tried again, and the old log is kept.
    assert run_jobs(jobs, tmp_path) == failed and log.read_text().count("Traceback") == 2


def test_the_best_trial_and_draw_are_kept(tmp_path):
    jobs = jobs_of(0, 1, draws=2)
    run_jobs(jobs, tmp_path, at_once=2)
    folders = keep_winners(jobs, tmp_path)
    assert sorted(folders) == [tmp_path / "selected" / "data" / "m" / "erm" / name for name in "abc"]
    winner = json.loads((folders[0] / "winner.json").read_text())
    assert (winner["trial_seed"], winner["hparams_seed"], winner["step"]) == (1, 1, 10)
    assert winner["score"] == pytest.approx(0.61) and winner["test_accuracy"] == {"a": pytest.approx(0.61)}
    assert winner["hparams"] == next(job.hparams for job in jobs if job.name == winner["job"])
    assert winner["chosen_among"] == {"finished": 4, "planned": 4} and winner["record"]["step"] == 10
    assert (folders[0] / "config.json").read_text() == winner["job"]
    # All other weights are gone, all records are there.
    assert not list(tmp_path.glob("jobs/*/weights")) and len(read_records(tmp_path)) == 12
    # Later and worse trials leave the winner where it is; other ways to select may ask for what is gone.
    changed = (folders[0] / "config.json").stat().st_mtime_ns
    assert keep_winners(jobs, tmp_path) == folders
    assert (folders[0] / "config.json").stat().st_mtime_ns == changed
    (folders[0] / "winner.json").unlink()
    with pytest.raises(RuntimeError, match="are gone. Delete"):
        keep_winners(jobs, tmp_path)


def test_weights_wait_for_a_run_that_may_choose_them(tmp_path):
    made = {"trials": 1, "selection": "leave_one_out", "steps": 10, "checkpoint_every": 10}
    jobs = plan_jobs({"d": ("digits", list("abc"))}, {"m": ""}, ["erm"], **made)

    def finish(job):
        folder = tmp_path / "jobs" / job.name
        accuracy = {name: {"in": 0.5, "out": 0.5} for name in "abc"}
        record = Record("d", "erm", "m", job.test_envs, 0, 0, 10, accuracy, args={"job": job.name, "steps": 10})
        write_records(folder / "records.jsonl", [record])
        if job.keep != "none":
            (folder / "weights" / "step-10").mkdir(parents=True)
            (folder / "weights" / "step-10" / "config.json").write_text(job.name)
        (folder / "done").touch()

    for job in jobs:
        job.write(tmp_path / "jobs" / job.name)
    failed = next(job for job in jobs if job.test_envs == ("a", "b"))
    for job in jobs:
        if job is not failed:
            finish(job)
    assert [path.name for path in keep_winners(jobs, tmp_path, "leave_one_out")] == ["c"]
    finish(failed)
    assert sorted(path.name for path in keep_winners(jobs, tmp_path, "leave_one_out")) == ["a", "b", "c"]
    assert not list(tmp_path.glob("jobs/*/weights"))


def test_all_weights_can_be_kept(tmp_path):
    jobs = jobs_of(0, domains="a")
    run_jobs(jobs, tmp_path)
    keep_winners(jobs, tmp_path, keep_checkpoints=True)
    assert len(list(tmp_path.glob("jobs/*/weights/step-10/config.json"))) == 1
    assert keep_winners(jobs_of(3), tmp_path / "empty") == []


def test_each_job_gets_one_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    environments = runner.environments(3)
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments] == ["3", "5", "3"]
    assert environments[0]["OMP_NUM_THREADS"] == "7"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert int(runner.environments(10**6)[0]["OMP_NUM_THREADS"]) == 1


def test_a_second_sweep_on_the_folder_is_refused(tmp_path, capsys):
    with runner.lock(tmp_path):
        with pytest.raises(RuntimeError, match=rf"process {os.getpid()}\). Wait for it, end it, or give another"):
            with runner.lock(tmp_path):
                pass
        with pytest.raises(SystemExit):
            main(["--output", str(tmp_path)])
        assert "is in use by another sweep" in capsys.readouterr().err
    with runner.lock(tmp_path):
        pass


def rows_file(folder: Path) -> str:
    rows = [{"text": f"{name} {number}", "label": number % 2, "domain": name} for name in "abc" for number in range(9)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"data={folder / 'rows.jsonl'}"


def test_the_command_says_what_failed_and_refuses_other_settings(tmp_path, capsys):
    data, output = rows_file(tmp_path), str(tmp_path / "sweep")
    common = ["--output", output, "--data", data, "--steps", "10", "--jobs", "4"]
    assert main([*common, "--trials", "8", "--test-domains", "b"]) == 1
    said = capsys.readouterr()
    assert "FAILED data-small-erm-b-trial7-draw0: see " in said.err and "1 of 8 jobs failed" in said.err
    assert f"selected {output}/selected/data/small/erm/b (validation 56.0, step 10" in said.out
    assert f"domain_tables {output} --selection training" in said.out
    # More of the same is an addition; other steps are not.
    assert main([*common, "--trials", "1", "--algorithms", "erm", "coral"]) == 0
    said = capsys.readouterr().out
    # What earlier trials have won stays won.
    assert "1 of 6 jobs are done already" in said and "erm/b (validation 56.0, step 10" in said
    for arguments, reason in (
        (["--steps", "20"], "`steps` is 20, but the sweep in"),
        (["--models", "small=gmoe:small"], "Give it another name"),
        (["--models", "other=no/such/folder"], "no configuration was found for 'no/such/folder'"),
    ):
        with pytest.raises(SystemExit):
            main([*common, *arguments])
        assert reason in capsys.readouterr().err


def test_a_checkpoint_that_does_not_fit_is_refused_before_the_first_job(tmp_path, capsys):
    from transformers import BertConfig

    small_vit(32).save_pretrained(tmp_path / "vit")
    BertConfig().save_pretrained(tmp_path / "bert")
    common = ["--output", str(tmp_path / "sweep"), "--data", "generated_digits", "--models", "small"]
    for model, reason in (
        (f"vit={tmp_path}/vit", "vit' has no image processor that can be read. Save that of the model"),
        (f"gmoe=gmoe:{tmp_path}/bert", "built on a plain vision transformer (vit, deit), and this is a `bert`"),
    ):
        with pytest.raises(SystemExit):
            main([*common, model])
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_the_command_with_other_ways_to_select_and_to_train(tmp_path, capsys):
    common = ["--data", rows_file(tmp_path), "--trials", "2", "--jobs", "4"]
    assert main(["--output", str(tmp_path / "loo"), "--selection", "leave_one_out", *common]) == 0
    # Three with one domain left out, three with two, in two trials.
    assert len(list((tmp_path / "loo" / "jobs").iterdir())) == 12
    found = sorted((tmp_path / "loo").glob("selected/data/small/erm/*/winner.json"))
    assert [path.parent.name for path in found] == ["a", "b", "c"]
    assert json.loads(found[0].read_text())["chosen_among"] == {"finished": 6, "planned": 6}
    assert main(["--output", str(tmp_path / "single"), "--setting", "single_source", *common]) == 0
    found = sorted((tmp_path / "single").glob("selected/data/small/erm/*/winner.json"))
    assert [path.parent.name for path in found] == ["trained_on_a", "trained_on_b", "trained_on_c"]
    winner = json.loads(found[0].read_text())
    assert list(winner["test_accuracy"]) == ["b", "c"] and winner["chosen_among"]["planned"] == 2
    capsys.readouterr()
    tables([str(tmp_path / "loo"), "--selection", "leave_one_out"])
    tables([str(tmp_path / "single")])
    said = capsys.readouterr().out
    assert "Missing" not in said and "erm (small), c" in said and said.count("50.5 ± 0.4") >= 12


FULL = "Error: the disk is full ({}). Make room, and give the same command again.\n"


def test_a_disk_that_is_full_is_said_and_what_is_done_stays(tmp_path, capsys, monkeypatch):
    output = tmp_path / "sweep"
    common = ["--output", str(output), "--data", rows_file(tmp_path), "--test-domains", "a"]
    assert main([*common, "--trials", "1"]) == 0
    with monkeypatch.context() as patched:
        patched.setattr(runner, "COMMAND", (sys.executable, "-c", f"raise SystemExit({errno.ENOSPC})"))
        assert main([*common, "--trials", "4"]) == 1
    said = capsys.readouterr()
    assert said.err == FULL.format(output) and said.out.count("FAILED") == 1, "no more are begun"
    # There is room for the jobs, but not for the copy of the one that is selected.
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copy2", no_room_for)
        patched.setattr(shutil.copytree, "__defaults__", (False, None, no_room_for, False, False))
        assert main([*common, "--trials", "2"]) == 1
    said = capsys.readouterr()
    assert said.err == FULL.format(output) and len(list(output.glob("jobs/*/done"))) == 2
    assert main([*common, "--trials", "2"]) == 0
    said = capsys.readouterr()
    assert "2 of 2 jobs are done already" in said.out and "erm/a (validation 51.0" in said.out


def no_room_for(source, target, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device", target)


def test_a_disk_that_is_full_for_the_card_of_a_winner(tmp_path, capsys):
    common = ["--output", str(tmp_path / "sweep"), "--data", rows_file(tmp_path), "--test-domains", "a"]
    assert main([*common, "--trials", "1"], when_selected=lambda folder: no_room_for(None, "README.md")) == 1
    assert capsys.readouterr().err == FULL.format("README.md")
    with pytest.raises(OSError, match="Permission denied"):
        main([*common, "--trials", "1"], when_selected=refused)


def refused(folder):
    raise OSError(errno.EACCES, "Permission denied", "README.md")


def start_sweep(folder: Path) -> subprocess.Popen:
    """Trials 0 to 8, two jobs at a time: those of trial 7 fail, and those of trial 8 never end."""
    code = (
        "import sys; from hf_memaug.training.sweep import runner; from hf_memaug.training.sweep.__main__ import main; "
        f"runner.COMMAND = {QUICK_JOB!r}; sys.exit(main(sys.argv[1:]))"
    )
    options = ["--output", folder / "sweep", "--data", rows_file(folder), "--trials", 9, "--test-domains", "a"]
    command = [sys.executable, "-c", code, *map(str, options), "--jobs", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Tests that run in the background ignore interruptions, and so would what they start.
    return subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **pipes)


def wait_for(condition, seconds: float = 120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_no_job_outlives_the_sweep_and_nothing_is_done_twice(tmp_path, number):
    sweep = start_sweep(tmp_path)
    endless = tmp_path / "sweep" / "jobs" / "data-small-erm-a-trial8-draw0" / "times.txt"
    # It has begun, and has said so in full.
    wait_for(lambda: endless.is_file() and endless.read_text().endswith("\n"))
    wait_for(lambda: len(list(tmp_path.glob("sweep/jobs/*/done"))) == 7)
    process = int(endless.read_text().split()[0])
    assert is_alive(process)
    sweep.send_signal(number)
    _, said = sweep.communicate(timeout=300)
    wait_for(lambda: not is_alive(process), 20)
    if number == signal.SIGKILL:
        assert sweep.returncode == -9
    else:
        assert sweep.returncode == 130 and "goes on from here" in said
    assert not list(tmp_path.glob("sweep/selected/*"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("sweep/jobs/*/*") if path.name != "lock"}
    assert (
        main(
            ["--output", str(tmp_path / "sweep"), "--data", rows_file(tmp_path), "--trials", "7", "--test-domains", "a"]
        )
        == 0
    )
    assert {path: path.stat().st_mtime_ns for path in before if path.is_file()} == {
        path: changed for path, changed in before.items() if path.name != "weights"
    }
    assert (tmp_path / "sweep" / "selected" / "data" / "small" / "erm" / "a" / "winner.json").is_file()
