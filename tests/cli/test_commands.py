# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The commands beside `train` and `compare`, each on tiny models and generated rows."""

import csv
import json
import os
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer


@pytest.fixture
def trained(command, columns, backbones, quick, memory, no_report, tmp_path):
    """A small model with a memory that was trained by the command."""
    words = ["train", *columns, "--method", "+memory", "--target", "films", "--backbone", backbones["roberta"]]
    with no_report():
        code, _, error = command(*words, *quick, *memory, "--max-length", 6, "--output", "trained", "--quiet")
    assert code == 0, error
    return tmp_path / "trained/jobs/+memory-films-seed0/checkpoint"


def test_a_checkpoint_is_scored_by_domain(command, trained, columns, tmp_path, read_lines):
    code, out, error = command("evaluate", trained, *columns, "--output", "scores.json")
    assert code == 0, error
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["domain", "books", "films", "phones", "average"]
    found = json.loads((tmp_path / "scores.json").read_text())
    # What the run says of the domain that was left out.
    (record,) = read_lines(tmp_path / "trained/runs.jsonl")
    assert found["scores"]["films"] == pytest.approx(record["scores"]["films"]) and found["rows"]["films"] == 12
    assert AutoTokenizer.from_pretrained(trained).model_max_length == 6, "texts are read as in training"
    code, out, _ = command("evaluate", trained, *columns, "--json")
    assert json.loads(out)["scores"] == found["scores"]
    # Whatever the order in which the rows are scored.
    shops = [f"shop{letter}" for letter in "abcdefgh"]
    rows = "".join(f"fine {shop},negative,{shop}\n" for shop in shops)
    (tmp_path / "shops.csv").write_text("text,stars,shop\n" + rows)
    code, out, error = command("evaluate", trained, "--data", "shops.csv", *columns[2:], "--json")
    assert code == 0 and list(json.loads(out)["scores"]) == shops, error
    (tmp_path / "other.csv").write_text("text,stars,shop\nfine,great,toys\n")
    code, _, error = command("evaluate", trained, "--data", "other.csv", *columns[2:])
    assert code == 3 and "great" in error
    assert command("evaluate", "nowhere", *columns)[0] == 2


def test_texts_in_json_lines_out(command, trained, reviews, tmp_path, monkeypatch):
    import io

    code, out, error = command("predict", trained, "A dull film.", "A fine book.")
    assert code == 0, error
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["text"] for answer in answers] == ["A dull film.", "A fine book."]
    assert all(answer["label"] in ("negative", "positive") and 0 < answer["score"] <= 1 for answer in answers)
    code, _, _ = command("predict", trained, "--data", reviews, "--top-k", 0, "--output", "answers.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert code == 0 and len(lines) == 36 and {one["label"] for one in lines[0]["labels"]} == {"negative", "positive"}
    assert command("predict", trained, "--data", reviews, "--top-k", 0, "--output", "answers.csv")[0] == 0
    with open(tmp_path / "answers.csv", encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert [int(row["row"]) for row in cells] == list(range(36))
    assert [(row["text"], row["label"], json.loads(row["labels"])) for row in cells] == [
        (line["text"], line["label"], line["labels"]) for line in lines
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("A dull film.\n\nA fine book.\n"))
    code, piped, _ = command("predict", trained, "--data", "-")
    assert code == 0 and [json.loads(line) for line in piped.splitlines()] == answers
    code, _, error = command("predict", trained, "--data", reviews, "--text", "txt")
    assert code == 3 and "Did you mean 'text'?" in error
    assert command("predict", trained)[0] == 2
    code, _, error = command("predict", trained, "A dull film.", "--topk", 1)
    assert code == 2 and "No such option: --topk" in error
    code, out, _ = command("predict", trained, "--", "A dull film.", "--topk")
    assert code == 0 and json.loads(out.splitlines()[1])["text"] == "--topk"
    code, _, error = command("predict", trained, "A dull film.", "--inference", "independent")
    assert code == 2 and "`--inference` is for models whose rows read each other" in error


def test_pictures_in(command, pictures, backbones):
    code, out, error = command("predict", backbones["vit"], "--data", pictures)
    assert code == 0, error
    assert len(out.splitlines()) == 36 and json.loads(out.splitlines()[0])["image"].endswith(".png")


@pytest.mark.slow
def test_domain_after_domain(command, columns, backbones, memory, no_report, read_lines, tmp_path):
    words = ["continual", *columns, "--order", "films,books", "--backbone", backbones["roberta"], "--seeds", 1]
    quick = ["--num-train-epochs", 1, "--per-device-train-batch-size", 8]
    code, out, error = command(*words, *quick, *memory, "--method", "+memory", "--strategies", "f,ewc")
    assert code == 0, error + out
    folder = tmp_path / "runs" / "continual"
    records = {record["job"]["method"]: record for record in read_lines(folder / "runs.jsonl")}
    matrix = records["ewc"]["matrix"]
    assert matrix["domains"] == ["films", "books"] and len(matrix["rows"]) == 2
    assert matrix["acc"] == pytest.approx(sum(matrix["rows"][1]) / 2)
    assert json.loads((folder / "run.json").read_text())["task"] == "continual"
    assert "forgetting" in out and "acc: mean over all domains" in (folder / "README.md").read_text()
    assert "Selection" not in (folder / "README.md").read_text(), "none was left out, and none was chosen by"
    assert not (folder / "jobs/ewc-seed0/.checkpoint").exists()
    phases = {line["phase"] for line in read_lines(folder / "jobs/f-seed0/metrics.jsonl")}
    assert phases >= {"0-films", "1-books"}
    reads = json.loads((folder / "jobs/ewc-seed0/memory.json").read_text())["by_domain"]
    assert set(reads) == {"films", "books"} and (folder / "jobs/f-seed0/features.npz").is_file()
    # Months later another domain comes: matrix and Fisher information go on.
    later = ["continual", *columns, "--order", "phones", "--backbone", folder / "jobs/ewc-seed0/checkpoint"]
    with no_report():
        code, _, error = command(*later, *quick, "--strategies", "ewc", "--output", "later", "--method", "+memory")
    assert code == 0, error
    (record,) = read_lines(tmp_path / "later/runs.jsonl")
    assert record["matrix"]["trained_on"] == ["films", "books", "phones"]


def test_a_memory_rnn_grows(command, columns, no_report, read_lines, tmp_path):
    words = ["continual", *columns, "--order", "films,books", "--method", "memory-rnn", "--strategies", "f+m+v"]
    sizes = ["--hidden-size", 16, "--embedding-size", 16, "--classifier-size", 16, "--memory-slots", "4"]
    more = ["--strategy-kwargs", '{"slots": 3}', "--num-train-epochs", 1, "--keep", "all"]
    with no_report():
        code, out, error = command(*words, *sizes, *more)
    log = tmp_path / "runs/continual/jobs"
    assert code == 0, error + out + "".join(path.read_text() for path in log.glob("*/log.txt"))
    (record,) = read_lines(tmp_path / "runs/continual/runs.jsonl")
    config = json.loads((tmp_path / "runs/continual" / record["checkpoint"] / "config.json").read_text())
    assert config["memory_slots"] == [4, 3]


def test_options_of_strategies_are_looked_at_before_the_first_job(command, columns):
    words = ["continual", *columns, "--order", "films,books", "--method", "memory-rnn", "--dry-run"]
    several = [*words, "--strategies", "f+m+v,replay", "--strategy-kwargs"]
    code, _, error = command(*several, '{"slots": 3, "rows_per_domain": 5}')
    assert code == 0, error
    code, _, error = command(*several, '{"slotz": 3}')
    assert code == 2 and "`--strategy-kwargs` is 'slotz'" in error and "Did you mean 'slots'?" in error
    code, _, error = command(*several[:-1], "--replay.strategy-kwargs", '{"slots": 3}')
    assert code == 2 and "Choose 'rows_per_domain'" in error


def test_a_memory_that_is_prompted(command, columns, encoder, no_report, tmp_path):
    rows = [*columns, "--target", "books", "--backbone", encoder, "--max-steps", 2]
    words = ["train", *rows, "--method", "mil", "--episodes", 1, "--episode-steps", 2]
    ask, answers = ["--template", "{text} {mask}"], ["--verbalizer", '{"positive": "good", "negative": "bad"}']
    with no_report():
        code, _, error = command(*words, *ask, *answers, "--output", "run")
    assert code == 0, error
    checkpoint = next(tmp_path.glob("run/jobs/*/checkpoint"))
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["architectures"] == ["BertWithKVMemoryForPromptClassification"]
    assert config["verbalizer"] == {"negative": ["bad"], "positive": ["good"]}

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    assert tokenizer.mask_token_id in tokenizer("a good book")["input_ids"]
    code, out, error = command("predict", checkpoint, "a good book")
    assert code == 0 and json.loads(out)["label"] in ("negative", "positive"), error
    for given, said in (
        (ask, "`--template` alone is not enough"),
        (answers, "`--verbalizer` alone is not enough"),
        ([*ask, "--verbalizer", '{"bad": "bad", "positive": "good"}'], "['bad', 'positive']"),
        ([*ask, "--verbalizer", '{"negative": "unbelievable", "positive": "good"}'], "'unbelievable' of label 'neg"),
        (
            [*ask, "--verbalizer", "bad,good"],
            "`--verbalizer` is 'bad,good'. It must be of type dict[str, str | list[str]]",
        ),
        (["--template", "{text}", *answers], "`--template`"),
        (["--memory-pooling", "mask"], '`--memory-pooling` is "mask", and nothing says which'),
    ):
        code, _, error = command(*words, *given, "--output", "other")
        assert code == 2 and said in error, error
    assert not (tmp_path / "other" / "jobs").exists()
    with no_report():
        code, out, error = command("compare", *rows, "--methods", "erm,+memory", "--seeds", 1, *ask, *answers)
    assert code == 0 and "Prompted: +memory. Not prompted, with a new head: erm." in out, error


def test_what_is_here_and_what_is_missing(command, monkeypatch):
    from hf_memaug.cli import environment

    monkeypatch.setitem(environment.OPTIONAL, "not_there", ("nothing", "pip install not_there"))
    code, out, _ = command("env")
    assert code == 0 and "transformers" in out and "missing: not_there (nothing)\n  pip install not_there" in out
    code, out, _ = command("env", "--json")
    assert code == 0 and json.loads(out)["missing"]["not_there"] == ["nothing", "pip install not_there"]


@pytest.mark.slow
def test_the_demo_is_a_comparison(command, monkeypatch, no_report, read_lines, tmp_path):
    from hf_memaug.cli import compare

    few = {"max_steps": 2, "episodes": 1, "episode_steps": 1, "num_train_epochs": 1.0}
    monkeypatch.setattr(compare, "DEMO_SETTINGS", {**compare.DEMO_SETTINGS, **few})
    with no_report():
        code, out, error = command("demo", "--seeds", 1)
    assert code == 0, error + out
    assert [record["job"]["method"] for record in read_lines(tmp_path / "runs/demo/runs.jsonl")] == compare.DEMO_METHODS


def test_the_app_without_gradio(command, trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "True")
    code, _, error = command("app", trained)
    assert code == 1 and "pip install hf_memaug[app]" in error
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False", "gradio would count who uses it"


def test_a_checkpoint_that_cannot_be_served_is_wrong_usage(command, tmp_path):
    from transformers import BertConfig, BertForMaskedLM

    BertForMaskedLM(BertConfig(hidden_size=8, num_attention_heads=1, num_hidden_layers=1)).save_pretrained("masked")
    code, _, error = command("app", "masked")
    assert code == 2 and "`checkpoint` 'masked' has no tokenizer" in error


def test_a_report_of_a_run(command, trained):
    run = trained.parents[2]
    code, out, error = command("report", run)
    assert code == 0, error
    assert Path(out.strip()) == run / "report.html" and "<html" in (run / "report.html").read_text()
    code, out, _ = command("report", run, "--output", "mine.html")
    assert code == 0 and Path("mine.html").is_file()
    Path("file").touch()
    code, _, error = command("report", run, "--output", "file/report.html")
    assert code == 1 and "The report cannot be written" in error and "Traceback" not in error
    code, _, error = command("report", run, "--baseline", "irm")
    assert code == 2 and "`--baseline` 'irm' is not known" in error


def test_an_app_is_called_by_its_name(command, trained, monkeypatch):
    from hf_memaug.app import page

    calls = []
    monkeypatch.setattr(page, "launch", lambda *a, **k: calls.append((a, k)))
    assert command("app", trained, "--port", 7000, "--baseline", "plain")[0] == 0
    assert calls == [((str(trained),), {"port": 7000, "share": False, "baseline": "plain"})]


@pytest.mark.slow
def test_push_and_pull(trained, tmp_path):
    from hub_server import LoopbackHub, run_client

    calls = [["push", trained, "me/memory"], ["push", trained, "me/page", "--space"], ["pull", "me/memory", "pulled"]]
    calls += [["pull", "me/memory", "pulled"], ["pull", "me/nothing"]]
    code = f"""
        from hf_memaug_cli.app import main
        for words in {[list(map(str, words)) for words in calls]}:
            print("exit code", main(words))
    """
    with LoopbackHub() as hub:
        done = run_client(code, hub, tmp_path / "home")
        assert {"model.safetensors", "config.json", "README.md", "tokenizer.json"} <= set(hub.files("me/memory"))
        assert {"app.py", "requirements.txt", "README.md"} <= set(hub.files("me/page"))
        assert "features.npz" not in str(hub.files("me/page")), "rows of the reader's stay with the reader"
    found = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("exit code")]
    assert found == ["0", "0", "0", "2", "1"] and "/spaces/me/page\n" in done.stdout
    assert "RobertaWithKVMemoryForSequenceClassification" in done.stdout and "without films" in done.stdout
    assert "is not empty" in done.stderr and "cannot be pulled" in done.stderr and "Traceback" not in done.stderr
    weights = (tmp_path / "pulled/model.safetensors").read_bytes()
    assert weights == (trained / "model.safetensors").read_bytes()
