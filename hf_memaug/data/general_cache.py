# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The hidden states of a frozen general encoder, computed once for each row and kept on disk (G-MAP).

They never change, so that training and evaluation need not run it again. A cache is a folder of safetensors files,
fp16, and a `cache.json` that says what it was made of: another encoder, other tokens or other layers are refused.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROWS_A_FILE = 1024
MANIFEST = "cache.json"
COLUMN = "general_hidden_states"
_READ_BY_ENCODERS = ("input_ids", "token_type_ids", "attention_mask")
# What the same weights make of the same tokens depends on these, as BERT, RoBERTa and GPT-2 call them.
_CONFIGURATION = (
    "model_type num_attention_heads hidden_act activation_function layer_norm_eps layer_norm_epsilon pad_token_id "
    "scale_attn_weights scale_attn_by_inverse_layer_idx"
).split()


# Encoders whose places count padding: behind some, a text reads otherwise.
_COUNTS_PADDING = ("bert", "gpt2")


class CachedRows(torch.utils.data.Dataset):
    """Rows with a `general_hidden_states` of `(layers, tokens, width)`, read from the cache when a row is asked for."""

    def __init__(self, rows, folder: str | os.PathLike, indices: Sequence[int] | None = None):
        self.rows, self.folder = rows, Path(folder)
        self.manifest = _read_manifest(self.folder / MANIFEST)
        self.indices = range(len(rows)) if indices is None else list(indices)
        starts = np.cumsum([0, *self.manifest["tokens"]])
        self._starts = starts - starts[np.arange(len(starts)) // ROWS_A_FILE * ROWS_A_FILE]
        self._open: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key):
        if isinstance(key, str):
            return _column(self.rows, key)
        key = range(len(self))[key]
        return {**self.rows[key], COLUMN: self.states(self.indices[key])}

    def __getstate__(self):
        # Workers open the files themselves.
        return {**self.__dict__, "_open": {}}

    @property
    def column_names(self) -> list[str]:
        return [*getattr(self.rows, "column_names", self.rows[0]), COLUMN]

    def select(self, indices) -> "CachedRows":
        """Some of the rows, with their states."""
        indices = list(indices)
        rows = [self.rows[index] for index in indices] if isinstance(self.rows, list) else self.rows.select(indices)
        return CachedRows(rows, self.folder, [self.indices[index] for index in indices])

    def check_model(self, model) -> None:
        """Refuses a model with another general encoder than the states are of; one without any may read them."""
        encoders = _encoders_of(model)
        if encoders is None or not _is_whole(encoders.general):
            return
        _check_frozen(encoders)
        if _encoder_digest(encoders.general) != self.manifest["general"]:
            raise ValueError(
                f"The cached states of {self.folder} are of another general encoder than the model's. Ask for them "
                "with the model that reads them: `cache_general_states(model, rows, folder)`, with a folder of its own."
            )

    def states(self, row: int) -> torch.Tensor:
        """`(layers, tokens, width)` of a row of the cache."""
        from safetensors import safe_open

        number = row // ROWS_A_FILE
        if number not in self._open:
            self._open[number] = safe_open(self.folder / _file_name(number), framework="pt").get_slice("states")
        start = int(self._starts[row])
        found = self._open[number][start : start + self.manifest["tokens"][row]].transpose(0, 1)
        # For the collator, which pads them.
        found.is_of_first_places = self.manifest.get("model_type") in _COUNTS_PADDING
        return found


def cache_general_states(
    model, rows, folder: str | os.PathLike, *, batch_size: int = 64, progress: bool = True
) -> CachedRows:
    """
    Runs the general encoder over tokenized rows, or takes up a cache that was made so before; one that was broken off
    goes on where it stopped. Several processes may build one cache at once: each takes over the files that are there.

    Args:
        model: a G-MAP model; its general encoder is frozen.
        rows: tokenized rows, such as a `DomainDataset`.
        folder: where the cache lies, or will lie: one for each set of rows.
    """
    encoders = _encoders_of(model)
    if encoders is None:
        raise TypeError(
            f"`model` is a `{type(model).__name__}`, which has no general encoder. Give a G-MAP model, from "
            "`from_general_and_domain(...)`."
        )
    _check_frozen(encoders)
    if len(rows) == 0 or "input_ids" not in rows[0]:
        raise ValueError("`rows` must be tokenized and not empty: use `rows.tokenize(tokenizer)`.")
    folder = Path(folder)
    manifest = {
        "general": _encoder_digest(encoders.general),
        "model_type": encoders.config.general.model_type,
        "rows": _rows_digest(rows),
        # Strategies that read the same share a cache.
        "layers": encoders.config.states_read,
        "tokens": [len(ids) for ids in _column(rows, "input_ids")],
    }
    _check_manifest(folder, manifest)
    files = -(-len(rows) // ROWS_A_FILE)
    missing = [number for number in range(files) if not (folder / _file_name(number)).exists()]
    if missing:
        try:
            _write(encoders, rows, folder, missing, batch_size, progress)
        except Exception:
            if len(missing) == files and not any((folder / _file_name(number)).exists() for number in missing):
                # Nothing is there of these rows: the folder takes others, such as the same when they are mended.
                (folder / MANIFEST).unlink(missing_ok=True)
            raise
    _check_files(folder, manifest["tokens"], files, [len(manifest["layers"]), encoders.config.hidden_size])
    return CachedRows(rows, folder)


def cached_parts(rows) -> Iterator[CachedRows]:
    """The cached rows that a data set consists of, or that it takes some of."""
    if isinstance(rows, CachedRows):
        yield rows
    elif isinstance(rows, torch.utils.data.Subset):
        yield from cached_parts(rows.dataset)
    elif isinstance(rows, torch.utils.data.ConcatDataset):
        for part in rows.datasets:
            yield from cached_parts(part)


class GeneralStatesCollator:
    """
    Wraps any collator that pads: what it does not know, the states of cached rows, is padded like the tokens and
    stacked. One that changes tokens is refused: the states are of the tokens as they were. A batch of rows that are not
    cached is left as it is, and the general encoder reads it: dev rows need no cache beside cached training rows.
    """

    def __init__(self, collator: Callable):
        self.collator = collator

    def __call__(self, rows: list[dict]) -> dict:
        batch = self.collator([{name: value for name, value in row.items() if name != COLUMN} for row in rows])
        cached = sum(COLUMN in row for row in rows)
        if not cached:
            return batch
        if cached < len(rows):
            raise ValueError(
                "A batch has rows with cached states and rows without. Cache all rows of a set with "
                "`cache_general_states`, or none."
            )
        ids = batch["input_ids"]
        layers, _, width = rows[0][COLUMN].shape
        stacked = rows[0][COLUMN].new_zeros(len(rows), layers, ids.shape[1], width)
        for number, row in enumerate(rows):
            tokens = torch.as_tensor(row["input_ids"])
            count = len(tokens)
            start = next(
                (at for at in (0, ids.shape[1] - count) if torch.equal(ids[number, at : at + count], tokens)), None
            )
            if start is None:
                raise ValueError(
                    "`collator` changes the tokens, as masking does, and the cached states are of those before. Train "
                    "without a cache, or with a collator that only pads."
                )
            if start and getattr(row[COLUMN], "is_of_first_places", False):
                raise ValueError(
                    "`collator` pads on the left, and the cached states are of an encoder that counts places from "
                    'there: they would not be those of this batch. Set `tokenizer.padding_side = "right"`.'
                )
            stacked[number, :, start : start + count] = row[COLUMN]
        return {**batch, COLUMN: stacked}


@torch.no_grad()
def _write(encoders, rows, folder: Path, missing: list[int], batch_size: int, progress: bool) -> None:
    from safetensors.torch import save_file
    from tqdm.auto import tqdm

    device = encoders.general.device
    pad = encoders.config.pad_token_id or 0
    total = sum(min(ROWS_A_FILE, len(rows) - number * ROWS_A_FILE) for number in missing)
    bar = tqdm(total=total, desc="General states", unit="row", disable=not progress)
    for number in missing:
        path = folder / _file_name(number)
        some = range(number * ROWS_A_FILE, min((number + 1) * ROWS_A_FILE, len(rows)))
        if path.exists():
            # Another process was faster.
            bar.update(len(some))
            continue
        found: dict[int, torch.Tensor] = {}
        # Rows of like length together: padding costs as much as tokens do.
        order = sorted(some, key=lambda row: len(rows[row]["input_ids"]))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            length = max(len(rows[row]["input_ids"]) for row in chosen)
            inputs = {
                name: torch.full((len(chosen), length), pad if name == "input_ids" else 0)
                for name in _READ_BY_ENCODERS
                if name in rows[0] or name == "attention_mask"
            }
            for place, row in enumerate(chosen):
                count = len(rows[row]["input_ids"])
                for name, values in inputs.items():
                    values[place, :count] = torch.as_tensor(rows[row].get(name, [1] * count))
            states = encoders.general_states(**{name: value.to(device) for name, value in inputs.items()})
            kept = [states[layer - 1] for layer in encoders.config.states_read]
            stacked = torch.stack(kept, dim=2).to("cpu", torch.float16)
            for place, row in enumerate(chosen):
                found[row] = stacked[place, : len(rows[row]["input_ids"])]
            bar.update(len(chosen))
        broken = next((row for row in some if not found[row].isfinite().all()), None)
        if broken is not None:
            raise ValueError(
                f"The general encoder's states of row {broken} are no numbers, or larger than fp16, the cache's, can "
                "hold. Train without a cache."
            )
        whole = torch.cat([found[row] for row in some])
        with _name_of_its_own(path) as temporary:
            save_file({"states": whole}, temporary)
            os.replace(temporary, path)
    bar.close()


@contextmanager
def _name_of_its_own(path: Path) -> Iterator[Path]:
    """To write what then gets its name in one step: a file that is there is whole, however many processes write it."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _check_manifest(folder: Path, manifest: dict) -> None:
    path = folder / MANIFEST
    if not path.exists():
        _write_manifest(path, manifest)
    stored = _read_manifest(path)
    said = {
        "general": "another general encoder",
        "rows": "other rows, or the same rows by another tokenizer",
        "layers": f"the layers {stored.get('layers')}, and the model's strategy reads {manifest['layers']}",
        "tokens": "rows of other lengths",
    }
    for name, what in said.items():
        if stored.get(name) != manifest[name]:
            raise ValueError(f"`folder` {folder} holds a cache of {what}. Choose another folder, or delete this one.")


def _read_manifest(path: Path) -> dict:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise ValueError(
            f"`folder` {path.parent}: {path.name} is broken. Delete this folder, and the cache is made anew."
        )
    return stored


def _write_manifest(path: Path, manifest: dict) -> None:
    folder = path.parent
    # A manifest that another process is about to write is none of the user's files.
    filled = folder.exists() and any(not entry.name.startswith(f".{MANIFEST}.") for entry in folder.iterdir())
    if filled and not path.exists():
        raise ValueError(f"`folder` {folder} holds something else than a cache. Choose an empty or a new one.")
    folder.mkdir(parents=True, exist_ok=True)
    with _name_of_its_own(path) as temporary:
        temporary.write_text(json.dumps(manifest) + "\n", encoding="utf-8")
        try:
            # Unlike a renamed file, a link never takes the place of what another process has put there.
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:
            # A file system without links.
            os.replace(temporary, path)


def _check_files(folder: Path, tokens: list[int], files: int, of_a_token: list[int]) -> None:
    from safetensors import SafetensorError, safe_open

    for number in range(files):
        path = folder / _file_name(number)
        wanted = [sum(tokens[number * ROWS_A_FILE : (number + 1) * ROWS_A_FILE]), *of_a_token]
        try:
            with safe_open(path, framework="pt") as file:
                shape = file.get_slice("states").get_shape()
        except (SafetensorError, OSError) as error:
            raise ValueError(f"`folder` {folder}: {path.name} is broken ({error}). Delete that file.") from error
        if shape != wanted:
            raise ValueError(
                f"`folder` {folder}: {path.name} has tokens, layers and width {shape}, not {wanted}. Delete that file."
            )


def _encoders_of(model):
    """The pair of a G-MAP model, also inside an adapter or another wrapper; None where there is none."""
    return next((module for module in model.modules() if hasattr(module, "general_states")), None)


def _column(rows, name: str) -> Sequence:
    """Of a data set, or of a list of rows."""
    return [row[name] for row in rows] if isinstance(rows, list) else rows[name]


def _file_name(number: int) -> str:
    return f"states-{number:05d}.safetensors"


def _check_frozen(encoders) -> None:
    learns = any(parameter.requires_grad for parameter in encoders.general.parameters())
    if learns or not encoders.config.freeze_general:
        raise ValueError(
            "`model` trains its general encoder, so that its states change. Keep it with `freeze_general=True`."
        )


def _is_whole(encoder) -> bool:
    """Whether its weights lie here whole: those that FSDP or DeepSpeed spread over processes cannot be compared."""
    shared = any(getattr(module, "_is_fsdp_managed_module", False) for module in encoder.modules())
    return not shared and not any(hasattr(parameter, "ds_id") for parameter in encoder.parameters())


def _encoder_digest(encoder) -> str:
    digest = hashlib.sha256(repr([getattr(encoder.config, name, None) for name in _CONFIGURATION]).encode())
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _rows_digest(rows) -> str:
    digest = hashlib.sha256()
    for name in _READ_BY_ENCODERS:
        if name in rows[0]:
            digest.update(name.encode())
            for values in _column(rows, name):
                digest.update(len(values).to_bytes(8, "little"))
                digest.update(np.asarray(values, dtype=np.int64).tobytes())
    return digest.hexdigest()
