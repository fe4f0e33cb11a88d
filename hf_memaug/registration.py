# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Registers every family with the Auto classes of transformers. `import hf_memaug` does it."""

import importlib

import transformers
from transformers import CONFIG_MAPPING, TOKENIZER_MAPPING, AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from hf_memaug.registry import BACKBONES, FAMILIES, Backbone, Family


class LazyModelClass:
    """
    Stands for a model class in the tables of the Auto classes, and imports it on first use. Importing the classes
    themselves would double the time of `import hf_memaug`.
    """

    def __init__(self, name: str, module: str, config_class: type):
        self.__name__ = self.__qualname__ = name
        self.__module__ = module
        self.config_class = config_class

    def __getattr__(self, name: str):
        if name.startswith("__"):  # pickle and copy look for special methods before the instance has its fields
            raise AttributeError(name)
        return getattr(self.load(), name)

    def __call__(self, *args, **kwargs):
        return self.load()(*args, **kwargs)

    def __instancecheck__(self, instance) -> bool:
        return isinstance(instance, self.load())

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self.load())

    def load(self) -> type:
        return getattr(importlib.import_module(self.__module__), self.__name__)


def register_family(family: Family) -> None:
    """Adds a row to `FAMILIES` and registers its configuration, tokenizer and models with the Auto classes."""
    config_class = family.config_class
    FAMILIES[config_class.model_type] = family
    _register_models(family)
    backbone = CONFIG_MAPPING[family.backbone] if family.backbone else None
    if backbone is None:
        AutoTokenizer.register(config_class, fast_tokenizer_class=PreTrainedTokenizerFast, exist_ok=True)
    elif backbone in TOKENIZER_MAPPING:
        AutoTokenizer.register(config_class, tokenizer_class=TOKENIZER_MAPPING[backbone], exist_ok=True)


def _register_models(row: Backbone) -> None:
    config_class = row.config_class
    AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    for auto_class, names in row.models.items():
        classes = tuple(LazyModelClass(name, row.modeling, config_class) for name in names)
        auto_class = getattr(transformers, auto_class)
        auto_class.register(config_class, classes if len(classes) > 1 else classes[0], exist_ok=True)


def register_all() -> None:
    for backbone in BACKBONES.values():
        _register_models(backbone)
    for family in list(FAMILIES.values()):
        register_family(family)
