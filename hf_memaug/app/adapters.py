# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Adapters of PEFT that lie beside no model: the model they were trained on is loaded, and they are merged into it."""

import json
import os
from pathlib import Path

from hf_memaug.app.errors import NotServed

FILE = "adapter_config.json"


def adapter_base(name: str, argument: str) -> str | None:
    """The model that an adapter was trained on, by its folder or repository; None where `name` holds no adapter."""
    path = _file(name)
    if path is None:
        return None
    try:
        base = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise NotServed(f"`{argument}`: {name!r} has an `{FILE}` that cannot be read: {error}") from error
    if not base:
        raise NotServed(
            f"`{argument}`: {name!r} holds an adapter that does not say of which model. Write "
            f"`base_model_name_or_path` into its `{FILE}`, or merge it first: `model.merge_and_unload()`, then "
            "`save_pretrained`."
        )
    return base


def refuse_plain_base(name: str, base: str, kind: str, argument: str) -> NotServed:
    return NotServed(
        f"`{argument}`: {name!r} holds an adapter of {base!r}, a `{kind}`, which is no model of hf_memaug: what was "
        "put on it is not all in the adapter. Save the model with `save_pretrained` before the adapter is put on, and "
        f"name that folder in `{FILE}`; or merge the adapter: `model.merge_and_unload()`, then `save_pretrained`."
    )


def merged(model, name: str, argument: str):
    """The model with the adapter merged into it."""
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(model, name).merge_and_unload()
    except (AttributeError, KeyError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError) as error:
        said = str(error).strip().splitlines()
        raise NotServed(
            f"`{argument}`: the adapter in {name!r} cannot be merged into its `{type(model).__name__}`: "
            f"{said[0] if said else type(error).__name__} The app serves adapters that become part of the weights, "
            "such as LoRA's, on the model they were trained on."
        ) from error


def _file(name: str) -> Path | None:
    if os.path.isdir(name):
        return Path(name) / FILE if (Path(name) / FILE).is_file() else None
    from transformers.utils import cached_file

    try:
        found = cached_file(name, FILE, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):
        return None
    return Path(found) if found else None
