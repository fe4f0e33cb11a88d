# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Sweeps: what is drawn, what is recorded, what is selected."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_memaug.data import generated_reviews, load_domains, split_domains
from hf_memaug.evaluation import read_records
from hf_memaug.evaluation.domain_selection import training_score
from hf_memaug.runs import sweeps
from hf_memaug.runs.arguments import training_arguments
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.hyperparameters import COMMON, OWN, draw
from hf_memaug.runs.job import Job, run_job
from hf_memaug.runs.progress import Stop
from hf_memaug.runs.splits import split_for_sweep
from hf_memaug.training.algorithms import ALGORITHMS

NAMES = dict.fromkeys(("text_pair", "split", "dev_split", "test_split"))
COLUMNS = {"text": "text", "label": "label", "domain": "domain", **NAMES}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("data") / "reviews.jsonl"
    rows = generated_reviews(rows_per_domain=40, domains=("books", "films", "phones"))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def job(data: str, method="erm", trial=0, left_out=("books",), number=0, **hparams) -> Job:
    protocol = {"steps": 12, "checkpoint_every": 4, "holdout": 0.2, "on_overlap": "raise", "max_length": None}
    protocol |= {"selection": "training", "left_out": list(left_out), "draw": number, "model": "small"}
    protocol |= {"hparams": {"learning_rate": 2e-3, "batch_size": 4, "dropout": 0.0, **hparams}}
    name = f"{method}-{'-'.join(left_out)}-trial{trial}-draw{number}"
    source = {"data": data, **COLUMNS}
    target = "+".join(left_out)
    settings = {"use_cpu": True}
    return Job(name=name, method=method, seed=trial, source=source, target=target, settings=settings, protocol=protocol)


def run(folder: Path, one: Job) -> dict:
    return run_job(one, folder, lambda event: None, Stop())


def scores(checkpoint: Path, rows, trial: int) -> dict:
    """Accuracies of a checkpoint, computed without the trainer."""
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    found = {}
    for name, parts in split_domains(rows, 0.2, trial).items():
        for part, of_domain in zip(("in", "out"), parts, strict=True):
            inputs = tokenizer(of_domain["text"], padding=True, truncation=True, return_tensors="pt")
            with torch.no_grad():
                predicted = model(**inputs).logits.argmax(-1)
            right = (predicted == torch.tensor(of_domain["label"])).float().mean().item()
            found.setdefault(name, {})[part] = pytest.approx(right, abs=1e-6)
    return found


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("sweep")
    return folder, run(folder, job(data, trial=1))


def test_every_evaluation_is_recorded_and_the_best_weights_are_kept(trained, data):
    folder, record = trained
    place = folder / "jobs" / record["name"]
    records = read_records(place / "records.jsonl")
    assert [one.step for one in records] == [4, 8, 12] and not (place / "run").exists()
    assert records[0].test_envs == ("books",) and records[0].train_envs == ["films", "phones"]
    best = max(records, key=training_score)
    assert best.accuracy == scores(place / "checkpoint", load_domains(data), 1)
    assert record["validation"] == pytest.approx(100 * training_score(best))
    assert record["scores"]["books"]["accuracy"] == pytest.approx(100 * best.accuracy["books"]["in"])
    assert record["settings"]["best_step"] == best.step and record["parameters"] > 0


@pytest.mark.parametrize(("method", "steps"), [("swad", [12]), ("fish", [4, 8, 12])])
def test_algorithms_with_steps_of_their_own(tmp_path, data, method, steps):
    record = run(tmp_path, job(data, method))
    assert [one.step for one in read_records(tmp_path / "jobs" / record["name"])] == steps


def test_a_resumed_job_gives_the_same_records(tmp_path, data, monkeypatch):
    one = job(data)
    run(tmp_path / "whole", one)
    original = sweeps.Recorder._record

    def killed(self, step, metrics):
        original(self, step, metrics)
        if step == 8:
            # Recorded, but the checkpoint is not saved yet.
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sweeps.Recorder, "_record", killed)
        run(tmp_path / "broken", one)
    seen = []
    monkeypatch.setattr(
        sweeps.Recorder, "_record", lambda self, step, metrics: (seen.append(step), original(self, step, metrics))
    )
    run(tmp_path / "broken", one)
    assert seen == [8, 12]
    whole, broken = (tmp_path / name / "jobs" / one.name for name in ("whole", "broken"))
    assert read_records(broken) == read_records(whole)
    weights = [(folder / "checkpoint/model.safetensors").read_bytes() for folder in (whole, broken)]
    assert weights[0] == weights[1]


def test_which_domains_are_left_out():
    assert sweeps.left_out_sets("abcd", "ab", "training") == [("a",), ("b",)]
    pairs = sweeps.left_out_sets("abcd", "abcd", "leave_one_out")
    assert len(pairs) == 4 + 6
    with pytest.raises(UsageError, match="needs at least 3"):
        sweeps.left_out_sets("ab", "ab", "leave_one_out")


def test_draw_0_is_the_defaults_and_others_lie_in_their_ranges():
    for algorithm in ALGORITHMS:
        assert draw(algorithm, 0, 3) == {name: default for name, (default, _) in COMMON.items()}
        drawn = draw(algorithm, 1, 0)
        assert drawn == draw(algorithm, 1, 0) != draw(algorithm, 2, 0)
        assert set(drawn) == {*COMMON, *OWN.get(algorithm, {})}
        assert 1e-5 <= drawn["learning_rate"] <= 10**-3.5 and 8 <= drawn["batch_size"] <= 45
    # Ranges of steps follow the length of the run.
    assert draw("irm", 1, 0, 500)["penalty_anneal_steps"] <= 1000


@pytest.mark.parametrize("algorithm", list(OWN))
def test_the_trainer_takes_what_is_drawn(algorithm, tmp_path):
    rows = generated_reviews(rows_per_domain=4)
    one = job("d", algorithm, **draw(algorithm, 3, 0))
    arguments = training_arguments(one, tmp_path, rows)
    assert arguments.learning_rate == draw(algorithm, 3, 0)["learning_rate"]


def test_the_split_of_a_domain_depends_on_the_trial_alone(data):
    source = {"data": data, **COLUMNS}
    first, _ = split_for_sweep(source, ["books"], 0.2, 0, "raise")
    same, _ = split_for_sweep(source, ["films"], 0.2, 0, "raise")
    other, _ = split_for_sweep(source, ["books"], 0.2, 1, "raise")
    assert first["text"] == same["text"] != other["text"]


def test_rows_in_two_domains_are_refused_or_dropped(tmp_path):
    rows = [
        {"text": f"{domain} {number}", "label": "ab"[number % 2], "domain": domain}
        for domain in "xyz"
        for number in range(10)
    ]
    rows.append({"text": "x 3", "label": "b", "domain": "y"})
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"data": str(path), **COLUMNS}
    with pytest.raises(DataRefused, match="--on-overlap drop"):
        split_for_sweep(source, ["x"], 0.2, 0, "raise")
    inside, outside = split_for_sweep(source, ["x"], 0.2, 0, "drop")
    assert len(inside) + len(outside) == 30
    inside, outside = split_for_sweep(source, ["z"], 0.2, 0, "raise")
    assert len(inside) + len(outside) == 31
