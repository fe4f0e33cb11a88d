# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The methods of the command line: the `methods` of the registry's rows, and two plain ones.

A name is a method (`mil`, `hma`), an algorithm on the plain model (`coral`), or both (`hma+coral`, `coral+memory`). A
method with settings of its own may have a name of its own (`gmoe-linear`).
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_memaug.messages import nearest
from hf_memaug.registry import BACKBONES, FAMILIES, Family, Method
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.settings import Setting, model_settings, trainer_settings
from hf_memaug.runs.tasks import NOT_FOR_TASKS, PLAIN_TASKS, QUESTIONS, TAGS, TASKS, in_words

ERM, FINE_TUNING, FINETUNE = "erm", "fine-tuning", "finetune"
_plain = functools.partial(Method, born="from_pretrained")
PLAIN = (
    _plain(ERM, "the plain backbone", ("text", "image", "graph", TAGS, QUESTIONS, *PLAIN_TASKS)),
    _plain(
        FINE_TUNING, "the general encoder alone, beside gmap and dapt", ("text", TAGS, QUESTIONS), needs_general=True
    ),
    _plain(
        FINETUNE, "the checkpoint of erm, trained on labelled rows of the target", ("text", "image"), needs_shots=True
    ),
)
# The papers call the plain backbone by these names.
ALIASES = dict.fromkeys(("vit", "backbone", "dapt", "tapt", "dapt+tapt"), ERM)
# They split a batch by its rows, and a batch of graphs is one of nodes.
NOT_FOR_GRAPHS = ("mixup", "mldg")
# The fields of the trainer that `hf-memaug continual` has options for. Models may have fields of these names.
SET_BY_OPTIONS = {"strategy": "--strategies", "domains": "--order", "matrix_metric": "--metric"}
# Of the settings for all methods, those that also hold where a checkpoint is adapted to rows of the target.
SHARED = ("bf16", "fp16", "tf32", "use_cpu", "per_device_eval_batch_size")


def all_methods() -> dict[str, Method]:
    """Every method by its name."""
    of_families = (method for family in FAMILIES.values() for method in family.methods)
    return {method.name: method for method in (*PLAIN[:1], *of_families, *PLAIN[1:])}


@dataclass(frozen=True)
class Chosen:
    """
    A method as it was asked for.

    Args:
        name: what it is called in tables.
        method: the row of the registry.
        algorithm: what it is trained with.
        shots: how many labelled rows of the target it adapts to.
    """

    name: str
    method: Method
    algorithm: str
    shots: int = 0

    @property
    def families(self) -> dict[str, Family]:
        """The families that have the method: one, or one for each kind of backbone."""
        return {name: family for name, family in FAMILIES.items() if self.method in family.methods}

    @property
    def is_variant(self) -> bool:
        """Whether it is a method with settings of its own, under a name of its own."""
        return self.name.startswith(f"{self.method.name}-")

    @property
    def makes_words(self) -> bool:
        """Whether its models are trained from scratch, with a tokenizer of the words of the rows."""
        return self.method.born == "config"

    def model_settings(self) -> dict[str, Setting]:
        """The fields of its models' configuration that may be set."""
        names = (*(BACKBONES if "graph" in self.method.reads else ()), *self.families)
        return {key: one for name in names for key, one in model_settings(name).items()}

    def settings(self, trainer: str | None = None) -> dict[str, Setting]:
        """Everything that may be set for it. `trainer` is another one than its own, such as `"continual"`."""
        return {**self.model_settings(), **self._trainer_settings(trainer)}

    def split_settings(self, settings: Mapping[str, Any], trainer: str | None = None) -> tuple[dict, dict]:
        """(those that shape the model, those of the trainer)."""
        of_trainer = self._trainer_settings(trainer)
        model = {name: value for name, value in settings.items() if name not in of_trainer}
        return model, {name: value for name, value in settings.items() if name in of_trainer}

    def _trainer_settings(self, trainer: str | None) -> dict[str, Setting]:
        found = trainer_settings(trainer or self.method.trainer)
        if trainer == "continual":
            return {name: one for name, one in found.items() if name not in SET_BY_OPTIONS}
        return found if self.method.trains else {name: found[name] for name in SHARED}

    def for_shots(self, shots: int, given: Mapping[str, Any], own: Iterable[str]) -> tuple["Chosen", dict[str, Any]]:
        """The method with so many rows of the target, and its settings: of those `given`, only `own` are its own."""
        epochs = 15.0 if shots < 64 else 10.0
        found = {"learning_rate": 5e-5, "num_train_epochs": epochs, "per_device_train_batch_size": min(32, shots)}
        # The other settings of the trainer are for training on the other domains.
        taken = {*self.model_settings(), *SHARED, *own}
        settings = {**(found if self.method.trains else {}), **{name: given[name] for name in given if name in taken}}
        return dataclasses.replace(self, name=f"{self.name}-{shots}", shots=shots), settings


def chosen(name: str) -> Chosen:
    """The method called `name`, or an error that suggests the closest match."""
    from hf_memaug.training.algorithms import ALGORITHMS

    methods, plain = all_methods(), ALIASES.get(name, name)
    if plain in methods:
        return Chosen(name, methods[plain], ERM)
    if plain in ALGORITHMS:
        return Chosen(name, methods[ERM], plain)
    for row, method in methods.items():
        # Tables write `coral+memory` and `hma+coral`.
        algorithm = plain.removesuffix(row) if row.startswith("+") else plain.removeprefix(f"{row}+")
        is_free = method.trainer == "domain" and not method.needs_shots
        if algorithm in ALGORITHMS and algorithm != plain and is_free:
            return Chosen(name, method, algorithm)
    for row in sorted(methods, key=len, reverse=True):
        if plain.startswith(f"{row}-"):
            return Chosen(name, methods[row], ERM)
    alone = [row for row, method in methods.items() if not row.startswith("+") and not method.needs_shots]
    both = [f"{row}+{one}" for row in alone for one in ALGORITHMS]
    near = nearest(name, [*methods, *ALGORITHMS, *both, *(f"{one}+memory" for one in ALGORITHMS)])
    hint = f" Did you mean {near!r}?" if near else ""
    raise UsageError(
        f"There is no method {name!r}.{hint} Methods: {', '.join(methods)}. Algorithms: "
        f"{', '.join(one for one in ALGORITHMS if one != ERM)}. Both together: such as hma+coral or coral+memory."
    )


def check_variants(several: Mapping[str, Chosen], own: Mapping[str, Mapping]) -> None:
    """A name of its own without settings of its own would train the same model twice, or is a typing error."""
    for name, one in several.items():
        if one.is_variant and not own.get(name):
            raise UsageError(
                f"There is no method {name!r}. As a variant of {one.method.name!r} it needs settings of its own, such "
                f"as `--{name}.learning-rate 1e-4`, or a line of `method_settings` in a recipe."
            )


def check_method(one: Chosen, kind: str, sources: int, general: str | None) -> None:
    """Raises an error for a method that would fail in every job."""
    from hf_memaug.training.algorithms import ALGORITHMS

    if kind not in one.method.reads:
        fitting = [name for name, method in all_methods().items() if kind in method.reads]
        raise UsageError(
            f"`{one.name}` is for {in_words(one.method.reads[0])}, and the rows are {in_words(kind)}. Choose {fitting}."
        )
    for is_wrong, unsupported, why in (
        (kind in PLAIN_TASKS, [name for name in ALGORITHMS if name != ERM], "is for classes"),
        (kind in TASKS, NOT_FOR_TASKS, "needs one label for each row"),
        (kind == "graph", NOT_FOR_GRAPHS, "splits a batch by its rows"),
    ):
        if is_wrong and one.algorithm in unsupported:
            others = [name for name in ALGORITHMS if name not in unsupported]
            raise UsageError(f"`{one.algorithm}` {why}, and the rows are {in_words(kind)}. Choose {others}.")
    if sources < 2 and (ALGORITHMS[one.algorithm].compares_domains or one.method.trainer == "bilevel"):
        raise UsageError(
            f"`{one.name}` compares domains, and there is only one to train on. Choose another method, or data with "
            "more domains."
        )
    if one.method.needs_shots and not one.shots:
        raise UsageError(
            f"`{one.name}` adapts the checkpoint of erm to labelled rows of the target. Use `hf-memaug compare` with "
            f"`--methods erm,{one.name}` and `--shots`, such as `--shots 32,128`."
        )
    if one.method.needs_general and general is None:
        raise UsageError(
            f"`{one.name}` reads a general encoder. Set `--general`. (A backbone that was pre-trained with one "
            "contains it: train that with `erm`.)"
        )


def check_strategy(strategy: str, of: type[Any], model: str, grows: Sequence[str], kind: str) -> None:
    """Raises an error for a strategy of the class `of` that does not fit the rows, or a model that can `grows`."""
    verbs = set(of.needs)
    if not verbs <= set(grows):
        fitting = " or ".join(name for name, method in all_methods().items() if verbs <= set(method.grows))
        raise UsageError(
            f"`--strategies` has {strategy!r}, which enlarges the model, and models of `{model}` cannot grow. "
            f"Choose `--method` {fitting}, or another strategy, such as ewc."
        )
    if kind == QUESTIONS and not of.supports_questions:
        raise UsageError(
            f"`--strategies` has {strategy!r}, which does not support questions. Choose another, such as ewc."
        )
    if of.writes and kind not in ("text", "image"):
        raise UsageError(
            f"`--strategies` has {strategy!r}, which writes texts and images, and the rows are {in_words(kind)}. "
            "Choose another, such as ewc."
        )
