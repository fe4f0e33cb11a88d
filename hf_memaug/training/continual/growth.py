# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Strategies that make the model larger before each new domain, and then train all of it (Algorithm 1)."""

import copy
from collections import Counter
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from hf_memaug.data import DomainDataset
from hf_memaug.training.continual.base import FineTuning

logger = logging.get_logger(__name__)


class _Growing(FineTuning):
    @classmethod
    def check(cls, options: dict[str, Any]) -> None:
        for name in ("slots", "units", "min_word_count"):
            if options.get(name) is not None and options[name] < 1:
                raise ValueError(f"`strategy_kwargs`: `{name}` is {options[name]}; it must be 1 or more.")

    def rebuild(self, model: nn.Module, folder: str) -> nn.Module:
        # The configuration in the folder knows the sizes.
        return type(model).from_pretrained(folder)


class GrowMemory(_Growing):
    """`F+M`, the method of the paper: `slots` new slots of memory for each domain."""

    needs = ("grow_memory",)
    options = {"slots": 500}

    def grow(self, model: nn.Module, rows: DomainDataset, processing_class) -> dict[str, Any]:
        model.grow_memory(self.slots)
        return {"slots": self.slots}


class GrowVocabulary(_Growing):
    """
    `F+V`: words of the domain that the tokenizer does not know, and that occur at least `min_word_count` times in its
    training rows, get a vector each. The tokenizer grows with the model.
    """

    needs = ("grow_vocabulary",)
    options = {"min_word_count": 1}

    def check_model(self, model: nn.Module, processing_class, rows: DomainDataset) -> None:
        super().check_model(model, processing_class, rows)
        if "text" not in rows.column_names and "tokens" not in rows.column_names:
            raise ValueError(
                f'`strategy="{self.name}"` looks for new words, and `train_dataset` has none but the columns '
                f"{', '.join(rows.column_names)}. Give the texts: the trainer tokenizes them itself."
            )
        if not isinstance(processing_class, PreTrainedTokenizerFast) or processing_class.unk_token_id is None:
            raise ValueError(
                f'`strategy="{self.name}"` adds words to `processing_class`, which must be a fast tokenizer with an '
                f"unknown token, and is {type(processing_class).__name__}. Give one of whole words."
            )
        size = model.config.vocab_size
        if size != len(processing_class):
            raise ValueError(
                f"`model` has {size} word vectors and `processing_class` {len(processing_class)} words: new words "
                "would get wrong vectors. Build the model with `vocab_size=len(tokenizer)`."
            )

    def grow(self, model: nn.Module, rows: DomainDataset, processing_class) -> dict[str, Any]:
        words = new_words(rows, processing_class, self.min_word_count)
        add_words(processing_class, words)
        if words:
            model.grow_vocabulary(words)
        else:
            logger.warning(f"No word of {', '.join(rows.domains)} is new to the tokenizer: the vocabulary stays.")
        return {"words": len(words)}


class GrowMemoryAndVocabulary(GrowMemory, GrowVocabulary):
    """`F+M+V`: both."""

    needs = ("grow_memory", "grow_vocabulary")
    options = {**GrowMemory.options, **GrowVocabulary.options}

    def grow(self, model: nn.Module, rows: DomainDataset, processing_class) -> dict[str, Any]:
        return {
            **GrowMemory.grow(self, model, rows, processing_class),
            **GrowVocabulary.grow(self, model, rows, processing_class),
        }


class GrowHidden(_Growing):
    """
    `F+H`: `units` new units of the hidden state for each domain. By default as many as add the number of parameters
    that is nearest to that of `slots` new slots, as in the paper's comparison.
    """

    needs = ("grow_hidden",)
    options = {"units": None, "slots": 500}
    # The gates of a cell lie in one tensor, behind each other: new units are in its middle.
    appends_rows = False

    def check_model(self, model: nn.Module, processing_class, rows: DomainDataset) -> None:
        super().check_model(model, processing_class, rows)
        if self.units is None and not hasattr(model, "grow_memory"):
            raise ValueError(
                f'`strategy="{self.name}"` matches the new units to `slots` of a memory, which '
                f'`{type(model).__name__}` does not have. Say `strategy_kwargs={{"units": ...}}`.'
            )

    def grow(self, model: nn.Module, rows: DomainDataset, processing_class) -> dict[str, Any]:
        units = matching_units(model, self.slots) if self.units is None else self.units
        model.grow_hidden(units)
        return {"units": units}


class GrowHiddenAndVocabulary(GrowHidden, GrowVocabulary):
    """`F+H+V`: both."""

    needs = ("grow_hidden", "grow_vocabulary")
    options = {**GrowHidden.options, **GrowVocabulary.options}

    def grow(self, model: nn.Module, rows: DomainDataset, processing_class) -> dict[str, Any]:
        return {
            **GrowHidden.grow(self, model, rows, processing_class),
            **GrowVocabulary.grow(self, model, rows, processing_class),
        }


def matching_units(model: nn.Module, slots: int) -> int:
    """How many hidden units add the number of parameters that is nearest to that of `slots` slots; 1 at least."""

    def size(verb: str, count: int) -> int:
        grown = copy.deepcopy(model)
        getattr(grown, verb)(count)
        return sum(parameter.numel() for parameter in grown.parameters())

    wanted = size("grow_memory", slots)
    most = 1
    while size("grow_hidden", most) < wanted:
        most *= 2
    fewest = most // 2 or 1
    while fewest < most:
        middle = (fewest + most) // 2
        fewest, most = (middle + 1, most) if size("grow_hidden", middle) < wanted else (fewest, middle)
    return min((units for units in (most - 1, most) if units), key=lambda n: abs(size("grow_hidden", n) - wanted))


def new_words(rows: DomainDataset, tokenizer: PreTrainedTokenizerFast, min_count: int = 1) -> list[str]:
    """Words that the tokenizer knows no token for, the most frequent first."""
    backend = tokenizer.backend_tokenizer
    counts: Counter[str] = Counter()
    for name in ("text", "text_pair", "tokens"):
        for value in rows[name] if name in rows.column_names else ():
            text = " ".join(value) if isinstance(value, list) else value
            text = backend.normalizer.normalize_str(text) if backend.normalizer is not None else text
            if backend.pre_tokenizer is not None:
                counts.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text))
            else:
                counts.update(text.split())
    candidates = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
    encoded = backend.encode_batch(candidates, add_special_tokens=False)
    unknown = tokenizer.unk_token_id
    return [word for word, found in zip(candidates, encoded, strict=True) if unknown in found.ids]


def add_words(tokenizer: PreTrainedTokenizerFast, words: list[str]) -> None:
    """Gives the words the next ids, in their order."""
    from tokenizers import AddedToken

    first = len(tokenizer)
    # Only where they stand alone: "art" is not in "start".
    tokenizer.add_tokens([AddedToken(word, single_word=True, normalized=True) for word in words])
    ids = tokenizer.convert_tokens_to_ids(words)
    if ids != list(range(first, first + len(words))):
        raise ValueError("`processing_class` numbers new words otherwise than one after another: its ids have gaps.")
