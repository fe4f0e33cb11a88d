# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A method is one row: the family of the guide, in modules outside of the library, works with no other edit."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "docs"))
from pages import blocks

import hf_memaug
from hf_memaug.registry import FAMILIES, Family, Method, Paper
from hf_memaug_cli.app import main

pytestmark = pytest.mark.slow
GUIDE = "docs/guides/adding_a_method.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a comparison that trained the family beside the plain encoder."""
    folder = tmp_path_factory.mktemp("toy")
    outside = {
        "hf_memaug.configuration.configuration_prototypes": "toy_configuration",
        "hf_memaug.modeling.modeling_prototypes": "toy_modeling",
    }

    def moved(code: str) -> str:
        for inside, name in outside.items():
            code = code.replace(inside, name)
        return code

    row = ""
    for block in blocks(GUIDE):
        module = (block.title or "").removesuffix(".py").replace("/", ".")
        if module in outside:
            (folder / f"{outside[module]}.py").write_text(moved(block.code), encoding="utf-8")
        elif (block.title or "").startswith("hf_memaug/registry.py"):
            row = moved(block.code)
    sys.path.insert(0, str(folder))
    before = dict(FAMILIES)
    (family,) = eval("{" + row + "}", {"Family": Family, "Method": Method, "Paper": Paper}).values()
    hf_memaug.register_family(family)
    options = ["--data", "generated_reviews", "--backbone", "small", "--target", "books", "--seeds", "1"]
    options += ["--max-steps", "4", "--evaluations", "1", "--memory-prototypes", "6", "--quiet"]
    try:
        assert main(["compare", "--methods", "erm,prototypes", *options, "--output", str(folder / "run")]) == 0
        yield folder / "run"
    finally:
        FAMILIES.clear()
        FAMILIES.update(before)
        sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def checkpoint(run) -> Path:
    records = [json.loads(line) for line in (run / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record["job"]["method"] for record in records] == ["erm", "prototypes"]
    config = json.loads((run / records[1]["checkpoint"] / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "bert_prototypes" and config["memory_prototypes"] == 6
    return run / records[1]["checkpoint"]


def test_the_card_and_the_report_know_it(run, checkpoint):
    card = (checkpoint / "README.md").read_text(encoding="utf-8")
    assert "The title of the paper" in card and "the encoder's feature reads learned prototypes" in card
    memory = json.loads((checkpoint.parent / "memory.json").read_text(encoding="utf-8"))
    assert memory["what"] == "slot" and len(memory["by_domain"]["books"]) == 6
    report = (run / "report.html").read_text(encoding="utf-8")
    assert "prototypes" in report and 'id="memory"' in report


def test_it_predicts(checkpoint, capsys):
    assert main(["predict", str(checkpoint), "a good book"]) == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert line["label"] in ("negative", "positive")


def test_the_app_explains_it(checkpoint):
    from hf_memaug.app import html
    from hf_memaug.app.session import ask, load_session

    session = load_session(checkpoint)
    answer = ask(session, "a good book")
    (reading,) = answer.explanation.readings
    assert len(reading.slots) == 6 and answer.explanation.plain is not None
    assert "the head reads the encoder&#39;s feature alone" in html.answer(answer)
