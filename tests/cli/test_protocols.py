# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What the committed tables need of the command: three splits, rows of their own names, chosen epochs, vectors."""

import json

import numpy as np
import pytest

from hf_memaug.runs.splits import split_for_continual


@pytest.fixture
def three_splits(tmp_path):
    """One domain with `train`, `dev` and `test`; a row of each of the last two is a training row."""
    from hf_memaug.data import generated_reviews

    rows = [dict(row) for row in generated_reviews(rows_per_domain=40, domains=["books"])]
    parts = {"train": rows[:20], "dev": [*rows[20:30], rows[0]], "test": [*rows[30:], rows[1]]}
    folder = tmp_path / "task"
    folder.mkdir()
    for name, part in parts.items():
        lines = [json.dumps({key: row[key] for key in ("text", "label", "domain")}) for row in part]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


def test_one_split_selects_and_another_is_scored(command, three_splits, backbones, quick, read_lines, tmp_path):
    words = ["compare", "--data", three_splits, "--split", "train", "--dev-split", "dev", "--test-split", "test"]
    words += ["--methods", "fine-tuning,gmap-single", "--gmap-single.strategy", "single", "--seeds", 1]
    words += ["--backbone", backbones["roberta"], *quick]
    general, none = ["--general", backbones["roberta"]], ["--target", "none"]
    for more, said in [
        ([*none, *general], "`--on-overlap drop`"),
        ([*none, "--on-overlap", "drop_dev"], "`fine-tuning` reads a general encoder. Set `--general`"),
        (["--target", "books", *general], "add `--target none`"),
    ]:
        code, _, error = command(*words, *more)
        assert code in (2, 3) and said in error
    code, _, error = command(
        *words, *none, *general, "--on-overlap", "drop_dev", "--metric", "accuracy", "--keep", "none"
    )
    assert code == 0, error
    records = read_lines(tmp_path / "runs/compare/runs.jsonl")
    assert [record["job"]["method"] for record in records] == ["fine-tuning", "gmap-single"]
    for record in records:
        # Ten dev rows choose, for one of the eleven is a training row; and all eleven test rows are scored.
        assert record["validation"] * 10 / 100 == pytest.approx(round(record["validation"] * 10 / 100))
        right = record["scores"]["books"]["accuracy"] * 11 / 100
        assert right == pytest.approx(round(right), abs=1e-6)
    assert records[1]["job"]["strategy"] == "single" and "strategy" not in records[0]["job"]
    results = json.loads((tmp_path / "runs/compare/results.json").read_text())
    assert {row["method"] for row in results["rows"]} == {"fine-tuning", "gmap-single"}
    code, _, error = command("train", "--data", three_splits, "--split", "train", "--dev-split", "dev")
    assert code == 2 and "needs `--test-split`, the rows to score" in error


def test_training_rows_that_are_scored_too(command, three_splits, quick, tmp_path):
    words = ["train", "--data", three_splits, "--split", "train", "--test-split", "test", *quick]
    code, _, error = command(*words)
    assert code == 3 and "1 of 20 rows of `--split` are also in `--test-split`" in error
    assert "Pass `--on-overlap drop`" in error
    code, _, error = command(*words, "--on-overlap", "drop_dev")
    assert code == 2 and "drops rows of `--dev-split`" in error
    assert command(*words, "--on-overlap", "drop")[0] == 0
    described = json.loads((tmp_path / "runs/train/data.json").read_text())
    assert described["domains"]["books"]["train"] == 19


def test_a_name_of_its_own_needs_settings_of_its_own(command, columns, pictures):
    code, _, error = command("compare", *columns, "--methods", "erm,hma-small", "--dry-run")
    assert code == 2 and "As a variant of 'hma' it needs settings of its own" in error
    words = ["sweep", "--data", pictures, "--methods", "vit,gmoe,gmoe-linear", "--trials", 1, "--dry-run", "--json"]
    code, _, error = command(*words)
    assert code == 2 and "gmoe-linear" in error
    code, out, error = command(*words, "--gmoe-linear.router", "linear")
    assert code == 0, error
    names = [json.loads(line)["name"] for line in out.splitlines()]
    domains = len(list(pictures.iterdir()))
    assert len(set(names)) == 3 * domains and sum("gmoe-linear" in name for name in names) == domains


@pytest.mark.slow
def test_each_domain_keeps_its_best_epoch_and_words_have_vectors(command, columns, no_report, read_lines, tmp_path):
    (tmp_path / "vectors.txt").write_text("\n".join(f"{word} 9.0 8.0 7.0 6.0" for word in ("the", "film", "book", "a")))
    words = ["continual", *columns, "--order", "films,books", "--method", "memory-rnn", "--strategies", "f+v"]
    words += ["--vectors", "vectors.txt", "--dev-fraction", 0.5, "--holdout", 0.5, "--learning-rate", "1e-8"]
    sizes = ["--hidden-size", 8, "--classifier-size", 8, "--memory-slots", "4", "--num-train-epochs", 2]
    with no_report():
        code, out, error = command(*words, *sizes)
    assert code == 0, error + out
    (record,) = read_lines(tmp_path / "runs/continual/runs.jsonl")
    source = json.loads((tmp_path / "runs/continual/jobs/f+v-seed0/job.json").read_text())["source"]
    parts = split_for_continual(source, ["films", "books"], 0.5, 0.5, seed=0)
    for name in ("films", "books"):
        # Of a domain's twelve rows half are held out, and some of these choose.
        dev, test = set(parts["dev"][name]["text"]), set(parts["test"][name]["text"])
        assert dev and test and not dev & test and len(parts["dev"][name]) + len(parts["test"][name]) == 6
        right = record["scores"][name]["accuracy"] * len(parts["test"][name]) / 100
        assert right == pytest.approx(round(right), abs=1e-6)
    checkpoint = tmp_path / "runs/continual" / record["checkpoint"]
    assert json.loads((checkpoint / "config.json").read_text())["embedding_size"] == 4
    from transformers import AutoTokenizer

    import hf_memaug

    model = hf_memaug.MemoryRNNForSequenceClassification.from_pretrained(checkpoint)
    words_of = AutoTokenizer.from_pretrained(checkpoint).get_vocab()
    found = [word for word in ("the", "film", "book", "a") if word in words_of]
    assert found
    for word in found:
        vector = model.get_input_embeddings().weight[words_of[word]].detach().numpy()
        assert np.allclose(vector, [9, 8, 7, 6], atol=1e-3)
    logged = read_lines(tmp_path / "runs/continual/jobs/f+v-seed0/metrics.jsonl")
    assert any("eval_accuracy" in line for line in logged)

    # Words that it learns later have vectors too.
    (tmp_path / "vectors.txt").write_text("phone 5.0 5.0 5.0 5.0")
    more = ["continual", *columns, "--order", "phones", "--backbone", checkpoint, "--strategies", "f+v"]
    more += ["--vectors", "vectors.txt", "--learning-rate", "1e-8", "--max-steps", 1, "--output", "later"]
    code, out, error = command(*more, "--method", "memory-rnn", "--dry-run")
    assert code == 0, error + out
    with no_report():
        code, out, error = command(*more)
    assert code == 0, error + out
    (record,) = read_lines(tmp_path / "later/runs.jsonl")
    kept = tmp_path / "later" / record["checkpoint"]
    model = hf_memaug.MemoryRNNForSequenceClassification.from_pretrained(kept)
    place = AutoTokenizer.from_pretrained(kept).get_vocab()["phone"]
    assert np.allclose(model.get_input_embeddings().weight[place].detach().numpy(), 5, atol=1e-3)
