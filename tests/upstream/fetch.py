# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Fetches the source distributions of transformers and PEFT, in the versions installed, for their common tests.

    python tests/upstream/fetch.py .cache/upstream

Their tests are not part of this project. They are read from where this puts them; without them the tests in this folder
are skipped, with that reason.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

PROJECTS = ("transformers", "peft")


def fetch(folder: Path) -> None:
    # Made from the classes as they were when they were last tested.
    shutil.rmtree(folder / "tiny", ignore_errors=True)
    for project in PROJECTS:
        goal = folder / f"{project}-{version(project)}"
        if (goal / "tests").is_dir():
            continue
        with tempfile.TemporaryDirectory() as download:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
            command += ["--no-build-isolation", "--dest", download, f"{project}=={version(project)}"]
            subprocess.run(command, check=True, timeout=300)
            archive = next(Path(download).glob("*.tar.gz"))
            with tarfile.open(archive) as tar:
                members = [m for m in tar.getmembers() if m.name.startswith(f"{goal.name}/tests/")]
                tar.extraction_filter = getattr(tarfile, "data_filter", None)  # newer than Python 3.11.3
                tar.extractall(folder, members=members)
        (goal / "tests" / "__init__.py").touch()  # their configuration tests look for it
        print(f"fetched the tests of {goal.name}")


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
