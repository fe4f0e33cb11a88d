# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Experience replay: some rows of earlier domains are kept and trained on again."""

import random
from typing import Any

from hf_memaug.data import DomainDataset
from hf_memaug.training.algorithms.base import Limits
from hf_memaug.training.continual.base import FineTuning


class ExperienceReplay(FineTuning):
    """
    Keeps `rows_per_domain` random training rows of each domain. An epoch of a later domain shuffles its own rows with
    all that are kept. The rows are saved in the folder of the run, and never pushed to the hub.
    """

    options = {"rows_per_domain": 100}
    limits = {"rows_per_domain": Limits(least=1)}
    needs_state = True
    state_file = "_replay.pt"
    balanced_batches = False

    def __init__(self, arguments):
        super().__init__(arguments)
        self.kept: dict[str, list] = {}
        self.label_names: list[str] = []

    def check_model(self, model, processing_class, rows: DomainDataset) -> None:
        super().check_model(model, processing_class, rows)
        for name, value in (rows[0] if len(rows) else {}).items():
            if not isinstance(value, (str, int, float, list, tuple, dict, type(None))):
                raise ValueError(
                    f'`strategy="{self.name}"` saves rows, but the column {name!r} of `train_dataset` holds '
                    f"{type(value).__name__}. Use paths for images, and text and numbers for the rest."
                )

    def training_rows(self, rows: DomainDataset) -> DomainDataset:
        if not self.kept:
            return rows
        return DomainDataset.concatenate([rows, DomainDataset(self.kept, self.label_names)])

    def end(self, trainer, rows: DomainDataset, raw_rows: DomainDataset, seed: int) -> None:
        draw = random.Random(f"replay {seed}")
        chosen = draw.sample(range(len(raw_rows)), min(self.rows_per_domain, len(raw_rows)))
        new = raw_rows.select(sorted(chosen))
        self.kept = {name: [*self.kept.get(name, ()), *new[name]] for name in new.column_names}
        self.label_names = new.label_names

    def state(self) -> dict[str, Any]:
        return {"kept": self.kept, "label_names": self.label_names}

    def load_state(self, state: dict[str, Any]) -> None:
        self.kept, self.label_names = state["kept"], state["label_names"]
