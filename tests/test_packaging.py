# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The wheel holds everything that it needs, and works from any folder."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from families import HEADS

ROOT = Path(__file__).parents[1]
USE = """
import sys
import hf_memaug, transformers
assert not hf_memaug.__file__.startswith(sys.argv[2]), hf_memaug.__file__
model = transformers.AutoModelForSequenceClassification.from_pretrained(sys.argv[1])
assert type(model).__name__ == sys.argv[3]
from hf_memaug.evaluation import METRICS, load_metric
for name in METRICS:
    load_metric(name)
assert load_metric("macro_f1").compute(predictions=[0, 1, 1], references=[0, 1, 0])
from hf_memaug.data import generated_reviews, leave_one_domain_out
leave_one_domain_out(generated_reviews(rows_per_domain=10), "books")
print(hf_memaug.__version__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("build", reason="`build` is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_has_every_file_and_nothing_else(wheel):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    kinds = (".bib", ".py", ".css", ".js", ".html", ".jinja", ".json")
    files = [path for name in ("hf_memaug", "hf_memaug_cli") for path in (ROOT / name).rglob("*")]
    sources = {str(path.relative_to(ROOT)) for path in files if path.suffix in kinds or path.name == "py.typed"}
    assert packed == sources


@pytest.mark.slow
def test_it_works_from_any_folder(wheel, tmp_path):
    case = HEADS[0]
    case.model().save_pretrained(tmp_path / "model")
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(target), "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path / "model"), str(ROOT), case.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == re.search(r"hf_memaug-(.+?)-", wheel.name)[1]


def test_the_version_stands_in_one_place():
    import hf_memaug

    found = [
        path.relative_to(ROOT)
        for pattern in ("*.py", "*.toml", "*.cfg", "hf_memaug/**/*.py")
        for path in ROOT.glob(pattern)
        if f'"{hf_memaug.__version__}"' in path.read_text(encoding="utf-8")
    ]
    assert [str(path) for path in found] == ["hf_memaug/__init__.py"]
