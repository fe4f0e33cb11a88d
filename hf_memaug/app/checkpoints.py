# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the app serves: a checkpoint with its tokenizer or image processor, and what lies beside it."""

import importlib.util
import json
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.app.adapters import adapter_base, merged, refuse_plain_base
from hf_memaug.app.errors import NotServed
from hf_memaug.registry import FAMILIES

# What a class is served as, by the end of its name.
TASKS = {
    "ForSequenceClassification": "classification",
    "ForPromptClassification": "classification",
    "ForImageClassification": "classification",
    "ForGraphClassification": "classification",
    "ForTokenClassification": "tags",
    "ForQuestionAnswering": "questions",
    "ForMaskedLM": "words",
    "ForConditionalGeneration": "generation",
}
_MODALITIES = {"pixel_values": "image", "node_features": "graph"}
# More letters than any model here reads: counting their tokens alone would take long.
MOST_LETTERS = 100_000


@dataclass(frozen=True)
class Beside:
    """
    What training has left beside a checkpoint; everything may be missing.

    Args:
        memory: `memory.json`: who reads which slot or expert.
        texts, domains, labels: of the rows of `features.npz`.
    """

    memory: dict[str, Any] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoint:
    """
    Args:
        name: the folder or the repository, as it was given.
        model: in evaluation, in float32.
        processor: its tokenizer or image processor; of graphs None.
        modality: "text", "image" or "graph".
        task: one of `TASKS`.
        most_tokens: the longest text it takes; None where nothing says.
        pairs: whether a second text is "none", "optional" or "needed".
        base: where `name` holds an adapter, the model it was merged into.
    """

    name: str
    model: Any
    processor: Any
    modality: str
    task: str
    most_tokens: int | None = None
    pairs: str = "none"
    beside: Beside = field(default_factory=Beside)
    base: str | None = None

    @property
    def config(self):
        return self.model.config

    @property
    def is_ours(self) -> bool:
        return self.config.model_type in FAMILIES

    @property
    def labels(self) -> list[str]:
        return [str(self.config.id2label[number]) for number in range(self.config.num_labels)]

    @property
    def title(self) -> str:
        """The last part of its name; "checkpoint" is what every run folder calls it."""
        parts = Path(self.name).resolve().parts if os.path.isdir(self.name) else tuple(self.name.split("/"))
        return parts[-2] if parts[-1] == "checkpoint" and len(parts) > 1 else parts[-1]


def load_checkpoint(name_or_path: str | os.PathLike, argument: str = "checkpoint", ours: bool = True) -> Checkpoint:
    """
    Args:
        name_or_path: a folder or a repository of the hub.
        argument: what errors call it.
        ours: whether it must be of this library; a baseline may be any classifier of transformers.
    """
    import torch
    import transformers

    import hf_memaug

    name = os.fspath(name_or_path)
    config = read_config(name, argument)
    task = served_task(config, name, argument, ours)
    architecture, is_ours = config.architectures[0], config.model_type in FAMILIES
    base = adapter_base(name, argument)
    try:
        package = hf_memaug if is_ours else transformers
        model = getattr(package, architecture).from_pretrained(base or name, dtype=torch.float32)
    except (AttributeError, OSError, ValueError) as error:
        raise NotServed(f"`{argument}`: {name!r} cannot be loaded as a `{architecture}`: {error}") from error
    if base is not None:
        model = merged(model, name, argument)
    modality = _MODALITIES.get(model.main_input_name, "text")
    processor = None if modality == "graph" else _processor(name, base, argument, modality)
    if task == "words" and processor.mask_token is None:
        raise NotServed(f"`{argument}`: the tokenizer of {name!r} has no mask token, and the model fills masks.")
    pairs = "needed" if task == "questions" else "none"
    if modality == "text" and task == "classification":
        # A recurrent network is built for one text or for two; an encoder takes both.
        pairs = {True: "needed", False: "none", None: "optional"}[getattr(config, "sentence_pairs", None)]
    return Checkpoint(
        name=name,
        model=model.eval().to("cuda" if torch.cuda.is_available() else "cpu"),
        processor=processor,
        modality=modality,
        task=task,
        most_tokens=_most_tokens(config, processor) if modality == "text" else None,
        pairs=pairs,
        beside=read_beside(name) if is_ours else Beside(),
        base=base,
    )


def served_task(config, name: str, argument: str, ours: bool = True) -> str:
    """What a checkpoint is served as; refuses one that is not."""
    architecture = (config.architectures or [""])[0]
    task = next((task for end, task in TASKS.items() if architecture.endswith(end)), None)
    if ours and config.model_type not in FAMILIES:
        raise NotServed(
            f"`{argument}`: {name!r} is a `{config.model_type}`, which is no model of hf_memaug (it has: "
            f"{', '.join(FAMILIES)}). Give one of these; a plain model goes into `baseline`."
        )
    if task is None or (not ours and task == "generation"):
        wanted = "classify texts, pictures or molecules, tag words, answer questions, fill masks"
        wanted += " or answer texts with texts" if ours else ""
        raise NotServed(
            f"`{argument}`: {name!r} is a `{architecture or config.model_type}`, and the app serves models that "
            f"{wanted}. Give a checkpoint of such a class, e.g. `...ForSequenceClassification`."
        )
    if architecture.endswith("ForGraphClassification"):
        _check_molecules(config, name, argument)
    return task


def _check_molecules(config, name: str, argument: str) -> None:
    """A graph can be typed only as the SMILES of a molecule, whose features are those of `graph_from_smiles`."""
    from hf_memaug.data.molecules import ATOM_VOCAB_SIZES, BOND_VOCAB_SIZES

    if importlib.util.find_spec("rdkit") is None:
        raise NotServed(
            f"`{argument}`: {name!r} reads molecules, for which RDKit is missing: `pip install hf_memaug[graph]`."
        )
    backbone = getattr(config, "backbone_config", None)
    atoms, bonds = (getattr(backbone, f"{what}_vocab_sizes", None) for what in ("node", "edge"))
    if atoms is None or list(atoms) != ATOM_VOCAB_SIZES or list(bonds or ()) not in ([], BOND_VOCAB_SIZES):
        raise NotServed(
            f"`{argument}`: {name!r} reads graphs that are no molecules of `graph_from_smiles` (its nodes have "
            f"features of the sizes {None if atoms is None else list(atoms)}, atoms {ATOM_VOCAB_SIZES}), and no other "
            "graph can be typed into a page. Ask it in Python, with `GraphCollator`."
        )


def read_config(name: str, argument: str):
    import transformers

    import hf_memaug  # noqa: F401 (registers the families)

    base = adapter_base(name, argument)
    if base is not None:
        try:
            config = read_config(base, argument)
        except NotServed as error:
            raise NotServed(f"`{argument}`: {name!r} holds an adapter of {base!r}. {error}") from error
        if config.model_type not in FAMILIES:
            raise refuse_plain_base(name, base, config.model_type, argument)
        return config
    if os.path.isdir(name) and not (Path(name) / "config.json").is_file():
        inner = sorted(str(path.parent) for path in Path(name).glob("**/checkpoint/config.json"))
        mend = f"Did you mean {inner[0]!r}?" if inner else "Give the folder that `save_pretrained` has written."
        raise NotServed(f"`{argument}`: {name!r} has no `config.json`. {mend}")
    try:
        return transformers.AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        is_path = os.path.isabs(name) or name.startswith(".") or name.count("/") > 1
        found = "is no folder here" if is_path else "is neither a folder here nor a repository that could be read"
        if os.path.isdir(name):
            found = f"has a `config.json` that cannot be read ({str(error).splitlines()[0]})"
        raise NotServed(
            f"`{argument}`: {name!r} {found}. Give the folder of a checkpoint, or the name of one on the hub."
        ) from error


def _processor(name: str, base: str | None, argument: str, modality: str):
    from transformers import AutoImageProcessor, AutoTokenizer

    auto_class, kind = (AutoImageProcessor, "image processor") if modality == "image" else (AutoTokenizer, "tokenizer")
    # Beside an adapter there may be none: then that of its model.
    for source in (name, *([base] if base is not None else [])):
        try:
            found = auto_class.from_pretrained(source)
        except (OSError, ValueError):
            continue
        # Where there are no files, transformers makes a tokenizer of special tokens alone.
        if modality == "image" or len(found) > len(set(found.all_special_ids)):
            return found
    raise NotServed(
        f"`{argument}`: {name!r} has no {kind} that can be read. Save the one it was trained with there: "
        "`processor.save_pretrained(...)`."
    )


def _most_tokens(config, tokenizer) -> int | None:
    """By the tokenizer and by the encoder's positions, whichever is less."""
    limits = [tokenizer.model_max_length] if tokenizer.model_max_length < 1_000_000 else []
    encoder = config.get_text_config()
    positions = getattr(encoder, "max_position_embeddings", None)
    if isinstance(positions, int):
        # RoBERTa's positions begin behind that of the padding.
        kind = encoder.model_type
        limits.append(
            positions - (encoder.pad_token_id or 0) - 1 if kind.startswith(("roberta", "xlm-r")) else positions
        )
    return min(limits) if limits else None


def read_beside(name: str) -> Beside:
    """`memory.json` and `features.npz` of a folder, of the job's folder around it, or of a repository."""
    memory, arrays, warnings = {}, {}, []
    path = beside_file(name, "memory.json")
    if path is not None:
        try:
            memory = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(memory, dict):
                raise ValueError("it is no object")
        except (OSError, ValueError) as error:
            memory = {}
            warnings.append(f"`memory.json` cannot be read and is left aside: {error}")
    path = beside_file(name, "features.npz")
    if path is not None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {
                    key: [str(one) for one in stored[key]] for key in ("text", "domain", "label") if key in stored
                }
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            arrays = {}
            warnings.append(f"`features.npz` cannot be read and is left aside: {error}")
    texts = arrays.get("text", [])
    domains, labels = (
        arrays.get(key, []) if len(arrays.get(key, [])) == len(texts) else [] for key in ("domain", "label")
    )
    return Beside(memory, tuple(texts), tuple(domains), tuple(labels), tuple(warnings))


def beside_file(name: str, file: str) -> Path | None:
    if os.path.isdir(name):
        folder = Path(name)
        # A run folder has them one level up: jobs/NAME/checkpoint and jobs/NAME/memory.json.
        around = [folder.resolve().parent] if folder.resolve().name == "checkpoint" else []
        return next((one / file for one in (folder, *around) if (one / file).is_file()), None)
    from transformers.utils import cached_file

    try:
        found = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    except OSError:
        return None
    return Path(found) if found else None
