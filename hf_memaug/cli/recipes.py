# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The options of a command: defaults, then the recipe, then the command line."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_memaug.messages import nearest
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.folder import PATHS, convert_paths
from hf_memaug.runs.settings import Setting, option_name, settings_of
from hf_memaug_cli.options import NOT_IN_RECIPE

COMMAND, METHOD_SETTINGS = "command", "method_settings"
DEEPEST = 20
# What a command sets itself, and what the user gives instead.
SET_BY_THE_COMMAND = {
    "output_dir": "Use `--output`.",
    "seed": "Use `--seeds`, or `--seed` for one run.",
    "algorithm": "Name it in `--methods`, such as coral or gmoe+coral.",
    "metric_for_best_model": "Use `--metric`.",
    "resume_from_checkpoint": "To resume an interrupted run, rerun the same command.",
    "push_to_hub": "Use `hf-memaug push`.",
    "disable_tqdm": "Use `--quiet`.",
    "local_rank": "Use `--processes`.",
    "general": "Use `--general`.",
    **dict.fromkeys(("domain", "backbone_config", "feature_size"), "Use `--backbone`."),
    "memory_slots_per_domain": "Use `--memory-slots`.",
    "verbalizer_token_ids": "Use `--verbalizer`.",
    **dict.fromkeys(
        ("key_shape", "memory_rows", "memory_landmarks", "domains", "memory_texts", "fingerprint", "vocabulary"),
        "Writing rows sets it.",
    ),
    **dict.fromkeys(("classifier_config", "general_config"), "Use `--backbone` and `--general`."),
    **dict.fromkeys(("greater_is_better", "do_train", "do_eval", "do_predict", "run_facts"), "Leave it out."),
    **dict.fromkeys(
        ("vocab_size", "mask_token_id", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
        "It comes from the tokenizer.",
    ),
}


@dataclass
class Resolved:
    """
    Args:
        options: an instance of the command's own options.
        settings: the fields of trainers and models that were given for all methods.
        method_settings: the fields that were given for one method.
        unneeded: settings of a recipe whose methods the command line replaces. They need not fit any method.
    """

    options: Any
    settings: dict[str, Any] = field(default_factory=dict)
    method_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    unneeded: frozenset[str] = frozenset()

    def recipe(self, command: str) -> dict[str, Any]:
        """What recipe.yaml holds: everything that changes the result."""
        own = {name: value for name, value in dataclasses.asdict(self.options).items() if name not in NOT_IN_RECIPE}
        own = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        if "seeds" in own:
            numbers = [int(one) for one in own["seeds"]]
            own["seeds"] = numbers[0] if len(numbers) == 1 else numbers
        methods = {METHOD_SETTINGS: self.method_settings} if self.method_settings else {}
        return {COMMAND: command, **own, **self.settings, **methods}


def resolve(
    command: str, options_class: type, given: Mapping, given_settings: Mapping, known: Mapping[str, Setting]
) -> Resolved:
    """
    The options of a command. `given` are its own on the command line, `given_settings` those of trainers and models by
    method (`None`: for all methods), and `known` all of these that it takes.
    """
    own = settings_of(options_class)
    options: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    of_methods: dict[str, dict[str, Any]] = {}
    for key, value in read_recipe(given.get("recipe"), command).items():
        if key == METHOD_SETTINGS:
            of_methods = {str(method): _options(method, several) for method, several in _mapping(key, value).items()}
        else:
            (options if key in own else settings)[key] = value
    is_replaced = any(name in given and name in options for name in ("methods", "method", "strategies"))
    unneeded = frozenset([*settings, *of_methods]) if is_replaced else frozenset()
    options |= given
    for method, several in given_settings.items():
        (settings if method is None else of_methods.setdefault(method, {})).update(several)

    def converted(several: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _known(name, known, own).convert(value) for name, value in several.items()}

    options = {name: one if name in NOT_IN_RECIPE else relative_path(one) for name, one in options.items()}
    options = {name: own[name].convert(one) for name, one in options.items()}
    empty = next((name for name, value in options.items() if value == []), None)
    if empty is not None:
        raise UsageError(f"`{option_name(empty)}` is empty. Give one value or more, with commas between.")
    settings = converted(settings)
    of_methods = {method: converted(several) for method, several in of_methods.items()}
    return Resolved(options_class(**options), settings, of_methods, unneeded)


def relative_path(value: Any) -> Any:
    """A path inside the working directory without that directory, because what a run writes may be published."""
    here = Path.cwd()
    is_inside = isinstance(value, str) and here in Path(value).parents
    return str(Path(value).relative_to(here)) if is_inside else value


def read_recipe(path: str | None, command: str) -> dict[str, Any]:
    """The options of a YAML file, with `_` for `-` in their names."""
    if path is None:
        return {}
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                # A few lines of them can stand for billions of values.
                raise UsageError(
                    f"`--recipe` {path} has aliases (`*name`), which are not supported. Repeat the values."
                )
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                # Reading many levels takes minutes.
                raise UsageError(f"`--recipe` {path} is nested more than {DEEPEST} levels deep. Write plain options.")
        recipe = yaml.safe_load(text) or {}
    except UnicodeDecodeError:
        raise UsageError(f"`--recipe` {path} is not a text in UTF-8. Save it as UTF-8.") from None
    except OSError as error:
        raise UsageError(f"`--recipe` {path} cannot be read: {error.strerror or error}.") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"`--recipe` {path} is not valid YAML: {' '.join(str(error).split())}.") from None
    recipe = _options(f"--recipe {path}", recipe)
    recipe |= {name: convert_paths(recipe[name], relative_path, Path(path).parent) for name in PATHS if name in recipe}
    meant = recipe.pop(COMMAND, command)
    if meant != command:
        raise UsageError(f"`--recipe` {path} is for `hf-memaug {meant}`. Use that command.")
    return recipe


def _mapping(name: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"`{name}` must contain options as `name: value`, one per line.")
    return value


def _options(name: str, value: Any) -> dict[str, Any]:
    return {str(key).replace("-", "_"): one for key, one in _mapping(name, value).items()}


def _known(name: str, known: Mapping[str, Setting], own: Mapping[str, Setting]) -> Setting:
    if name in SET_BY_THE_COMMAND:
        raise UsageError(f"`{option_name(name)}` is set by the command. {SET_BY_THE_COMMAND[name]}")
    if name not in known:
        near = nearest(name, [*own, *known])
        raise UsageError(f"Unknown recipe key `{name}`." + (f" Did you mean `{near}`?" if near else ""))
    return known[name]


def used_settings(resolved: Resolved, taken: Mapping[str, Iterable[str]]) -> dict[str, dict[str, Any]]:
    """
    The settings of each method: those for all methods that are in its `taken`, and its own. A setting that no method
    takes raises an error.
    """
    names, unneeded = ", ".join(taken), resolved.unneeded
    for method, several in list(resolved.method_settings.items()):
        if method not in taken and method in unneeded:
            del resolved.method_settings[method]
        elif method not in taken:
            raise UsageError(f"There are settings for {method!r}, which is not among the methods ({names}).")
        else:
            for name in several:
                if name not in taken[method]:
                    option = option_name(name).removeprefix("--")
                    raise UsageError(f"`--{method}.{option}` is not an option of {method!r}. Leave it out.")
    for name in list(resolved.settings):
        if any(name in of for of in taken.values()):
            continue
        if name not in unneeded:
            raise UsageError(
                f"`{option_name(name)}` is not an option of the chosen methods ({names}). Leave it out, or add a "
                "method that takes it."
            )
        del resolved.settings[name]
    given = {method: {**resolved.settings, **resolved.method_settings.get(method, {})} for method in taken}
    return {method: {name: of[name] for name in of if name in taken[method]} for method, of in given.items()}
