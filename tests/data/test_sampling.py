# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The order of the rows, counted by hand."""

from collections import Counter
from itertools import islice

import pytest
import torch

from hf_memaug.data.augmentation import SEED_COLUMN
from hf_memaug.data.sampling import DomainBalancedSampler, EpisodeSampler, SeededStream

SIZES = {"books": 50, "films": 7, "phones": 23, "hotels": 11}
DOMAINS = [name for name, size in SIZES.items() for _ in range(size)]
BY_ROW = dict(enumerate(DOMAINS))


def shares(rows, names=tuple(SIZES)) -> list[int]:
    """How many of the rows each domain has."""
    counts = Counter(BY_ROW[row] for row in rows)
    assert set(counts) <= set(names)
    return [counts[name] for name in names]


def batches(rows, size: int) -> list[list[int]]:
    rows = iter(rows)
    return list(iter(lambda: list(islice(rows, size)), []))


class TestDomainBalancedSampler:
    def test_an_epoch_has_as_many_rows_as_the_data(self):
        sampler = DomainBalancedSampler(DOMAINS)
        rows = list(sampler)
        assert len(sampler) == len(rows) == len(DOMAINS) == 91
        assert all(0 <= row < 91 for row in rows)

    @pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8, 16, 30])
    def test_every_batch_has_equal_shares_within_one_row(self, size):
        for seed in range(5):
            for batch in batches(DomainBalancedSampler(DOMAINS, seed=seed), size):
                counts = shares(batch)
                assert max(counts) - min(counts) <= 1, counts

    def test_a_row_comes_again_only_after_all_rows_of_its_domain(self):
        rows = list(DomainBalancedSampler(DOMAINS, seed=3))
        for name, size in SIZES.items():
            own = [row for row in rows if BY_ROW[row] == name]
            for lap in batches(own, size):
                assert len(set(lap)) == len(lap), f"{name} repeats a row before its others have come"
        films = [row for row in rows if BY_ROW[row] == "films"]
        assert len(films) > 3 * SIZES["films"], "the small domain comes round more than once"
        assert films[:7] != films[7:14], "each round has an order of its own"

    def test_the_same_seed_and_epoch_are_the_same_order_and_others_are_not(self):
        def order(seed, epoch):
            sampler = DomainBalancedSampler(DOMAINS, seed=seed)
            sampler.set_epoch(epoch)
            return tuple(sampler)

        assert order(1, 2) == order(1, 2)
        orders = {order(seed, epoch) for seed in range(4) for epoch in range(4)}
        assert len(orders) == 16


def episodes(**kwargs) -> EpisodeSampler:
    sizes = {"episodes": 6, "episode_steps": 4, "source_rows": 6, "target_rows": 3}
    return EpisodeSampler(DOMAINS, **{**sizes, **kwargs})


class TestEpisodeSampler:
    @pytest.mark.parametrize(
        "kwargs", [{}, {"inner_steps": 3}, {"batches_per_step": 4}, {"source_rows": 4}, {"source_rows": 2}], ids=str
    )
    def test_a_batch_is_balanced_sources_and_then_rows_of_the_meta_target(self, kwargs):
        sampler = episodes(**kwargs)
        size = sampler.source_rows + sampler.target_rows
        found = batches(sampler, size)
        assert len(found) * size == len(sampler)
        assert len(found) == 6 * 4 * sampler.inner_steps * sampler.batches_per_step
        for number, batch in enumerate(found):
            target = sampler.meta_target(number // sampler.batches_per_step)
            sources = [name for name in SIZES if name != target]
            counts = shares(batch[: sampler.source_rows], sources)
            assert max(counts) - min(counts) <= 1, counts
            assert shares(batch[sampler.source_rows :], [target]) == [sampler.target_rows]

    def test_the_meta_target_changes_with_the_episode_only_and_every_domain_has_its_turn(self):
        sampler = episodes(episodes=40, episode_steps=5, inner_steps=2)
        targets = [sampler.meta_target(step) for step in range(40 * 10)]
        assert targets == [name for name in sampler.meta_targets for _ in range(10)]
        assert set(targets) == set(SIZES)

    def test_inner_steps_repeat_the_same_rows(self):
        sampler = episodes(inner_steps=3, batches_per_step=2)
        steps = batches(sampler, 2 * 9)
        for first in range(0, len(steps), 3):
            assert steps[first] == steps[first + 1] == steps[first + 2]
        assert steps[0] != steps[3]
        once = batches(episodes(batches_per_step=2), 2 * 9)
        assert steps[::3] == once, "how often a step comes does not decide which rows it has"

    @pytest.mark.parametrize("inner_steps", [1, 2])
    def test_a_step_has_the_same_rows_however_it_is_cut_into_batches(self, inner_steps):
        whole = episodes(source_rows=24, target_rows=12, inner_steps=inner_steps)
        parts = episodes(source_rows=6, target_rows=3, batches_per_step=4, inner_steps=inner_steps)
        assert len(whole) == len(parts)
        for one, four in zip(batches(whole, 36), batches(parts, 36), strict=True):
            assert sorted(one) == sorted(four)
            assert one[:24] == [row for start in range(0, 36, 9) for row in four[start : start + 6]]

    def test_the_seed_decides_everything(self):
        assert list(episodes(seed=4)) == list(episodes(seed=4))
        assert episodes(seed=4).meta_targets == episodes(seed=4).meta_targets
        assert len({tuple(episodes(seed=seed)) for seed in range(6)}) == 6
        sampler = episodes()
        assert list(sampler) == list(sampler)

    def test_one_domain_is_refused_with_the_mend(self):
        with pytest.raises(ValueError, match=r"`train_dataset`.*one domain.*books.*needs two or more"):
            EpisodeSampler(["books"] * 9, episodes=1, episode_steps=1, source_rows=2, target_rows=2)


def test_a_stream_begins_again_with_other_seeds_whoever_reads_it():
    rows = [{"input_ids": [number]} for number in range(5)]

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            worker = torch.utils.data.get_worker_info()
            return iter(rows if worker is None else rows[worker.id :: worker.num_workers])

    read = list(islice(SeededStream(Stream(), seed=1), 12))
    assert [row["input_ids"][0] for row in read] == [*range(5), *range(5), 0, 1]
    seeds = [row[SEED_COLUMN] for row in read]
    assert len(set(seeds)) == 12 and seeds == [row[SEED_COLUMN] for row in islice(SeededStream(Stream(), seed=1), 12)]
    assert not set(seeds) & {row[SEED_COLUMN] for row in islice(SeededStream(Stream(), seed=2), 12)}
    loader = torch.utils.data.DataLoader(SeededStream(Stream(), seed=1), batch_size=None, num_workers=2)
    by_two = list(islice(loader, 4))
    assert [(row["input_ids"], row[SEED_COLUMN]) for row in by_two] == [
        (row["input_ids"], row[SEED_COLUMN]) for row in read[:4]
    ]


def test_a_stream_that_can_be_read_once_ends():
    assert len(list(SeededStream(iter([{"input_ids": [1]}, {"input_ids": [2]}])))) == 2
