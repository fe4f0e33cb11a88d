# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The hidden states of a frozen general encoder, computed once for each row and kept on disk (G-MAP).

A cache is a folder of safetensors files in fp16 and a `cache.json` that says what it was made of. A cache of another
encoder, of other rows or of other layers raises an error.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from hf_memaug.files import write_atomically

ROWS_PER_FILE = 1024
MANIFEST = "cache.json"
COLUMN = "general_hidden_states"
_ENCODER_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
# The same weights and tokens give other states under another value of these (BERT, RoBERTa and GPT-2).
_CONFIGURATION = (
    "model_type num_attention_heads hidden_act activation_function layer_norm_eps layer_norm_epsilon pad_token_id "
    "scale_attn_weights scale_attn_by_inverse_layer_idx"
).split()


class CachedRows(torch.utils.data.Dataset):
    """Rows with `general_hidden_states` of shape `(layers, tokens, width)`, read from the cache on access."""

    def __init__(self, rows, folder: str | os.PathLike, indices: Sequence[int] | None = None):
        self.rows, self.folder = rows, Path(folder)
        self.manifest = _read_manifest(self.folder)
        self.indices = range(len(rows)) if indices is None else list(indices)
        starts = np.cumsum([0, *self.manifest["tokens"]])
        self._starts = starts - starts[np.arange(len(starts)) // ROWS_PER_FILE * ROWS_PER_FILE]
        self._open: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key):
        if isinstance(key, str):
            return _column(self.rows, key)
        key = range(len(self))[key]
        return {**self.rows[key], COLUMN: self.states(self.indices[key])}

    def __getstate__(self):
        # Worker processes open the files themselves.
        return {**self.__dict__, "_open": {}}

    @property
    def column_names(self) -> list[str]:
        return [*getattr(self.rows, "column_names", self.rows[0]), COLUMN]

    def select(self, indices) -> "CachedRows":
        """The rows with these indices, with their states."""
        indices = list(indices)
        rows = [self.rows[index] for index in indices] if isinstance(self.rows, list) else self.rows.select(indices)
        return CachedRows(rows, self.folder, [self.indices[index] for index in indices])

    def check_model(self, model) -> None:
        """Raises an error if the states are of another general encoder than the model's."""
        encoders = _encoders_of(model)
        if encoders is None or _is_sharded(encoders.general):
            return
        _check_frozen(encoders)
        if _encoder_digest(encoders.general) != self.manifest["general"]:
            raise ValueError(
                f"The cached states of {self.folder} are of another general encoder than the model's. Call "
                "`cache_general_states(model, rows, folder)` with this model and a new folder."
            )

    def states(self, row: int) -> torch.Tensor:
        """`(layers, tokens, width)` of a row of the cache."""
        from safetensors import safe_open

        number = row // ROWS_PER_FILE
        if number not in self._open:
            self._open[number] = safe_open(self.folder / _file_name(number), framework="pt").get_slice("states")
        start = int(self._starts[row])
        return self._open[number][start : start + self.manifest["tokens"][row]].transpose(0, 1)


def cache_general_states(
    model, rows, folder: str | os.PathLike, *, batch_size: int = 64, progress: bool = True
) -> CachedRows:
    """
    Runs the general encoder over tokenized rows and stores its states, or reuses the states that are stored already.
    To resume an interrupted call, repeat it. Several processes may fill one cache at once.

    Args:
        model: a G-MAP model with a frozen general encoder.
        rows: tokenized rows, such as a `DomainDataset`.
        folder: the folder of the cache; each set of rows needs its own.
    """
    from tqdm.auto import tqdm

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
        "rows": _rows_digest(rows),
        # Strategies that read the same layers share a cache.
        "layers": encoders.config.states_read,
        "tokens": [len(ids) for ids in _column(rows, "input_ids")],
    }
    _check_manifest(folder, manifest)
    shape = [len(manifest["layers"]), encoders.config.hidden_size]
    starts = range(0, len(rows), ROWS_PER_FILE)
    with tqdm(total=len(rows), desc="General states", unit="row", disable=not progress) as bar:
        for number, start in enumerate(starts):
            some, path = range(start, min(start + ROWS_PER_FILE, len(rows))), folder / _file_name(number)
            if not path.exists():
                states = _states_of(encoders, rows, some, batch_size)
                if not (folder / MANIFEST).exists():
                    write_atomically(folder / MANIFEST, json.dumps(manifest) + "\n")
                _save(path, states)
            _check_file(path, [sum(manifest["tokens"][row] for row in some), *shape])
            bar.update(len(some))
    return CachedRows(rows, folder)


def cached_parts(rows) -> Iterator[CachedRows]:
    """The `CachedRows` inside a data set, also inside `Subset` and `ConcatDataset`."""
    if isinstance(rows, CachedRows):
        yield rows
    elif isinstance(rows, torch.utils.data.Subset):
        yield from cached_parts(rows.dataset)
    elif isinstance(rows, torch.utils.data.ConcatDataset):
        for part in rows.datasets:
            yield from cached_parts(part)


class GeneralStatesCollator:
    """
    Wraps a collator that pads on the right, and pads the states of cached rows like the tokens. A batch of rows without
    cached states passes unchanged, and the general encoder runs on it.
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
        padded = rows[0][COLUMN].new_zeros(len(rows), layers, ids.shape[1], width)
        for number, row in enumerate(rows):
            tokens = torch.as_tensor(row["input_ids"])
            if not torch.equal(ids[number, : len(tokens)], tokens):
                raise ValueError(
                    "`collator` pads on the left or changes the tokens, as masking does, and the cached states are of "
                    'the tokens before. Set `tokenizer.padding_side = "right"`, or train without a cache.'
                )
            padded[number, :, : len(tokens)] = row[COLUMN]
        return {**batch, COLUMN: padded}


@torch.no_grad()
def _states_of(encoders, rows, some: range, batch_size: int) -> torch.Tensor:
    """`(tokens, layers, width)` of some rows, one after the other."""
    device, pad = encoders.general.device, encoders.config.pad_token_id or 0
    found: dict[int, torch.Tensor] = {}
    # Rows of similar length together: padding costs as much as tokens do.
    order = sorted(some, key=lambda row: len(rows[row]["input_ids"]))
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        ids = [torch.as_tensor(rows[row]["input_ids"]) for row in chosen]
        inputs = {"input_ids": pad_sequence(ids, True, pad)}
        inputs["attention_mask"] = pad_sequence([torch.ones_like(one) for one in ids], True)
        for name in ("attention_mask", "token_type_ids"):
            if name in rows[0]:
                inputs[name] = pad_sequence([torch.as_tensor(rows[row][name]) for row in chosen], True)
        states = encoders.general_states(**{name: value.to(device) for name, value in inputs.items()})
        stacked = torch.stack([states[layer - 1] for layer in encoders.config.states_read], dim=2)
        stacked = stacked.to("cpu", torch.float16)
        for row, tokens, state in zip(chosen, ids, stacked, strict=True):
            found[row] = state[: len(tokens)]
            if not found[row].isfinite().all():
                raise ValueError(
                    f"The general encoder's states of row {row} are not finite in fp16, the precision of the cache. "
                    "Train without a cache."
                )
    return torch.cat([found[row] for row in some])


def _save(path: Path, states: torch.Tensor) -> None:
    from safetensors.torch import save_file

    # Renamed when it is complete: a file with its final name is never half written.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    save_file({"states": states}, temporary)
    os.replace(temporary, path)


def _check_manifest(folder: Path, manifest: dict) -> None:
    if not (folder / MANIFEST).exists():
        # A hidden file may be a manifest that another process is writing.
        if folder.exists() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise ValueError(f"`folder` {folder} holds something else than a cache. Choose an empty or a new one.")
        return
    stored = _read_manifest(folder)
    reasons = {
        "general": "another general encoder",
        "rows": "other rows, or the same rows by another tokenizer",
        "layers": f"the layers {stored.get('layers')}, and the model's strategy reads {manifest['layers']}",
    }
    for name, what in reasons.items():
        if stored.get(name) != manifest[name]:
            raise ValueError(f"`folder` {folder} holds a cache of {what}. Choose another folder, or delete this one.")


def _read_manifest(folder: Path) -> dict:
    try:
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"`folder` {folder}: {MANIFEST} is broken. Delete this folder and build the cache again."
        ) from error


def _check_file(path: Path, shape: list[int]) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            found = file.get_slice("states").get_shape()
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is broken ({error}). Delete that file.") from error
    if found != shape:
        raise ValueError(f"{path} has tokens, layers and width {found}, not {shape}. Delete that file.")


def _encoders_of(model):
    """The pair of encoders of a G-MAP model, also inside an adapter or another wrapper; None if there is none."""
    return next((module for module in model.modules() if hasattr(module, "general_states")), None)


def _column(rows, name: str) -> Sequence:
    return [row[name] for row in rows] if isinstance(rows, list) else rows[name]


def _file_name(number: int) -> str:
    return f"states-{number:05d}.safetensors"


def _check_frozen(encoders) -> None:
    trains = any(parameter.requires_grad for parameter in encoders.general.parameters())
    if trains or not encoders.config.freeze_general:
        raise ValueError(
            "`model` trains its general encoder, so that its states change. Keep it with `freeze_general=True`."
        )


def _is_sharded(encoder) -> bool:
    """Whether FSDP or DeepSpeed spread its weights over processes, so that they cannot be compared here."""
    fsdp = any(getattr(module, "_is_fsdp_managed_module", False) for module in encoder.modules())
    return fsdp or any(hasattr(parameter, "ds_id") for parameter in encoder.parameters())


def _encoder_digest(encoder) -> str:
    digest = hashlib.sha256(repr([getattr(encoder.config, name, None) for name in _CONFIGURATION]).encode())
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _rows_digest(rows) -> str:
    digest = hashlib.sha256()
    for name in _ENCODER_INPUTS:
        if name in rows[0]:
            digest.update(name.encode())
            for values in _column(rows, name):
                digest.update(len(values).to_bytes(8, "little"))
                digest.update(np.asarray(values, dtype=np.int64).tobytes())
    return digest.hexdigest()
