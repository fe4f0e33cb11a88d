# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints of every class that the app serves, with their tokenizers or image processors."""

import numpy as np
from families import CASES, tiny_processor

from hf_memaug.app.checkpoints import TASKS
from hf_memaug.data.molecules import ATOM_VOCAB_SIZES, BOND_VOCAB_SIZES

MOLECULES = {"node_vocab_sizes": ATOM_VOCAB_SIZES, "edge_vocab_sizes": BOND_VOCAB_SIZES}

SERVED = [case for case in CASES if case.name.endswith(tuple(TASKS))]
NAMES = {0: "bad", 1: "fair", 2: "good"}
TAGS = {0: "O", 1: "B-Thing", 2: "I-Thing"}
TEXT = "a good book and a bad phone"
CONTEXT = "the phone is bad and the battery is bad, the hotel was fine"
SMILES = "CC(=O)Oc1ccccc1C(=O)O"


def case_of(name: str):
    return next(case for case in CASES if case.name == name)


def save(case, folder, change=None, **kwargs) -> str:
    """`change` is done to the model before it is saved."""
    processor = None if case.is_graph else tiny_processor(case)
    sizes = {} if case.is_image else {"vocab_size": len(processor)} if case.is_text else MOLECULES
    model = case.model(**{**sizes, **kwargs})
    if not case.name.endswith(("QuestionAnswering", "MaskedLM", "ConditionalGeneration")):
        names = TAGS if case.name.endswith("TokenClassification") else NAMES
        model.config.id2label, model.config.label2id = dict(names), {name: number for number, name in names.items()}
    if change is not None:
        change(model)
    model.save_pretrained(folder)
    if processor is not None:
        processor.save_pretrained(folder)
    return str(folder)


def picture() -> np.ndarray:
    return (np.random.default_rng(0).random((20, 30, 3)) * 255).astype(np.uint8)


def question(case) -> dict:
    if case.is_image:
        return {"image": picture()}
    if case.is_graph:
        return {"text": SMILES}
    if case.name.endswith("QuestionAnswering"):
        return {"text": "the phone is", "pair": CONTEXT}
    return {"text": TEXT.replace("bad", "[MASK]") if case.name.endswith("MaskedLM") else TEXT}
