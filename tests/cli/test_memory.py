# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug write`, `memory` and `erase` on a tiny classifier."""

import json

import pytest
from tiny_backbones import save_backbone
from transformers import AutoModelForSequenceClassification


@pytest.fixture
def classifier(tmp_path) -> str:
    folder = save_backbone("bert", tmp_path / "classifier")
    AutoModelForSequenceClassification.from_pretrained(
        folder, id2label={0: "negative", 1: "positive"}, label2id={"negative": 0, "positive": 1}
    ).save_pretrained(folder)
    return str(folder)


def test_rows_are_written_listed_and_erased(command, classifier, reviews):
    given = ("--data", reviews, "--label", "stars", "--domain", "shops")
    code, out, err = command("write", classifier, *given, "--keep-text", "--guard", reviews)
    assert code == 0 and "36 rows of shops" in out, err
    written = f"{classifier}-written"
    code, out, _ = command("memory", written, "--json")
    (entry,) = json.loads(out)
    assert code == 0 and (entry["name"], entry["rows"]) == ("shops", 36)
    assert "Guard rows: 36" in command("memory", written)[1]
    assert command("memory", written, "--audit")[0] == 0
    assert command("predict", written, "a good book")[0] == 0
    code, _, err = command("write", written, *given)
    assert code == 3 and "`--domain` 'shops' is written already" in err
    assert command("erase", written, "--domain", "shops")[1].endswith("erased. Left: nothing.\n")
    assert "Nothing was written" in command("memory", written)[1]


@pytest.mark.parametrize(
    "words, said",
    [
        (("memory", "{classifier}"), "has no writable memory. `hf-memaug write` adds one"),
        (("write", "{classifier}", "--domain", "shops"), "`--data` is missing"),
        (("write", "{classifier}", "--domain", "shops", "--data", "{reviews}", "--label", "shop"), "unknown"),
    ],
)
def test_mistakes_are_said(command, classifier, reviews, words, said):
    code, _, err = command(*(word.format(classifier=classifier, reviews=reviews) for word in words))
    assert code in (2, 3) and said in err and "Traceback" not in err
