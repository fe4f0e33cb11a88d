# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The options that the argument dataclasses of the trainers and the configurations of the families declare: their names,
types, defaults and help. Read from the source, because importing the classes brings torch, which takes seconds.
"""

import ast
import dataclasses
import functools
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_memaug.runs.errors import UsageError
from hf_memaug.suggestions import nearest, of_these

PACKAGE = Path(__file__).parents[1]
ARGUMENTS = PACKAGE / "training" / "arguments.py"
# The classes whose fields are options of a model, and where they are.
CONFIGURATIONS = {
    "kv_memory": ("KVMemoryFields", "configuration_kv_memory.py"),
    "gmap": ("GMAPConfig", "configuration_gmap.py"),
    "gmoe": ("ViTGMoEConfig", "configuration_vit_gmoe.py"),
    "hma": ("HMAConfig", "configuration_hma.py"),
    "memory_rnn": ("MemoryRNNConfig", "configuration_memory_rnn.py"),
    "graph_network": ("GraphNetworkConfig", "configuration_graph_network.py"),
}
# Of a graph network, what its name in `--backbone` does not say.
GRAPH_FIELDS = ("dropout", "jumping_knowledge")
TRAINERS = {
    "domain": "DomainTrainingArguments",
    "bilevel": "BilevelTrainingArguments",
    "continual": "ContinualTrainingArguments",
    "masked_lm": "TrainingArguments",
}
# Fields that the command sets itself, and what to give instead.
SET_BY_THE_COMMAND = {
    "output_dir": "give `--output`",
    "seed": "give `--seeds`, or `--seed` where there is one run",
    "algorithm": "name it in `--methods`, such as coral or gmoe+coral",
    "metric_for_best_model": "give `--metric`",
    "greater_is_better": "the metrics here are all better when higher",
    "resume_from_checkpoint": "the same command goes on by itself",
    "push_to_hub": "use `hf-memaug push`",
    "disable_tqdm": "give `--quiet`",
    "do_train": "use `hf-memaug train`",
    "do_eval": "use `hf-memaug evaluate`",
    "do_predict": "use `hf-memaug predict`",
    "local_rank": "give `--processes`",
    "run_facts": "they are written from what happens",
    "general": "give `--general`",
    "domain": "give `--backbone`",
    "backbone_config": "give `--backbone`",
    "feature_size": "the backbone says it",
    "memory_slots_per_domain": "give `--memory-slots`",
    "verbalizer_token_ids": "give `--verbalizer`",
    **dict.fromkeys(
        ("vocab_size", "mask_token_id", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
        "the tokenizer says it",
    ),
}


@dataclass(frozen=True)
class Field:
    """One option: what the class that declares it says of it."""

    name: str
    annotation: str
    default: Any
    help: str

    @property
    def is_flag(self) -> bool:
        return "bool" in self.annotation and "str" not in self.annotation


@functools.cache
def trainer_fields(trainer: str) -> dict[str, Field]:
    """The fields of a trainer's arguments, those of `TrainingArguments` too."""
    return _with_bases(TRAINERS[trainer])


@functools.cache
def configuration_fields(family: str) -> dict[str, Field]:
    """The fields that a family's configuration adds to its backbone's."""
    name, file = CONFIGURATIONS[family]
    found = _fields_of(_classes(PACKAGE / "configuration" / file)[name])
    return {key: found[key] for key in GRAPH_FIELDS} if family == "graph_network" else found


def graph_fields() -> dict[str, Field]:
    """The fields that a graph network has beside those of its name."""
    return configuration_fields("graph_network")


def fields_of(*kinds: str) -> dict[str, Field]:
    """The fields of several trainers and families; of one that two declare, the first says what it is for."""
    found: dict[str, Field] = {}
    for kind in kinds:
        for name, one in (trainer_fields if kind in TRAINERS else configuration_fields)(kind).items():
            before = found.get(name, one)
            both = dict.fromkeys([before.annotation, one.annotation])
            found[name] = dataclasses.replace(before, annotation=" | ".join(both))
    return found


def own_fields(trainer: str) -> dict[str, Field]:
    """What the library adds to `TrainingArguments`."""
    inherited = _with_bases("TrainingArguments")
    return {name: one for name, one in trainer_fields(trainer).items() if name not in inherited}


def _with_bases(name: str) -> dict[str, Field]:
    classes = _classes(ARGUMENTS)
    if name not in classes:
        # Found, not imported: that would take seconds.
        package = Path(importlib.util.find_spec("transformers").origin).parent
        return _fields_of(_classes(package / "training_args.py")[name])
    found: dict[str, Field] = {}
    for base in classes[name].bases:
        found |= _with_bases(ast.unparse(base))
    return found | _fields_of(classes[name])


@functools.cache
def _classes(path: Path) -> dict[str, ast.ClassDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _fields_of(node: ast.ClassDef) -> dict[str, Field]:
    documented = _documented(ast.get_docstring(node) or "")
    found = {}
    for line in node.body:
        if not isinstance(line, ast.AnnAssign) or line.value is None or "ClassVar" in ast.unparse(line.annotation):
            continue
        name, default, text = line.target.id, _literal(line.value), documented.get(line.target.id, "")
        if isinstance(line.value, ast.Call):
            given = {keyword.arg: keyword.value for keyword in line.value.keywords}
            default = _literal(given["default"]) if "default" in given else None
            text = _help(given["metadata"]) or text if "metadata" in given else text
        found[name] = Field(name, ast.unparse(line.annotation), default, " ".join(str(text).split()))
    return found


def _help(metadata: ast.Dict) -> str | None:
    # Key by key: other entries may be computed.
    pairs = zip(metadata.keys, metadata.values, strict=True)
    return next((_literal(value) for key, value in pairs if _literal(key) == "help"), None)


def _literal(node: ast.AST) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _documented(docstring: str) -> dict[str, str]:
    """`name (`type`): text` of the section Args."""
    entries = re.findall(r"^ {4}(\w+) \(.*?\):(.*?)(?=^ {4}\w+ \(|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in entries}


def option_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def convert(name: str, annotation: str, value: Any) -> Any:
    """A value of the command line or of a recipe, as the field's type wants it."""
    try:
        return _converted(annotation, value)
    except (ValueError, TypeError):
        wrong = f"`{option_name(name)}` is {value!r}"
        choices = _choices(annotation)
        if choices and not _kinds(annotation) - {"None"}:
            raise UsageError(f"{wrong}. {of_these(value, choices)}") from None
        raise UsageError(f"{wrong}, and must be of type {annotation}.") from None


def _kinds(annotation: str) -> set[str]:
    """The types that an annotation names beside fixed values."""
    return set(re.findall(r"\b(bool|int|float|str|dict|list|tuple|None)\b", re.sub(r"Literal\[.*?\]", "", annotation)))


def _choices(annotation: str) -> list:
    """The fixed values that an annotation names."""
    parts = re.findall(r"Literal\[(.*?)\]", annotation)
    return list(dict.fromkeys(one for part in parts for one in ast.literal_eval(f"[{part}]")))


def _converted(annotation: str, value: Any) -> Any:
    kinds = _kinds(annotation)
    if value is None or (value == "none" and "None" in kinds and "str" not in kinds):
        if "None" not in kinds:
            raise ValueError
        return None
    choices = _choices(annotation)
    if choices:
        match = next((choice for choice in choices if str(choice) == str(value)), None)
        if match is not None:
            return match
        if not kinds - {"None"}:
            raise ValueError
    if "dict" in kinds and isinstance(value, str):
        found = json.loads(value) if value.lstrip().startswith("{") or "str" not in kinds else value
        return found
    if "dict" in kinds and isinstance(value, Mapping):
        return dict(value)
    if kinds & {"list", "tuple"} and not isinstance(value, Mapping):
        alone = re.sub(r"(list|tuple)\[.*?\]", "", annotation)
        if isinstance(value, str) and "str" in alone:
            return value
        if not isinstance(value, (list, tuple)) and "int" in alone and not set("[,") & set(str(value)):
            return _number(value, {"int"})
        items = value if isinstance(value, (list, tuple)) else _listed(str(value))
        return [int(item) for item in items] if re.search(r"(list|tuple)\[int", annotation) else list(items)
    if isinstance(value, (list, tuple, Mapping)):
        raise ValueError
    if isinstance(value, bool) or ("bool" in kinds and "str" not in kinds):
        return _flag(value)
    if kinds & {"int", "float"} and (not isinstance(value, str) or "str" not in kinds):
        return _number(value, kinds)
    return str(value)


def _listed(value: str) -> list:
    return json.loads(value) if value.startswith("[") else [part.strip() for part in value.split(",") if part.strip()]


def _flag(value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]


def _number(value: Any, kinds: set[str]) -> int | float:
    number = float(value)
    if "float" not in kinds and number != int(number):
        raise ValueError
    is_whole = "int" in kinds and number == int(number) and "e" not in str(value).lower() and "." not in str(value)
    return int(number) if is_whole or "float" not in kinds else number


def unknown(what: str, name: str, known) -> UsageError:
    """An error about an option or a key that there is not."""
    near = nearest(name.replace("-", "_").lstrip("_"), known)
    written = near if what == "recipe key" or near is None else option_name(near)
    hint = f" Did you mean `{written}`?" if near else ""
    return UsageError(f"There is no {what} `{name}`.{hint}")
