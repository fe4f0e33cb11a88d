# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Vocabularies of whole words that grow."""

from collections.abc import Iterable


def check_new_words(words: Iterable[str], tokenizer=None) -> list[str]:
    """The words as a list, if there are any, each is new, and none comes twice."""
    if isinstance(words, str):
        raise TypeError(f"`words` is a list of words; got the text {words!r}. For one word: `[{words!r}]`.")
    words = list(words)
    if not words:
        raise ValueError("`words` is empty: there is nothing to grow by. Leave the call out.")
    for word in words:
        if not isinstance(word, str) or not word:
            raise TypeError(f"`words` has {word!r}, which is not a word. Give texts that are not empty.")
    if len(set(words)) < len(words):
        twice = sorted({word for word in words if words.count(word) > 1})
        raise ValueError(f"`words` has {_some(twice)} more than once. Name each word once.")
    if tokenizer is not None:
        # Each call copies the whole vocabulary.
        vocabulary = tokenizer.get_vocab()
        known = [word for word in words if word in vocabulary]
        if known:
            raise ValueError(
                f"`words` has {_some(known)}, which the tokenizer knows already. Leave known words out: "
                "`hf_memaug.data.new_words(tokenizer, texts)` finds those that it does not know."
            )
        backend = check_word_tokenizer(tokenizer)
        for word in words:
            read = parted(backend, word)
            if read != [word]:
                raise ValueError(
                    f"`words` has {word!r}, which the tokenizer would never find: it reads {_some(read)} there. "
                    "Give words as it parts them: `hf_memaug.data.new_words(tokenizer, texts)`."
                )
    return words


def add_words(tokenizer, words: Iterable[str]) -> None:
    """
    Adds words to a word-level tokenizer, with the next ids. In place, because trainers and collators keep a reference
    to their tokenizer.

    `tokenizer.add_tokens` would find its words in the middle of others as well.
    """
    from tokenizers import models

    words = check_new_words(words, tokenizer)
    model = check_word_tokenizer(tokenizer).model
    vocabulary = tokenizer.get_vocab()
    first = max(vocabulary.values()) + 1
    vocabulary |= {word: first + place for place, word in enumerate(words)}
    tokenizer.backend_tokenizer.model = models.WordLevel(vocabulary, unk_token=model.unk_token)


def parted(backend, text: str) -> list[str]:
    """A text as the backend of a tokenizer of whole words parts it, known words or not."""
    text = backend.normalizer.normalize_str(text) if backend.normalizer is not None else text
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)] if backend.pre_tokenizer else [text]


def check_word_tokenizer(tokenizer):
    """The tokenizer's backend, if it is one of whole words."""
    from tokenizers import models

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, models.WordLevel):
        raise TypeError(
            f"`tokenizer` is a `{type(tokenizer).__name__}` that is not made of whole words, so no words can be added "
            "to it. `hf_memaug.data.word_tokenizer(texts)` makes one that is."
        )
    return backend


def _some(words: list[str]) -> str:
    return ", ".join(map(repr, words[:5])) + (f" and {len(words) - 5} more" if len(words) > 5 else "")
