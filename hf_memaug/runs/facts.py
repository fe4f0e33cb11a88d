# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
What a job keeps for the report besides its scores. The model is run on a sample of the dev and test rows:
`features.npz` has their features, `memory.json` what was read of the memories, averaged over the rows of each domain.
"""

import base64
import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_memaug.data import DomainDataset, GraphCollator, ImageCollator, decode_image
from hf_memaug.data.collators import PaddingCollator
from hf_memaug.files import write_atomically
from hf_memaug.runs.results import FEATURES_FILE, LAYERS, MEMORY_FILE
from hf_memaug.training.forward_pass import linear_heads, watched_features, watched_inputs

LONGEST_TEXT, PICTURE_SIDE = 400, 96


def write_facts(
    folder: str | os.PathLike,
    model,
    processor,
    rows: DomainDataset,
    *,
    most_rows: int = 400,
    batch_size: int = 32,
    max_length: int | None = None,
) -> list[Path]:
    """
    Writes what the report shows of a model, and returns the files.

    Args:
        folder: the job's folder. Files of an earlier call are replaced.
        model: any classifier of transformers, or a tagger or a model for questions.
        processor: its tokenizer or image processor; None for graphs.
        rows: rows that were not trained on, with a domain: texts, images or graphs, or the tokenized rows of tags and
            questions, of which only the memory is kept.
        most_rows: how many of them, evenly from the domains.
        max_length: longest text in tokens. Default: the tokenizer's.
    """
    folder, model = Path(folder), model.get_base_model() if hasattr(model, "get_base_model") else model
    folder.mkdir(parents=True, exist_ok=True)
    for name in (FEATURES_FILE, MEMORY_FILE):
        (folder / name).unlink(missing_ok=True)
    rows = evenly(rows, most_rows)
    is_tokenized = "input_ids" in rows.column_names
    memory = MemoryFacts(model, rows) if getattr(model, "reads_memory", False) else None
    if is_tokenized and memory is None:
        return []
    features, predicted = [], []
    encoder_is_apart = model.base_model is not model and not is_tokenized
    watched: Any = watched_features(model) if encoder_is_apart else nullcontext([])
    was_training = model.training
    model.eval()
    with torch.no_grad(), watched as given, watched_inputs([] if is_tokenized else linear_heads(model)) as read:
        for rows_here, inputs in _batches(model, processor, rows, batch_size, max_length):
            given.clear()
            read.clear()
            outputs = model(**inputs, **({} if memory is None else {"output_memory_weights": True}))
            if memory is not None:
                memory.add(inputs, outputs)
            if not is_tokenized:
                predicted.append(outputs.logits.argmax(dim=-1).cpu())
                features.append(_features(given, read, rows_here).float().cpu())
    model.train(was_training)
    written = []
    if not is_tokenized:
        arrays = _arrays(rows, torch.cat(features).numpy(), torch.cat(predicted).numpy(), model)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # no array is called "allow_pickle"
        write_atomically(folder / FEATURES_FILE, buffer.getvalue())
        written.append(folder / FEATURES_FILE)
    found = None if memory is None else memory.content()
    if found is not None:
        write_atomically(folder / MEMORY_FILE, json.dumps(found, ensure_ascii=False, indent=1) + "\n")
        written.append(folder / MEMORY_FILE)
    return written


def evenly(rows: DomainDataset, most: int, seed: int = 0) -> DomainDataset:
    """At most so many rows, equally many of each domain as far as possible. The choice depends on the seed alone."""
    if len(rows) <= most:
        return rows
    domains, turns, seen = rows["domain"], [], Counter[str]()
    for row in np.random.default_rng(seed).permutation(len(rows)).tolist():
        turns.append((seen[domains[row]], row))
        seen[domains[row]] += 1
    return rows.select(sorted(row for _, row in sorted(turns)[:most]))


def _batches(model, processor, rows: DomainDataset, size: int, max_length: int | None) -> Iterator[tuple[int, dict]]:
    """The number of rows of each batch, and the inputs of the model, without labels."""
    encoded: Any
    collator: Any
    if "image" in rows.column_names:
        encoded, collator = rows, ImageCollator(processor)
    elif "graph" in rows.column_names:
        encoded, collator = rows, GraphCollator()
    else:
        tokens = rows if "input_ids" in rows.column_names else rows.tokenize(processor, max_length)
        names = [name for name in (*processor.model_input_names, "pair_input_ids") if name in tokens.column_names]
        names += [name for name in tokens.column_names if name.startswith("pair_") and name not in names]
        encoded = [{name: row[name] for name in names} for row in tokens]
        collator = PaddingCollator(processor)
    for start in range(0, len(rows), size):
        numbers = range(start, min(start + size, len(rows)))
        batch = collator([encoded[row] for row in numbers])
        placed = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in batch.items()}
        yield len(numbers), {name: value for name, value in placed.items() if name != "labels"}


def _features(given: list[torch.Tensor], read: list[torch.Tensor], rows: int) -> torch.Tensor:
    """The encoder's feature where there is one for each row (a pair has two), otherwise the last layer's input."""
    for found in (given, read):
        fitting = [one for one in found if len(one) == rows]
        if fitting:
            return fitting[-1] if fitting[-1].ndim == 2 else fitting[-1][:, 0]
    raise ValueError("`model` has no encoder and no linear layer for its labels. Use a classifier of transformers.")


def _arrays(rows: DomainDataset, features: np.ndarray, predicted: np.ndarray, model) -> dict[str, np.ndarray]:
    names = rows.label_names or [model.config.id2label[label] for label in range(model.config.num_labels)]
    labels = rows.labels if rows.labels is not None else [-1] * len(rows)
    arrays = {
        # The range of half precision.
        "features": np.clip(features, -65504, 65504).astype(np.float16),
        "domain": np.array(rows["domain"]),
        "label": np.array([str(names[label]) if label >= 0 else "" for label in labels]),
        "predicted": np.array([str(names[label]) if label < len(names) else str(label) for label in predicted]),
    }
    columns = rows.column_names
    if "image" in columns:
        arrays["picture"] = np.array([_small_picture(image) for image in rows["image"]])
    elif "smiles" in columns:
        arrays["text"] = np.array(rows["smiles"])
    elif "graph" in columns:
        arrays["text"] = np.array([_size(graph) for graph in rows["graph"]])
    else:
        pairs = rows["text_pair"] if "text_pair" in columns else [None] * len(rows)
        joined = (f"{text}\n{pair}" if pair else str(text) for text, pair in zip(rows["text"], pairs, strict=True))
        arrays["text"] = np.array([text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…" for text in joined])
    return arrays


def _size(graph: dict) -> str:
    # An undirected edge is listed twice.
    edges = {frozenset(pair) for pair in zip(*graph["edge_index"], strict=True)}
    return f"{len(graph['node_features'])} nodes, {len(edges)} edges"


def _small_picture(image: Any) -> str:
    small = decode_image(image)
    small.thumbnail((PICTURE_SIDE, PICTURE_SIDE))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=75)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


class MemoryFacts:
    """Collects `model.memory_reads` of batch after batch, of all `rows`."""

    def __init__(self, model, rows: DomainDataset):
        self.model, self.rows = model, rows
        own = [str(model.config.id2label[label]) for label in range(model.config.num_labels)]
        # The rows may have better names than the configuration.
        self.classes = dict(zip(own, rows.label_names if len(rows.label_names) == len(own) else own, strict=True))
        self.reads: dict[str, list[np.ndarray]] = {}
        self.last: dict[str, Any] = {}

    def add(self, inputs: Mapping, outputs) -> None:
        """Adds a batch."""
        for one in self.model.memory_reads(inputs, outputs):
            self.reads.setdefault(one.title, []).append(one.weights.float().cpu().numpy())
            self.last[one.title] = one

    def content(self) -> dict[str, Any] | None:
        """What `memory.json` holds. None if nothing was read."""
        weights = {title: np.concatenate(parts) for title, parts in self.reads.items()}
        weights = {title: found for title, found in weights.items() if found.shape[1]}
        experts = {title: found for title, found in weights.items() if self.last[title].unit == "expert"}
        if experts:
            return self._experts(experts)
        memory: dict[str, Any] = {}
        for title, found in weights.items():
            unit = self.last[title].unit
            if unit == "datapoint":
                memory |= self._real(title, found)
            else:
                memory |= {"what": LAYERS if unit == "layer" else unit, "by_domain": self._means(_shares(found))}
        return {"kind": "slots", "what": "slot", **memory} if memory else None

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
        means = {name: weights[domains == name].mean(axis=0) for name in self.rows.domains}
        return {name: [round(float(one), 6) for one in mean] for name, mean in means.items()}


def _shares(weights: np.ndarray) -> np.ndarray:
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
