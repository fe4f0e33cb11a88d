# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Why a model predicts what it predicts: what its memory answered, and the prediction without the memory."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hf_memaug.inference.predictions import Prediction
from hf_memaug.inference.predictor import Predictor
from hf_memaug.inference.training_rows import TrainingRows
from hf_memaug.modeling.memory_reads import MemoryRead

# How many slots are described one by one, with how many texts each.
MOST_SLOTS, MOST_CONTENTS = 8, 3


@dataclass(frozen=True)
class SlotShare:
    """
    One slot of a memory.

    Args:
        name: such as "slot 17" or "expert 3".
        share: how much of all that was read was read here.
        owner: the domain or the class that it belongs to.
        contents: what is stored in it, in words.
        readers: of the reads that `memory.json` counts, the share of each domain.
    """

    name: str
    share: float
    owner: str | None = None
    contents: tuple[str, ...] = ()
    readers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """
    What one memory answered to one input.

    Args:
        title, about: as in `MemoryRead`.
        slots: those that were read most, the most first.
        others, rest: how many more there are, and the share of all of them.
        groups: the share of each domain or class, where slots belong to one.
        source: where `contents` and `readers` come from.
        experts: of images, the strongest expert of each patch, `(patch rows, patch columns)`.
        num_slots: how many slots there are.
    """

    title: str
    about: str
    slots: tuple[SlotShare, ...]
    others: int = 0
    rest: float = 0.0
    groups: dict[str, float] = field(default_factory=dict)
    source: str = ""
    experts: np.ndarray | None = None
    num_slots: int = 0


@dataclass(frozen=True)
class Explanation:
    """
    Args:
        prediction: of the model.
        plain: the prediction without the memory, or that of `baseline`; None where there is none.
        plain_is: what `plain` is, or why it is missing.
        readings: what each memory answered.
    """

    prediction: Prediction
    plain: Prediction | None
    plain_is: str
    readings: tuple[Reading, ...] = ()


def explain(
    predictor: Predictor, given: Any, rows: TrainingRows | None = None, baseline: Predictor | None = None
) -> Explanation:
    """
    Args:
        given: one input, as `Predictor.predict` takes them.
        rows: what is known of the slots: `read_training_rows(predictor)`.
        baseline: a plain model to compare with. Default: the same model without its memory, where that is possible.
    """
    rows = rows or TrainingRows()
    readings: tuple[Reading, ...] = ()
    with predictor.lock:
        if not predictor.reads_memory:
            (prediction,) = predictor.predict([given])
        else:
            (prediction,), seen = predictor.watch([given], output_memory_weights=True)
            reads = predictor.model.memory_reads(*seen[prediction.part])
            last = max((read.layer for read in reads if read.patches is not None), default=None)
            readings = tuple(_reading(read, rows, read.layer == last) for read in reads)
        plain, plain_is = _plain(predictor, given, baseline)
    return Explanation(prediction, plain, plain_is, readings)


def _plain(predictor: Predictor, given: Any, baseline: Predictor | None) -> tuple[Prediction | None, str]:
    if baseline is not None:
        what = f"The plain model given as `baseline`: `{baseline.name}` ({type(baseline.model).__name__})."
        return baseline.predict([given])[0], what
    if not predictor.reads_memory:
        return None, "This checkpoint reads no memory. Give a `baseline` to compare its prediction with."
    if predictor.model.without_memory_means is None:
        return None, "The memory of this model cannot be switched off. Give a `baseline`, trained on the same data."
    with predictor.model.without_memory():
        (plain,) = predictor.predict([given])
    return plain, (
        f"The same checkpoint with its memory switched off: {predictor.model.without_memory_means} It was trained with "
        "the memory, so a model that was trained without one may predict something else."
    )


def _reading(read: MemoryRead, rows: TrainingRows, is_last: bool) -> Reading:
    shares = read.weights[0].float().cpu().numpy().astype(np.float64)
    order = np.argsort(-shares, kind="stable")[:MOST_SLOTS]
    about = read.about
    if read.elsewhere is not None and len(shares):
        about += f" {1 - shares.sum():.0%} is read of {read.elsewhere}."

    def slot_share(slot: int) -> SlotShare:
        stored = rows.quotes_of(read, slot, MOST_CONTENTS)
        if is_last and read.patches is not None and (classes := rows.classes(slot)):
            ranked = sorted(classes.items(), key=lambda pair: -pair[1])[:MOST_CONTENTS]
            most = ", ".join(f"{name} {share:.0%}" for name, share in ranked)
            stored = (*stored, f"chosen most for patches of: {most}")
        owner = None if read.owners is None else read.owners[slot]
        return SlotShare(read.name(slot), float(shares[slot]), owner, stored, rows.readers(read, slot))

    slots, source = tuple(slot_share(int(slot)) for slot in order), []
    if read.title in rows.reads:
        source.append(f"Under each {read.unit}: which of {len(rows.quotes)} texts of `features.npz` read it most.")
    if any(slot.readers for slot in slots):
        source.append("Which domains read a slot is counted in `memory.json`.")
    groups = {}
    for owner, share in read.by_owner().items():
        count = list(read.owners or ()).count(owner)
        groups[f"{owner} ({count} {read.unit}{'s' * (count != 1)})"] = float(share[0])
    others, rest = len(shares) - len(slots), max(0.0, float(shares.sum() - shares[order].sum()))
    experts = None if read.patches is None else read.patches[0].argmax(dim=-1).cpu().numpy()
    return Reading(read.title, about, slots, others, rest, groups, " ".join(source), experts, len(shares))
