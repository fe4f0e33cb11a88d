# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The settings of trainers and models: the fields of their dataclasses, with type hints, defaults and help."""

import contextlib
import dataclasses
import functools
import json
import math
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from transformers.utils.auto_docstring import parse_docstring

from hf_memaug.configuration.checks import choices_of
from hf_memaug.messages import did_you_mean
from hf_memaug.registry import BACKBONES, FAMILIES
from hf_memaug.runs.errors import UsageError

# The arguments of each trainer, as `module:class`.
TRAINERS = {
    "domain": "hf_memaug.training:DomainTrainingArguments",
    "bilevel": "hf_memaug.training:BilevelTrainingArguments",
    "continual": "hf_memaug.training:ContinualTrainingArguments",
    "masked_lm": "transformers:TrainingArguments",
}
# The smallest and the largest values of numbers.
LEAST = {
    **dict.fromkeys(("jobs", "processes", "evaluations", "trials", "draws", "steps", "checkpoint_every"), 1),
    **dict.fromkeys(("max_length", "batch_size", "evaluate_rows", "max_new_tokens", "port", "lora_rank"), 1),
    **dict.fromkeys(("gradient_accumulation_steps", "per_device_train_batch_size", "per_device_eval_batch_size"), 1),
    **dict.fromkeys(("seed", "held_out", "top_k", "num_train_epochs", "learning_rate", "weight_decay"), 0),
    **dict.fromkeys(("max_grad_norm", "warmup_steps", "dataloader_num_workers"), 0),
    **dict.fromkeys(("dev_fraction", "holdout", "masked", "dropout"), 0),
    "length": 8,
}
MOST = {"seed": 2**32 - 1, "port": 65535, **dict.fromkeys(("dev_fraction", "holdout", "masked", "dropout"), 0.99)}
# The name in `--backbone`, such as gin-3x64, sets the other fields of a graph network.
GRAPH_SETTINGS = ("dropout", "jumping_knowledge")


@dataclass(frozen=True)
class Setting:
    """A field of a dataclass, as its class declares it."""

    name: str
    hint: Any
    default: Any
    help: str

    @property
    def option(self) -> str:
        return option_name(self.name)

    @property
    def is_flag(self) -> bool:
        return bool in _members(self.hint) and str not in _members(self.hint)

    @property
    def type_name(self) -> str:
        return self.hint.__name__ if isinstance(self.hint, type) else str(self.hint).replace("typing.", "")

    def convert(self, value: Any) -> Any:
        """`value`, from the command line or a recipe, in the type of the field."""
        enums = (kind for kind in _members(self.hint) if isinstance(kind, type) and issubclass(kind, Enum))
        choices = [one.value for kind in enums for one in kind] or choices_of(self.hint)
        try:
            found = _converted(value, self.hint)
            if choices and found is not None and found not in choices:
                raise ValueError
        except (ValueError, TypeError):
            names = [choice for choice in dict.fromkeys(choices) if choice is not None]
            allowed = did_you_mean(value, names, "Choose ") if names else f"It must be of type {self.type_name}."
            raise UsageError(f"`{self.option}` is {value!r}. {allowed}") from None
        least, most = LEAST.get(self.name, -math.inf), MOST.get(self.name, math.inf)
        if isinstance(found, (int, float)) and not least <= found <= most:
            allowed = f"{least} or more" if found < least else f"{most} or less"
            raise UsageError(f"`{self.option}` is {found}; it must be {allowed}.")
        return found


def option_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def in_options(said: str, names: Iterable[str] = (), **others: str) -> str:
    """
    A message with the options' names in place of the arguments'.

    Args:
        names: arguments whose options have their names.
        others: the options of further arguments.
    """
    for name, option in {**{name: option_name(name) for name in names}, **others}.items():
        said = said.replace(f"`{name}`", f"`{option}`").replace(f"`{name}=True`", f"`{option}`")
    return said


def arguments_class(trainer: str) -> type:
    """The class of a trainer's arguments."""
    return pkgutil.resolve_name(TRAINERS[trainer])


@functools.cache
def trainer_settings(trainer: str) -> dict[str, Setting]:
    """The fields of a trainer's arguments, including those of `TrainingArguments`."""
    return settings_of(arguments_class(trainer))


@functools.cache
def model_settings(model_type: str) -> dict[str, Setting]:
    """The fields that a family's configuration adds to those of transformers."""
    row = (FAMILIES | BACKBONES)[model_type]
    config_class = row.load(row.config)
    upstream = [base for base in config_class.__mro__ if base.__module__.startswith("transformers.")]
    inherited = {one.name for base in upstream if dataclasses.is_dataclass(base) for one in dataclasses.fields(base)}
    # Fields that no docstring of ours describes belong to transformers, such as `use_cache`.
    found = {name: one for name, one in settings_of(config_class).items() if one.help and name not in inherited}
    return {name: found[name] for name in GRAPH_SETTINGS} if model_type in BACKBONES else found


def settings_of(of: type) -> dict[str, Setting]:
    """The fields of a dataclass. Their help is in their metadata or in the section `Args` of a docstring."""
    documented: dict[str, str] = {}
    for base in reversed(of.__mro__):
        if not base.__module__.startswith("transformers."):
            documented |= {name: one["description"] for name, one in parse_docstring(base.__doc__ or "")[0].items()}
    found = {}
    for one in dataclasses.fields(of):
        default = None if one.default is dataclasses.MISSING else one.default
        text = one.metadata.get("help") or documented.get(one.name, "")
        found[one.name] = Setting(one.name, one.type, default, " ".join(text.split()))
    return found


def all_settings(trainer: str, auto_class: str | None = None) -> dict[str, Setting]:
    """
    The settings of a trainer, of the families (with a model under `auto_class`) and of graph networks. Of a name that
    several declare, the first one says what it is for, and all types are allowed.
    """
    rows = [name for name, row in FAMILIES.items() if auto_class is None or auto_class in row.models]
    found = dict(trainer_settings(trainer))
    for several in map(model_settings, rows if auto_class else [*rows, *BACKBONES]):
        for name, one in several.items():
            first = found.get(name, one)
            found[name] = dataclasses.replace(first, hint=first.hint | one.hint)
    return found


def _members(hint: Any) -> dict[Any, tuple]:
    """The types of a union, with their arguments: `{list: (int,), NoneType: ()}`."""
    if get_origin(hint) in (Union, UnionType):
        return {kind: args for one in get_args(hint) for kind, args in _members(one).items()}
    return {get_origin(hint) or hint: get_args(hint)}


def _converted(value: Any, hint: Any) -> Any:
    kinds = _members(hint)
    if NoneType in kinds and (value is None or (value == "none" and str not in kinds)):
        return None
    for choice in choices_of(hint):
        if str(choice) == str(value):
            return choice
    if dict in kinds and (isinstance(value, Mapping) or str(value).lstrip().startswith("{")):
        return json.loads(value) if isinstance(value, str) else dict(value)
    if str in kinds and isinstance(value, str):
        return value
    for kind in (bool, int, float, str, list, tuple):
        if kind in kinds:
            with contextlib.suppress(ValueError, TypeError):
                return _as(kind, kinds[kind], value)
    raise ValueError


def _as(kind: type, items: tuple, value: Any) -> Any:
    if kind in (list, tuple) and not isinstance(value, Mapping):
        several = value if isinstance(value, (list, tuple)) else _listed(str(value))
        return [_converted(one, items[0]) if items else one for one in several]
    if kind is bool and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    if kind not in (int, float, str) or isinstance(value, (bool, list, tuple, Mapping)):
        raise ValueError
    if kind is int and not float(value).is_integer() or kind is float and not math.isfinite(float(value)):
        raise ValueError
    return int(float(value)) if kind is int else kind(value)


def _listed(value: str) -> list:
    """`a,b`, or a list in JSON."""
    return json.loads(value) if value.startswith("[") else [part.strip() for part in value.split(",") if part.strip()]
