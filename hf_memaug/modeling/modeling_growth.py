# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Models that grow: what was learned is kept bit for bit, and what is new starts like that of a fresh model."""

import copy
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from hf_memaug.configuration.words import add_words, check_new_words
from hf_memaug.modeling.modeling_utils import MemoryModelMixin


@dataclass(frozen=True, eq=False)
class GrownParameter:
    """
    A parameter before and after the growth. The old values lie at the beginning of each axis of `shape`, which is that
    of `new` with axes that were flattened into one taken apart.
    """

    name: str
    old: nn.Parameter
    new: nn.Parameter
    old_shape: tuple[int, ...]
    shape: tuple[int, ...]

    def carry(self, values: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        """Writes `values`, of the shape of `old`, to their places in `into`, of the shape of `new`."""
        places = tuple(slice(size) for size in self.old_shape)
        into.view(self.shape)[places] = values.view(self.old_shape)
        return into


class GrowingModelMixin(MemoryModelMixin):
    """The verb that every model with a bank of slots has. Call it on the whole model, before an optimizer is made."""

    # Whether this is the encoder, say, of a model that can grow itself.
    _is_part = False

    def post_init(self):
        super().post_init()
        for module in self.modules():
            if module is not self and isinstance(module, GrowingModelMixin):
                module._is_part = True

    def grow_memory(self, slots: int) -> list[GrownParameter]:
        """
        Adds slots for a new domain to every bank (IDA, Eq. 3). Old slots are kept bit for bit; the configuration
        remembers how many came with which domain.

        Args:
            slots (`int`): how many.

        Returns:
            The parameters that grew, for an optimizer that is to go on.
        """
        check_growth("grow_memory", "slots", slots)
        return self._grow(**self.config.grown_memory(slots))

    def slot_domains(self) -> torch.Tensor:
        """For each slot the number of the domain that it came with: 0 is the first."""
        counts = torch.tensor(self.config.slots_per_domain, dtype=torch.long)
        return torch.repeat_interleave(torch.arange(len(counts)), counts)

    def _planned(self, changes: dict) -> "GrowingModelMixin":
        """What the model is to become: shapes without numbers."""
        config = copy.deepcopy(self.config)
        for name, value in changes.items():
            setattr(config, name, value)
        with torch.device("meta"):
            return type(self)(config)

    def _grow(self, **changes) -> list[GrownParameter]:
        if hasattr(self, "peft_config") or getattr(self, "_hf_peft_config_loaded", False):
            raise ValueError("A model with adapters cannot grow. Merge them first: `model.merge_and_unload()`.")
        if self._is_part:
            raise ValueError(
                f"This `{type(self).__name__}` is a part of a larger model, which would no longer fit it. Call the "
                "verb on the whole model."
            )
        planned = self._planned(changes)
        # All that can fail happens to the plan; the model changes at the end, at once.
        grown, sizes = [], []
        mine = dict(self.named_modules())
        for path, module in planned.named_modules():
            own = mine.get(path)
            if own is None:
                continue
            # Of every module: the sizes of a parameter may be known to one that does not hold it.
            sizes.append((own, {name: value for name, value in vars(module).items() if type(value) is int}))
            if all(p.shape == own._parameters[n].shape for n, p in module._parameters.items() if p is not None):
                continue
            module.to_empty(device=next(own.parameters(recurse=False)).device, recurse=False)
        planned.apply(planned._init_weights)
        before, after = _unflattened(self), _unflattened(planned)
        fresh = dict(planned.named_parameters())
        for name, old in self.named_parameters():
            if fresh[name].shape == old.shape:
                continue
            new = nn.Parameter(fresh[name].detach().to(old.device, old.dtype), requires_grad=old.requires_grad)
            shapes = (before.get(name, tuple(old.shape)), after.get(name, tuple(new.shape)))
            grown.append(GrownParameter(name, old, new, *shapes))
            with torch.no_grad():
                grown[-1].carry(old, new)
        for entry in grown:
            path, _, name = entry.name.rpartition(".")
            mine[path]._parameters[name] = entry.new
        for own, numbers in sizes:
            own.__dict__.update(numbers)
        for module in self.modules():
            for name, value in changes.items() if getattr(module, "config", None) is not None else ():
                setattr(module.config, name, value)
        return grown


class GrowingNetworkMixin(GrowingModelMixin):
    """Beside the memory, words and hidden units grow as well."""

    def grow_vocabulary(self, words: Iterable[str], vectors=None, tokenizer=None) -> list[GrownParameter]:
        """
        Adds words behind those that there are. All that was there is kept bit for bit.

        Args:
            words (`list[str]`):
                The new words, in the order of their ids.
            vectors (`torch.Tensor` or `dict[str, torch.Tensor]`, *optional*):
                Their vectors, `(len(words), embedding_size)`, or by word. Words without one start at random.
            tokenizer (*optional*):
                The tokenizer of the model, made by `word_tokenizer`. It learns the words in the same step, and words
                that it knows already are refused. Without it the model cannot know its words: give the tokenizer
                the same ones, in the same order, by `hf_memaug.data.add_words(tokenizer, words)`.

        Returns:
            The parameters that grew, for an optimizer that is to go on.
        """
        words = check_new_words(words, tokenizer)
        old = self.config.vocab_size
        if tokenizer is not None and len(tokenizer) != old:
            raise ValueError(
                f"`tokenizer` has {len(tokenizer)} words, and the model has `vocab_size={old}`. Give the tokenizer "
                "that the model was made or loaded with; words that the model was given without it, it learns by "
                "`hf_memaug.data.add_words(tokenizer, words)`."
            )
        rows, places = self._check_vectors(words, vectors)
        grown = self._grow(vocab_size=old + len(words))
        if rows is not None:
            table = cast(nn.Embedding, self.get_input_embeddings()).weight
            with torch.no_grad():
                table[places.to(table.device) + old] = rows.to(table.device, table.dtype)
        if tokenizer is not None:
            add_words(tokenizer, words)
        return grown

    def grow_hidden(self, units: int) -> list[GrownParameter]:
        """
        Adds units to the hidden states, with weights from and to all others (the paper's F+H). Keys get wider with the
        states that ask them. All that was there is kept bit for bit.

        Args:
            units (`int`): how many, in each direction.

        Returns:
            The parameters that grew, for an optimizer that is to go on.
        """
        check_growth("grow_hidden", "units", units)
        return self._grow(hidden_size=self.config.hidden_size + units)

    def units_for(self, slots: int) -> int:
        """The units whose growth adds the number of parameters nearest to that of `slots` slots: F+H beside F+M."""
        check_growth("units_for", "slots", slots)

        def parameters(units: int) -> int:
            return self._planned({"hidden_size": self.config.hidden_size + units}).num_parameters()

        wanted = self._planned(self.config.grown_memory(slots)).num_parameters()
        # A unit adds more than a slot: at least as many weights from and to all others.
        above = bisect_left(range(slots + 2), wanted, lo=2, key=parameters)
        return min(above - 1, above, key=lambda units: abs(parameters(units) - wanted))

    def _check_vectors(self, words: list[str], vectors) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The given vectors, and the places of their words in `words`."""
        places: Sequence[int] = range(len(words))
        if isinstance(vectors, Mapping):
            places = [place for place, word in enumerate(words) if word in vectors]
            vectors = [torch.as_tensor(vectors[words[place]]) for place in places] or None
        if vectors is None:
            return None, torch.empty(0, dtype=torch.long)
        size = self.config.embedding_size
        rows = torch.stack([torch.as_tensor(vector) for vector in vectors])
        if rows.shape != (len(places), size):
            raise ValueError(
                f"`vectors` has the shape {tuple(rows.shape)}. Give one vector for each of {len(places)} words, with "
                f"`embedding_size={size}` numbers."
            )
        return rows, torch.tensor(list(places))


def check_growth(verb: str, name: str, number: int) -> None:
    """Growth is by at least one."""
    if type(number) is not int:
        raise TypeError(f"`{name}` of `{verb}` is a whole number; got {number!r}.")
    if number < 1:
        raise ValueError(f"`{name}` of `{verb}` must be at least 1; got {number}. Nothing shrinks: leave the call out.")


def _unflattened(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """What modules say of parameters with several axes in one."""
    return {
        f"{path}.{name}" if path else name: shape
        for path, module in model.named_modules()
        if hasattr(module, "unflattened")
        for name, shape in module.unflattened().items()
    }
