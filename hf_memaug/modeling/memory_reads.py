# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What a memory answered, in a form that the app, the report and `hf-memaug predict` can show for every family."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class MemoryRead:
    """
    What the rows of a batch read of one memory.

    Args:
        title: which memory, such as "Memory slots".
        about: what the weights are shares of, in a sentence.
        weights: `(rows, slots)`. A row adds up to 1, or to less where `elsewhere` is given.
        unit: what a slot is, in one word: "slot", "layer", "expert" or "datapoint".
        names: of the slots. Default: the unit and its number.
        owners: the domain or the class that each slot belongs to.
        elsewhere: what a row reads besides the slots; its share is what is missing to 1.
        layer: the layer of the network that this memory belongs to.
        patches: of images, the weights of each patch, `(rows, patch rows, patch columns, slots)`.
    """

    title: str
    about: str
    weights: torch.Tensor
    unit: str = "slot"
    names: Sequence[str] | None = None
    owners: Sequence[str] | None = None
    elsewhere: str | None = None
    layer: int | None = None
    patches: torch.Tensor | None = None

    def name(self, slot: int) -> str:
        return f"{self.unit} {slot}" if self.names is None else self.names[slot]

    def by_owner(self) -> dict[str, torch.Tensor]:
        """What each row reads of all slots of each owner, in the order in which owners appear."""
        owners = list(self.owners or ())
        masks = {name: torch.tensor([owner == name for owner in owners]) for name in dict.fromkeys(owners)}
        return {name: self.weights[:, mask.to(self.weights.device)].sum(dim=1) for name, mask in masks.items()}


def share_by_slot(weights: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """
    Weights `(rows, ..., slots)`, over heads, directions or words, to one share of each slot, `(rows, slots)`.

    Args:
        mask: `(rows, words)`, of weights `(rows, words, slots)` that have values at padding too.
    """
    weights = weights.float()
    if mask is not None:
        weights = weights * mask.unsqueeze(-1)
    sums = weights.flatten(1, -2).sum(dim=1) if weights.ndim > 2 else weights
    return sums / sums.sum(dim=-1, keepdim=True).clamp(min=1e-12)


def slot_domains(config) -> list[str] | None:
    """The domain that each slot was added for; None where all slots were there from the start."""
    sizes = getattr(config, "slots_per_domain", None) or []
    if len(sizes) < 2:
        return None
    facts = getattr(config, "run_facts", None) or {}
    stages = (facts.get("continual") or {}).get("stages") or []
    names = [" + ".join(map(str, stage.get("domains", ()))) for stage in stages]
    if len(names) != len(sizes):
        names = list(map(str, facts.get("domains") or ()))
    if len(names) != len(sizes):
        names = [f"domain {number}" for number in range(1, len(sizes) + 1)]
    return [name for name, size in zip(names, sizes, strict=True) for _ in range(size)]
