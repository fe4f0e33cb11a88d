# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Rows with several labels, and rows with a number: trained, scored and predicted."""

import json

import pytest
from cli.row_files import write
from sklearn.metrics import f1_score, r2_score

# A list, text, a list in JSON, and none.
TEXTS = {"a good book": ["good", "book"], "the bad phone": "bad", "a bad book": '["bad", "book"]', "the view": ""}
TRUE = [["book", "good"], ["bad"], ["bad", "book"], []]


@pytest.fixture
def columns(tmp_path) -> list:
    rows = [
        {"text": f"{text} {shop} {number}", "tags": tags, "stars": place + 0.5, "shop": shop}
        for shop in ("north", "south", "west")
        for number in range(4)
        for place, (text, tags) in enumerate(TEXTS.items())
    ]
    rows[0]["tags"] = "good | book"
    return ["--data", write(tmp_path / "rows.jsonl", rows), "--domain", "shop"]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "label", "metric"), [("labels", "tags", "macro_f1"), ("numbers", "stars", "r2")])
def test_trained_scored_and_predicted(command, columns, task, label, metric, read_lines, tmp_path):
    columns = [*columns, "--label", label]
    learn = ["--learning-rate", "2e-3", "--num-train-epochs", 40, "--target", "west"]
    code, _, error = command("train", *columns, "--task", task, *learn, "--output", "run")
    assert code == 0 and "not written" not in error, error
    (record,) = read_lines(tmp_path / "run/runs.jsonl")
    kept = tmp_path / "run" / record["checkpoint"]
    config = json.loads((kept / "config.json").read_text())
    assert list(config["id2label"].values()) == (["bad", "book", "good"] if task == "labels" else ["stars"])
    code, out, error = command("evaluate", kept, *columns, "--json")
    assert code == 0, error
    assert json.loads(out)["scores"]["west"] == pytest.approx(record["scores"]["west"], abs=1e-3)
    assert record["scores"]["west"][metric] > 80
    assert "Traceback" not in next((tmp_path / "run").glob("jobs/*/log.txt")).read_text()

    code, out, error = command("predict", kept, *columns[:2])
    assert code == 0, error
    west = [json.loads(line) for line in out.splitlines()][-16:]
    if task == "numbers":
        expected = r2_score([0.5, 1.5, 2.5, 3.5] * 4, [line["number"] for line in west])
    else:
        of_rows = [{one["label"] for one in line["labels"]} for line in west]
        several = ([[name in one for name in ("bad", "book", "good")] for one in rows] for rows in (TRUE * 4, of_rows))
        expected = f1_score(*several, average="macro")
    assert record["scores"]["west"][metric] == pytest.approx(100 * expected, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["compare", "--methods", "hma"], 2, "`hma` is for texts, and the rows are labels. Choose ['erm']."),
        (["compare", "--methods", "coral"], 2, "`coral` is for classes, and the rows are labels. Choose ['erm']."),
        (["train", "--label-smoothing-factor", "0.1"], 2, "`--label-smoothing-factor` is for classes"),
        (["train", "--class-weights", "balanced"], 2, "`--class-weights` needs one of 3 classes"),
        (["train", "--label", "tag"], 3, "`--label` is 'tag', but"),
        (["train", "--task", "numbers"], 3, "`--label` 'tags' holds 'good | book' in row 0, which is no number."),
        (["continual"], 2, "`--task` labels is not supported by `continual`. Use `hf-memaug train`."),
    ],
)
def test_refused(command, columns, words, code, said):
    found, _, error = command(words[0], *columns, "--task", "labels", "--label", "tags", *words[1:])
    assert found == code and said in error, error
