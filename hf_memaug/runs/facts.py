# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a trained model makes of some rows, kept beside its checkpoint: features, reads of its memory, experts.

`write_job_facts` leaves `features.npz`, `memory.json` and `patches/` in the folder of a job, for the report to show.
"""

import base64
import io
import json
import os
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.images import decode_image
from hf_memaug.evaluation.checks import as_numpy
from hf_memaug.files import write_atomically
from hf_memaug.registry import FAMILIES
from hf_memaug.reporting import memory_maps
from hf_memaug.reporting.expert_maps import count_experts
from hf_memaug.runs.results import FEATURES_FILE, LAYERS, MEMORY_FILE, PATCHES_FOLDER
from hf_memaug.training.forward_pass import watched_features

PATCHES_FILE = "experts.png"
LONGEST_TEXT, PICTURE_SIDE = 400, 96
# Of the picture of experts over patches: more rows are more than a page shows.
_MOST_CLASSES = 4


def write_job_facts(
    folder: str | os.PathLike,
    model,
    processor,
    rows: DomainDataset,
    *,
    most_rows: int = 400,
    batch_size: int = 32,
    patches: bool = True,
    max_length: int | None = None,
) -> list[Path]:
    """
    Writes what the report shows of one job beyond its scores, and returns the files written. The model is asked in
    evaluation and left as it was.

    Args:
        folder: the job's folder. What an earlier call has left there is replaced.
        model: a classifier, of this library or any other of transformers, with or without adapters.
        processor: its tokenizer or image processor; for graphs None.
        rows: rows with `text`, `image` or `graph`, a label and a domain: best of the target and of the sources, none of
            them trained on.
        most_rows: how many of them, drawn evenly from the domains.
        batch_size: rows at a time.
        patches: whether to draw the experts of a GMoE over patches, which needs matplotlib.
        max_length: longest text in tokens, as the model was trained and scored. Default: the tokenizer's.
    """
    for name, number in (("most_rows", most_rows), ("batch_size", batch_size)):
        if number < 1:
            raise ValueError(f"`{name}` is {number}: pass at least 1.")
    if not len(rows):
        raise ValueError("`rows` is empty: pass rows of the target domain and of the sources.")
    folder, inner = Path(folder), model.get_base_model() if hasattr(model, "get_base_model") else model
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (FEATURES_FILE, MEMORY_FILE, f"{PATCHES_FOLDER}/{PATCHES_FILE}"):
        (folder / stale).unlink(missing_ok=True)
    rows = evenly(rows, most_rows)
    found = _run(inner, processor, rows, batch_size, max_length)
    written = [_write_arrays(folder / FEATURES_FILE, _shown(rows, found, inner))]
    memory = _memory(inner, processor, rows, found, batch_size, max_length)
    if memory is not None:
        write_atomically(folder / MEMORY_FILE, json.dumps(memory, ensure_ascii=False, indent=1) + "\n")
        written.append(folder / MEMORY_FILE)
    if patches and memory is not None and memory["kind"] == "experts":
        written += _draw_patches(folder / PATCHES_FOLDER, inner, processor, rows, batch_size)
    return written


def evenly(rows: DomainDataset, most: int, seed: int = 0) -> DomainDataset:
    """At most so many rows, as many of each domain as can be, the same ones for the same rows."""
    if len(rows) <= most:
        return rows
    numbers: dict[str, list[int]] = {name: [] for name in rows.domains}
    for row, name in enumerate(rows["domain"]):
        numbers[name].append(row)
    generator = np.random.default_rng(seed)
    shuffled = [list(generator.permutation(of_domain)) for of_domain in numbers.values()]
    turns = [
        of_domain[turn] for turn in range(max(map(len, shuffled))) for of_domain in shuffled if turn < len(of_domain)
    ]
    return rows.select(sorted(turns[:most]))


def _run(model, processor, rows: DomainDataset, batch_size: int, max_length: int | None) -> dict[str, Any]:
    """`features` that the head reads, `predicted` labels, and `reads` of the memory's slots, for each row."""
    encoded, collator = memory_maps._rows_and_collator(model, processor, rows, max_length)
    asks = _reads_slots(model)
    wanted = {"output_memory_weights": True} if asks and model.config.model_type != "hma" else {}
    features, predicted, reads = [], [], []
    with memory_maps.evaluating(model), _head_inputs(model) as (given, read):
        for start in range(0, len(encoded), batch_size):
            batch = collator([encoded[row] for row in range(start, min(start + batch_size, len(encoded)))])
            inputs = {name: memory_maps._placed(value, model) for name, value in batch.items() if name != "labels"}
            given.clear()
            read.clear()
            output = model(**inputs, **wanted)
            predicted.append(output.logits.argmax(dim=-1))
            features.append(_features(given, read, len(output.logits)))
            if wanted and output.memory_weights is not None:
                reads.append(_by_slot(output.memory_weights, inputs.get("attention_mask")))
    return {
        "features": as_numpy(torch.cat(features).float()),
        "predicted": as_numpy(torch.cat(predicted)),
        "reads": as_numpy(torch.cat(reads)) if reads else None,
    }


@contextmanager
def _head_inputs(model):
    """Two lists: what the encoder gives to the head, and what the layers read that give the logits."""
    read: list[torch.Tensor] = []
    heads = [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear) and module.out_features == model.config.num_labels
    ]
    hooks = [head.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0])) for head in heads]
    try:
        with watched_features(model) if model.base_model is not model else nullcontext([]) as given:
            yield given, read
    finally:
        for hook in hooks:
            hook.remove()


def _features(given: list[torch.Tensor], read: list[torch.Tensor], rows: int) -> torch.Tensor:
    """The encoder's where there is one vector for each row (of pairs there are two), or else the last layer's."""
    for found in (given, read):
        fitting = [one for one in found if len(one) == rows]
        if fitting:
            last = fitting[-1]
            return last if last.ndim == 2 else last[:, 0]
    raise ValueError("`model` has no encoder and no linear layer for its labels: pass a classifier of transformers.")


def _shown(rows: DomainDataset, found: dict, model) -> dict[str, np.ndarray]:
    names = rows.label_names or [model.config.id2label[label] for label in range(model.config.num_labels)]
    labels = rows.labels if rows.labels is not None else [-1] * len(rows)
    arrays = {
        "features": np.clip(found["features"], -65504, 65504).astype(np.float16),
        "domain": np.array(rows["domain"]),
        "label": np.array([str(names[label]) if label >= 0 else "" for label in labels]),
        "predicted": np.array(
            [str(names[label]) if label < len(names) else str(label) for label in found["predicted"]]
        ),
    }
    columns = rows.column_names
    if "image" in columns:
        arrays["picture"] = np.array([_small_picture(image) for image in rows["image"]])
    elif "smiles" in columns:
        arrays["text"] = np.array(rows["smiles"])
    elif "graph" in columns:
        arrays["text"] = np.array([_size(graph) for graph in rows["graph"]])
    elif "text" in columns or "tokens" in columns:
        texts = rows["text"] if "text" in columns else [" ".join(map(str, words)) for words in rows["tokens"]]
        pairs = rows["text_pair"] if "text_pair" in columns else [None] * len(rows)
        joined = (f"{text}\n{pair}" if pair else str(text) for text, pair in zip(texts, pairs, strict=True))
        arrays["text"] = np.array([text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…" for text in joined])
    return arrays


def _size(graph: dict) -> str:
    # An edge without direction is there twice.
    edges = {frozenset(pair) for pair in zip(*graph["edge_index"], strict=True)}
    return f"{len(graph['node_features'])} nodes, {len(edges)} edges"


def _small_picture(image: Any) -> str:
    small = decode_image(image)
    small.thumbnail((PICTURE_SIDE, PICTURE_SIDE))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=75)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _reads_slots(model) -> bool:
    """Whether it is of a family with a memory that takes part in its answers."""
    return model.config.model_type in FAMILIES and getattr(model.config, "memory_weight", None) != 0


def _by_slot(weights: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """What each row reads of each slot, over heads, directions and words; it adds up to 1."""
    weights = weights.float()
    # The gates of G-MAP weigh layers at each token, at padding too.
    if weights.ndim == 3 and attention_mask is not None and weights.shape[1] == attention_mask.shape[1]:
        weights = weights * attention_mask[:, :, None]
    sums = weights.flatten(1, -2).sum(dim=1) if weights.ndim > 2 else weights
    return sums / sums.sum(dim=-1, keepdim=True).clamp(min=1e-12)


def _memory(model, processor, rows: DomainDataset, found: dict, batch_size: int, max_length: int | None) -> dict | None:
    """What `memory.json` holds; None for a model without memory and experts."""
    kind = model.config.model_type
    if kind == "vit_gmoe":
        return _experts(model, processor, rows, batch_size) if rows.labels is not None else None
    if not _reads_slots(model):
        return None
    if kind == "hma":
        return _hybrid_memory(model, processor, rows, batch_size, max_length)
    if found["reads"] is None:
        return None
    memory = {"kind": "slots", "what": "slot", "by_domain": _means(found["reads"], rows)}
    if kind == "gmap":
        memory |= {"what": LAYERS}
    elif kind == "memory_rnn":
        sizes, trained = list(model.config.memory_slots), _trained(model)
        owners = trained if len(trained) == len(sizes) else [f"stage {number}" for number in range(1, len(sizes) + 1)]
        memory["owners"] = [owner for owner, size in zip(owners, sizes, strict=True) for _ in range(size)]
        memory["owned_by"] = "the domain a slot was added for"
    return memory


def _trained(model) -> list[str]:
    record = (getattr(model.config, "run_facts", None) or {}).get("continual") or {}
    return [name for stage in record.get("stages", ()) for name in stage["domains"]]


def _hybrid_memory(model, processor, rows: DomainDataset, batch_size: int, max_length: int | None) -> dict | None:
    """HMA's synthetic slots; of the real memory, which is rewritten all the time, what each class in it is read."""
    features = memory_maps.features_of(model, processor, rows, batch_size, max_length)
    names, memory = rows.label_names, {"kind": "slots", "what": "synthetic slot"}
    has = memory_maps._head(model).config.has
    parts = [features[start : start + batch_size] for start in range(0, len(features), batch_size)]
    if has("synthetic"):
        found = [memory_maps.datapoint_attention(model, part) for part in parts]
        reads = np.concatenate([one.slots for one in found])
        memory["elsewhere"] = {name: 1 - sum(of) for name, of in _means(reads, rows).items()}
        memory["elsewhere_is"] = "other rows of the batch"
        memory["by_domain"] = _means(reads / np.maximum(reads.sum(axis=1, keepdims=True), 1e-12), rows)
        memory["owners"] = [names[label] for label in found[0].slot_labels]
        memory["owned_by"] = "the class of a slot"
    if has("real") and memory_maps._head(model).memory.queue.filled.any():
        found = [memory_maps.real_attention(model, part) for part in parts]
        reads, classes = np.concatenate([one.slots for one in found]), found[0].slot_labels
        by_class = np.stack([reads[:, classes == label].sum(axis=1) for label in range(len(names))], axis=1)
        by_class /= np.maximum(by_class.sum(axis=1, keepdims=True), 1e-12)
        memory["real"] = {"classes": names, "by_domain": _means(by_class, rows)}
    return memory if "by_domain" in memory or "real" in memory else None


def _experts(model, processor, rows: DomainDataset, batch_size: int) -> dict:
    found = count_experts(model, processor, rows, batch_size=batch_size, progress=False)

    def shares(counts: np.ndarray) -> list[float]:
        return (counts / max(counts.sum(), 1)).tolist()

    by_layer = {
        str(layer): {name: shares(counts[place].sum(axis=0)) for place, name in enumerate(found.domains)}
        for layer, counts in zip(found.layers, found.counts, strict=True)
    }
    last = found.counts[-1].sum(axis=0)
    return {
        "kind": "experts",
        "what": "expert",
        "by_domain": by_layer[str(found.layers[-1])],
        "by_layer": by_layer,
        "by_class": {name: shares(last[place]) for place, name in enumerate(found.classes) if last[place].sum()},
    }


def _means(reads: np.ndarray, rows: DomainDataset) -> dict[str, list[float]]:
    domains = np.array(rows["domain"])
    return {name: [round(float(one), 6) for one in reads[domains == name].mean(axis=0)] for name in rows.domains}


def _draw_patches(folder: Path, model, processor, rows: DomainDataset, batch_size: int) -> list[Path]:
    from hf_memaug.reporting.expert_pictures import draw_experts_across_domains

    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return []
    classes = [name for name in rows.label_names if any(of_domain[name] for of_domain in rows.counts().values())]
    path = folder / PATCHES_FILE
    options = {"classes": classes[:_MOST_CLASSES], "batch_size": batch_size}
    return [draw_experts_across_domains(model, processor, rows, path, **options)]
