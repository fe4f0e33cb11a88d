# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of JSON lines, one for each trained model, beside the tables that are made of them."""

import json
from collections.abc import Iterable
from pathlib import Path


def read_runs(path: Path) -> list[dict]:
    """All whole lines; a kill may have cut the last."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def keep_runs(path: Path, runs: Iterable[dict]) -> None:
    """Writes runs beside those that are there; one of the same `job` takes the place of the older."""
    every = {json.dumps(run["job"], sort_keys=True): run for run in [*read_runs(path), *runs]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(run) + "\n" for run in every.values()), encoding="utf-8")
