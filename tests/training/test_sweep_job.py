# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What one job of a sweep does: records, weights, going on after a kill; and a whole sweep."""

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from hf_memaug.data import generated_digits, generated_reviews, load_domains, split_domains
from hf_memaug.evaluation import read_records
from hf_memaug.evaluation.domain_selection import training_score
from hf_memaug.reporting.domain_tables import main as tables
from hf_memaug.training.sweep import Job, run_job
from hf_memaug.training.sweep import job as one_job
from hf_memaug.training.sweep.__main__ import main
from hf_memaug.training.sweep.job import Recorder


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("data") / "reviews.jsonl"
    rows = generated_reviews(rows_per_domain=40, domains=("books", "films", "phones"))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def job(data: str, algorithm="erm", **changes) -> Job:
    fields = {
        "hparams": {"learning_rate": 2e-3, "batch_size": 4},
        "steps": 12,
        "checkpoint_every": 4,
        "training": {"use_cpu": True},
        **changes,
    }
    fields.setdefault("test_envs", ("books",))
    return Job("reviews", data, "small", "small", algorithm, **fields)


def run(folder: Path, job: Job):
    folder.mkdir(parents=True, exist_ok=True)
    job.write(folder)
    run_job(folder)
    return read_records(folder / "records.jsonl")


def scores(checkpoint: Path, rows, holdout_seed: int) -> dict:
    """Accuracies of a checkpoint, computed without the trainer."""
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    found = {}
    for name, parts in split_domains(rows, 0.2, holdout_seed).items():
        for part, of_domain in zip(("in", "out"), parts, strict=True):
            inputs = tokenizer(of_domain["text"], padding=True, truncation=True, return_tensors="pt")
            with torch.no_grad():
                predicted = model(**inputs).logits.argmax(-1)
            right = (predicted == torch.tensor(of_domain["label"])).float().mean().item()
            found.setdefault(name, {})[part] = pytest.approx(right, abs=1e-6)
    return found


def test_every_checkpoint_is_recorded_and_the_best_is_kept(tmp_path, data):
    records = run(tmp_path, job(data, trial_seed=1))
    assert [record.step for record in records] == [4, 8, 12] and (tmp_path / "done").is_file()
    assert records[0].test_envs == ("books",) and records[0].train_envs == ["films", "phones"]
    assert records[0].args["seed"] == job(data, trial_seed=1).seed and records[0].hparams["batch_size"] == 4
    best = max(records, key=training_score)
    assert [path.name for path in (tmp_path / "weights").iterdir()] == [f"step-{best.step}"]
    assert not (tmp_path / "run").exists()
    assert best.accuracy == scores(tmp_path / "weights" / f"step-{best.step}", load_domains(data), 1)


@pytest.mark.parametrize(("keep", "kept"), [("last", {12}), ("all", {4, 8, 12}), ("none", set())])
def test_other_weights_can_be_kept(tmp_path, data, keep, kept):
    run(tmp_path, job(data, keep=keep))
    assert {int(path.name.removeprefix("step-")) for path in tmp_path.glob("weights/*")} == kept


@pytest.mark.parametrize("killed_at", [8, 12])
def test_a_job_that_was_killed_goes_on_to_the_same_end(tmp_path, data, monkeypatch, killed_at):
    whole = run(tmp_path / "whole", job(data, keep="all"))
    original = Recorder.record

    def record(self, step, metrics):
        original(self, step, metrics)
        if step == killed_at:
            # After the record, and before the checkpoint that goes with it.
            raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "record", record)
    broken = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        run(broken, job(data, keep="all"))
    assert not (broken / "done").exists() and len(read_records(broken)) == killed_at // 4
    monkeypatch.setattr(Recorder, "record", original)
    (broken / "weights" / f"step-{killed_at}" / "model.safetensors").write_bytes(b"half")
    seen = []
    monkeypatch.setattr(
        Recorder, "record", lambda self, step, metrics: (seen.append(step), original(self, step, metrics))
    )
    run_job(broken)
    # Not from the beginning.
    assert seen == [step for step in (4, 8, 12) if step >= killed_at]
    assert read_records(broken) == whole
    for step in (4, 8, 12):
        weights = (tmp_path / name / "weights" / f"step-{step}" / "model.safetensors" for name in ("whole", "broken"))
        assert len({path.read_bytes() for path in weights}) == 1


@pytest.mark.parametrize("algorithm", ["erm", "swad"])
def test_a_job_killed_at_its_very_end_takes_no_step_more(tmp_path, data, monkeypatch, algorithm):
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        whole = run(tmp_path, job(data, algorithm))
    (tmp_path / "done").unlink()
    state = tmp_path / "run" / "checkpoint-12" / "trainer_state.json"
    found = json.loads(state.read_text())
    note = found["stateful_callbacks"]["hf_memaug"]["attributes"]
    assert 0 < note["seconds"] <= json.loads((tmp_path / "costs.json").read_text())["seconds"]
    note["seconds"] = 1000.0
    state.write_text(json.dumps(found))
    run_job(tmp_path)
    # What the state says that the job had taken counts.
    assert 1000 < json.loads((tmp_path / "costs.json").read_text())["seconds"] < 1300
    assert read_records(tmp_path) == whole and (tmp_path / "done").is_file()


def test_an_algorithm_that_averages_weights_is_recorded_at_its_end(tmp_path, data):
    (record,) = run(tmp_path, job(data, "swad"))
    assert record.step == 12
    assert record.accuracy == scores(tmp_path / "weights" / "step-12", load_domains(data), 0)


def test_an_algorithm_that_takes_domains_in_turn_has_as_many_steps(tmp_path, data):
    records = run(tmp_path, job(data, "fish"))
    assert [record.step for record in records] == [4, 8, 12]


def test_one_domain_to_train_on_and_two_left_out_to_validate(tmp_path, data):
    for name, setting in (("single", "single_source"), ("pair", "multi_source")):
        records = run(tmp_path / name, job(data, test_envs=("books", "phones"), setting=setting))
        assert {(record.setting, record.train_envs[0]) for record in records} == {(setting, "films")}


@pytest.mark.parametrize("checkpoint", ["small", "gmoe:small"])
def test_images(tmp_path, checkpoint):
    fields = {"hparams": {"learning_rate": 1e-3, "batch_size": 4}, "steps": 2, "checkpoint_every": 2}
    given = Job("digits", "coloured_digits", "m", checkpoint, "coral", ("-90%",), training={"use_cpu": True}, **fields)
    (record,) = run(tmp_path, given)
    assert record.train_envs == ["+90%", "+80%"]
    weights = tmp_path / "weights" / "step-2"
    model = AutoModelForImageClassification.from_pretrained(weights).eval()
    rows = split_domains(generated_digits("coloured"))["-90%"].out
    pixels = AutoImageProcessor.from_pretrained(weights)(rows["image"], return_tensors="pt")
    with torch.no_grad():
        right = (model(**pixels).logits.argmax(-1) == torch.tensor(rows["label"])).float().mean().item()
    assert record.accuracy["-90%"]["out"] == pytest.approx(right, abs=1e-6)


def test_a_whole_sweep(tmp_path, data, capsys):
    options = ["--output", tmp_path / "sweep", "--data", f"reviews={data}", "--test-domains", "books", "films"]
    options += ["--trials", 2, "--steps", 8, "--checkpoint-every", 4, "--jobs", 2]
    options += ["--hparams", '{"learning_rate": 2e-3, "batch_size": 4}']
    assert main(list(map(str, options))) == 0
    records = read_records(tmp_path / "sweep")
    assert len(records) == 2 * 2 * 2
    for domain in ("books", "films"):
        folder = tmp_path / "sweep" / "selected" / "reviews" / "small" / "erm" / domain
        winner = json.loads((folder / "winner.json").read_text())
        best = max((record for record in records if record.test_envs == (domain,)), key=training_score)
        assert winner["score"] == pytest.approx(training_score(best)) and winner["hparams"]["learning_rate"] == 2e-3
        # The checkpoint is the one that was scored.
        found = scores(folder, load_domains(data), winner["trial_seed"])
        assert winner["record"]["accuracy"] == found
        assert winner["test_accuracy"][domain] == found[domain]["in"]
    assert not list(tmp_path.glob("sweep/jobs/*/weights"))
    capsys.readouterr()
    tables([str(tmp_path / "sweep")])
    assert "erm (small)" in capsys.readouterr().out


def test_a_job_ends_when_the_sweep_is_gone(tmp_path):
    code = (
        "import time, sys; from hf_memaug.training.sweep.job import _end_with_the_sweep; _end_with_the_sweep(); "
        "print('ready', flush=True); time.sleep(float(sys.argv[1]))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for seconds, exit_code in ((600, 1), (0, 0)):
        process = subprocess.Popen([sys.executable, "-c", code, str(seconds)], **pipes)
        assert process.stdout.readline() == "ready\n"
        if exit_code:
            process.stdin.close()
        assert process.wait(300) == exit_code
        # One that comes to its own end must not stumble over the one who waits.
        assert "Fatal" not in process.stderr.read()


def test_a_full_disk_has_its_exit_code(tmp_path, monkeypatch, capsys):
    from safetensors import SafetensorError

    def fails(error):
        def run_job(folder):
            raise error

        monkeypatch.setattr(one_job, "run_job", run_job)

    fails(SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"))
    assert one_job.main(str(tmp_path)) == errno.ENOSPC
    assert "No space left on device" in capsys.readouterr().err.splitlines()[-1]
    fails(RuntimeError("no such luck"))
    with pytest.raises(RuntimeError, match="no such luck"):
        one_job.main(str(tmp_path))
