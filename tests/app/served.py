# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints of every class that the app serves, with their tokenizers or image processors."""

import numpy as np
from families import CASES, tiny_processor

from hf_memaug.app.checkpoints import TASKS

SERVED = [case for case in CASES if case.name.endswith(tuple(TASKS))]
NAMES = {0: "bad", 1: "fair", 2: "good"}
TEXT = "a good book and a bad phone"


def case_of(name: str):
    return next(case for case in CASES if case.name == name)


def save(case, folder, change=None, **kwargs) -> str:
    """`change` is done to the model before it is saved."""
    processor = tiny_processor(case)
    sizes = {} if case.is_image else {"vocab_size": len(processor)}
    model = case.model(**{**sizes, **kwargs})
    model.config.id2label, model.config.label2id = dict(NAMES), {name: number for number, name in NAMES.items()}
    if change is not None:
        change(model)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def picture() -> np.ndarray:
    return (np.random.default_rng(0).random((20, 30, 3)) * 255).astype(np.uint8)


def question(case) -> dict:
    return {"image": picture()} if case.is_image else {"text": TEXT}
