# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The app as a folder that can be pushed to the hub as a Space."""

import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hf_memaug.files import render
from hf_memaug.hub.publishing import published_files
from hf_memaug.inference import load_predictor
from hf_memaug.inference.checkpoints import adapter_base, beside_checkpoint, checked_kind, read_config
from hf_memaug.registry import FAMILIES

# Where a copy of the checkpoint lies in the folder.
COPY = "checkpoint"
# The version that was tested, where Gradio is not installed here.
_GRADIO = "6.31.0"


def write_space(
    checkpoint: str | os.PathLike,
    folder: str | os.PathLike,
    baseline: str | os.PathLike | None = None,
    rows: bool = False,
) -> Path:
    """
    Writes `app.py`, `requirements.txt` and `README.md` of a Space that serves the checkpoint. Gives the folder.

    Args:
        checkpoint (`str`):
            A repository of the hub, which the Space loads by name, or a folder, which is copied into the Space; of an
            adapter, the merged model.
        folder (`str`):
            Where to write: a folder that is new, empty, or an earlier Space of this function.
        baseline (`str`, *optional*):
            A repository of the hub with the plain model, whose answer is shown beside.
        rows (`bool`, *optional*, defaults to `False`):
            Whether `features.npz`, with the texts that lie beside the checkpoint, is copied too. A Space is public
            unless you say otherwise: with it, so are these texts.
    """
    name, folder = os.fspath(checkpoint), Path(folder)
    config = read_config(name)
    checked_kind(config, name)
    if baseline is not None and os.path.isdir(baseline):
        raise ValueError(
            f"`baseline`: {os.fspath(baseline)!r} is a folder, and a Space can load only what is on the hub. Push it "
            "first, and give its name."
        )
    _check_folder(folder)
    if os.path.isdir(name) and folder.resolve().is_relative_to(Path(name).resolve()):
        raise ValueError(f"`folder`: {str(folder)!r} lies inside the checkpoint. Choose one outside of it.")
    folder.mkdir(parents=True, exist_ok=True)
    # The copy first: a folder with an `app.py` is whole.
    is_copy = os.path.isdir(name)
    if is_copy:
        _copy(Path(name), folder / COPY, rows, is_adapter=adapter_base(name) is not None)
    values = {
        "config": config,
        "architecture": (config.architectures or [config.model_type])[0],
        "family": FAMILIES.get(config.model_type),
        "title": _title(Path(name).resolve() if is_copy else Path(name)),
        "name": None if is_copy else name,
        "copy": COPY,
        "baseline": None if baseline is None else os.fspath(baseline),
        "gradio": _installed("gradio") or _GRADIO,
    }
    (folder / "requirements.txt").write_text(_requirements(config), encoding="utf-8")
    for file in ("README.md", "app.py"):
        (folder / file).write_text(render(__package__, f"space.{file}.jinja", **values), encoding="utf-8")
    return folder


def _title(path: Path) -> str:
    return path.parent.name if path.name == COPY else path.name


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`folder`: {str(folder)!r} is a file. Give the name of a folder.")
    app = folder / "app.py"
    ours = app.is_file() and "Made by hf_memaug" in app.read_text(encoding="utf-8")
    if folder.exists() and any(folder.iterdir()) and not ours:
        raise ValueError(f"`folder`: {str(folder)!r} is not empty. Give a new one: nothing is overwritten.")


def _copy(checkpoint: Path, into: Path, rows: bool, is_adapter: bool) -> None:
    # Before anything is removed: loading may fail.
    whole = load_predictor(checkpoint) if is_adapter else None
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    if whole is not None:
        # The model below an adapter may lie in a folder that no Space can see.
        for part in filter(None, (whole.model, whole.processor)):
            part.save_pretrained(into)
    for path in () if is_adapter else published_files(checkpoint)[0]:
        shutil.copy2(path, into / path.name)
    for file in ("memory.json", *(("features.npz",) if rows else ())):
        found = beside_checkpoint(str(checkpoint), file)
        if found is not None and not found.is_symlink():
            shutil.copy2(found, into / file)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _requirements(config) -> str:
    import hf_memaug

    # Molecules are read by RDKit.
    extras = "app,graph" if config.architectures[0].endswith("ForGraphClassification") else "app"
    lines = [f"hf_memaug[{extras}]=={hf_memaug.__version__}"]
    for package in ("torch", "transformers"):
        number = _installed(package)
        if number is not None:
            # "+cpu" and its like are builds that the index may not have.
            lines.append(f"{package}=={number.split('+')[0]}")
    return "\n".join(lines) + "\n"
