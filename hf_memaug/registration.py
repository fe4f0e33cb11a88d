# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What `import hf_memaug` does.

Importing the auto classes of transformers takes seconds, because they bring torch. So `import hf_memaug` registers
nothing yet. It waits for the modules that it concerns to be imported, by whomever, and then does no more than leave
word there: the classes are imported and registered when `AutoConfig` is first asked, or one of ours is first imported.
"""

import functools
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable

from hf_memaug.registry import BACKBONES, FAMILIES

_begun = False


def register_auto_classes() -> None:
    """`AutoConfig`, `AutoTokenizer` and the model classes find every family. Does its work once."""
    global _begun
    if _begun:
        return
    # At the start, because the files that are imported below ask for their registration too.
    _begun = True
    from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

    from hf_memaug.modeling.modeling_utils import MemoryModelMixin

    MemoryModelMixin.card_writer = _complete_folder
    # First, because a family may stand on one.
    for model_type, backbone in BACKBONES.items():
        config_class = backbone.load(backbone.config)
        AutoConfig.register(model_type, config_class, exist_ok=True)
        _register_models(modeling_auto, config_class, backbone)
    for model_type, family in FAMILIES.items():
        config_class = family.load(family.config)
        AutoConfig.register(model_type, config_class, exist_ok=True)
        if family.backbone is None:
            AutoTokenizer.register(config_class, fast_tokenizer_class=PreTrainedTokenizerFast, exist_ok=True)
            backbone_class = None
        else:
            backbone_class = type(AutoConfig.for_model(family.backbone))
        if backbone_class in TOKENIZER_MAPPING:
            AutoTokenizer.register(config_class, tokenizer_class=TOKENIZER_MAPPING[backbone_class], exist_ok=True)
        _register_models(modeling_auto, config_class, family)


def _register_models(modeling_auto, config_class: type, row) -> None:
    for auto_class, names in row.models.items():
        classes = tuple(row.load(name) for name in names)
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


def register_trainer() -> None:
    """`Trainer` writes the card of our models, and the memories that are written in training."""
    register_model_card()
    from hf_memaug.training.memory_updates import UpdateMemory

    sys.modules["transformers.trainer"].DEFAULT_CALLBACKS.append(UpdateMemory)


def register_adapter_targets() -> None:
    """PEFT adapts the same layers that it adapts in the backbone when no `target_modules` are given."""
    for name, mapping in vars(sys.modules["peft.utils.constants"]).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and isinstance(mapping, dict):
            for model_type, family in FAMILIES.items():
                # Not IA3, which must also know which of its layers are feed-forward ones.
                if family.adapted and name.endswith("_TARGET_MODULES_MAPPING") and "IA3" not in name:
                    mapping.setdefault(model_type, list(family.adapted))
                elif family.backbone in mapping and not (family.adapted and "IA3" not in name):
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
        "transformers.trainer": register_trainer,
        "peft.utils.constants": register_adapter_targets,
    }
    waiting = {}
    for name, action in actions.items():
        if name in sys.modules:
            action()
        else:
            waiting[name] = action
    sys.meta_path.insert(0, _RunAfterImport(waiting))
