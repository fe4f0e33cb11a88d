# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What a job kept beside its checkpoint: texts (`features.npz`), and who reads which slot (`memory.json`)."""

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.inference.checkpoints import beside_checkpoint
from hf_memaug.inference.predictor import Predictor
from hf_memaug.modeling.memory_reads import MemoryRead

# Of the texts, how many are run through the model, how much of one is quoted, and how many are run at a time.
_MOST_TEXTS, _LONGEST_QUOTE, _BATCH = 200, 160, 16


@dataclass(frozen=True)
class TrainingRows:
    """
    Args:
        memory: `memory.json`.
        texts, domains: of the rows of `features.npz`; both may be missing.
        reads: by the title of a memory, what each of `quotes` reads of each slot.
        quotes: the texts that were run through the model, shortened.
        warnings: files that cannot be read.
    """

    memory: Mapping[str, Any] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    reads: Mapping[str, np.ndarray] = field(default_factory=dict)
    quotes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def readers(self, read: MemoryRead, slot: int) -> dict[str, float]:
        """Of all that the domains read of a slot, the share of each."""
        by_layer = self.memory.get("by_layer")
        if read.layer is not None and isinstance(by_layer, dict):
            return _shares(by_layer.get(str(read.layer)), slot)
        # Counted for one memory of the model alone: its slots are these.
        fits = read.unit in str(self.memory.get("what", read.unit))
        return _shares(self.memory.get("by_domain"), slot) if fits else {}

    def quotes_of(self, read: MemoryRead, slot: int, most: int) -> tuple[str, ...]:
        """The texts that read a slot most."""
        if read.title not in self.reads:
            return ()
        shares = self.reads[read.title][:, slot]
        order = np.argsort(-shares, kind="stable")[:most]
        return tuple(f"{self.quotes[row]} reads {shares[row]:.1%} of its memory here" for row in order)

    def classes(self, slot: int) -> dict[str, float]:
        """The same of classes: who chooses an expert of the last layer."""
        return _shares(self.memory.get("by_class"), slot)


def _shares(reads: Any, slot: int) -> dict[str, float]:
    # The file may be that of another model.
    try:
        found = {str(name): float(of_slots[slot]) for name, of_slots in (reads or {}).items()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return {}
    total = sum(found.values())
    return {name: value / total for name, value in found.items()} if total > 0 else {}


def read_training_rows(predictor: Predictor) -> TrainingRows:
    """Reads both files, and asks the model which slots the texts read."""
    warnings: list[str] = []
    memory = _read(predictor, "memory.json", lambda path: dict(json.loads(path.read_text(encoding="utf-8"))), warnings)
    arrays = _read(predictor, "features.npz", _read_features, warnings)
    texts, domains = arrays.get("text", ()), arrays.get("domain", ())
    reads: dict[str, np.ndarray] = {}
    quotes: tuple[str, ...] = ()
    if predictor.kind == "text" and predictor.reads_memory and texts:
        chosen = np.linspace(0, len(texts) - 1, min(_MOST_TEXTS, len(texts))).round().astype(int)
        reads = _reads_of(predictor, [texts[row] for row in chosen])
        known = [one for one in (domains, arrays.get("label", ())) if one]
        quotes = tuple(_quote(texts[row], [one[row] for one in known if one[row]]) for row in chosen)
    return TrainingRows(memory, texts, domains, reads, quotes, tuple(warnings))


def _read(predictor: Predictor, file: str, reader: Callable[[Path], dict], warnings: list[str]) -> dict[str, Any]:
    """What a file beside the checkpoint holds; a broken file only adds a warning."""
    path = beside_checkpoint(predictor.name, file)
    try:
        return {} if path is None else reader(path)
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        warnings.append(f"`{file}` cannot be read and is ignored: {error}")
        return {}


def _read_features(path: Path) -> dict[str, tuple[str, ...]]:
    with np.load(path, allow_pickle=False) as stored:
        return {key: tuple(map(str, stored[key])) for key in ("text", "domain", "label") if key in stored}


def _reads_of(predictor: Predictor, texts: list[str]) -> dict[str, np.ndarray]:
    inputs: list[Any] = list(texts)
    if predictor.pairs == "needed":
        # Both texts of a row are stored with a line break between.
        inputs = [(first, second or first) for first, _, second in (text.partition("\n") for text in texts)]
    found: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(inputs), _BATCH):
        for seen in predictor.watch(inputs[start : start + _BATCH], output_memory_weights=True)[1]:
            for read in predictor.model.memory_reads(*seen):
                found.setdefault(read.title, []).append(read.weights.float().cpu().numpy())
    return {title: np.concatenate(parts) for title, parts in found.items()}


def _quote(text: str, known: list[str]) -> str:
    text = " ".join(text.split())
    text = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE].rstrip(' …')}…"
    return f"“{text}”" + (f" ({', '.join(known)})" if known else "")
