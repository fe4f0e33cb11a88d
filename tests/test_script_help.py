# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Every script and every module that is run by its name says what it does at once: without torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = """
import runpy, sys

module, path = sys.argv[1:]
sys.argv = [path, "--help"]
try:
    if module:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = path.rpartition("/")[0]
        runpy.run_path(path, run_name="__main__")
except SystemExit as done:
    heavy = {"torch", "transformers", "datasets", "matplotlib", "sklearn"} & set(sys.modules)
    sys.exit(f"--help imports {', '.join(sorted(heavy))}" if heavy else done.code)
sys.exit("--help was not answered")
"""


def with_help() -> list[str]:
    """
    Files that are run by people: those with a `__main__` block and a parser of argparse, their own or another file's
    that they name. Others are imported, are given a folder by the command that starts them, or take no arguments. The
    help of `hf-memaug` is tested with its commands.
    """
    found = []
    for folder in ("examples", "benchmarks", "hf_memaug"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if '__name__ == "__main__"' in text and "argparse" in text:
                found.append(path.relative_to(ROOT).as_posix())
    return found


def test_the_scripts_are_found():
    found = with_help()
    assert {"examples/gmoe/sweep.py", "benchmarks/mil.py", "hf_memaug/training/sweep/__main__.py"} < set(found)
    assert not {"benchmarks/table.py", "hf_memaug/training/sweep/job.py"} & set(found)


@pytest.mark.parametrize("path", with_help())
def test_help_comes_without_torch(path, tmp_path):
    is_module = path.startswith("hf_memaug/")
    module = path.removesuffix(".py").removesuffix("/__main__").replace("/", ".") if is_module else ""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CODE, module, str(ROOT / path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    called = f"python -m {module}" if is_module else f"python {path}"
    assert called in done.stdout, "it shows how it is called"
    assert not list(tmp_path.iterdir())


def test_the_help_of_a_sweep_names_all_algorithms():
    from hf_memaug.training import ALGORITHMS
    from hf_memaug.training.sweep.__main__ import make_parser

    assert ", ".join(ALGORITHMS) in " ".join(make_parser().format_help().split())
