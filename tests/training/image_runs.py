# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Runs of `DomainTrainer` on images, with tiny models of three kinds."""

from functools import cache

import torch
from families import Case
from tiny_backbones import QUIET, tiny_image_processor, tiny_vit
from transformers import ResNetConfig, ResNetForImageClassification

from hf_memaug import DomainTrainer, DomainTrainingArguments
from hf_memaug.data import DomainDataset, generated_digits
from training.domain_runs import STEPS

KINDS = ("gmoe", "vit", "resnet")


def image_model(kind: str, seed: int = 0, **config):
    """Our vision transformer with experts, the plain one of transformers, or its ResNet."""
    config = {"num_labels": 10, **config}
    if kind == "gmoe":
        return Case("vit_gmoe", "ViTGMoEForImageClassification").model(seed, **config)
    if kind == "vit":
        return tiny_vit(**config)
    torch.manual_seed(seed)
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    return ResNetForImageClassification(ResNetConfig(**{**sizes, **config}))


@cache
def digits(count: int = 8, seed: int = 0) -> DomainDataset:
    """So many digits in each of three domains."""
    whole = generated_digits("rotated", seed=seed, rows_per_domain=count, image_size=16)
    kept = DomainDataset.concatenate([whole.domain(name) for name in ("0", "30", "75")])
    return kept.without_columns("source_index")


def image_trainer(kind: str, output, *, config=None, model=None, train=None, evaluate=None, **kwargs) -> DomainTrainer:
    """A `DomainTrainer` on the CPU. `kwargs` are arguments of the run, or of the trainer where it has them."""
    if kwargs.get("algorithm") == "swad" and evaluate is None:
        kwargs, evaluate = {"eval_strategy": "steps", "eval_steps": 3, **kwargs}, digits(3, seed=1)
    names = ("callbacks", "data_collator", "processing_class")
    of_trainer = {name: kwargs.pop(name) for name in names if name in kwargs}
    arguments = {**QUIET, **STEPS, "max_steps": 3, **kwargs}
    return DomainTrainer(
        model=image_model(kind, **(config or {})) if model is None else model,
        args=DomainTrainingArguments(output_dir=str(output), **arguments),
        train_dataset=digits() if train is None else train,
        eval_dataset=evaluate,
        **{"processing_class": tiny_image_processor(), **of_trainer},
    )
