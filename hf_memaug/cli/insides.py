# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the report shows of a trained model: features of rows of each domain, and who reads which slot or expert."""

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_memaug.files import write_atomically
from hf_memaug.training.forward_pass import pooled_features

ROWS_PER_DOMAIN = 60
BATCH = 32
PICTURE = 64


@torch.no_grad()
def write_insides(trainer, folder: Path, parts: Mapping[str, Any], prepared: Mapping[str, Any], target: str) -> None:
    """features.npz and memory.json, of dev rows of the sources and test rows of the target."""
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    chosen = [(name, row) for name in ("dev", "test") if name in prepared for row in _some(prepared[name])]
    found: dict[str, list] = {"features": [], "predicted": []}
    reads: list[np.ndarray] = []
    has_memory = hasattr(model, "memory_parameters")
    # Rows that read each other would be slots of their own in each batch.
    inference = getattr(model.config, "inference", None)
    if inference is not None:
        model.config.inference = "independent"
    hook = model.base_model.register_forward_hook(
        lambda *call: found["features"].append(pooled_features(call[-1]).float().cpu().numpy())
    )
    try:
        for start in range(0, len(chosen), BATCH):
            batch = trainer.data_collator([prepared[name][row] for name, row in chosen[start : start + BATCH]])
            batch = {name: value for name, value in batch.items() if name not in ("labels", "domain_ids")}
            more = {"output_memory_weights": True} if has_memory else {}
            outputs = model(**trainer._prepare_inputs(batch), **more)
            found["predicted"].append(outputs["logits"].argmax(dim=-1).cpu().numpy())
            weights = outputs.get("memory_weights") if has_memory else None
            if isinstance(weights, torch.Tensor):
                reads.append(_per_row(weights.float().cpu().numpy()))
    finally:
        hook.remove()
        if inference is not None:
            model.config.inference = inference
    rows = [parts[name][row] for name, row in chosen]
    domains = np.array([row["domain"] for row in rows])
    features = np.concatenate(found["features"])
    if len(features) == len(rows):
        shown = {"picture": [_picture(row["image"]) for row in rows]} if "image" in rows[0] else {}
        if "text" in rows[0]:
            shown = {"text": [row["text"][:300] for row in rows]}
        np.savez_compressed(
            folder / "features.npz",
            features=features.astype(np.float16),
            domain=domains,
            label=np.array([row["label"] for row in rows]),
            predicted=np.concatenate(found["predicted"]),
            **{name: np.array(values) for name, values in shown.items()},
        )
    if reads and sum(map(len, reads)) == len(rows):
        every = np.concatenate(reads)
        kind = "experts" if model.config.model_type == "vit_gmoe" else "slots"
        memory = {
            "kind": kind,
            "family": model.config.model_type,
            "target": target,
            "by_domain": {
                name: [round(float(share), 6) for share in every[domains == name].mean(axis=0)]
                for name in dict.fromkeys(domains.tolist())
            },
        }
        write_atomically(folder / "memory.json", json.dumps(memory) + "\n")


def _some(rows) -> list[int]:
    """The first rows of each domain, spread over it."""
    numbers: dict[str, list[int]] = {}
    for row, name in enumerate(rows["domain"]):
        numbers.setdefault(name, []).append(row)
    return [row for of in numbers.values() for row in of[:: max(1, len(of) // ROWS_PER_DOMAIN)][:ROWS_PER_DOMAIN]]


def _per_row(weights: np.ndarray) -> np.ndarray:
    """`(rows, ..., slots)` to the share of each slot in what a row reads: the mean over heads, layers and tokens."""
    flat = weights.reshape(len(weights), -1, weights.shape[-1]).mean(axis=1)
    return flat / np.maximum(flat.sum(axis=-1, keepdims=True), 1e-12)


def _picture(image: Any) -> str:
    from hf_memaug.data import decode_image

    small = decode_image(image)
    small.thumbnail((PICTURE, PICTURE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return base64.b64encode(buffer.getvalue()).decode()
