# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Strategies that make the model larger before each new domain, and then train all of it (Algorithm 1)."""

from collections.abc import Iterator
from typing import Any

from transformers.utils import logging

from hf_memaug.configuration.words import check_word_tokenizer
from hf_memaug.data import DomainDataset
from hf_memaug.data.words import new_words, read_word_vectors, vector_width
from hf_memaug.training.algorithms.base import Limits
from hf_memaug.training.continual.base import FineTuning

logger = logging.get_logger(__name__)


class _Growing(FineTuning):
    """Calls the verbs in `needs` before each domain but the first."""

    limits = dict.fromkeys(("slots", "units", "min_word_count"), Limits(least=1, whole=True))

    def check_model(self, model: Any, processing_class, rows: DomainDataset) -> None:
        super().check_model(model, processing_class, rows)
        if "grow_hidden" in self.needs and self.units is None and not hasattr(model, "units_for"):
            raise ValueError(
                f'`strategy="{self.name}"` needs `strategy_kwargs={{"units": ...}}`: `{type(model).__name__}` has no '
                "memory to match."
            )
        if "grow_vocabulary" in self.needs:
            self._check_words(model, processing_class, rows)

    def _check_words(self, model: Any, processing_class, rows: DomainDataset) -> None:
        if "text" not in rows.column_names and "tokens" not in rows.column_names:
            raise ValueError(
                f'`strategy="{self.name}"` looks for new words, but `train_dataset` has no `text` or `tokens`. Pass '
                "texts: the trainer tokenizes them itself."
            )
        try:
            check_word_tokenizer(processing_class)
        except TypeError as error:
            raise ValueError(f'`strategy="{self.name}"` adds words to `processing_class`: {error}') from error
        size = model.config.vocab_size
        if size != len(processing_class):
            raise ValueError(
                f"`model` has {size} word vectors and `processing_class` {len(processing_class)} words. Build the "
                "model with `vocab_size=len(tokenizer)`."
            )
        if self.word_vectors is not None:
            found, wanted = vector_width(self.word_vectors), model.get_input_embeddings().weight.shape[-1]
            if found != wanted:
                raise ValueError(
                    f"`strategy_kwargs`: the vectors in `{self.word_vectors}` have {found} numbers, and those of "
                    f"`model` {wanted}. Build the model with `embedding_size={found}`, or use another file."
                )

    def grow(self, model: Any, rows: DomainDataset, processing_class) -> dict[str, Any]:
        grown: dict[str, Any] = {}
        words: list[str] = []
        vectors = None
        if "grow_vocabulary" in self.needs:
            # This may fail, and so comes before anything grows.
            words = new_words(processing_class, _texts(rows), min_count=self.min_word_count)
            if words and self.word_vectors is not None:
                vectors = read_word_vectors(self.word_vectors, words)
        if "grow_memory" in self.needs:
            grown["slots"] = self.slots
            model.grow_memory(self.slots)
        if "grow_hidden" in self.needs:
            grown["units"] = model.units_for(self.slots) if self.units is None else self.units
            model.grow_hidden(grown["units"])
        if "grow_vocabulary" in self.needs:
            grown["words"] = len(words)
            if words:
                model.grow_vocabulary(words, vectors, tokenizer=processing_class)
            else:
                logger.warning(f"No word of {', '.join(rows.domains)} is new to the tokenizer: the vocabulary stays.")
        return grown

    def rebuild(self, model: Any, folder: str) -> Any:
        # The configuration in the folder knows the sizes.
        return type(model).from_pretrained(folder)


class GrowMemory(_Growing):
    """`F+M`, the method of the paper: `slots` new slots of memory for each domain."""

    needs = ("grow_memory",)
    options = {"slots": 500}


class GrowVocabulary(_Growing):
    """
    `F+V`: adds the words of the domain that are new to the tokenizer and occur at least `min_word_count` times in the
    training rows, with the vectors of the file `word_vectors`, such as GloVe's. The tokenizer grows with the model.
    """

    needs = ("grow_vocabulary",)
    options = {"min_word_count": 1, "word_vectors": None}


class GrowMemoryAndVocabulary(_Growing):
    """`F+M+V`: both."""

    needs = (*GrowMemory.needs, *GrowVocabulary.needs)
    options = {**GrowMemory.options, **GrowVocabulary.options}


class GrowHidden(_Growing):
    """
    `F+H`: `units` new units of the hidden state for each domain. By default, about as many parameters as `slots` new
    slots of memory, as in the paper's comparison.
    """

    needs = ("grow_hidden",)
    options = {"units": None, "slots": 500}


class GrowHiddenAndVocabulary(_Growing):
    """`F+H+V`: both."""

    needs = (*GrowHidden.needs, *GrowVocabulary.needs)
    options = {**GrowHidden.options, **GrowVocabulary.options}


def _texts(rows: DomainDataset) -> Iterator[str]:
    for name in ("text", "text_pair", "tokens"):
        for value in rows[name] if name in rows.column_names else ():
            yield " ".join(value) if isinstance(value, list) else value
