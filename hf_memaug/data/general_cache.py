# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The hidden states of a frozen general encoder, computed once for each row and kept on disk (G-MAP).

A cache is a folder with the states in fp16 (`states.npy`) and a `cache.json` that says what they were made of. A cache
of another encoder, of other rows or of other layers raises an error.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm

from hf_memaug.data.hashing import feed
from hf_memaug.files import write_atomically

STATES = "states.npy"
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
        self.indices = range(len(rows)) if indices is None else list(indices)
        self.manifest, self._states = _open_cache(self.folder)
        self._ends = np.cumsum(self.manifest["tokens"])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key):
        if isinstance(key, str):
            return _column(self.rows, key)
        key = range(len(self))[key]
        row = self.indices[key]
        states = self._states[self._ends[row] - self.manifest["tokens"][row] : self._ends[row]]
        return {**self.rows[key], COLUMN: torch.from_numpy(states.copy()).transpose(0, 1)}

    def __reduce__(self):
        # Worker processes open the file themselves.
        return CachedRows, (self.rows, self.folder, self.indices)

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


def cache_general_states(
    model, rows, folder: str | os.PathLike, *, batch_size: int = 64, progress: bool = True
) -> CachedRows:
    """
    Runs the general encoder over tokenized rows and stores its states, or reuses the states that are stored already.

    Args:
        model: a G-MAP model with a frozen general encoder.
        rows: tokenized rows, such as a `DomainDataset`.
        folder: the folder of the cache; each set of rows needs its own.
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
        "rows": _rows_digest(rows),
        # Strategies that read the same layers share a cache.
        "layers": encoders.config.states_read,
        "tokens": [len(ids) for ids in _column(rows, "input_ids")],
    }
    if not _is_built(folder, manifest):
        folder.mkdir(parents=True, exist_ok=True)
        # Each process has a file of its own and renames it when it is complete.
        temporary = folder / f".{STATES}.{os.getpid()}"
        try:
            _write_states(temporary, encoders, rows, manifest["tokens"], batch_size, progress)
            os.replace(temporary, folder / STATES)
        finally:
            temporary.unlink(missing_ok=True)
        write_atomically(folder / MANIFEST, json.dumps(manifest) + "\n")
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


def _write_states(path: Path, encoders, rows, tokens: list[int], batch_size: int, progress: bool) -> None:
    """`(tokens, layers, width)` of all rows, one after the other."""
    ends = np.cumsum(tokens)
    shape = (int(ends[-1]), len(encoders.config.states_read), encoders.config.hidden_size)
    # Not a memory map: on a full disk, writing to one ends the process without an error.
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": shape})
        begin, token_bytes = file.tell(), 2 * shape[1] * shape[2]
        for row, state in _states_of(encoders, rows, tokens, batch_size, progress):
            file.seek(begin + int(ends[row] - tokens[row]) * token_bytes)
            file.write(state.numpy().tobytes())


@torch.no_grad()
def _states_of(encoders, rows, tokens: list[int], batch_size: int, progress: bool) -> Iterator[tuple]:
    """Each row and its states, short rows first: padding costs as much as tokens do."""
    config = encoders.config
    padding = {**dict.fromkeys(_ENCODER_INPUTS, 0), "input_ids": config.pad_token_id or 0}
    order = sorted(range(len(rows)), key=tokens.__getitem__)
    for start in tqdm(range(0, len(order), batch_size), desc="General states", unit="batch", disable=not progress):
        chosen = order[start : start + batch_size]
        given = [{"attention_mask": [1] * tokens[row], **rows[row]} for row in chosen]
        inputs = {
            name: pad_sequence([torch.as_tensor(row[name]) for row in given], True, pad).to(encoders.general.device)
            for name, pad in padding.items()
            if name in given[0]
        }
        states = encoders.general_states(**inputs)
        stacked = torch.stack([states[layer - 1] for layer in config.states_read], dim=2).to("cpu", torch.float16)
        for row, state in zip(chosen, stacked, strict=True):
            if not state[: tokens[row]].isfinite().all():
                raise ValueError(
                    f"The general encoder's states of row {row} are not finite in fp16, the precision of the cache. "
                    "Train without a cache."
                )
            yield row, state[: tokens[row]]


def _is_built(folder: Path, manifest: dict) -> bool:
    if not (folder / MANIFEST).exists():
        # Hidden files, and the states, may be of another process that is not done yet, or was killed.
        if folder.exists() and any(not entry.name.startswith((".", STATES)) for entry in folder.iterdir()):
            raise ValueError(f"`folder` {folder} holds something else than a cache. Choose an empty or a new one.")
        return False
    stored, _ = _open_cache(folder)
    for name, what in (
        ("general", "another general encoder"),
        ("rows", "other rows, or the same rows by another tokenizer"),
        ("layers", f"the layers {stored.get('layers')}, and the model's strategy reads {manifest['layers']}"),
    ):
        if stored.get(name) != manifest[name]:
            raise ValueError(f"`folder` {folder} holds a cache of {what}. Choose another folder, or delete this one.")
    return True


def _open_cache(folder: Path) -> tuple[dict, np.ndarray]:
    """What the states were made of, and the states."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return manifest, np.load(folder / STATES, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise ValueError(f"`folder`: the cache {folder} is broken ({error}). Delete it and build it again.") from error


def _encoders_of(model):
    """The pair of encoders of a G-MAP model, also inside an adapter or another wrapper; None if there is none."""
    return next((module for module in model.modules() if hasattr(module, "general_states")), None)


def _column(rows, name: str) -> Sequence:
    return [row[name] for row in rows] if isinstance(rows, list) else rows[name]


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
            feed(digest, [name, *(np.asarray(values, dtype=np.int64) for values in _column(rows, name))])
    return digest.hexdigest()
