# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The order in which rows of several domains are trained on. It follows from a seed, so that runs can be resumed."""

import random
from collections.abc import Iterator, Sequence
from itertools import count, cycle, islice

import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from hf_memaug.data.augmentation import SEED_COLUMN


class _EpochSampler(Sampler[int]):
    """As many rows as the data has, `rows` of a domain one after the other. The seed and the epoch decide the order."""

    def __init__(self, domains: Sequence[str], rows: int = 1, seed: int = 0):
        self.domains, self.rows, self.seed, self.epoch = list(domains), rows, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.domains)

    def __iter__(self) -> Iterator[int]:
        generator = random.Random(f"{self.seed} {self.epoch}")
        return islice(self.endless(_rows_of(self.domains, generator), generator), len(self))

    def endless(self, rows_of: dict[str, Iterator[int]], generator: random.Random) -> Iterator[int]:
        raise NotImplementedError


class DomainBalancedSampler(_EpochSampler):
    """
    Rows of all domains in turn: any batch holds the domains in equal shares, within one row. In an epoch a small domain
    repeats, and a large one does not finish.
    """

    def endless(self, rows_of, generator):
        return _in_turn(rows_of, generator)


class DomainAfterDomainSampler(_EpochSampler):
    """
    Rounds through all domains, each round in a new order and with `rows` rows (one optimizer step) of each domain. An
    epoch has as many whole rounds as the data has rows for, at least one.
    """

    def __len__(self) -> int:
        round_of_rows = self.rows * len(set(self.domains))
        return max(len(self.domains) // round_of_rows, 1) * round_of_rows

    def endless(self, rows_of, generator):
        names = sorted(rows_of)
        while True:
            generator.shuffle(names)
            for name in names:
                yield from islice(rows_of[name], self.rows)


class EpisodeSampler(Sampler[int]):
    """
    Algorithm 2, lines 2 to 5, of MIL: each episode draws a meta-target domain, and each of its steps a batch from the
    other domains, followed by a batch from the meta-target. The rows of a step are the same in one large batch and in
    `batches_per_step` small ones.

    Args:
        episodes (`int`): how often a meta-target is drawn.
        episode_steps (`int`): `T`, the outer steps of an episode.
        inner_steps (`int`): `L`, how often a step's rows repeat before the next step.
        source_rows, target_rows (`int`): rows of one batch from the meta-source domains and from the meta-target.
        batches_per_step (`int`): batches of one step (accumulation steps times processes).
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
            raise ValueError(f"`train_dataset` has the one domain {names}; learning across domains needs two or more.")
        generator = random.Random(f"{seed} meta-targets")
        self.meta_targets = [generator.choice(names) for _ in range(episodes)]
        self.episode_steps, self.inner_steps = episode_steps, inner_steps
        self.source_rows, self.target_rows = source_rows, target_rows
        self.batches_per_step, self.seed = batches_per_step, seed

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
            sources = _in_turn({name: rows for name, rows in rows_of.items() if name != target}, generator)
            for _ in range(self.episode_steps):
                source = [[*islice(sources, self.source_rows)] for _ in batches]
                other = [[*islice(rows_of[target], self.target_rows)] for _ in batches]
                for batch in [*batches] * self.inner_steps:
                    yield from [*source[batch], *other[batch]]


class SeededRowsSampler(Sampler[tuple[int, int]]):
    """
    The rows of any sampler, each with a seed that follows from `seed`, the epoch and the row's place in it. What is
    drawn with it (augmentations, masks) does not depend on batches, processes, workers or resuming.
    """

    def __init__(self, sampler: Sampler, seed: int = 0):
        self.sampler, self.seed, self.epoch = sampler, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        if hasattr(self.sampler, "generator"):
            # The order of a sampler without epochs must follow from the seed, too.
            self.sampler.generator = torch.Generator().manual_seed(_row_seed(self.seed, self.epoch, "order"))
        return ((row, _row_seed(self.seed, self.epoch, place)) for place, row in enumerate(self.sampler))


def _row_seed(seed: int, epoch: int, place: int | str) -> int:
    return random.Random(f"augment {seed} {epoch} {place}").getrandbits(63)


class SeededRows(Dataset):
    """A dataset whose rows get the seeds that a `SeededRowsSampler` asks with."""

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
    A stream that restarts when it ends, with a seed for each row. `Trainer` does not know how long a stream is, and
    could not resume one that it has read more than once. Workers take turns, as with `PackedTexts`.
    """

    def __init__(self, dataset: IterableDataset, seed: int = 0):
        self.dataset, self.seed = dataset, seed

    def __iter__(self) -> Iterator[dict]:
        worker = get_worker_info()
        places = count() if worker is None else count(worker.id, worker.num_workers)
        for epoch in count():
            if hasattr(self.dataset, "set_epoch"):
                self.dataset.set_epoch(epoch)
            row = None
            for row in self.dataset:
                yield {**row, SEED_COLUMN: _row_seed(self.seed, 0, next(places))}
            if row is None:
                # Empty, or a generator that can be read only once.
                return


def _rows_of(domains: Sequence[str], generator: random.Random) -> dict[str, Iterator[int]]:
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(domains):
        rows.setdefault(name, []).append(row)
    return {name: _endlessly(indices, generator) for name, indices in rows.items()}


def _endlessly(rows: list[int], generator: random.Random) -> Iterator[int]:
    """Each row once before any repeats, in a new order each time."""
    while True:
        yield from generator.sample(rows, len(rows))


def _in_turn(rows_of: dict[str, Iterator[int]], generator: random.Random) -> Iterator[int]:
    """One row of each domain, then again in the same order: any range of rows has the domains in equal shares."""
    for name in cycle(generator.sample(list(rows_of), len(rows_of))):
        yield next(rows_of[name])
