# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Every command says what it does on one screen, at once, and without torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_memaug.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
LINES, COLUMNS = 40, 100


def help_of(*words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS)}
    command = [sys.executable, "-m", "hf_memaug.cli", *words, "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_help_fits_a_screen_and_has_an_example(name):
    said = help_of(*([name] if name else []))
    shown = said.rstrip().splitlines()
    assert len(shown) <= LINES and max(map(len, shown)) <= COLUMNS
    assert f"Example:\n    hf-memaug {name}" in said or "Example:\n    hf-memaug demo" in said
    assert "Exit codes: 0 done, 1 a job failed, 2 wrong usage, 3 data refused, 130 interrupted." in said


def test_the_help_is_there_at_once():
    help_of("compare")
    seconds = []
    for _ in range(3):
        before = os.times()
        help_of("compare")
        after = os.times()
        seconds.append(sum(after[kind] - before[kind] for kind in (2, 3)))
    # Of the processor, for other tests may run beside this one. 0.25 s where nothing else runs.
    assert 0 < min(seconds) < 0.8


def test_neither_help_nor_a_wrong_option_imports_torch():
    code = """
import sys
from hf_memaug.cli.app import main
assert main(["compare", "--help"]) == 0
assert main(["compare", "--learnign-rate", "1"]) == 2
heavy = {"torch", "transformers", "numpy", "datasets", "huggingface_hub"} & set(sys.modules)
assert not heavy, heavy
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_methods_of_the_help_are_methods():
    from hf_memaug.cli.options import CompareOptions
    from hf_memaug.runs.methods import chosen

    text = CompareOptions.__dataclass_fields__["methods"].metadata["help"]
    for name in text.removeprefix("such as ").split(","):
        chosen(name)


def test_fields_are_those_of_the_classes():
    import dataclasses

    from hf_memaug import training
    from hf_memaug.cli.fields import TRAINERS, trainer_fields

    for trainer in ("domain", "bilevel", "continual"):
        real = {one.name: one for one in dataclasses.fields(getattr(training, TRAINERS[trainer])) if one.init}
        read = trainer_fields(trainer)
        assert set(read) == set(real)
        for name, one in read.items():
            assert one.help == " ".join(real[name].metadata.get("help", "").split())
            if one.default is not None:
                assert one.default == real[name].default


def test_options_are_listed_with_defaults(command):
    code, out, _ = command("options", "bilevel")
    assert code == 0 and "--episodes" in out and "30" in out and "How many times a meta-target domain is drawn." in out
    code, out, error = command("options", "bilevle")
    assert code == 2 and "bilevel" in error


def test_nothing_imports_the_command_line():
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "hf_memaug").rglob("*.py")
        if "cli" not in path.relative_to(ROOT / "hf_memaug").parts[:1] and "hf_memaug.cli" in path.read_text()
    ]
    assert not found


def test_the_script_is_installed_by_this_name():
    assert '"hf-memaug = hf_memaug.cli.app:main"' in (ROOT / "setup.py").read_text()
