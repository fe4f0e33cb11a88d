# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a model read of its memories, averaged over the rows of each domain: the content of `memory.json`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hf_memaug.data import DomainDataset
from hf_memaug.runs.results import LAYERS


def reads_memory(model) -> bool:
    return hasattr(model, "memory_reads") and model.reads_memory


class MemoryFacts:
    """
    Collects `model.memory_reads` of batch after batch.

    Args:
        model: a model that has memories.
        rows: all rows, for their domains and labels.
    """

    def __init__(self, model, rows: DomainDataset):
        self.model, self.rows = model, rows
        own = [str(name) for name in model.config.id2label.values()]
        # The rows may have better names than the configuration.
        self.classes = dict(zip(own, rows.label_names if len(rows.label_names) == len(own) else own, strict=True))
        self.reads: dict[str, list[np.ndarray]] = {}
        self.last: dict[str, Any] = {}

    def add(self, inputs: Mapping, outputs) -> list:
        """Adds a batch and returns its reads."""
        reads = self.model.memory_reads(inputs, outputs)
        for one in reads:
            self.reads.setdefault(one.title, []).append(one.weights.float().cpu().numpy())
            self.last[one.title] = one
        return reads

    def content(self) -> dict[str, Any] | None:
        """What `memory.json` holds. None if nothing was read."""
        weights = {title: np.concatenate(parts) for title, parts in self.reads.items()}
        weights = {title: found for title, found in weights.items() if found.shape[1]}
        experts = {title: found for title, found in weights.items() if self.last[title].unit == "expert"}
        if experts:
            return self._experts(experts)
        memory: dict[str, Any] = {}
        for title, found in weights.items():
            memory |= self._real(title, found) if self.last[title].unit == "datapoint" else self._slots(title, found)
        return {"kind": "slots", "what": "slot", **memory} if memory else None

    def _slots(self, title: str, weights: np.ndarray) -> dict[str, Any]:
        unit = self.last[title].unit
        return {"what": LAYERS if unit == "layer" else unit, "by_domain": self._means(_shares(weights))}

    def _real(self, title: str, weights: np.ndarray) -> dict[str, Any]:
        """Training rows in the memory change all the time: what counts is the class of each."""
        owners = np.array(self.last[title].owners)
        by_class = np.stack([weights[:, owners == name].sum(axis=1) for name in self.classes], axis=1)
        return {"real": {"classes": list(self.classes.values()), "by_domain": self._means(_shares(by_class))}}

    def _experts(self, weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
        by_layer = {str(self.last[title].layer): self._means(_shares(found)) for title, found in weights.items()}
        last, labels = _shares(list(weights.values())[-1]), np.array(self.rows.labels or [])
        by_class = {
            name: last[labels == number].mean(axis=0).tolist()
            for number, name in enumerate(self.rows.label_names)
            if (labels == number).any()
        }
        found = {"by_domain": list(by_layer.values())[-1], "by_layer": by_layer, "by_class": by_class}
        return {"kind": "experts", "what": "expert", **found}

    def _means(self, weights: np.ndarray) -> dict[str, list[float]]:
        domains = np.array(self.rows["domain"])
        return {
            name: [round(float(one), 6) for one in weights[domains == name].mean(axis=0)] for name in self.rows.domains
        }


def _shares(weights: np.ndarray) -> np.ndarray:
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
