# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Reads a run folder. Missing or broken files do not raise an error: they are listed in `notes`."""

import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.files import read_json_lines
from hf_memaug.runs.folder import DATA_FILE, RECIPE_FILE, RECORD, RECORDS_FILE, RUN_FILE, check_links
from hf_memaug.runs.job import NONE, job_folder

# In the folder of a job.
LOG_FILE, FEATURES_FILE, MEMORY_FILE = "metrics.jsonl", "features.npz", "memory.json"
# What the memory of a model that reads the layers of a second encoder consists of, in `memory.json`.
LAYERS = "layer of the general encoder"
NUMBERS = ("seconds", "peak_memory_bytes", "parameters", "trainable")


@dataclass
class Result:
    """A trained model: a line of `runs.jsonl`. What the line lacks is None or empty."""

    name: str
    method: str
    target: str | None = None
    seed: int = 0
    backbone: str = ""
    validation: float | None = None
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    # Where the data has dev and test splits, those of dev, by which the model was selected; `scores` are those of test.
    dev_scores: dict[str, dict[str, float]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    peak_memory_bytes: float | None = None
    parameters: float | None = None
    trainable: float | None = None
    checkpoint: str | None = None
    matrix: dict[str, Any] | None = None
    folder: Path | None = None

    @property
    def title(self) -> str:
        parts = [self.method, f"target {self.target}" if self.target else None, f"seed {self.seed}"]
        return " · ".join(filter(None, parts))

    def tested(self, metric: str | None) -> float | None:
        """The score on the domain left out, or the mean over the domains of given test rows or of a continual job."""
        if not self.dev_scores and self.matrix is None:
            return self.scores.get(self.target or "", {}).get(metric or "")
        return _mean(list(self.scores.values()), metric)

    def tested_on_old(self, metric: str | None) -> float | None:
        """The mean score over the domains that were not left out."""
        return _mean([one for domain, one in self.scores.items() if domain != self.target], metric)


class Run:
    """
    Args:
        path: a run folder.

    Attributes:
        info, data: the content of `run.json` and `data.json`.
        recipe: the text of `recipe.yaml`, or None.
        jobs: the results of the jobs that are done, in their order.
        notes: one sentence for each missing or broken thing.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.notes: list[str] = []
        if not self.path.is_dir():
            raise FileNotFoundError(f"`run_folder` is {str(path)!r}, which is not a folder. Use that of a run.")
        check_links(self.path)
        self.info, self.data = self._mapping(RUN_FILE), self._mapping(DATA_FILE)
        recipe = self.path / RECIPE_FILE
        self.recipe = recipe.read_text(encoding="utf-8", errors="replace") if recipe.is_file() else None
        if not self.info and not self.data and not (self.path / RECORDS_FILE).is_file():
            raise FileNotFoundError(
                f"`run_folder` is {str(path)!r}, which has neither {RUN_FILE} nor {RECORDS_FILE}. Use the folder that "
                "`hf-memaug train` or `compare` wrote."
            )
        self.jobs = [self._result(line) for line in self._lines(self.path / RECORDS_FILE)]

    @property
    def metric(self) -> str | None:
        """The score that models were selected by."""
        first = next((metric for job in self.jobs for of in job.scores.values() for metric in of), None)
        return self.info.get("metric") or first

    @property
    def methods(self) -> list[str]:
        """The methods that have results, in the order that was asked for."""
        found = dict.fromkeys(job.method for job in self.jobs)
        return list(dict.fromkeys([*(name for name in self.info.get("methods", ()) if name in found), *found]))

    def selected(self) -> list[Result]:
        """For each method, backbone, target and seed the result with the best validation score; of equals the last."""
        best: dict[tuple, Result] = {}
        for job in self.jobs:
            key = (job.method, job.backbone, job.target, job.seed)
            if key not in best or _validation(job) >= _validation(best[key]):
                best[key] = job
        order = {name: place for place, name in enumerate(self.methods)}
        return sorted(best.values(), key=lambda job: (order[job.method], job.backbone, job.target or "", job.seed))

    def log(self, job: Result) -> list[dict]:
        """What `Trainer` logged."""
        return self._lines(job.folder / LOG_FILE) if job.folder else []

    def features(self, job: Result) -> dict[str, np.ndarray] | None:
        """The arrays of `features.npz`, all of one length, without rows whose features are not finite."""
        path = job.folder / FEATURES_FILE if job.folder else None
        if path is None or not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            features = arrays["features"].astype(np.float64)
            if features.ndim != 2 or any(len(array) != len(features) for array in arrays.values()):
                raise ValueError("its arrays have different lengths")
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            self._note_broken(path, error)
            return None
        kept = np.isfinite(features).all(axis=1)
        texts = {name: array[kept].astype(str) for name, array in arrays.items() if name != "features"}
        blank = np.full(int(kept.sum()), "")
        return {**dict.fromkeys(("domain", "label", "predicted"), blank), **texts, "features": features[kept]}

    def memory(self, job: Result) -> dict | None:
        """The content of `memory.json`."""
        return self._mapping(Path("jobs") / job.name / MEMORY_FILE) or None if job.folder else None

    def _mapping(self, name: str | Path) -> dict:
        path = self.path / name
        if not path.is_file():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it is not a JSON object")
        except (OSError, ValueError, RecursionError) as error:
            self._note_broken(path, error)
            return {}
        return found

    def _lines(self, path: Path) -> list[dict]:
        found, broken = read_json_lines(path, **(RECORD if path.name == RECORDS_FILE else {}))
        if broken:
            lines = ", ".join(map(str, broken))
            self._note(f"{path.relative_to(self.path)}: broken lines were skipped ({lines}).")
        return found

    def _result(self, line: dict) -> Result:
        job, scores, matrix = line["job"], _scores(line.get("scores")), line.get("matrix")
        folder, target = job_folder(self.path, line["name"]), job.get("target")
        of_job = {key: value for key, value in job.items() if key not in ("method", "target", "seed", "backbone")}
        return Result(
            name=line["name"],
            method=job["method"],
            # "none" means that no domain is left out, unless a domain has that name.
            target=None if target == NONE and target not in scores else target,
            seed=job.get("seed", 0),
            backbone=job.get("backbone") or "",
            # In a continual job it is the mean of the matrix, which is of test rows.
            validation=_finite(line.get("validation")) if matrix is None else None,
            scores=scores,
            dev_scores=_scores(line.get("dev_scores")),
            settings={**of_job, **line.get("settings", {})},
            checkpoint=line.get("checkpoint"),
            matrix=matrix,
            folder=folder if folder.is_dir() else None,
            **{key: line.get(key) for key in NUMBERS},
        )

    def _note_broken(self, path: Path, error: Exception) -> None:
        self._note(f"{path.relative_to(self.path)} cannot be read and was skipped: {error}.")

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


read_run = Run


def _mean(scores: Sequence[Mapping[str, float]], metric: str | None) -> float | None:
    found = [one[metric] for one in scores if metric is not None and metric in one]
    return sum(found) / len(found) if found else None


def _validation(job: Result) -> float:
    return -math.inf if job.validation is None else job.validation


def _scores(found: Mapping[str, Mapping[str, float]] | None) -> dict[str, dict[str, float]]:
    """domain -> metric -> value, without those that are not defined."""
    return {
        domain: {metric: value for metric, value in of_domain.items() if _finite(value) is not None}
        for domain, of_domain in (found or {}).items()
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
