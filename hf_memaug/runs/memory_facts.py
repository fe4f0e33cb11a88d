# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a model read of its memories, averaged over the rows of each domain: the content of `memory.json`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hf_memaug.data import DomainDataset
from hf_memaug.data.spans import IGNORED
from hf_memaug.runs.results import LAYERS

OUTSIDE = "other words"


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
        self.words: _Words | None = None

    def add(self, numbers: Sequence[int], inputs: Mapping, outputs, processor) -> list:
        """Adds a batch and returns its reads."""
        reads = [one for one in self.model.memory_reads(inputs, outputs) if not one.of_input]
        for one in reads:
            self.reads.setdefault(one.title, []).append(one.weights.float().cpu().numpy())
            self.last[one.title] = one
        weights = outputs.get("memory_weights")
        is_of_words = weights is not None and weights.ndim == 3 and "input_ids" in self.rows.column_names
        if is_of_words and weights.shape[1] == inputs["input_ids"].shape[1]:
            self.words = self.words or _Words(processor, self.rows.label_names)
            for number, of_row in zip(numbers, weights.float().cpu().numpy(), strict=True):
                self.words.add(self.rows[number], of_row)
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
        if not memory:
            return None
        if self.words is not None:
            memory["by_word"] = self.words.means()
        return {"kind": "slots", "what": "slot", **memory}

    def _slots(self, title: str, weights: np.ndarray) -> dict[str, Any]:
        read = self.last[title]
        found: dict[str, Any] = {"what": LAYERS if read.unit == "layer" else read.unit}
        if read.elsewhere:
            found["elsewhere"] = {name: 1 - sum(of) for name, of in self._means(weights).items()}
            found["elsewhere_is"] = read.elsewhere
        found["by_domain"] = self._means(_shares(weights))
        if read.owners is not None and read.unit == "slot":
            found["owners"] = [self.classes.get(owner, owner) for owner in read.owners]
            is_class = set(read.owners) <= self.classes.keys()
            found["owned_by"] = "the class of a slot" if is_class else "the domain a slot was added for"
        return found

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
        by_domain = list(by_layer.values())[-1]
        return {
            "kind": "experts",
            "what": "expert",
            "by_domain": by_domain,
            "by_layer": by_layer,
            "by_class": by_class,
        }

    def _means(self, weights: np.ndarray) -> dict[str, list[float]]:
        domains = np.array(self.rows["domain"])
        return {
            name: [round(float(one), 6) for one in weights[domains == name].mean(axis=0)] for name in self.rows.domains
        }


def _shares(weights: np.ndarray) -> np.ndarray:
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)


class _Words:
    """Mean reads at each kind of token: the types of entities, or question, context and answer."""

    def __init__(self, tokenizer, labels: list[str]):
        self.special = set(tokenizer.all_special_ids)
        self.labels = labels
        self.sums: dict[str, Any] = {}

    def add(self, row: Mapping, weights: np.ndarray) -> None:
        for place, kind in self._answers(row) if "offsets" in row else self._entities(row):
            self.sums[kind] = self.sums.get(kind, 0) + weights[place]

    def means(self) -> dict[str, list[float]]:
        # Two gates add up to 2.
        found = {kind: (sums / sums.sum()).tolist() for kind, sums in sorted(self.sums.items())}
        found |= {OUTSIDE: found.pop(OUTSIDE)} if OUTSIDE in found else {}
        return {kind: [round(one, 6) for one in shares] for kind, shares in found.items()}

    def _entities(self, row: Mapping) -> Iterator[tuple[int, str]]:
        """The first token of each word, with the type of its entity."""
        for place, label in enumerate(row["labels"]):
            if label != IGNORED:
                yield place, OUTSIDE if self.labels[label] == "O" else self.labels[label].partition("-")[2]

    def _answers(self, row: Mapping) -> Iterator[tuple[int, str]]:
        start, end = row["start_positions"], row["end_positions"]
        for place, offset in enumerate(row["offsets"]):
            if offset is not None:
                yield place, "answer" if start and start <= place <= end else "context"
            elif row["input_ids"][place] not in self.special:
                yield place, "question"
