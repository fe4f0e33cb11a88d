# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The scripts in examples/ do what they say, with nothing but what is in the repository."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_script(*command: object, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_mil_on_generated_reviews(tmp_path):
    settings = ("--episodes", 1, "--episode-steps", 2, "--epochs", 0.1, "--target", "films")
    said = run_script(ROOT / "examples/mil/train.py", *settings, folder=tmp_path)
    head, *rows = re.search(r"^( +books.*)\n-+\n(erm .*)\n(mil .*)$", said, re.MULTILINE).groups()
    assert head.split() == ["books", "kitchen", "phones", "hotels", "films", "(unseen)"]
    assert all(len(re.findall(r"\d+\.\d", row)) == 5 for row in rows)
    # 1280 rows in batches of 32: a tenth of an epoch is 4 steps, and the memory takes 2.
    assert "mil: 2 steps for the memory, then 4 steps" in said and "erm: 6 steps" in said
    assert "same output to the bit: True" in said and "One seed proves nothing" in said

    output = tmp_path / "runs" / "mil"
    assert (output / "meta_training.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "mil" / "meta_train" / "memory.safetensors").is_file()
    card = (output / "mil" / "README.md").read_text(encoding="utf-8")
    for line in (
        "Trained as `mil`",
        "| **films** (left out) | test | seed 0 |",
        "| average | dev |",
        "| meta steps | 2 |",
    ):
        assert line in card, line
    assert "macro_f1" in card and "type: f1" not in card

    from transformers import AutoTokenizer, pipeline

    import hf_memaug  # noqa: F401

    AutoTokenizer.from_pretrained(output / "mil")
    answer = pipeline("text-classification", model=str(output / "mil"))("A dull film.")[0]
    assert answer["label"] in ("negative", "positive")


def test_pretraining_makes_domain_encoders(tmp_path):
    import json

    from hf_memaug import GMAPForMaskedLM, GMAPForSequenceClassification

    script = ROOT / "examples/gmap/pretrain.py"
    said = run_script(script, "--epochs", 2, "--output", "dapt", folder=tmp_path)
    assert "masked-LM loss before:" in said
    record = json.loads((tmp_path / "dapt" / "pretraining.json").read_text())
    assert record["after"]["generated reviews"] < record["before"]["generated reviews"]
    assert (tmp_path / "dapt" / "losses.png").stat().st_size > 5000
    general, domain = str(tmp_path / "dapt" / "encoder"), str(tmp_path / "dapt")
    assert GMAPForSequenceClassification.from_general_and_domain(general, domain, num_labels=2).num_labels == 2

    texts = ["the phone is good and the battery lasts", "a slow film with a great end"] * 40
    (tmp_path / "task.txt").write_text("\n".join(texts))
    (tmp_path / "general.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    files = ("--corpus", "task.txt", "--also", "general.jsonl", "--length", 32)
    settings = ("--backbone", "dapt", "--general", "dapt/encoder", "--stream", "--steps", 2, "--output", "gmap")
    run_script(script, *files, *settings, folder=tmp_path)
    record = json.loads((tmp_path / "gmap" / "pretraining.json").read_text())
    assert record["steps"] == 2 and set(record["after"]) == {"task", "general"}
    model = GMAPForMaskedLM.from_pretrained(tmp_path / "gmap")
    assert model.config.strategy == "chunk_gated" and model.config.freeze_general


def test_gmap_beside_the_domain_encoder(tmp_path):
    import json

    from hf_memaug import GMAPForSequenceClassification

    said = run_script(
        ROOT / "examples/gmap/train.py", "--epochs", 1, "--seeds", 1, "--cached", "--strategy", "gated", folder=tmp_path
    )
    assert re.search(r"^domain +\d", said, re.MULTILINE) and re.search(r"^gmap +\d", said, re.MULTILINE)
    results = json.loads((tmp_path / "runs/gmap/scores.json").read_text())
    assert [one["method"] for one in results] == ["domain", "gmap"]
    assert GMAPForSequenceClassification.from_pretrained(tmp_path / "runs/gmap/gmap").config.strategy == "gated"
    assert "G-MAP" in (tmp_path / "runs/gmap/gmap/README.md").read_text()

    # Files of one's own, with test texts that were trained on.
    for name, texts in {"train": range(30), "dev": range(30, 40), "test": range(25, 50)}.items():
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["review", "stars"])
            writer.writerows((f"text number {n} is {'good' if n % 2 else 'bad'}", n % 2) for n in texts)
    files = [part for name in ("train", "dev", "test") for part in (f"--{name}", f"{name}.csv")]
    columns = ("--text", "review", "--label", "stars", "--output", "own")
    said = run_script(ROOT / "examples/gmap/train.py", *files, *columns, "--epochs", 1, "--seeds", 1, folder=tmp_path)
    assert "unseen texts" in said


def test_strategies_beside_each_other(tmp_path):
    import json

    script = ROOT / "examples/ida/train.py"
    settings = ("--epochs", 0.1, "--domains", "films", "books")
    said = run_script(script, *settings, "--strategies", "f", "in_domain", folder=tmp_path)
    assert "In this order: films (320 rows, 80 to score), books" in said
    for strategy in ("f", "in_domain"):
        output = tmp_path / "runs" / "ida" / strategy
        record = json.loads((output / "continual.json").read_text())
        assert [stage["domains"] for stage in record["stages"]] == [["films"], ["books"]]
        for name in ("continual_matrix.png", "continual_curves.png"):
            assert (output / name).read_bytes().startswith(b"\x89PNG")
        card = (output / "README.md").read_text(encoding="utf-8")
        assert f"Trained as `{strategy}`" in card and "| books | test | seed 0 |" in card
    assert re.search(r"^ +films +books +acc +bwt +fwt +forgetting$", said, re.MULTILINE)
    assert re.search(r"^in_domain +[\d.* ]+ - +- +-$", said, re.MULTILINE)
    assert all(f"\n{name}: " in said for name in ("acc", "bwt", "fwt", "forgetting"))

    from transformers import AutoTokenizer, pipeline

    import hf_memaug  # noqa: F401

    folder = tmp_path / "runs" / "ida" / "f"
    AutoTokenizer.from_pretrained(folder)
    answer = pipeline("text-classification", model=str(folder))("A dull film.")[0]
    assert answer["label"] in ("negative", "positive")

    # What is done is not done again; and another domain comes months later.
    before = (folder / "model.safetensors").read_bytes()
    again = run_script(script, *settings, "--strategies", "f", "--resume", folder=tmp_path)
    assert before == (folder / "model.safetensors").read_bytes()
    assert re.search(r"^f: .*\n(.*\n)+?books.*$", said, re.MULTILINE)[0] in again
    more = ("--epochs", 0.1, "--domains", "phones", "--checkpoint", "runs/ida/f", "--strategies", "f")
    said = run_script(script, *more, "--output", "runs/later", folder=tmp_path)
    assert re.search(r"^phones +- +- +\d", said, re.MULTILINE), "there are no test rows of the earlier domains"
    assert re.search(r"^f +- +- +\d", said, re.MULTILINE) and "nan" not in said
    card = (tmp_path / "runs/later/f/README.md").read_text(encoding="utf-8")
    assert "| Domains trained on | films, books, phones |" in card
    assert "| phones | test |" in card and "| books | test |" not in card and "| average |" not in card
    assert len(json.loads((tmp_path / "runs/later/f/continual.json").read_text())["stages"]) == 3


def test_strategies_on_stars_from_a_file(tmp_path):
    with (tmp_path / "shops.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "stars", "shop"])
        writer.writerows((f"{shop} number {n}", n % 3 + 1, shop) for shop in ("books", "films") for n in range(30))
    given = ("--data", "shops.csv", "--label", "stars", "--domain", "shop", "--labels", 1, 2, 3)
    run_script(ROOT / "examples/ida/train.py", *given, "--strategies", "f", "--epochs", 0.5, folder=tmp_path)
    from transformers import AutoConfig

    import hf_memaug  # noqa: F401

    assert AutoConfig.from_pretrained(tmp_path / "runs/ida/f").id2label == {0: "1", 1: "2", 2: "3"}
