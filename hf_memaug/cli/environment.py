# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-memaug env` and `hf-memaug options`: what is here, what is missing, and what can be set."""

import dataclasses
import importlib.util
import json
import os
import platform
import textwrap
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hf_memaug.cli import fields
from hf_memaug.cli.options import DataOptions
from hf_memaug.data.messages import did_you_mean
from hf_memaug.runs.errors import UsageError

# What `hf-memaug options` calls the columns that `--help` has no room for.
COLUMNS = "columns"
NEEDED = ("torch", "transformers", "accelerate", "safetensors", "tokenizers", "huggingface_hub", "typer", "numpy")
# What is used where it is there: the module, what it is for, and how to get it.
OPTIONAL = {
    "datasets": ("datasets of the hub", "pip install datasets"),
    "pandas": ("Parquet", "pip install pandas pyarrow"),
    "sklearn": ("scores and t-SNE", "pip install scikit-learn"),
    "PIL": ("images", "pip install pillow"),
    "peft": ("LoRA", "pip install peft"),
    "tensorboard": ("TensorBoard logs", "pip install 'hf_memaug[logs]'"),
    "matplotlib": ("figures", "pip install 'hf_memaug[report]'"),
    "torch_geometric": ("graphs of PyG", "pip install 'hf_memaug[graph]'"),
    "rdkit": ("molecules", "pip install 'hf_memaug[graph]'"),
    "gradio": ("`hf-memaug app`", "pip install 'hf_memaug[app]'"),
}
_NAMES = {"sklearn": "scikit-learn", "PIL": "pillow", "torch_geometric": "torch-geometric"}


def environment(call) -> int:
    found = describe()
    if call.options.json:
        print(json.dumps(found, indent=2))
        return 0
    width = max(len(name) for name in (*found["versions"], *found["missing"])) + 2
    for name, value in found["versions"].items():
        print(f"{name:<{width}}{value}")
    print(f"\n{'devices':<{width}}{', '.join(found['devices'])}")
    print(f"{'cores':<{width}}{found['cores']}")
    print(f"{'hub':<{width}}{found['hub']}")
    for name, (what, how) in found["missing"].items():
        print(f"\nmissing: {name} ({what})\n  {how}")
    if not found["missing"]:
        print("\nNothing is missing.")
    return 0


def describe() -> dict[str, Any]:
    import torch

    from hf_memaug import __version__

    versions = {"hf_memaug": __version__, "python": platform.python_version(), "system": platform.platform()}
    missing = {}
    for name in (*NEEDED, *OPTIONAL):
        try:
            versions[name] = version(_NAMES.get(name, name))
        except PackageNotFoundError:
            missing[name] = OPTIONAL.get(name, ("needed", f"pip install {name}"))
        else:
            if importlib.util.find_spec(name) is None:
                missing[name] = OPTIONAL.get(name, ("needed", f"pip install {name}"))
    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    devices = [f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus]
    if getattr(torch.backends, "mps", None) is not None and torch.backends.mps.is_available():
        devices.append("Apple GPU")
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    return {
        "versions": versions,
        "devices": devices or ["CPU alone"],
        "cores": os.cpu_count(),
        "hub": "offline (HF_HUB_OFFLINE)" if offline else os.environ.get("HF_ENDPOINT", "https://huggingface.co"),
        "missing": missing,
    }


def list_options(call) -> int:
    of = call.arguments["of"]
    known = (*fields.TRAINERS, *fields.CONFIGURATIONS)
    if of not in (None, COLUMNS, *known):
        raise UsageError(f"There are no options of {of!r}. {did_you_mean(of, (COLUMNS, *known))}")
    if of in (None, COLUMNS):
        print("\ncolumns of train, compare, evaluate and predict, of tags in continual, of molecules in sweep")
        for one in (one for one in dataclasses.fields(DataOptions) if one.metadata["hidden"]):
            default = "" if one.default is None else f" (default: {one.default})"
            print(f"  {fields.option_name(one.name)} {one.metadata['metavar']}{default}\n      {one.metadata['help']}")
    for name in known if of is None else [of] if of in known else ():
        is_trainer = name in fields.TRAINERS
        # Without a name, those of `TrainingArguments` once.
        own = is_trainer and of is None and name != "masked_lm"
        found = (
            fields.own_fields(name)
            if own
            else fields.trainer_fields(name)
            if is_trainer
            else fields.configuration_fields(name)
        )
        title = fields.TRAINERS[name] if is_trainer else f"models of {name}"
        print(f"\n{title}")
        for one in found.values():
            if one.name in fields.SET_BY_THE_COMMAND:
                continue
            default = "" if one.default is None else f" (default: {one.default})"
            print(f"  {fields.option_name(one.name)} {one.annotation}{default}")
            print(textwrap.fill(one.help, 100, initial_indent="      ", subsequent_indent="      ") or "      -")
    return 0
