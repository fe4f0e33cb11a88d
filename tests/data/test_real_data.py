# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from hf_memaug.data import DomainDataset, find_overlap, leave_one_domain_out, load_domains

DATA = Path(os.environ.get("HF_MEMAUG_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def folder(name):
    path = DATA / name
    if not path.is_dir():
        pytest.skip(f"no real data: set HF_MEMAUG_DATA to a folder that has {name!r}")
    return path


@pytest.fixture(scope="module")
def parts():
    return tuple(load_domains(folder("amazon"), split=split) for split in ("train", "test"))


class TestAmazon:
    def test_counts(self, parts):
        for dataset, count in zip(parts, (800, 200), strict=True):
            assert dataset.domains == ["books", "dvd", "electronics", "kitchen"]
            assert all(counts == {"negative": count, "positive": count} for counts in dataset.counts().values())

    def test_leave_books_out(self, parts):
        train, test = parts
        split = leave_one_domain_out(train, "books", test=test)
        assert split.sources == ["dvd", "electronics", "kitchen"]
        assert [len(part) for part in (split.train, split.dev, split.test)] == [3 * 1600, 3 * 400, 400]
        assert set(split.test["domain"]) == {"books"} and "books" not in split.train["domain"] + split.dev["domain"]
        assert not set(split.train["text"]) & set(split.test["text"])
        assert not set(split.train["text"]) & set(train.domain("books")["text"])
        assert split.test.fingerprint() == test.domain("books").fingerprint()


def test_mnli_has_pairs():
    dataset = load_domains(folder("mnli5"), split="test")
    assert dataset.label_names == ["entailment", "neutral", "contradiction"] and len(dataset.domains) == 5
    assert all(isinstance(pair, str) and pair for pair in dataset["text_pair"])
    assert leave_one_domain_out(dataset, "slate").target == "slate"


def test_known_overlap_of_acl_arc():
    train, test = (load_domains(folder("acl_arc"), split=split) for split in ("train", "test"))
    assert len(test) == 139 and len(find_overlap(test, train)) == 52


def test_known_overlap_of_movie_reviews_with_sst2():
    movie = load_domains(folder("vader4"), split="train")
    sst2 = load_domains(folder("sst2"), split="test")
    assert len(find_overlap(sst2, movie)) > len(sst2) / 3
    for name in ("tweets", "nyt", "product"):
        assert len(find_overlap(sst2, movie.domain(name))) < 5
    dev = load_domains(folder("vader4"), split="dev")
    held_out = DomainDataset.concatenate([sst2, dev.without_columns("rating")])
    with pytest.raises(ValueError, match=r"`train` and `test` overlap: .*`on_overlap=\"drop\"`"):
        leave_one_domain_out(movie, "sst", test=held_out)


def test_images_in_parquet():
    dataset = load_domains(folder("pacs"))
    assert {name: len(part) for name, part in dataset.by_domain().items()} == {
        "art_painting": 2048,
        "cartoon": 2344,
        "photo": 1670,
        "sketch": 3929,
    }
    assert dataset[0]["image"].startswith(b"\xff\xd8") and dataset.num_labels == 7
    assert len(load_domains(folder("pacs"), split="train")) < len(dataset)
    assert set(leave_one_domain_out(dataset, "sketch").test["domain"]) == {"sketch"}
