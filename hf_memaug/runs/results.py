# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads what a run has left in its folder. What is missing or broken is said in `notes`, and is no failure."""

import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

RUN_FILE, DATA_FILE, RECIPE_FILE, JOBS_FILE = "run.json", "data.json", "recipe.yaml", "runs.jsonl"
# Of each job:
LOG_FILE, FEATURES_FILE, MEMORY_FILE, PATCHES_FOLDER = "metrics.jsonl", "features.npz", "memory.json", "patches"
# What the slots of a G-MAP model are.
LAYERS = "layer of the general encoder"


@dataclass
class Job:
    """One trained model: a line of `runs.jsonl`. What the line does not say is None, or empty."""

    name: str
    method: str
    target: str | None = None
    seed: int = 0
    backbone: str = ""
    validation: float | None = None
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    # Where the data brings dev and test rows, those of dev, by which it was selected; `scores` are those of test.
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
        """
        The score on the domain left out, or the mean over the domains of test rows that were given: after the last of
        them, where they came one after another.
        """
        if not self.dev_scores and self.matrix is None:
            return self.scores.get(self.target or "", {}).get(metric or "")
        found = [one[metric] for one in self.scores.values() if metric in one]
        return sum(found) / len(found) if found else None


class FinishedRun:
    """
    Args:
        path: the folder of a run.

    Attributes:
        info, data: what `run.json` and `data.json` hold.
        recipe: the text of `recipe.yaml`, or None.
        jobs: the finished jobs, in their order.
        notes: what was left aside, a sentence each.
    """

    def __init__(self, path: str | os.PathLike):
        self.path, self.notes = Path(path), []
        if not self.path.is_dir():
            raise FileNotFoundError(f"`run_folder` is {str(path)!r}, where there is no folder: pass that of a run.")
        self.info, self.data = self._mapping(RUN_FILE), self._mapping(DATA_FILE)
        recipe = self.path / RECIPE_FILE
        self.recipe = recipe.read_text(encoding="utf-8", errors="replace") if recipe.is_file() else None
        if not self.info and not self.data and not (self.path / JOBS_FILE).is_file():
            raise FileNotFoundError(
                f"`run_folder` is {str(path)!r}, which has neither {RUN_FILE} nor {JOBS_FILE}: pass the folder that a "
                "run of `hf-memaug` has written."
            )
        self.jobs = [job for job in map(self._job, self._lines(self.path / JOBS_FILE)) if job is not None]

    @property
    def metric(self) -> str | None:
        """The score that the run is about."""
        named = self.info.get("metric")
        if isinstance(named, str):
            return named
        return next((metric for job in self.jobs for of in job.scores.values() for metric in of), None)

    @property
    def methods(self) -> list[str]:
        """Those that have finished jobs, in the order that the run was given."""
        wanted = self.info.get("methods")
        found = dict.fromkeys(job.method for job in self.jobs)
        first = [name for name in wanted if name in found] if isinstance(wanted, list) else []
        return list(dict.fromkeys([*first, *found]))

    def selected(self) -> list[Job]:
        """
        For each method, backbone, target and seed the job with the best score on validation data, as far as several
        settings were tried; of equals the last.
        """
        best: dict[tuple, Job] = {}
        for job in self.jobs:
            key = (job.method, job.backbone, job.target, job.seed)
            score = -math.inf if job.validation is None else job.validation
            if key not in best or score >= (-math.inf if best[key].validation is None else best[key].validation):
                best[key] = job
        order = {name: place for place, name in enumerate(self.methods)}
        return sorted(best.values(), key=lambda job: (order[job.method], job.backbone, job.target or "", job.seed))

    def log(self, job: Job) -> list[dict]:
        """What `Trainer` logged."""
        return list(self._lines(job.folder / LOG_FILE)) if job.folder else []

    def features(self, job: Job) -> dict[str, np.ndarray] | None:
        """The arrays of `features.npz`, of one length each, without rows whose features are not finite."""
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
            self._leave_aside(path, error)
            return None
        whole = np.isfinite(features).all(axis=1)
        texts = {name: array[whole].astype(str) for name, array in arrays.items() if name != "features"}
        names = self.info.get("labels")
        for name in ("label", "predicted") if isinstance(names, list) else ():
            # Ids, where the run knows their names.
            if name in texts and all(one.isdigit() and int(one) < len(names) for one in texts[name]):
                texts[name] = np.array([str(names[int(one)]) for one in texts[name]])
        blank = np.full(int(whole.sum()), "")
        return {**dict.fromkeys(("domain", "label", "predicted"), blank), **texts, "features": features[whole]}

    def memory(self, job: Job) -> dict | None:
        """What `memory.json` holds."""
        return self._mapping(Path("jobs") / job.name / MEMORY_FILE) or None if job.folder else None

    def patches(self, job: Job) -> list[Path]:
        """Pictures of experts over patches."""
        folder = job.folder / PATCHES_FOLDER if job.folder else None
        kinds = (".png", ".jpg", ".jpeg")
        return (
            sorted(one for one in folder.iterdir() if one.suffix.lower() in kinds) if folder and folder.is_dir() else []
        )

    def _mapping(self, name: str | Path) -> dict:
        path = self.path / name
        if not path.is_file():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it holds no object")
        except (OSError, ValueError) as error:
            self._leave_aside(path, error)
            return {}
        return found

    def _lines(self, path: Path) -> Iterator[dict]:
        if not path.is_file():
            return
        broken = []
        for place, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), start=1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except ValueError:
                found = None
            if isinstance(found, dict):
                yield found
            else:
                broken.append(place)
        if broken:
            places = ", ".join(map(str, broken[:5])) + (", …" if len(broken) > 5 else "")
            said = f"line {places} is" if len(broken) == 1 else f"lines {places} are"
            self._note(f"{path.relative_to(self.path)}: {said} broken and left aside.")

    def _job(self, line: dict) -> Job | None:
        job = line.get("job") if isinstance(line.get("job"), dict) else {}
        if not isinstance(job.get("method"), str):
            self._note(f"{JOBS_FILE}: a line that names no method is left aside.")
            return None
        name = line.get("name") if isinstance(line.get("name"), str) else ""
        folder = self.path / "jobs" / name
        # A name is a folder of this run, and no way out of it.
        inside = name not in ("", ".", "..") and Path(name).name == name and folder.is_dir()
        seed, scores, target = job.get("seed"), _scores(line.get("scores")), job.get("target")
        # "none" says that no domain is left out, unless there is one of that name.
        target = None if target is None or (target == "none" and target not in scores) else str(target)
        matrix = line["matrix"] if isinstance(line.get("matrix"), dict) else None
        numbers = ("validation", "seconds", "peak_memory_bytes", "parameters", "trainable")
        # Of domains that came one after another it is the mean of the matrix, which is of test rows.
        numbers = numbers if matrix is None else numbers[1:]
        settings = line.get("settings") if isinstance(line.get("settings"), dict) else {}
        return Job(
            name=name,
            method=job["method"],
            target=target,
            seed=seed if isinstance(seed, int) else 0,
            backbone=str(job.get("backbone") or ""),
            scores=scores,
            dev_scores=_scores(line.get("dev_scores")),
            settings={**{key: value for key, value in job.items() if key not in _NAMED}, **settings},
            checkpoint=line["checkpoint"] if isinstance(line.get("checkpoint"), str) else None,
            matrix=matrix,
            folder=folder if inside else None,
            **{key: _finite(line.get(key)) for key in numbers},
        )

    def _leave_aside(self, path: Path, error: Exception) -> None:
        self._note(f"{path.relative_to(self.path)} cannot be read and is left aside: {error}.")

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


_NAMED = ("method", "target", "seed", "backbone")


def _scores(found: Any) -> dict[str, dict[str, float]]:
    """domain -> metric -> value, as far as they are numbers."""
    scores = {}
    for domain, of_domain in found.items() if isinstance(found, Mapping) else ():
        if isinstance(of_domain, Mapping):
            numbers = {str(metric): _finite(value) for metric, value in of_domain.items()}
            scores[str(domain)] = {metric: value for metric, value in numbers.items() if value is not None}
    return scores


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None
