# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What docs/bench.md says to type can be typed, and what it says of ranges and records is so."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from hf_memaug.data import generated_reviews
from hf_memaug.evaluation import Record
from hf_memaug.evaluation.domain_selection import SELECTIONS
from hf_memaug.training.sweep.__main__ import main
from hf_memaug.training.sweep.hyperparameters import OWN

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_the_commands_plan_what_they_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"text": row["text"], "stars": row["label"], "shop": row["domain"]} for row in generated_reviews(4)]
    lines = ["text,stars,shop", *(f'"{row["text"]}",{row["stars"]},{row["shop"]}' for row in rows)]
    (tmp_path / "reviews.csv").write_text("\n".join(lines))
    (text,) = blocks("bash")
    commands = [shlex.split(line, comments=True) for line in text.replace("\\\n", "").splitlines()]
    sweeps = [words[3:] for words in commands if words[1:3] == ["-m", "hf_memaug.training.sweep"]]
    assert len(sweeps) == 2
    for arguments, jobs in zip(sweeps, (5 * 3 * 2, 5 * 3 * 2 * 5), strict=True):
        assert main([*arguments, "--dry-run"]) == 0
        assert f"{jobs} jobs, 0 of them done" in capsys.readouterr().out


def test_the_record_is_one():
    (text,) = blocks("json")
    record = Record.from_json(text)
    assert record.train_envs == ["films", "phones"] and set(json.loads(text)) == set(Record.__dataclass_fields__)


def test_every_range_and_way_to_select_is_told():
    for algorithm, ranges in OWN.items():
        (row,) = [
            line for line in GUIDE.splitlines() if line.startswith("|") and f"`{algorithm}`" in line.split("|")[1]
        ]
        assert all(f"`{name}`" in row for name in ranges)
    assert all(f"| `{name}` |" in GUIDE for name in SELECTIONS)


@pytest.mark.parametrize("module", ["hf_memaug.training.sweep.__main__", "hf_memaug.reporting.domain_tables"])
def test_help_helps(module, capsys, monkeypatch):
    with pytest.raises(SystemExit):
        __import__(module)
        sys.modules[module].main(["--help"])
    said = capsys.readouterr().out
    command = module.removesuffix(".__main__")
    assert f"python -m {command} " in said and "default" in said
