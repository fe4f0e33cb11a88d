# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The recipes of examples/ are files that the command takes, and what stands on a terminal while it runs."""

import io
import json
import re
from pathlib import Path

import pytest
import yaml

from hf_memaug.cli import fields
from hf_memaug.cli.app import COMMANDS
from hf_memaug.cli.recipes import resolve

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "examples" / "recipes").glob("*.yaml"))
# Every family, and every command that trains.
FAMILIES = {"mil", "hma", "gmoe", "gmap", "memory-rnn"}


def test_there_is_one_for_each_family():
    found = [yaml.safe_load(path.read_text()) for path in RECIPES]
    named = {name for one in found for name in [*one.get("methods", []), one.get("method", "")]}
    assert FAMILIES <= named
    assert {one["command"] for one in found} == {"compare", "sweep", "pretrain", "train", "continual"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_key_is_known(path):
    command = yaml.safe_load(path.read_text())["command"]
    resolved = resolve(
        command, COMMANDS[command].options, {"recipe": str(path)}, [], fields.fields_of(*COMMANDS[command].settings)
    )
    again = resolved.recipe(command)
    assert (
        again["command"] == command and f"hf-memaug {command} --recipe examples/recipes/{path.name}" in path.read_text()
    )


def tiny_images(folder: Path) -> Path:
    from PIL import Image

    # Three domains: two are left to train on where one is left out, and CORAL compares them.
    domains = ("art", "photo", "sketch")
    for number, name in enumerate(f"{domain}/{label}" for domain in domains for label in ("dog", "cat")):
        (folder / "images" / name).mkdir(parents=True)
        for row in range(5):
            Image.new("RGB", (8, 8), (40 * number, 40 * row, 0)).save(folder / "images" / name / f"{row}.png")
    return folder / "images"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_gives_jobs(path, command, backbones, monkeypatch, tmp_path):
    recipe = yaml.safe_load(path.read_text())
    monkeypatch.chdir(ROOT)
    if recipe["command"] == "pretrain":
        pytest.skip("pre-training is one job, and has no list of them")
    data = recipe["data"]
    if data != "generated_reviews" and not Path(data).exists():
        pytest.skip(f"there is no {data}")
    words = [recipe["command"], "--recipe", path, "--dry-run", "--json", "--output", "nowhere"]
    more = ["--general", backbones["roberta"]] if "gmap" in [recipe.get("method"), *recipe.get("methods", [])] else []
    if "pacs" in data:
        # All images would be read: some others do as well.
        more = ["--data", tiny_images(tmp_path)]
    code, out, error = command(*words, *more)
    assert code == 0, error
    assert all(json.loads(line)["state"] == "to do" for line in out.splitlines())
    assert not Path("nowhere").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_live_table(monkeypatch):
    import sys

    from hf_memaug.cli.display import Display

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stdout", Terminal())
    display = Display("f1", False, False, ["erm", "mil"], ["books"])
    spec = {"name": "mil-books-seed0", "job": {"method": "mil", "target": "books", "seed": 0}}
    record = {**spec, "validation": 90.0, "scores": {"books": {"f1": 81.25}}, "seconds": 3.0}
    display.begin(2, 1, 1, [])
    with display:
        display.start(spec)
        display.event(spec, {"event": "step", "phase": "meta_train", "step": 5, "of": 10})
        display._live.refresh()
        display.event(spec, {"event": "step", "phase": "train", "step": 5, "of": 10})
        display._live.refresh()
        display.done(spec, record)
    said = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", display.out.getvalue())
    assert "1 of 2 jobs are done already" in said and "██████████░░░░░░░░░░ step 5/10, " in said
    assert "step 5/10 of meta_train" in said and "steps/s" in said
    assert "mil books seed 0: validation 90.0, books 81.2 (3 s)" in said
    assert said.rstrip().rpartition("erm")[2].split()[:3] == ["-", "mil", "81.2"]


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    from hf_memaug.cli import display as module
    from hf_memaug.cli.display import Display

    monkeypatch.setattr(module, "EVERY", 0.0)
    display = Display("f1", False, False, ["mil"], ["books"])
    spec = {"name": "mil-books-seed0", "job": {"method": "mil", "target": "books", "seed": 0}}
    display.begin(1, 0, 1, [])
    with display:
        display.start(spec)
        display.event(spec, {"event": "resumed", "phase": "train", "step": 40})
        display.event(spec, {"event": "step", "phase": "train", "step": 60, "of": 100})
    out = capsys.readouterr().out
    assert "mil books seed 0: goes on from step 40." in out and "step 60/100, " in out and "\x1b" not in out
