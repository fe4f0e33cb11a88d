# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The table of families, and what `import hf_memaug` does with it.

Importing the auto classes of transformers takes seconds, because they bring torch. So `import hf_memaug` registers
nothing yet. It waits for the modules that it concerns to be imported, by whomever, and then does no more than leave
word there: the classes are imported and registered when `AutoConfig` is first asked, or one of ours is first imported.
"""

import functools
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Method:
    """A paper, and what its method is in a sentence or two: the model card is written from it."""

    title: str
    url: str
    tags: tuple[str, ...]
    what: str
    how: str
    bibtex: str


MIL = Method(
    title="Memory-Based Invariance Learning for Out-of-Domain Text Classification",
    url="https://aclanthology.org/2023.emnlp-main.101/",
    tags=("memory", "domain-generalization"),
    what="a key-value memory after the last layer augments the encoder's feature",
    how="A query network asks the feature g(x) of a table of keys, and the values that answer are mixed in: "
    "g_m(x) = (1 - λ) g(x) + λ m(g(x)) (Eq. 1-3), with λ = `memory_weight`.",
    bibtex="""\
@inproceedings{jia-zhang-2023-memory,
    title = "Memory-Based Invariance Learning for Out-of-Domain Text Classification",
    author = "Jia, Chen and Zhang, Yue",
    booktitle = "Proceedings of the 2023 Conference on Empirical Methods in Natural Language Processing",
    year = "2023",
    publisher = "Association for Computational Linguistics",
    doi = "10.18653/v1/2023.emnlp-main.101",
}""",
)


@dataclass(frozen=True)
class Family:
    """
    One row for each `model_type`.

    Args:
        module (`str`):
            `x` in `configuration/configuration_x.py` and `modeling/modeling_x.py`.
        config (`str`):
            The configuration class.
        backbone (`str`):
            The `model_type` of transformers whose tokenizer and adapter targets the family takes over.
        method (`Method`):
            The paper behind it.
        models (`dict[str, tuple[str, ...]]`):
            The model classes under each auto class. Of several, a checkpoint's `architectures` picks one.
    """

    module: str
    config: str
    backbone: str
    method: Method
    models: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def load(self, name: str):
        """The class called `name`."""
        room = "configuration" if name == self.config else "modeling"
        return getattr(importlib.import_module(f"hf_memaug.{room}.{room}_{self.module}"), name)

    @property
    def model_names(self) -> tuple[str, ...]:
        return tuple(name for names in self.models.values() for name in names)


FAMILIES: dict[str, Family] = {
    "roberta_kv_memory": Family(
        module="kv_memory",
        config="RobertaWithKVMemoryConfig",
        backbone="roberta",
        method=MIL,
        models={
            "AutoModel": ("RobertaWithKVMemory",),
            "AutoModelForSequenceClassification": (
                "RobertaWithKVMemoryForSequenceClassification",
                "RobertaWithKVMemoryForPromptClassification",
            ),
        },
    ),
    "bert_kv_memory": Family(
        module="kv_memory",
        config="BertWithKVMemoryConfig",
        backbone="bert",
        method=MIL,
        models={
            "AutoModel": ("BertWithKVMemory",),
            "AutoModelForSequenceClassification": (
                "BertWithKVMemoryForSequenceClassification",
                "BertWithKVMemoryForPromptClassification",
            ),
        },
    ),
}


def family_on(backbone: str) -> Family:
    """The first family that is built on encoders of this `model_type` of transformers."""
    for family in FAMILIES.values():
        if family.backbone == backbone:
            return family
    known = ", ".join(sorted({family.backbone for family in FAMILIES.values()}))
    raise ValueError(f"No family is built on `{backbone}` checkpoints. There are families on: {known}.")


def public_names() -> dict[str, Family]:
    """Every class that `hf_memaug` offers by name."""
    return {name: family for family in FAMILIES.values() for name in (family.config, *family.model_names)}


_begun = False


def register_auto_classes() -> None:
    """`AutoConfig`, `AutoTokenizer` and the model classes find every family. Does its work once."""
    global _begun
    if _begun:
        return
    # At the start, because the files that are imported below ask for their registration too.
    _begun = True
    from transformers import AutoConfig, AutoTokenizer
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

    from hf_memaug.modeling.modeling_utils import MemoryModelMixin

    MemoryModelMixin.card_writer = _complete_folder
    for model_type, family in FAMILIES.items():
        config_class = family.load(family.config)
        AutoConfig.register(model_type, config_class, exist_ok=True)
        backbone_class = type(AutoConfig.for_model(family.backbone))
        if backbone_class in TOKENIZER_MAPPING:
            AutoTokenizer.register(config_class, tokenizer_class=TOKENIZER_MAPPING[backbone_class], exist_ok=True)
        for auto_class, names in family.models.items():
            classes = tuple(family.load(name) for name in names)
            getattr(modeling_auto, auto_class).register(
                config_class, classes if len(classes) > 1 else classes[0], exist_ok=True
            )


def register_when_asked() -> None:
    """Whatever loads a checkpoint by name asks `AutoConfig` first: auto classes, pipelines, adapters."""
    auto_config = sys.modules["transformers.models.auto.configuration_auto"].AutoConfig
    theirs = {name: vars(auto_config)[name] for name in ("from_pretrained", "for_model")}

    def ask_later(name: str):
        @functools.wraps(theirs[name].__func__)
        def first_ask(*args, **kwargs):
            for original_name, original in theirs.items():
                setattr(auto_config, original_name, original)
            register_auto_classes()
            return getattr(auto_config, name)(*args, **kwargs)

        return staticmethod(first_ask)

    for name in theirs:
        setattr(auto_config, name, ask_later(name))


def _complete_folder(model, folder, repo_id) -> None:
    from hf_memaug.hub.publishing import complete_folder

    complete_folder(model, folder, repo_id)


def register_model_card() -> None:
    """`Trainer` writes the library's card for the library's models, and its own for all others."""
    trainer_class = sys.modules["transformers.trainer"].Trainer
    theirs = trainer_class.create_model_card

    @functools.wraps(theirs)
    def create_model_card(self, *args, **kwargs):
        from hf_memaug.reporting.model_card import write_trainer_card

        if not write_trainer_card(self, *args, **kwargs):
            theirs(self, *args, **kwargs)

    trainer_class.create_model_card = create_model_card


def register_adapter_targets() -> None:
    """PEFT adapts the same layers that it adapts in the backbone when no `target_modules` are given."""
    for name, mapping in vars(sys.modules["peft.utils.constants"]).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and isinstance(mapping, dict):
            for model_type, family in FAMILIES.items():
                if family.backbone in mapping:
                    mapping.setdefault(model_type, mapping[family.backbone])


class _RunAfterImport(importlib.abc.MetaPathFinder):
    """Runs an action once, right after the module it waits for has been imported."""

    def __init__(self, actions: dict[str, Callable[[], None]]):
        self.actions = actions

    def find_spec(self, name, path=None, target=None):
        action = self.actions.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_then_act(module):
                execute(module)
                action()

            spec.loader.exec_module = execute_then_act
        return spec


def register() -> None:
    """Called once, by `import hf_memaug`."""
    actions = {
        "transformers.models.auto.configuration_auto": register_when_asked,
        "transformers.trainer": register_model_card,
        "peft.utils.constants": register_adapter_targets,
    }
    waiting = {}
    for name, action in actions.items():
        if name in sys.modules:
            action()
        else:
            waiting[name] = action
    sys.meta_path.insert(0, _RunAfterImport(waiting))
