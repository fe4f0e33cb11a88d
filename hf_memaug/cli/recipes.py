# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The options of a command: defaults, then the recipe, then the command line. Nothing is accepted and ignored."""

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_memaug.cli.fields import SET_BY_THE_COMMAND, Field, convert, option_name, unknown
from hf_memaug.cli.options import NOT_KEPT
from hf_memaug.runs.errors import UsageError

COMMAND_KEY = "command"
OF_METHODS = "method_settings"
# A number with an exponent and no point is a text to YAML 1.1; so are the words that a shell would pass.
_NO_OPTION = re.compile(r"-\d|-\.\d|-$")


@dataclass
class Resolved:
    """
    Args:
        options: an instance of the command's options.
        settings: fields of trainers and of configurations that were given, for all methods.
        method_settings: the same for one method alone.
        optional: settings of a recipe whose methods the command line has replaced: they need not fit any more.
    """

    options: Any
    settings: dict[str, Any] = field(default_factory=dict)
    method_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()

    def of_method(self, method: str) -> dict[str, Any]:
        return {**self.settings, **self.method_settings.get(method, {})}

    def recipe(self, command: str) -> dict[str, Any]:
        """What recipe.yaml holds: everything that has a say in the result."""
        own = {name: value for name, value in dataclasses.asdict(self.options).items() if name not in NOT_KEPT}
        own = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        if "seeds" in own:
            numbers = [int(one) for one in own["seeds"]]
            own["seeds"] = numbers[0] if len(numbers) == 1 else numbers
        methods = {OF_METHODS: self.method_settings} if self.method_settings else {}
        return {COMMAND_KEY: command, **own, **self.settings, **methods}


def resolve(
    command: str, options_class: type, given: Mapping[str, Any], extra: Sequence[str], known: Mapping[str, Field]
) -> Resolved:
    """
    Args:
        command: its name.
        options_class: the dataclass of its own options.
        given: those of them that stand on the command line.
        extra: what else stands there: fields of `known`, as `--learning-rate 1e-4` or `--mil.learning-rate 1e-4`.
        known: the fields of trainers and configurations that the command takes.
    """
    own = {one.name: one for one in dataclasses.fields(options_class)}
    recipe = read_recipe(given.get("recipe"), command) if "recipe" in own else {}
    settings: dict[str, Any] = {}
    of_methods: dict[str, dict[str, Any]] = {}
    found: dict[str, Any] = {}
    for key, value in recipe.items():
        name = str(key).replace("-", "_")
        if name == OF_METHODS:
            for method, several in _mapping(OF_METHODS, value).items():
                of_methods[str(method)] = {
                    _known("recipe key", one, own, known): _value(one, content, known)
                    for one, content in _mapping(f"{OF_METHODS}.{method}", several).items()
                }
        elif name in own:
            found[name] = _own_value(own[name], value)
        else:
            name = _known("recipe key", name, own, known)
            settings[name] = _value(name, value, known)
    is_replaced = any(name in given and name in found for name in ("methods", "method", "strategies"))
    optional = frozenset([*settings, *of_methods]) if is_replaced else frozenset()
    found |= {name: _own_value(own[name], value) for name, value in given.items()}
    for name, value in _pairs(extra, own, known):
        method, dot, rest = name.rpartition(".")
        option = rest.replace("-", "_")
        if not dot and option in own:
            # A flag such as `--equal-steps false`.
            found[option] = _own_value(own[option], value)
            continue
        place = of_methods.setdefault(method, {}) if dot else settings
        option = _known("option", option, own, known, written=f"--{name}")
        place[option] = _value(option, value, known)
    return Resolved(options_class(**found), settings, of_methods, optional)


def read_recipe(path: str | None, command: str) -> dict[str, Any]:
    if path is None:
        return {}
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"`--recipe` {path} cannot be read: {error.strerror or error}.") from None
    try:
        recipe = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"`--recipe` {path} is no YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(recipe, dict):
        raise UsageError(f"`--recipe` {path} must hold options as `name: value`, one a line.")
    meant = recipe.pop(COMMAND_KEY, command)
    if meant != command:
        raise UsageError(f"`--recipe` {path} is one of `hf-memaug {meant}`: use that command.")
    return recipe


def write_recipe(path: Path, recipe: Mapping[str, Any]) -> None:
    import yaml

    from hf_memaug.files import write_atomically

    write_atomically(path, yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True))


def used_settings(
    resolved: Resolved, methods: Iterable[str], fields_of: Mapping[str, Mapping[str, Field]]
) -> dict[str, dict[str, Any]]:
    """
    The settings of each method: those of all methods that it takes, and its own. One that no method takes is refused.

    Args:
        fields_of: the fields that each method takes.
    """
    methods = list(methods)
    for method in list(resolved.method_settings):
        if method not in methods and method in resolved.optional:
            del resolved.method_settings[method]
        elif method not in methods:
            raise UsageError(
                f"`{OF_METHODS}` are given for {method!r}, which is not among the methods ({', '.join(methods)})."
            )
        for name in resolved.method_settings.get(method, ()):
            if name not in fields_of[method]:
                raise UsageError(f"`--{method}.{name.replace('_', '-')}`: {method!r} takes no {name}. Leave it out.")
    for name in list(resolved.settings):
        if any(name in fields_of[method] for method in methods):
            continue
        if name in resolved.optional:
            del resolved.settings[name]
        else:
            raise UsageError(
                f"`{option_name(name)}` is an option that none of the methods takes ({', '.join(methods)}). Leave it "
                "out, or add the method that it is for."
            )
    return {
        method: {name: value for name, value in resolved.of_method(method).items() if name in fields_of[method]}
        for method in methods
    }


def _pairs(extra: Sequence[str], own, known: Mapping[str, Field]) -> list[tuple[str, Any]]:
    """`--name value`, `--name=value`, and for flags `--name` and `--no-name` alone."""
    pairs, position = [], 0
    while position < len(extra):
        token = extra[position]
        position += 1
        if not token.startswith("--") or token == "--":
            raise UsageError(f"{token!r} is no option, and belongs to none. Options begin with `--`.")
        name, equals, value = token[2:].partition("=")
        plain = name.rpartition(".")[2].replace("-", "_")
        takes_no = plain.startswith("no_") and plain not in known and _is_flag(plain[3:], own, known)
        if takes_no:
            pairs.append((name.rpartition(".")[0] + "." * ("." in name) + plain[3:], False))
            continue
        _known("option", plain, own, known, written=token.partition("=")[0])
        if not equals:
            follows = extra[position] if position < len(extra) else None
            is_value = follows is not None and (not follows.startswith("-") or _NO_OPTION.match(follows))
            if _is_flag(plain, own, known) and str(follows).lower() not in ("true", "false", "yes", "no", "1", "0"):
                value, is_value = True, False
            elif not is_value:
                raise UsageError(f"`--{name}` needs a value.")
            else:
                value = follows
            position += bool(is_value)
        pairs.append((name, value))
    return pairs


def _is_flag(name: str, own, known: Mapping[str, Field]) -> bool:
    return known[name].is_flag if name in known else name in own and isinstance(own[name].default, bool)


def _known(what: str, name: str, own, known: Mapping[str, Field], written: str | None = None) -> str:
    name = str(name).replace("-", "_")
    if name in own:
        return name
    if name in SET_BY_THE_COMMAND and name in known:
        raise UsageError(f"`{written or name}` is set by the command: {SET_BY_THE_COMMAND[name]}.")
    if name not in known:
        allowed = [*own, *(one for one in known if one not in SET_BY_THE_COMMAND)]
        raise unknown(what, written or name, allowed)
    return name


def _value(name: str, value: Any, known: Mapping[str, Field]) -> Any:
    name = str(name).replace("-", "_")
    return convert(name, known[name].annotation, value)


def _own_value(own: dataclasses.Field, value: Any) -> Any:
    kind = own.type if isinstance(own.type, str) else _written(own.type)
    return convert(own.name, kind, value)


@functools.cache
def _written(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not getattr(kind, "__args__", None) else str(kind)


def _mapping(name: str, value: Any) -> Mapping:
    if not isinstance(value, Mapping):
        raise UsageError(f"`{name}` must hold options as `name: value`.")
    return value
