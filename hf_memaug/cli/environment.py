# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug env` and `hf-memaug options`: what is installed, and what can be set."""

import json
import os
import platform
import textwrap
from importlib.metadata import PackageNotFoundError, version

from hf_memaug.cli.recipes import SET_BY_THE_COMMAND
from hf_memaug.messages import did_you_mean
from hf_memaug.registry import BACKBONES, FAMILIES
from hf_memaug.runs.errors import UsageError
from hf_memaug.runs.settings import TRAINERS, Setting, model_settings, settings_of, trainer_settings
from hf_memaug_cli.options import DataOptions

COLUMNS = "columns"
NEEDED = ("torch", "transformers", "accelerate", "safetensors", "tokenizers", "huggingface_hub", "typer", "numpy")
# Optional packages: what they are for, and how to install them.
OPTIONAL = {
    "datasets": ("datasets of the hub", "pip install datasets"),
    "pandas": ("Parquet", "pip install pandas pyarrow"),
    "scikit-learn": ("scores and t-SNE", "pip install scikit-learn"),
    "pillow": ("images", "pip install pillow"),
    "peft": ("LoRA", "pip install peft"),
    "tensorboard": ("TensorBoard logs", "pip install 'hf_memaug[logs]'"),
    "matplotlib": ("figures", "pip install 'hf_memaug[report]'"),
    "torch-geometric": ("graphs of PyG", "pip install 'hf_memaug[graph]'"),
    "rdkit": ("molecules", "pip install 'hf_memaug[graph]'"),
    "gradio": ("`hf-memaug app`", "pip install 'hf_memaug[app]'"),
}


def environment(call) -> int:
    import torch
    from huggingface_hub import constants

    from hf_memaug import __version__

    versions = {"hf_memaug": __version__, "python": platform.python_version(), "system": platform.platform()}
    missing = {}
    for name in (*NEEDED, *OPTIONAL):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            missing[name] = OPTIONAL.get(name, ("required", f"pip install {name}"))
    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    devices = [f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus]
    devices += ["Apple GPU"] if torch.backends.mps.is_available() else []
    facts = {
        "devices": devices or ["CPU"],
        "cores": os.cpu_count(),
        "hub": "offline (HF_HUB_OFFLINE)" if constants.HF_HUB_OFFLINE else constants.ENDPOINT,
    }
    if call.options.json:
        print(json.dumps({"versions": versions, **facts, "missing": missing}, indent=2))
        return 0
    width = max(map(len, versions)) + 2
    for name, value in {**versions, **facts, "devices": ", ".join(facts["devices"])}.items():
        print(f"{name:<{width}}{value}")
    for name, (what, how) in missing.items():
        print(f"\nmissing: {name} ({what})\n  {how}")
    return 0


def list_options(call) -> int:
    name = call.arguments["name"]
    known = (COLUMNS, *TRAINERS, *FAMILIES, *BACKBONES)
    if name is not None and name not in known:
        raise UsageError(f"`name` is {name!r}. {did_you_mean(name, known, 'Choose ')}")
    if name is None:
        for one in known:
            names = " ".join(setting.option for setting in _listed(one, everything=False))
            print(f"\n{one}")
            print(textwrap.fill(names, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
        print("\n`hf-memaug options NAME` lists those of NAME with their defaults and help.")
        return 0
    print(f"\n{name}")
    for one in _listed(name, everything=True):
        default = "" if one.default is None else f" (default: {one.default})"
        print(f"  {one.option} {one.type_name}{default}")
        if one.help:
            print(textwrap.fill(one.help, 100, initial_indent="      ", subsequent_indent="      "))
    return 0


def _listed(name: str, everything: bool) -> list[Setting]:
    """The options of `name`. In the list of all, those of `TrainingArguments` are under masked_lm only."""
    if name == COLUMNS:
        hidden = DataOptions.__dataclass_fields__
        return [one for one in settings_of(DataOptions).values() if hidden[one.name].metadata["hidden"]]
    found = trainer_settings(name) if name in TRAINERS else model_settings(name)
    left_out = set(SET_BY_THE_COMMAND)
    if not everything and name in TRAINERS and name != "masked_lm":
        left_out |= set(trainer_settings("masked_lm"))
    return [one for one in found.values() if one.name not in left_out]
