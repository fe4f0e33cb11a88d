# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What README says to type works as it stands, but for the names of the data and the checkpoint."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_example_on_a_csv_runs(tmp_path, monkeypatch, backbones, capsys):
    from hf_memaug.data import generated_reviews

    example = blocks("python")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 15 + 1
    rows = generated_reviews(rows_per_domain=12)
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "stars", "shop"])
        writer.writerows((row["text"], rows.label_names[row["label"]], row["domain"]) for row in rows)
    monkeypatch.chdir(tmp_path)
    code = example.replace("FacebookAI/roberta-base", backbones["roberta"]).replace("max_length=256", "max_length=64")
    exec(compile(code, "README.md", "exec"), {})
    assert "test_macro_f1" in capsys.readouterr().out


def test_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
