# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What there is to know of one model of the GMoE tables before it is trained."""

from dataclasses import dataclass

# A row of a table: what it is made of beside the ViT, `None` for the ViT itself.
MODELS = {
    "vit": None,
    "gmoe": {},
    "gmoe-every-two": {"moe_placement": "every_two"},
    "gmoe-linear": {"router": "linear"},
}
# In the place of a folder with a ViT: one of random weights.
SMALL = "small"


@dataclass(frozen=True)
class Job:
    data: str
    backbone: str
    target: str
    model: str
    algorithm: str
    seed: int
    learning_rate: float = 5e-5
    steps: int = 1000
    eval_steps: int = 100
    rows_per_domain: int = 32
    size: int = 64
    augment: bool = True
    # Steps before an algorithm's penalty sets in.
    anneal_steps: int = 0
    # Of each domain, where the data is made on the spot; None: all there are.
    rows: int | None = None
    # Train on `target` alone, and score all others (section 5.3).
    single_source: bool = False

    @property
    def method(self) -> str:
        """As a table names it."""
        return self.model if self.algorithm == "erm" else f"{self.model}+{self.algorithm}"

    def sources(self, names: list[str]) -> list[str]:
        return [name for name in names if (name == self.target) == self.single_source]
