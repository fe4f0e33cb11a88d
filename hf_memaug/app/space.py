# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The app as a folder that can be pushed to the hub as a Space."""

import os
import shutil
from pathlib import Path

from hf_memaug import __version__
from hf_memaug.files import render
from hf_memaug.hub.provenance import library_versions
from hf_memaug.hub.publishing import copy_guard
from hf_memaug.inference import load_predictor
from hf_memaug.inference.checkpoints import beside_checkpoint, checked_kind, read_config
from hf_memaug.registry import FAMILIES

# Where a copy of the checkpoint lies in the folder.
COPY = "checkpoint"
# The version that is tested.
_GRADIO = "6.31.0"


def write_space(checkpoint: str | os.PathLike, folder: str | os.PathLike, rows: bool = False) -> Path:
    """
    Writes `app.py`, `requirements.txt` and `README.md` of a Space that serves the checkpoint. Gives the folder.

    Args:
        checkpoint: a repository of the hub, which the Space loads by name, or a folder, whose model is copied into the
            Space, with an adapter merged.
        folder: where to write: a folder that is new, empty, or an earlier Space of this function.
        rows: whether `features.npz`, with the texts that lie beside the checkpoint, is copied too. A Space is public
            unless you say otherwise: with it, so are these texts.
    """
    name, folder = os.fspath(checkpoint), Path(folder)
    config, is_copy = read_config(name), os.path.isdir(name)
    checked_kind(config, name)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`folder`: {str(folder)!r} is a file. Give the name of a folder.")
    app = folder / "app.py"
    is_ours = app.is_file() and "Made by hf_memaug" in app.read_text(encoding="utf-8")
    if folder.exists() and any(folder.iterdir()) and not is_ours:
        raise ValueError(f"`folder`: {str(folder)!r} is not empty. Give a new one: nothing is overwritten.")
    if is_copy and folder.resolve().is_relative_to(Path(name).resolve()):
        raise ValueError(f"`folder`: {str(folder)!r} lies inside the checkpoint. Choose one outside of it.")
    folder.mkdir(parents=True, exist_ok=True)
    # The copy first: a folder with an `app.py` is whole.
    if is_copy:
        _copy(name, folder / COPY, rows)
    path = Path(name).resolve() if is_copy else Path(name)
    values = {
        "config": config,
        "architecture": (config.architectures or [config.model_type])[0],
        "family": FAMILIES.get(config.model_type),
        "title": path.parent.name if path.name == COPY else path.name,
        "name": None if is_copy else name,
        "copy": COPY,
        "gradio": _GRADIO,
    }
    (folder / "requirements.txt").write_text(_requirements(config), encoding="utf-8")
    for file in ("README.md", "app.py"):
        (folder / file).write_text(render(__package__, f"space.{file}.jinja", **values), encoding="utf-8")
    return folder


def _copy(checkpoint: str, into: Path, rows: bool) -> None:
    # Before anything is removed: loading may fail.
    predictor = load_predictor(checkpoint, dtype="auto", device="cpu")
    shutil.rmtree(into, ignore_errors=True)
    for part in filter(None, (predictor.model, predictor.processor)):
        part.save_pretrained(into)
    copy_guard(predictor.model, into)
    for file in ("memory.json", *(["features.npz"] * rows)):
        found = beside_checkpoint(checkpoint, file)
        if found is not None and not found.is_symlink():
            shutil.copy2(found, into / file)


def _requirements(config) -> str:
    # Molecules are read by RDKit.
    extras = "app,graph" if config.architectures[0].endswith("ForGraphClassification") else "app"
    versions = library_versions()
    # "+cpu" and its like are builds that the index may not have.
    others = [f"{package}=={versions[package].split('+')[0]}" for package in ("torch", "transformers")]
    return "\n".join([f"hf_memaug[{extras}]=={__version__}", *others]) + "\n"
