# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Tokenizers of whole words, for models that are trained from scratch and grow, and the vectors of words."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from hf_memaug.configuration.words import check_word_tokenizer

SPECIAL = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def word_tokenizer(
    texts: Iterable[str], max_words: int | None = None, end_of_text: bool = False, max_length: int | None = None
) -> PreTrainedTokenizerFast:
    """
    A `PreTrainedTokenizerFast` with the words of `texts` as its vocabulary, the most frequent first. Texts are
    lowercased, punctuation is split from words, and `token_type_ids` mark a second text.

    Args:
        texts (`Iterable[str]`): the texts with the words, training texts only.
        max_words (`int`, *optional*): the size of the vocabulary without `<pad>`, `<unk>`, `<s>` and `</s>`.
        end_of_text (`bool`, *optional*, defaults to `False`): whether a text ends with `</s>`, which a model that
            generates needs.
        max_length (`int`, *optional*): the longest text in words.
    """
    backend = Tokenizer(models.WordLevel({}, unk_token=SPECIAL["unk_token"]))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    words = _frequent_words(backend, texts)[:max_words]
    vocabulary = {word: place for place, word in enumerate([*SPECIAL.values(), *words])}
    backend.model = models.WordLevel(vocabulary, unk_token=SPECIAL["unk_token"])
    end = f" {SPECIAL['eos_token']}" if end_of_text else ""
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A{end}",
        pair=f"$A{end} $B:1{end and end + ':1'}",
        special_tokens=[(SPECIAL["eos_token"], vocabulary[SPECIAL["eos_token"]])],
    )
    fields: dict[str, Any] = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"], **SPECIAL}
    if max_length is not None:
        fields["model_max_length"] = max_length
    return PreTrainedTokenizerFast(tokenizer_object=backend, **fields)


def new_words(tokenizer, texts: Iterable[str], min_count: int = 1) -> list[str]:
    """The words of `texts` that are missing from a word-level tokenizer, the most frequent first."""
    known = tokenizer.get_vocab()
    return [word for word in _frequent_words(check_word_tokenizer(tokenizer), texts, min_count) if word not in known]


def read_word_vectors(path: str | Path, words: Iterable[str]) -> dict:
    """
    The vectors of `words` in a text file such as GloVe's: a word and its numbers in each line, separated by spaces.
    `grow_vocabulary(words, vectors)` takes them; words missing from the file start at random.
    """
    wanted, found, width = set(words), {}, None
    for number, parts in _vector_lines(path):
        width = width or len(parts) - 1
        word = " ".join(parts[:-width])  # a few of GloVe's words have spaces
        if word in wanted:
            try:
                found[word] = torch.tensor([float(part) for part in parts[-width:]])
            except ValueError:
                raise ValueError(
                    f"Line {number} of `{path}` has no vector of {width} numbers for {word!r}. A line is a word and "
                    "its numbers, with spaces between."
                ) from None
    return found


def vector_width(path: str | Path) -> int:
    """How many numbers the vectors of such a file have."""
    _, first = next(_vector_lines(path), (1, []))
    if len(first) < 2:
        raise ValueError(f"`{path}` has no word vectors. A line is a word and its numbers, with spaces between.")
    return len(first) - 1


def _vector_lines(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Each line with its number, in parts."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            parts = line.rstrip().split(" ")
            # word2vec's files begin with the number of words and of numbers.
            if number > 1 or len(parts) != 2:
                yield number, parts


def _frequent_words(backend, texts: Iterable[str], min_count: int = 1) -> list[str]:
    """The words of texts as the backend of a tokenizer parts them; of equally frequent ones, in alphabetical order."""
    learner = Tokenizer(models.WordLevel({}, unk_token=SPECIAL["unk_token"]))
    learner.normalizer, learner.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    trainer = trainers.WordLevelTrainer(vocab_size=2**31, min_frequency=min_count, show_progress=False)
    learner.train_from_iterator(texts, trainer)
    places = learner.get_vocab()
    return sorted(places, key=places.__getitem__)
