# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints of every class that predicts, with their tokenizers or image processors, and an input for each."""

from pathlib import Path

import numpy as np
from families import CASES, Case, tiny_processor
from PIL import Image

from hf_memaug.data.molecules import ATOM_VOCAB_SIZES, BOND_VOCAB_SIZES

MOLECULES = {"node_vocab_sizes": ATOM_VOCAB_SIZES, "edge_vocab_sizes": BOND_VOCAB_SIZES}
PREDICTING = [case for case in CASES if case.has_head]
NAMES = {0: "bad", 1: "fair", 2: "good"}
TAGS = {0: "O", 1: "B-Thing", 2: "I-Thing"}
TEXT = "a good book and a bad phone"
CONTEXT = "the phone is bad and the battery is bad, the hotel was fine"
SMILES = "CC(=O)Oc1ccccc1C(=O)O"


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def save(case: Case, folder: Path, change=None, **kwargs) -> str:
    """
    Args:
        change: called with the model before it is saved.
        kwargs: fields of the configuration.
    """
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


def picture(seed: int = 0) -> Image.Image:
    return Image.fromarray((np.random.default_rng(seed).random((20, 30, 3)) * 255).astype(np.uint8))


def example(case: Case):
    """An input, as `Predictor.predict` takes it."""
    if case.is_image:
        return picture()
    if case.is_graph:
        return SMILES
    if case.name.endswith("QuestionAnswering"):
        return "the phone is", CONTEXT
    return TEXT.replace("bad", "[MASK]") if case.name.endswith("MaskedLM") else TEXT


def put_adapter(base: str, folder: Path, case: Case, **kwargs) -> str:
    """An adapter of LoRA on a checkpoint, with fresh weights that are not zero, and a memory of its own."""
    import torch
    from peft import LoraConfig, get_peft_model

    model = case.model_class.from_pretrained(base)
    targets = {"target_modules": model.adapter_targets, **kwargs}
    torch.manual_seed(3)
    model = get_peft_model(model, LoraConfig(init_lora_weights=False, modules_to_save=["memory"], **targets))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "modules_to_save" in name:
                value.add_(torch.randn_like(value))
    model.save_pretrained(folder)
    return str(folder)
