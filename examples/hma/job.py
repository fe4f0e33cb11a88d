# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What there is to know of one model of one table before it is trained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """
    Args:
        data, setting, backbone: of a task in tasks.py.
        method: `backbone`, an augmentation of `HMAConfig`, or `prompt-p` or `prompt-a` (tokens at the input, or at
            every layer), also with `+hma`.
        tuning: `full`, or `head`: of the backbone, the class token and prompts alone (Table 2).
        head_learning_rate: of what is fresh, the memories and the head. None: as the backbone's.
        initializer_range: standard deviation of fresh weights of readers and head. None: the configuration's.
        epochs: passes over the training rows; every method takes as many steps.
        evaluations: times that dev rows are scored; the best weights are kept.
    """

    data: str
    setting: str
    backbone: str
    method: str
    seed: int
    learning_rate: float = 1e-3
    head_learning_rate: float | None = None
    batch_size: int = 32
    epochs: float = 30
    evaluations: int = 30
    real_memory_size: int = 64
    synthetic_slots: int = 8
    momentum_encoder: str = "copy"
    momentum: float = 0.999
    prompt_tokens: int = 4
    tuning: str = "full"
    initializer_range: float | None = None
