# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a model of tags or of answers reads of its memory, kept beside its checkpoint for the report to show."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from hf_memaug.data.collators import PaddingCollator
from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.spans import IGNORED
from hf_memaug.evaluation.checks import as_numpy
from hf_memaug.files import write_atomically
from hf_memaug.reporting import memory_maps
from hf_memaug.runs.facts import _by_slot, _means, _reads_slots, evenly
from hf_memaug.runs.results import LAYERS, MEMORY_FILE

OUTSIDE = "other words"


def write_token_facts(
    folder: str | os.PathLike, model, tokenizer, rows: DomainDataset, *, most_rows: int = 400, batch_size: int = 32
) -> list[Path]:
    """
    Writes `memory.json` into the folder of a job, and returns the files written: none for a model without a memory, or
    whose memory has no gates. The model is asked in evaluation and left as it was.

    Args:
        folder: the job's folder. What an earlier call has left there is replaced.
        model: a G-MAP model for tokens or for questions, or any other of transformers.
        tokenizer: its tokenizer, which pads on the right.
        rows: tokenized rows of `tokenize_tags`, with the tags for labels, or of `tokenize_questions`, with a domain:
            best of the target and of the sources, none of them trained on.
        most_rows: how many of them, drawn evenly from the domains.
        batch_size: rows at a time.
    """
    folder, model = Path(folder), model.get_base_model() if hasattr(model, "get_base_model") else model
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MEMORY_FILE
    path.unlink(missing_ok=True)
    if not _reads_slots(model):
        return []
    rows, collator = evenly(rows, most_rows), PaddingCollator(tokenizer)
    taken = [name for name in tokenizer.model_input_names if name in rows.column_names]
    reads, words = [], _Words(tokenizer, rows.label_names)
    with memory_maps.evaluating(model):
        for start in range(0, len(rows), batch_size):
            several = [rows[row] for row in range(start, min(start + batch_size, len(rows)))]
            batch = collator([{name: row[name] for name in taken} for row in several])
            inputs = {name: memory_maps._placed(value, model) for name, value in batch.items()}
            weights = model(**inputs, output_memory_weights=True).memory_weights
            if weights is None:
                return []
            reads.append(as_numpy(_by_slot(weights, inputs["attention_mask"])))
            for row, of_row in zip(several, as_numpy(weights.float()), strict=True):
                words.add(row, of_row)
    memory = {"kind": "slots", "what": LAYERS, "by_domain": _means(np.concatenate(reads), rows)}
    memory["by_word"] = words.means()
    write_atomically(path, json.dumps(memory, ensure_ascii=False, indent=1) + "\n")
    return [path]


class _Words:
    """Mean reads at the tokens of each kind: of each type of entity, or of question, context and answer."""

    def __init__(self, tokenizer, labels: list[str]):
        self.special = set(tokenizer.all_special_ids)
        self.labels, self.sums = labels, {}

    def add(self, row: Mapping, weights: np.ndarray) -> None:
        for place, kind in self._answers(row) if "offsets" in row else self._entities(row):
            self.sums[kind] = self.sums.get(kind, 0) + weights[place]

    def means(self) -> dict[str, list[float]]:
        # Two gates add up to 2.
        found = {kind: (sums / sums.sum()).tolist() for kind, sums in sorted(self.sums.items())}
        # What is nothing in particular comes last.
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
