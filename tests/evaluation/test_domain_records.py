# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
import json
import logging

import pytest

from hf_memaug.evaluation import Record, choose, read_records, write_records


def record(step=100, **changes) -> Record:
    accuracy = {
        "books": {"in": 0.5, "out": 0.4},
        "films": {"in": 0.9, "out": 0.8},
        "phones": {"in": 0.7, "out": 0.6},
    }
    fields = {"trial_seed": 0, "hparams_seed": 0, "hparams": {"learning_rate": 5e-5}, "args": {"steps": 300}, **changes}
    return Record("reviews", "erm", "bert", ("books",), step=step, accuracy=accuracy, **fields)


def domainbed_line(step=300, **args) -> dict:
    """A line as DomainBed's training script writes them, keys in sorted order."""
    return {
        "args": {
            "algorithm": "ERM",
            "dataset": "PACS",
            "hparams_seed": 2,
            "holdout_fraction": 0.2,
            "output_dir": "sweep/0a1b",
            "seed": 77,
            "task": "domain_generalization",
            "test_envs": [1],
            "trial_seed": 1,
            **args,
        },
        "env0_in_acc": 0.95,
        "env0_out_acc": 0.9,
        "env1_in_acc": 0.71,
        "env1_out_acc": 0.73,
        "env2_in_acc": 0.99,
        "env2_out_acc": 0.97,
        "env3_in_acc": 0.88,
        "env3_out_acc": 0.83,
        "epoch": 4.5,
        "hparams": {"batch_size": 32, "lr": 5e-05, "resnet_dropout": 0.0},
        "loss": 0.3,
        "mem_gb": 8.1,
        "step": step,
        "step_time": 0.4,
    }


def test_what_is_written_is_read(tmp_path):
    written = [record(step, trial_seed=trial) for trial in (0, 1) for step in (100, 200)]
    write_records(tmp_path / "jobs" / "a" / "records.jsonl", written[2:])
    write_records(tmp_path / "jobs" / "b" / "records.jsonl", written[:2])
    assert sorted(read_records(tmp_path), key=lambda r: r.trial_seed) == written
    assert [path.name for path in (tmp_path / "jobs" / "a").iterdir()] == ["records.jsonl"]
    line = json.loads(written[0].to_json())
    assert line["test_envs"] == ["books"] and line["accuracy"]["films"] == {"in": 0.9, "out": 0.8}
    assert written[0].train_envs == ["films", "phones"]


def test_records_of_domainbed(tmp_path):
    (tmp_path / "0a1b").mkdir()
    lines = [json.dumps(domainbed_line(step)) + "\n" for step in (0, 300)]
    (tmp_path / "0a1b" / "results.jsonl").write_text("".join(lines))
    (tmp_path / "0a1b" / "done").write_text("done")
    first, last = read_records(tmp_path)
    assert (first.step, last.step) == (0, 300)
    assert (last.dataset, last.algorithm, last.model) == ("PACS", "ERM", "")
    assert (last.test_envs, last.trial_seed, last.hparams_seed) == (("C",), 1, 2)
    assert last.accuracy["C"] == {"in": 0.71, "out": 0.73} and list(last.accuracy) == ["A", "C", "P", "S"]
    assert last.hparams["lr"] == 5e-05 and last.args["seed"] == 77
    (choice,) = choose([first, last], "training")
    assert choice.score == pytest.approx(0.9) and choice.accuracy == 0.71  # (0.9 + 0.97 + 0.83) / 3


def test_data_that_domainbed_does_not_name_keeps_its_numbers(tmp_path):
    line = domainbed_line(dataset="OurPictures", test_envs=[0, 3])
    line["hparams"]["model"] = "gmoe"
    (tmp_path / "results.jsonl").write_text(json.dumps(line) + "\n")
    (found,) = read_records(tmp_path / "results.jsonl")
    assert found.test_envs == ("env0", "env3") and found.train_envs == ["env1", "env2"] and found.model == "gmoe"


def test_a_file_that_was_cut_off(tmp_path, caplog):
    path = tmp_path / "records.jsonl"
    write_records(path, [record(100), record(200)])
    path.write_bytes(path.read_bytes()[:-40])
    with caplog.at_level(logging.WARNING):
        assert [found.step for found in read_records(path)] == [100]
    assert "cut off (line 2)" in caplog.text and str(path) in caplog.text


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ('{"dataset": ', "is no JSON"),
        ("[]", "no JSON object"),
        (json.dumps({"dataset": "x"}), "`algorithm` is missing"),
        (json.dumps({**json.loads(record().to_json()), "step": "x"}), "`step` is 'x'"),
        (json.dumps({**json.loads(record().to_json()), "test_envs": ["book"]}), "Did you mean 'books'"),
        (json.dumps({**json.loads(record().to_json()), "accuracy": {"a": {"in": 70, "out": 1}}}), "between 0 and 1"),
        (json.dumps({**domainbed_line(), "args": {"dataset": "PACS"}}), "`args` lacks `algorithm`"),
        (json.dumps(domainbed_line(test_envs=[4])), "there are 0 to 3"),
    ],
)
def test_a_broken_line_in_the_middle_is_refused(tmp_path, broken, reason):
    path = tmp_path / "records.jsonl"
    path.write_text(f"{record(100).to_json()}\n{broken}\n{record(200).to_json()}\n")
    with pytest.raises(ValueError, match="line 2") as error:
        read_records(path)
    assert str(path) in str(error.value) and reason in str(error.value) and "Delete that line" in str(error.value)


def test_a_run_that_was_begun_again_counts_once(tmp_path, caplog):
    later = record(100, args={"again": True})
    (tmp_path / "records.jsonl").write_text(f"{record(100).to_json()}\n{record(200).to_json()}\n{later.to_json()}\n")
    with caplog.at_level(logging.WARNING):
        assert read_records(tmp_path) == [later, record(200)]
    assert "1 records stand twice" in caplog.text


def test_a_path_without_records_is_refused(tmp_path):
    for path, reason in ((tmp_path, "holds no records.jsonl"), (tmp_path / "x", "there is no")):
        with pytest.raises(ValueError, match=reason):
            read_records(path)
