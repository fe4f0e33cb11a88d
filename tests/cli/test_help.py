# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`--help` fits a screen and needs no torch; `hf-memaug options` lists the fields of trainers and models."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_memaug.registry import BACKBONES, FAMILIES
from hf_memaug.runs.settings import TRAINERS
from hf_memaug_cli.app import COMMANDS, COMMON

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_a_screen_and_has_an_example(name, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = command(*([name] if name else []), "--help")
    lines = out.rstrip().splitlines()
    assert code == 0 and len(lines) <= 43 and max(map(len, lines)) <= 100
    assert f"Example:\n    hf-memaug {name or 'demo'}" in out
    assert "Exit codes: 0 done, 1 a job failed, 2 wrong usage, 3 data refused, 130 interrupted." in out


def test_help_is_fast():
    # A second process, because this one has imported torch.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    code = "import sys; from hf_memaug_cli.app import main; sys.exit(main())"
    line = [sys.executable, "-X", "importtime", "-c", code, "compare", "--help"]
    before = os.times()
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert "| torch\n" not in done.stderr
    # Processor time, as other tests may run at the same time.
    assert after.children_user - before.children_user < 1.5


def test_methods_in_the_help_exist():
    from hf_memaug.runs.methods import chosen
    from hf_memaug_cli.options import CompareOptions

    text = CompareOptions.__dataclass_fields__["methods"].metadata["help"]
    for name in text.removeprefix("such as ").split(","):
        chosen(name)


@pytest.mark.parametrize("name", [*TRAINERS, *FAMILIES, *BACKBONES])
def test_options_are_listed_with_their_help(command, name):
    code, out, error = command("options", name)
    assert code == 0, error
    lines = out.split(f"\n{name}\n", 1)[1].splitlines()
    options = [number for number, line in enumerate(lines) if line.startswith("  --")]
    assert options and all(lines[number + 1].startswith("      ") for number in options)


def test_the_commands_are_described_in_whole_sentences(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = command("--help")
    assert len(out.splitlines()) <= 40 and "..." not in out.partition("\n")[2]


@pytest.mark.parametrize("name", [name for name, one in COMMANDS.items() if one.trainer == "bilevel"])
def test_help_lists_the_common_options_of_trainers(command, name):
    settings = {one.option: one for one in COMMANDS[name].settings().values()}
    _, out, _ = command(name, "--help")
    for option, default in COMMON.items():
        assert f"`{option}` ({default:g})" in " ".join(out.split()) and default == settings[option].default


def test_options_show_defaults(command):
    code, out, _ = command("options")
    assert code == 0 and "--episodes" in out and "--smiles" in out and "--output-dir" not in out
    assert len(out.splitlines()) <= 86
    assert "--episodes int (default: 30)" in command("options", "bilevel")[1]
    code, _, error = command("options", "bilevle")
    assert code == 2 and "Did you mean 'bilevel'?" in error
