# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What has been trained so far, and how it scored: `continual.json`, and `config.run_facts["continual"]`."""

import copy
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hf_memaug.evaluation.continual import DEFINITIONS, continual_scores
from hf_memaug.evaluation.per_domain import escape, lay_out
from hf_memaug.files import write_atomically

RECORD_FILE = "continual.json"


@dataclass
class ContinualRecord:
    """
    The way of a model through its domains.

    Args:
        metric (`str`): the score that the matrix R holds, in its own unit.
        strategy (`dict`): `name` and `options` of the run that is under way.
        kind (`str`): how R is read: `"sequence"`, or `"diagonal"` and `"last_row"` for the two references.
        labels (`list[str]`): the names of the labels.
        plan (`list[str]`): the domains of the run that is under way, in their order.
        baseline (`dict[str, float]`): the scores before any training.
        stages (`list[dict]`): for each that is done its `domains`, `strategy`, `growth`, `steps`, `rows` and `scores`,
            which is a row of R by domain.
    """

    metric: str = "accuracy"
    strategy: dict[str, Any] = field(default_factory=dict)
    kind: str = "sequence"
    labels: list[str] = field(default_factory=list)
    plan: list[str] = field(default_factory=list)
    baseline: dict[str, float] = field(default_factory=dict)
    stages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def trained(self) -> list[str]:
        """The domains trained on, in their order."""
        return [domain for stage in self.stages for domain in stage["domains"]]

    @property
    def domains(self) -> list[str]:
        """Those trained on, then those that are to come or were only scored."""
        scored = (domain for stage in self.stages for domain in stage["scores"])
        return list(dict.fromkeys([*self.trained, *self.plan, *scored]))

    @property
    def row_names(self) -> list[str]:
        """What each row of R was trained on."""
        names = [stage["domains"] for stage in self.stages]
        return [" + ".join(several) if len(several) < 3 else f"{len(several)} domains" for several in names]

    def matrix(self, domains: Sequence[str] | None = None) -> list[list[float]]:
        """R: a row for each stage, a column for each of `domains` (default: all); nan where nothing is known."""
        columns = self.domains if domains is None else domains
        return [[stage["scores"].get(domain, math.nan) for domain in columns] for stage in self.stages]

    def figures(self) -> dict[str, float | None]:
        """ACC, BWT, FWT and forgetting (`hf_memaug.evaluation.DEFINITIONS`); `None` where one is not defined."""
        open_figures = dict.fromkeys(DEFINITIONS)
        if not self.stages:
            return open_figures
        if self.kind == "sequence":
            baseline = [self.baseline.get(domain, math.nan) for domain in self.trained]
            return continual_scores(self.matrix(self.trained), baseline)
        final = self.final_scores()
        mean = sum(final.values()) / len(final)
        return {**open_figures, "acc": None if math.isnan(mean) else mean}

    def final_scores(self) -> dict[str, float]:
        """The score at the end of each domain trained on; where each had a run of its own, after that."""
        stages = self.stages if self.kind == "diagonal" else [{**self.stages[-1], "domains": self.trained}]
        return {name: stage["scores"].get(name, math.nan) for stage in stages for name in stage["domains"]}

    def table(self, style: str = "text", points: bool = True) -> str:
        """R, a row for each stage, as a table. `points` shows fractions times 100."""

        def cell(value: float) -> str:
            return "-" if math.isnan(value) else f"{value * (100 if points else 1):.1f}"

        lines = [["after training on", *self.domains]]
        if self.baseline:
            lines.append(["(nothing)", *(cell(self.baseline.get(domain, math.nan)) for domain in self.domains)])
        for name, row in zip(self.row_names, self.matrix(), strict=True):
            lines.append([name, *map(cell, row)])
        return lay_out([[escape(text, style) for text in line] for line in lines], style)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def save(self, folder: str | os.PathLike) -> None:
        write_atomically(Path(folder) / RECORD_FILE, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, source: "Mapping | str | os.PathLike") -> "ContinualRecord":
        """From a `continual.json`, a folder that has one, or a dictionary."""
        facts: Any = source
        if not isinstance(source, Mapping):
            path = Path(source)
            path = path / RECORD_FILE if path.is_dir() else path
            if not path.is_file():
                raise FileNotFoundError(
                    f"`history` is {str(source)!r}, where there is no `{RECORD_FILE}`. Give the folder of a checkpoint "
                    "that `ContinualTrainer` has left or pushed."
                )
            facts = json.loads(path.read_text(encoding="utf-8"))
        try:
            return cls(**copy.deepcopy(dict(facts)))
        except TypeError as error:
            raise ValueError(f"`history` is not a record of `ContinualTrainer`: {error}.") from None


def write_facts(config, record: ContinualRecord) -> None:
    """Puts a record, and the domains trained on by then, among the facts that a configuration carries."""
    if hasattr(config, "run_facts") and record.stages:
        facts = config.run_facts or {}
        domains = list(dict.fromkeys([*(facts.get("domains") or ()), *record.trained]))
        config.run_facts = {**facts, "domains": domains, "continual": record.to_dict()}


def drop_old_facts(config, record: ContinualRecord) -> None:
    """Before a model is trained further: its scores and its strategy are those of other weights."""
    facts = dict(getattr(config, "run_facts", None) or {})
    if facts:
        facts.pop("scores", None)
        if record.stages and facts.get("method") == record.stages[-1]["strategy"]:
            del facts["method"]
        config.run_facts = facts
