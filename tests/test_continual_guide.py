# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What docs/continual.md says to type can be typed, and what it says of strategies and figures is so."""

import csv
import re
from pathlib import Path

from hf_memaug.data import generated_reviews
from hf_memaug.evaluation import DEFINITIONS
from hf_memaug.training import STRATEGIES

GUIDE = (Path(__file__).parents[1] / "docs" / "continual.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table whose first heading this is."""
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", GUIDE, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def test_every_strategy_and_option_is_in_the_table():
    said = {}
    for names, _, options in rows_of("`strategy`"):
        for name in re.findall(r'`"(.+?)"`', names):
            said[name] = options
    assert set(said) == set(STRATEGIES)
    for name, options in said.items():
        if "of both" in options:
            continue
        found = dict(re.findall(r'`(\w+)` (?:λ )?"?([\w.]+)"?', options))
        assert set(found) == set(STRATEGIES[name].options), name
        for option, value in STRATEGIES[name].options.items():
            assert found[option] == (f"{value:g}" if isinstance(value, float) else str(value)), option


def test_every_figure_is_defined():
    assert [re.findall(r"`(\w+)`", cells[0])[0] for cells in rows_of("figure")] == list(DEFINITIONS)


def test_the_example_runs(tmp_path, monkeypatch, backbones, capsys):
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "stars", "shop"])
        data = generated_reviews(rows_per_domain=10, domains=["books", "films"])
        writer.writerows((row["text"], data.label_names[row["label"]], row["domain"]) for row in data)
    monkeypatch.chdir(tmp_path)
    code, later = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    smaller = {"FacebookAI/roberta-base": backbones["roberta"], "max_length=256": "max_length=64, max_steps=1"}
    for written, tiny in smaller.items():
        assert written in code
        code = code.replace(written, tiny)
    names = {}
    exec(compile(code, "continual.md", "exec"), names)
    assert re.search(r"^films +\d", capsys.readouterr().out, re.MULTILINE)
    assert (tmp_path / "runs/shops/continual_matrix.png").is_file()
    assert set(names["trainer"].figures()) == set(DEFINITIONS)
    for line in re.findall(r"^  (_stages/\w+|continual\w*\.\w+)", GUIDE, re.MULTILINE):
        assert (tmp_path / "runs/shops" / line).exists(), line

    # A model of transformers has no record in its configuration: the folder has it.
    later = later.replace('"me/shops"', '"runs/shops/_stages/1-films"').replace(
        "processing_class=tokenizer", 'processing_class=tokenizer, history="runs/shops"'
    )
    names["args"].output_dir, names["args"].domains = "runs/later", None
    names["new_rows"] = generated_reviews(rows_per_domain=10, domains=["phones"])
    names["test_rows_of_all"] = generated_reviews(rows_per_domain=5, domains=["books", "films", "phones"], seed=1)
    names["tokenizer"] = names["trainer"].processing_class
    exec(compile(later, "continual.md", "exec"), names)
    names["trainer"].train()
    assert names["trainer"].record.trained == ["books", "films", "phones"]
