# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Checkpoints that carry their code, for people who do not have hf_memaug installed."""

import importlib.util
import json
import re
from pathlib import Path

from hf_memaug.hub.publishing import copy_guard, write_card
from hf_memaug.registry import FAMILIES

_OUR_IMPORT = re.compile(r"^(\s*)from (hf_memaug(?:\.\w+)+) import ", re.MULTILINE)


def export_with_code(model, folder, processing_class=None) -> Path:
    """
    Saves `model` so that `AutoModel....from_pretrained(folder, trust_remote_code=True)` works without hf_memaug.

    transformers follows only single-dot imports between files of one folder, so the modules that the model needs are
    gathered and flattened into the checkpoint.

    Args:
        processing_class (*optional*): the tokenizer or processor to save beside the model.
    """
    family = FAMILIES.get(model.config.model_type)
    if family is None:
        raise ValueError(
            f"`model` is a `{model.config.model_type}`, which is none of hf_memaug's families ({', '.join(FAMILIES)})."
        )
    if hasattr(model, "peft_config"):
        raise ValueError("`model` is an adapter. Merge it first: `export_with_code(model.merge_and_unload(), folder)`.")
    folder = Path(folder)
    model.save_pretrained(folder)
    copy_guard(model, folder)
    if processing_class is not None:
        processing_class.save_pretrained(folder)

    for module, source in _gather({family.modeling, family.configuration}).items():
        flattened = _OUR_IMPORT.sub(lambda match: f"{match[1]}from .{_flat_name(match[2])} import ", source)
        (folder / f"{_flat_name(module)}.py").write_text(flattened, encoding="utf-8")

    own_name = type(model).__name__
    auto_map = {"AutoConfig": f"{_flat_name(family.configuration)}.{family.config}"}
    for auto_class, names in family.models.items():
        auto_map[auto_class] = f"{_flat_name(family.modeling)}.{own_name if own_name in names else names[0]}"
    config_file = folder / "config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config["auto_map"] = auto_map
    config_file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    write_card(model.config, own_name, folder, folder.name)
    return folder


def _gather(modules: set[str]) -> dict[str, str]:
    """The source of `modules` and of everything of ours that they import."""
    sources: dict[str, str] = {}
    waiting = set(modules)
    while waiting:
        module = waiting.pop()
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise ValueError(f"`model` needs {module}, which has no source file. Install hf_memaug from its wheel.")
        sources[module] = Path(spec.origin).read_text(encoding="utf-8")
        waiting |= {match[2] for match in _OUR_IMPORT.finditer(sources[module])} - set(sources)
    return sources


def _flat_name(module: str) -> str:
    """`hf_memaug.layers.kv_memory` becomes `layers_kv_memory`; a name that says its room already is kept."""
    *rooms, name = module.split(".")[1:]
    return name if not rooms or name.startswith(f"{rooms[0]}_") else "_".join([*rooms, name])
