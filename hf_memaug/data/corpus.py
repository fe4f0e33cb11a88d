# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Unlabelled text for masked language modelling: read as a stream, packed into full rows, masked word by word."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from hf_memaug.data.augmentation import SEED_COLUMN
from hf_memaug.data.collators import PaddingCollator
from hf_memaug.data.generated import generated_reviews
from hf_memaug.data.readers import json_rows, opened, readable
from hf_memaug.data.spans import IGNORED

# The word of special tokens. The tokens of a word share a number.
NO_WORD = -1


def stream_texts(files: Iterable[str | os.PathLike], field: str = "text") -> Iterator[str]:
    """
    The texts of files, one at a time: a line of a text file (.txt), or the column `field` of a row of JSON lines
    (.jsonl), compressed or not.
    """
    for path in map(Path, files):
        if not path.is_file():
            raise FileNotFoundError(f"`files`: there is no file {path}.")
        with readable(path, "files"):
            yield from _texts_of(path, field)


def _texts_of(path: Path, field: str) -> Iterator[str]:
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".txt"):
        with opened(path) as file:
            yield from (line.strip() for line in file if line.strip())
        return
    if name.endswith((".csv", ".tsv", ".parquet", ".md")):
        raise ValueError(f"`files`: {path} is no corpus. Give a text per line (.txt) or JSON lines (.jsonl).")
    for number, row in enumerate(json_rows(path, option="files")):
        if not isinstance(row.get(field), str):
            raise ValueError(
                f"`files`: {path}, row {number} has no text in `{field}`. It has: {sorted(row)}. Name the text's "
                "column by `field`."
            )
        if row[field].strip():
            yield row[field].strip()


class HeldOutTexts:
    """
    The texts of files (of generated reviews if None) that are held out, every n-th of a file, or (`held_out=False`) the
    others. Can be iterated repeatedly.
    """

    def __init__(self, files: list[str] | None, field: str, every: int, held_out: bool):
        self.files, self.field, self.every, self.held_out = files, field, every, held_out

    def __iter__(self) -> Iterator[str]:
        # File by file, so that the held-out texts do not depend on the other files.
        each = [stream_texts([file], self.field) for file in self.files or ()]
        for texts in each or [generated_reviews(rows_per_domain=200)["text"]]:
            for number, text in enumerate(texts):
                if (self.every > 0 and number % self.every == 0) == self.held_out:
                    yield text


def corpus_names(files: Iterable[str]) -> dict[str, str]:
    """Files by what stands before the dot in their names, or by their paths where two are called the same."""
    files = list(dict.fromkeys(files))
    stems = {file: Path(file).name.partition(".")[0] for file in files}
    taken = Counter(stems.values())
    return {stem if taken[stem] == 1 else file: file for file, stem in stems.items()}


class PackedTexts(torch.utils.data.IterableDataset):
    """
    Texts packed into rows of exactly `length` tokens, without padding. A row begins and ends with the tokenizer's
    special tokens, and texts are separated by the last of these. It streams; `list(...)` gives a data set to shuffle.

    Args:
        texts: an iterable, which for several epochs must be iterable again.
        tokenizer: a fast tokenizer, which knows which tokens form a word.
        length: tokens of a row.
        keep_rest: whether the last row may be shorter.
    """

    def __init__(self, texts: Iterable[str], tokenizer, length: int = 128, keep_rest: bool = False):
        if not tokenizer.is_fast:
            raise ValueError("`tokenizer` must be a fast tokenizer, which knows which tokens form a word.")
        if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
            raise ValueError("`tokenizer` has no tokens that begin and end a row. Use one of a masked language model.")
        limit = tokenizer.model_max_length
        if not 8 <= length <= limit:
            raise ValueError(f"`length` is {length}: choose one between 8 and the tokenizer's {limit}.")
        self.texts, self.tokenizer, self.length, self.keep_rest = texts, tokenizer, length, keep_rest

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        worker = torch.utils.data.get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        start, end = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        for ids, words in islice(self._parts(end), first, None, every):
            yield {"input_ids": [start, *ids, end], "word_ids": [NO_WORD, *words, NO_WORD]}

    def _parts(self, separator: int) -> Iterator[tuple[list[int], list[int]]]:
        """The tokens of a row and the numbers of their words, without the special tokens at the ends."""
        room, count = self.length - 2, 0
        ids: list[int] = []
        words: list[int] = []
        for text in self.texts:
            encoded = self.tokenizer(text, add_special_tokens=False, return_attention_mask=False)
            numbers = [NO_WORD if word is None else count + word for word in encoded.word_ids()]
            count = max(numbers, default=count) + 1
            ids += [*([separator] if ids else []), *encoded["input_ids"]]
            words += [*([NO_WORD] if words else []), *numbers]
            while len(ids) >= room:
                yield ids[:room], words[:room]
                ids, words = ids[room:], words[room:]
        if self.keep_rest and ids:
            yield ids, words


class WholeWordMasking:
    """
    Makes a batch for masked language modelling: a share of the words is selected, all tokens of a word together; 80 %
    of their tokens become the mask, 10 % another token, and 10 % stay.

    Args:
        tokenizer: gives the tokens to mask and to pad with.
        share: the share of words to select.
        seed: with a seed, a row is masked in the same way each time, so that models can be compared; without, by the
            row's own seed (training rows of `MaskedLMTrainer`), or by torch's random numbers.
    """

    def __init__(self, tokenizer, share: float = 0.15, seed: int | None = None):
        if tokenizer.mask_token_id is None:
            raise ValueError("`tokenizer` has no mask token. Use one of a masked language model.")
        if not 0 < share < 1:
            raise ValueError(f"`share` is {share}: choose one between 0 and 1, such as 0.15.")
        self.mask, self.pad, self.size = tokenizer.mask_token_id, PaddingCollator(tokenizer), len(tokenizer)
        self.special = np.array(sorted(tokenizer.all_special_ids))
        self.share, self.seed = share, seed

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        found = []
        for row in rows:
            tokens = np.asarray(row["input_ids"])
            masked, chosen = self._mask(tokens, np.asarray(row["word_ids"]), row.get(SEED_COLUMN))
            found.append({"input_ids": masked.tolist(), "labels": np.where(chosen, tokens, IGNORED).tolist()})
        return self.pad(found)

    def _mask(self, tokens: np.ndarray, words: np.ndarray, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
        if self.seed is not None:
            digest = hashlib.sha256(tokens.astype(np.int64).tobytes()).digest()
            seed = int.from_bytes(digest[:7], "little") + self.seed
        elif seed is None:
            # `Trainer` keeps the state of torch's random numbers in its checkpoints.
            seed = int(torch.randint(2**62, ()))
        random = np.random.default_rng(seed)
        # Unknown words are not learned.
        words = np.where(np.isin(tokens, self.special), NO_WORD, words)
        numbers, place = np.unique(words, return_inverse=True)
        picked = (random.random(len(numbers)) < self.share) & (numbers != NO_WORD)
        if not picked.any() and (numbers != NO_WORD).any():
            picked[random.choice(np.flatnonzero(numbers != NO_WORD))] = True  # every row has a loss
        chosen = picked[place]
        fate = random.random(len(tokens))
        masked = np.where(chosen & (fate < 0.8), self.mask, tokens)
        others = random.integers(0, self.size, len(tokens))
        return np.where(chosen & (fate >= 0.9), others, masked), chosen
