# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`compare --shots`: the checkpoint of erm, adapted to labelled rows of the target."""

import json

import pytest
import yaml
from cli.row_files import write_pictures

from hf_memaug.runs.job import Job
from hf_memaug.runs.training import _parts


@pytest.fixture
def rows(tmp_path):
    """Texts of three domains: the words of a `--data`, and the folder with a train and a test split of each."""
    from hf_memaug.data import generated_reviews

    folder = tmp_path / "rows"
    folder.mkdir()
    for number, row in enumerate(generated_reviews(rows_per_domain=40, domains=["books", "films", "phones"])):
        split = "test" if number % 4 == 0 else "train"
        with (folder / f"{row['domain']}.{split}.jsonl").open("a") as file:
            file.write(json.dumps({"text": row["text"], "label": row["label"]}) + "\n")
    return folder


def planned(command, *words) -> list[Job]:
    code, out, error = command("compare", *words, "--dry-run", "--json")
    assert code == 0, error
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("has_test_split", [True, False])
def test_drawn_rows_are_never_scored_and_all_jobs_score_the_same_rows(rows, has_test_split):
    names = ("text", "text_pair", "label", "domain", "smiles")
    source = {"data": str(rows), **dict.fromkeys(names), "text": "text", "label": "label", "domain": "domain"}
    source |= {"split": "train", "dev_split": None, "test_split": "test" if has_test_split else None}

    def parts(seed: int, shots: int) -> dict[str, list]:
        protocol = {"dev_fraction": 0.4, "on_overlap": "raise", "shots": shots}
        found = _parts(Job(name="a", method="a", seed=seed, source=source, target="films", protocol=protocol))
        return {name: list(zip(part["domain"], part["text"], strict=True)) for name, part in found.items()}

    erm, few, more, other = parts(0, 0), parts(0, 4), parts(0, 9), parts(1, 4)
    assert set(erm) == {"train", "dev", "test"} and {domain for domain, _ in erm["train"]} == {"books", "phones"}
    # What selects and guards is of the other domains, and is not scored.
    assert {domain for domain, _ in erm["dev"]} == {"books", "phones"} and not {*erm["dev"]} & {*erm["test"]}
    assert {domain for domain, _ in erm["test"]} == {"books", "films", "phones"}
    for one, shots in ((few, 4), (more, 9), (other, 4)):
        assert one["test"] == erm["test"] and one["dev"] == erm["dev"]
        assert len(one["train"]) == shots and {domain for domain, _ in one["train"]} == {"films"}
        assert not {*one["train"]} & {*one["test"]}
    assert more["train"][:4] == few["train"] and other["train"] != few["train"]


def test_each_number_of_rows_is_a_method_that_starts_from_erm(command, rows, tmp_path):
    words = ["--data", rows, "--split", "train", "--methods", "write,erm,finetune", "--target", "films", "--seeds", 1]
    more = ["--learning-rate", "2e-5", "--use-cpu", "--max-landmarks", 64, "--finetune.warmup-steps", 2]
    more += ["--keep", "none"]
    lines = planned(command, *words, *more, "--shots", "8,14")
    jobs = [line["job"] for line in lines]
    adapted = [f"{name}-films-shots{shots}-seed0" for name in ("write", "finetune") for shots in (8, 14)]
    assert [line["name"] for line in lines] == ["erm-films-seed0", *adapted]
    assert [job["method"] for job in jobs] == ["erm", "write-8", "write-14", "finetune-8", "finetune-14"]
    assert [job["shots"] for job in jobs] == [0, 8, 14, 8, 14]
    assert [job.get("start") for job in jobs] == [None] + ["erm-films-seed0"] * 4
    # Of the options for all methods, the rate is for training on the other domains.
    assert [job.get("learning_rate") for job in jobs] == [2e-5, None, None, 5e-5, 5e-5]
    assert [job.get("per_device_train_batch_size") for job in jobs] == [None, None, None, 8, 14]
    assert [job.get("max_landmarks") for job in jobs] == [None, 64, 64, None, None]
    assert [job.get("warmup_steps") for job in jobs] == [None, None, None, 2, 2]
    assert all(job["use_cpu"] for job in jobs) and jobs[3]["num_train_epochs"] == 15
    recipe = {"data": str(rows), "split": "train", "methods": ["write", "erm", "finetune"], "target": "films"}
    recipe |= {"shots": [8, 14], "learning_rate": 2e-5, "use_cpu": True, "max_landmarks": 64, "keep": "none"}
    recipe["seeds"] = 1
    recipe["method_settings"] = {"finetune": {"warmup_steps": 2}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert [line["job"] for line in planned(command, "--recipe", "recipe.yaml")] == jobs


def test_the_settings_of_fine_tuning_depend_on_the_number_of_rows():
    from hf_memaug.runs.methods import chosen

    for shots, passes, batch in ((63, 15, 32), (64, 10, 32), (8, 15, 8)):
        one, settings = chosen("finetune").for_shots(shots, {}, ())
        assert (one.name, one.shots) == (f"finetune-{shots}", shots)
        assert settings == {"learning_rate": 5e-5, "num_train_epochs": passes, "per_device_train_batch_size": batch}


@pytest.mark.parametrize(
    "words, said",
    [
        (["--methods", "erm,write"], "`write` adapts the checkpoint of erm to labelled rows of the target."),
        (["--methods", "erm,finetune"], "`--methods erm,finetune` and `--shots`"),
        (["--methods", "erm", "--shots", 8], "`--shots` is for write and finetune."),
        (["--methods", "write", "--shots", 8], "`write` starts from the checkpoint of erm. Add erm to `--methods`."),
        (["--methods", "erm,write", "--shots", "8,0"], "`--shots` is 8,0. Use numbers of 1 or more"),
        (["--methods", "erm,write", "--shots", "few"], "`--shots` is 'few'."),
        (["--methods", "erm,write", "--shots", 8, "--target", "none"], "Use `--target` with domains, or all."),
        (["--methods", "erm,write", "--shots", 8, "--baseline", "write"], "not among the methods (erm, write-8)"),
        (["--methods", "erm,write", "--shots", 8, "--write.learning-rate", 1], "is not an option of 'write'"),
        (["--methods", "erm,write", "--shots", 8, "--memory-rows", 3], "`--memory-rows` is set by the command."),
        (["--methods", "erm,finetune+coral", "--shots", 8], "There is no method 'finetune+coral'."),
    ],
)
def test_wrong_usage(command, rows, words, said):
    code, _, error = command("compare", "--data", rows, "--split", "train", *words)
    assert code == 2 and said in error, error


def test_more_shots_than_rows_raise_an_error(command, rows):
    words = ["compare", "--data", rows, "--split", "train", "--methods", "erm,write", "--target", "films", "--dry-run"]
    code, _, error = command(*words, "--shots", "4,16")
    assert code == 3 and "`--shots` has 16, but 'films' has only 15 rows to draw from" in error
    # With a test split they are all rows of the other split.
    code, _, error = command(*words, "--shots", "4,16", "--test-split", "test")
    assert code == 0, error
    # Rows that are scored too are not drawn.
    code, _, error = command(*words, "--shots", "4", "--test-split", "train", "--on-overlap", "ignore")
    assert code == 3 and "'films' has only 0 rows to draw from" in error


def test_other_rows_and_other_commands(command, rows, tmp_path):
    text = ["--data", rows, "--split", "train"]
    for words in (["train", "--method", "finetune", "--target", "films"], ["sweep", "--methods", "write"]):
        code, _, error = command(words[0], *text, *words[1:])
        assert code == 2 and "Use `hf-memaug compare` with" in error, error
    code, _, error = command("continual", *text, "--method", "finetune")
    assert code == 2 and "Use `hf-memaug compare` with" in error, error
    graphs = ["compare", "--data", "generated_graphs", "--backbone", "gin-3x64", "--methods", "erm,write", "--shots", 8]
    code, _, error = command(*graphs)
    assert code == 2 and "`write-8` is for texts, and the rows are graphs. Choose" in error, error


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "image"])
def test_erm_is_trained_once_and_adapted(command, rows, kind, tmp_path, read_lines, no_report):
    import torch
    from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification

    import hf_memaug  # noqa: F401  (registers the writable memory)

    words = ["compare", "--methods", "erm,write,finetune", "--keep", "all", "--output", "run"]
    if kind == "text":
        target, shots, auto_class = "films", 12, AutoModelForSequenceClassification
        words += ["--data", rows, "--split", "train", "--test-split", "test", "--max-length", 32]
    else:
        target, shots, auto_class = "-90", 4, AutoModelForImageClassification
        words += ["--data", write_pictures(tmp_path / "pictures", 24)]
    words += ["--seeds", 1, f"--target={target}", "--max-steps", 6, "--evaluations", 2, "--learning-rate", 1e-3]
    code, out, error = command(*words, "--shots", shots)
    assert code == 0, error + out
    assert "macro_f1 on the old domains in points" in out and "finetune: all weights, AdamW, learning rate 5e-5" in out
    records = {record["job"]["method"]: record for record in read_lines(tmp_path / "run/runs.jsonl")}
    kept = {name: tmp_path / "run" / record["checkpoint"] for name, record in records.items()}
    assert list(kept) == ["erm", f"write-{shots}", f"finetune-{shots}"]
    erm, written, tuned = (auto_class.from_pretrained(place) for place in kept.values())
    assert [(one["name"], one["rows"]) for one in written.domains()] == [(target, shots)]
    assert int((~written.memory.written).sum()) > 0, "the guard rows"
    inside = written.classifier.state_dict()
    assert all(torch.equal(value, inside[name]) for name, value in erm.state_dict().items())
    assert not torch.equal(erm.classifier.weight, tuned.classifier.weight)
    # Trained from the head of erm on, and not from a new one.
    assert (erm.classifier.weight - tuned.classifier.weight).abs().max() < 0.01
    assert records[f"write-{shots}"]["trainable"] == 0 and records[f"finetune-{shots}"]["trainable"] > 0
    card = (kept[f"write-{shots}"] / "README.md").read_text()
    assert "was left out" not in card and f"| rows of {target} | {shots} |" in card

    results = json.loads((tmp_path / "run/results.json").read_text())["rows"]
    old = {row["method"]: row["value"] for row in results if row["metric"].endswith("old domains")}
    for method, record in records.items():
        others = [scores["f1"] for name, scores in record["scores"].items() if name != target]
        assert old[method] == pytest.approx(sum(others) / 2, abs=1e-3)
    assert "macro_f1 on the old domains, by the domain left out" in (tmp_path / "run/README.md").read_text()
    assert "on the old domains by method" in (tmp_path / "run/report.html").read_text()

    if kind == "image":
        return
    # More shots later: erm is not trained again.
    with no_report():
        code, out, error = command(*words, "--shots", "12,14")
    assert code == 0 and "3 of 5 jobs are already done." in out, error
    methods = [record["job"]["method"] for record in read_lines(tmp_path / "run/runs.jsonl")]
    assert len(methods) == 5 and methods.count("erm") == 1
    # Rows that were scored without shots do not belong into this table.
    without = [word if word != "erm,write,finetune" else "coral" for word in words]
    code, _, error = command(*without)
    assert code == 2 and "`shots` is None for coral" in error, error
