# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The order in which rows of several domains are trained on. It follows from a seed alone, so that a run can resume."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count

import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from hf_memaug.data.augmentation import SEED_COLUMN


class _EpochSampler(Sampler[int]):
    """As many rows as the data has, in an order that follows from the seed and the epoch."""

    def __init__(self, domains: Sequence[str], seed: int = 0):
        self.domains = list(domains)
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.domains)

    def _generator(self) -> random.Random:
        return random.Random(f"{self.seed} {self.epoch}")


class DomainBalancedSampler(_EpochSampler):
    """
    Rows by turns from every domain, so that any batch holds the domains in equal shares (within one row). An epoch has
    as many rows as the data; a small domain comes round more than once in it, a large one not completely.

    Args:
        domains (`Sequence[str]`): the domain of each row.
        seed (`int`): with the epoch, it decides the order.
    """

    def __iter__(self) -> Iterator[int]:
        generator = self._generator()
        rows = _by_turns(_rows_of(self.domains, generator), generator)
        return (next(rows) for _ in range(len(self)))


class OneDomainSampler(_EpochSampler):
    """
    Algorithm 3, lines 2 to 4, of MIL as printed: a domain is drawn, and the next `rows` rows all come from it.

    Args:
        domains (`Sequence[str]`): the domain of each row.
        rows (`int`): how long a domain stays, in rows: `T` steps of a batch.
        seed (`int`): with the epoch, it decides the order.
    """

    def __init__(self, domains: Sequence[str], rows: int, seed: int = 0):
        super().__init__(domains, seed)
        self.rows = rows

    def __iter__(self) -> Iterator[int]:
        generator = self._generator()
        rows_of = _rows_of(self.domains, generator)
        left = len(self)
        while left > 0:
            domain = generator.choice(list(rows_of))
            stay = min(self.rows, left)
            yield from (next(rows_of[domain]) for _ in range(stay))
            left -= stay


class DomainAfterDomainSampler(_EpochSampler):
    """
    All domains one after another, in a new order each time, with the same number of rows of each. An epoch has as many
    whole rounds as the data has rows for, and one at least.

    Args:
        domains (`Sequence[str]`): the domain of each row.
        rows (`int`): rows of a domain: those of one optimizer step.
        seed (`int`): with the epoch, it decides the order.
    """

    def __init__(self, domains: Sequence[str], rows: int, seed: int = 0):
        super().__init__(domains, seed)
        self.rows = rows
        self.round = rows * len(set(self.domains))

    def __len__(self) -> int:
        return max(len(self.domains) // self.round, 1) * self.round

    def __iter__(self) -> Iterator[int]:
        generator = self._generator()
        rows_of = _rows_of(self.domains, generator)
        names = sorted(rows_of)
        for _ in range(len(self) // self.round):
            generator.shuffle(names)
            for name in names:
                yield from (next(rows_of[name]) for _ in range(self.rows))


class EpisodeSampler(Sampler[int]):
    """
    Algorithm 2, lines 2 to 5, of MIL: each episode draws a meta-target domain, and each of its steps a batch from the
    other domains (by turns) followed by a batch from the meta-target.

    The rows of a step do not depend on how the step is cut into batches: `batches_per_step` batches of `source_rows` +
    `target_rows` rows together hold the same rows as one batch of so many times the size.

    Args:
        domains (`Sequence[str]`): the domain of each row.
        episodes (`int`): how often a meta-target is drawn.
        episode_steps (`int`): `T`, the outer steps of an episode.
        inner_steps (`int`): `L`, how often a step's rows come before the next step's.
        source_rows, target_rows (`int`): rows of one batch from the meta-source domains and from the meta-target.
        batches_per_step (`int`): batches that make up one step (accumulation steps times processes).
        seed (`int`): decides everything.
    """

    def __init__(
        self,
        domains: Sequence[str],
        *,
        episodes: int,
        episode_steps: int,
        inner_steps: int = 1,
        source_rows: int,
        target_rows: int,
        batches_per_step: int = 1,
        seed: int = 0,
    ):
        self.domains = list(domains)
        names = sorted(set(self.domains))
        if len(names) < 2:
            raise ValueError(
                f"`train_dataset` has the one domain {names}; learning to bridge domains needs two or more."
            )
        generator = random.Random(f"{seed} meta-targets")
        self.meta_targets = [generator.choice(names) for _ in range(episodes)]
        self.episode_steps = episode_steps
        self.inner_steps = inner_steps
        self.source_rows = source_rows
        self.target_rows = target_rows
        self.batches_per_step = batches_per_step
        self.seed = seed

    def meta_target(self, step: int) -> str:
        """The meta-target of an optimizer step, of which an episode has `episode_steps * inner_steps`."""
        return self.meta_targets[step // (self.episode_steps * self.inner_steps)]

    def __len__(self) -> int:
        steps = len(self.meta_targets) * self.episode_steps * self.inner_steps
        return steps * self.batches_per_step * (self.source_rows + self.target_rows)

    def __iter__(self) -> Iterator[int]:
        generator = random.Random(f"{self.seed} rows")
        rows_of = _rows_of(self.domains, generator)
        batches = range(self.batches_per_step)
        for target in self.meta_targets:
            sources = _by_turns({name: rows for name, rows in rows_of.items() if name != target}, generator)
            for _ in range(self.episode_steps):
                source = [[next(sources) for _ in range(self.source_rows)] for _ in batches]
                other = [[next(rows_of[target]) for _ in range(self.target_rows)] for _ in batches]
                for _ in range(self.inner_steps):
                    for batch in batches:
                        yield from source[batch]
                        yield from other[batch]


class SeededRowsSampler(Sampler[tuple[int, int]]):
    """
    Any sampler's rows, each with a seed that follows from the epoch and the row's place in it. What is drawn by that
    seed depends neither on how the rows are cut into batches, nor on the process or worker that reads them, nor on
    whether the run was broken off before: numbers that are drawn along the way do, as batches are read ahead.

    Args:
        sampler (`Sampler`): the order of the rows.
        seed (`int`): with the epoch and the place, it decides the seeds.
    """

    def __init__(self, sampler: Sampler, seed: int = 0):
        self.sampler, self.seed, self.epoch = sampler, seed, 0
        if hasattr(sampler, "generator"):
            # Of a sampler that knows no epoch, the order has to follow from the seed, too.
            sampler.generator = torch.Generator()

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        if hasattr(self.sampler, "generator"):
            self.sampler.generator.manual_seed(self._seed("order"))
        return ((row, self._seed(place)) for place, row in enumerate(self.sampler))

    def _seed(self, place: int | str) -> int:
        return _row_seed(self.seed, self.epoch, place)


def _row_seed(seed: int, epoch: int, place: int | str) -> int:
    return random.Random(f"augment {seed} {epoch} {place}").getrandbits(63)


class SeededRows(Dataset):
    """A dataset as it is, and its rows with their seeds where a `SeededRowsSampler` asks for them."""

    def __init__(self, dataset):
        self.dataset = dataset

    @property
    def column_names(self) -> list[str]:
        return self.dataset.column_names

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key):
        if isinstance(key, tuple):
            row, seed = key
            return {**self.dataset[row], SEED_COLUMN: seed}
        return self.dataset[key]


class SeededStream(IterableDataset):
    """
    A stream that begins again when it has ended, and its rows with seeds that follow from their place. `Trainer` does
    not know how long a stream is: one that it went through more than once it could not resume.

    Args:
        dataset: rows that can be gone through; workers take turns at them, as those of `PackedTexts` do.
        seed (`int`): with the place, it decides the seeds.
    """

    def __init__(self, dataset: IterableDataset, seed: int = 0):
        self.dataset, self.seed = dataset, seed

    def __iter__(self) -> Iterator[dict]:
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        places = count(first, every)
        for turn in count():
            if hasattr(self.dataset, "set_epoch"):
                self.dataset.set_epoch(turn)
            row = None
            for row in self.dataset:
                yield {**row, SEED_COLUMN: _row_seed(self.seed, 0, next(places))}
            if row is None:
                # Nothing is there, or nothing more: a generator is gone through once.
                return


def _rows_of(domains: Sequence[str], generator: random.Random) -> dict[str, Iterator[int]]:
    rows: dict[str, list[int]] = {name: [] for name in Counter(domains)}
    for row, name in enumerate(domains):
        rows[name].append(row)
    return {name: _endlessly(indices, generator) for name, indices in rows.items()}


def _endlessly(rows: list[int], generator: random.Random) -> Iterator[int]:
    """Each row once before any comes again, in a new order each time."""
    while True:
        yield from generator.sample(rows, len(rows))


def _by_turns(rows_of: dict[str, Iterator[int]], generator: random.Random) -> Iterator[int]:
    """One row of each domain, then again in the same order: any stretch of rows has the domains in equal shares."""
    order = generator.sample(list(rows_of), len(rows_of))
    while True:
        for name in order:
            yield next(rows_of[name])
