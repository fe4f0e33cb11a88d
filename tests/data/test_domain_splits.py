# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import logging

import pytest

from hf_memaug.data import (
    DomainDataset,
    check_given_splits,
    check_overlap,
    find_overlap,
    leave_one_domain_out,
    row_hashes,
    split_domains,
)


def make(counts, prefix="row", label_names=("no", "yes")):
    """`counts`: (domain, label) to a number of rows, each with a text of its own."""
    columns = {"text": [], "label": [], "domain": []}
    for (domain, label), count in counts.items():
        for number in range(count):
            columns["text"].append(f"{prefix} {domain} {label} number {number}")
            columns["label"].append(label)
            columns["domain"].append(domain)
    return DomainDataset(columns, label_names)


@pytest.fixture
def train():
    return make({(domain, label): 10 + 10 * label for domain in ("a", "b", "c") for label in (0, 1)})


@pytest.fixture
def test():
    return make({(domain, label): 4 for domain in ("a", "b", "c") for label in (0, 1)}, prefix="held")


def texts(dataset):
    return set(dataset["text"])


class TestLeaveOneDomainOut:
    def test_without_test_dev_is_a_stratified_part_of_the_sources(self, train):
        split = leave_one_domain_out(train, "b", dev_fraction=0.2)
        assert (split.sources, split.target) == (["a", "c"], "b")
        assert split.test["text"] == train.domain("b")["text"]
        assert split.dev.counts() == {name: {"no": 2, "yes": 4} for name in "ac"}
        assert split.train.counts() == {name: {"no": 8, "yes": 16} for name in "ac"}
        assert texts(split.train) | texts(split.dev) == texts(train.domain("a")) | texts(train.domain("c"))
        assert not texts(split.train) & texts(split.dev)

    def test_with_test_the_targets_training_rows_are_never_touched(self, train, test):
        split = leave_one_domain_out(train, "b", test=test)
        assert texts(split.train) == texts(train) - texts(train.domain("b"))
        assert texts(split.dev) == texts(test) - texts(test.domain("b"))
        assert split.test["text"] == test.domain("b")["text"]

    def test_target_may_be_in_test_only(self, train, test):
        split = leave_one_domain_out(train.select(i for i, d in enumerate(train["domain"]) if d != "b"), "b", test=test)
        assert split.sources == ["a", "c"] and split.test.domains == ["b"]

    def test_a_domains_dev_rows_do_not_depend_on_the_others(self, train):
        def dev_of_a(dataset, target):
            return set(leave_one_domain_out(dataset, target).dev.domain("a")["text"])

        mixed = DomainDataset.concatenate(
            [train.domain("c").shuffle(3), train.domain("a"), train.domain("b").shuffle(4)]
        )
        assert dev_of_a(train, "b") == dev_of_a(train, "c") == dev_of_a(mixed, "b")

    def test_unlabelled_rows(self, train):
        split = leave_one_domain_out(train.without_columns("label"), "a")
        assert len(split.dev) == 12 and "unlabelled" in split.summary()

    def test_equal_rows_stay_on_one_side(self):
        dataset = make({(domain, label): 10 for domain in "ab" for label in (0, 1)})
        doubled = DomainDataset.concatenate([dataset, dataset.domain("a")])
        for seed in range(5):
            split = leave_one_domain_out(doubled, "b", seed=seed)
            assert not texts(split.train) & texts(split.dev) and len(split.dev) == 8

    def test_summary(self, train, test):
        lines = leave_one_domain_out(train, "b", test=test).summary().splitlines()
        assert lines[0] == "target: b"
        assert [line.split() for line in lines[1:]] == [
            ["part", "domain", "no", "yes", "rows"],
            ["train", "a", "10", "20", "30"],
            ["train", "c", "10", "20", "30"],
            ["dev", "a", "4", "4", "8"],
            ["dev", "c", "4", "4", "8"],
            ["test", "b", "4", "4", "8"],
        ]


class TestSplitDomains:
    def test_each_domain_and_label_gives_its_share(self, train):
        parts = split_domains(train)
        assert list(parts) == ["a", "b", "c"]
        for name, (inside, out) in parts.items():
            assert out.counts() == {name: {"no": 2, "yes": 4}} and inside.counts() == {name: {"no": 8, "yes": 16}}
            assert texts(inside) | texts(out) == texts(train.domain(name)) and not texts(inside) & texts(out)
        assert len(split_domains(train, holdout=0.5)["a"].out) == 15

    def test_the_seed_decides_and_other_domains_do_not(self, train):
        first = split_domains(train, seed=3)
        assert split_domains(train, seed=3)["b"].out["text"] == first["b"].out["text"]
        assert texts(split_domains(train, seed=4)["b"].out) != texts(first["b"].out)
        more = DomainDataset.concatenate([make({("new", 0): 9, ("new", 1): 9}), train.domain("c"), train.domain("b")])
        again = split_domains(more, seed=3)
        assert list(again) == ["new", "c", "b"]
        for name in ("b", "c"):
            assert texts(again[name].out) == texts(first[name].out)

    def test_it_is_the_choice_of_leave_one_domain_out(self, train):
        parts, split = split_domains(train, seed=2), leave_one_domain_out(train, "b", seed=2)
        for name in ("a", "c"):
            assert parts[name].out["text"] == split.dev.domain(name)["text"]
            assert parts[name].inside["text"] == split.train.domain(name)["text"]

    @pytest.mark.parametrize("holdout", [0, 1, -0.5, float("nan")])
    def test_holdout(self, train, holdout):
        with pytest.raises(ValueError, match="`holdout` is .*between 0 and 1"):
            split_domains(train, holdout=holdout)

    def test_too_few_rows(self, train):
        few = DomainDataset.concatenate([train, make({("tiny", 0): 1, ("tiny", 1): 1})])
        with pytest.raises(ValueError, match="the domain 'tiny' has 2 rows, too few.*Add rows"):
            split_domains(few)


class TestRefusals:
    def test_unknown_target(self, train):
        books = make({("books", 0): 4, ("films", 0): 4})
        with pytest.raises(ValueError, match="`target` is 'book'.*Did you mean 'books'"):
            leave_one_domain_out(books, "book")

    def test_no_source(self, train, test):
        for held_out in (None, test):
            with pytest.raises(
                ValueError, match="`train` has no source domain beside the target 'a'. Add rows of another"
            ):
                leave_one_domain_out(train.domain("a"), "a", test=held_out)

    def test_on_overlap(self, train):
        with pytest.raises(ValueError, match="`on_overlap` is 'warn'; here it must be one of"):
            leave_one_domain_out(train, "a", on_overlap="warn")

    def test_a_domain_without_dev_rows(self, train, test):
        with pytest.raises(ValueError, match="the domain 'c' has no dev row"):
            leave_one_domain_out(train, "a", test=test.select(i for i, d in enumerate(test["domain"]) if d != "c"))
        small = make({("a", 0): 5, ("a", 1): 5, ("b", 0): 1, ("b", 1): 1, ("c", 0): 5, ("c", 1): 5})
        with pytest.raises(ValueError, match="the domain 'b' has no dev row"):
            leave_one_domain_out(small, "a")

    def test_a_domain_that_overlap_leaves_without_training_rows(self):
        dataset = make({("a", 0): 4, ("b", 0): 4, ("c", 0): 4})
        copied = dataset.with_columns(text=[text.replace(" b ", " a ") for text in dataset["text"]])
        with pytest.raises(ValueError, match="the domain 'b' has no train row once the overlap is dropped"):
            leave_one_domain_out(copied, "a", on_overlap="drop")

    def test_a_label_of_the_target_only(self):
        with pytest.raises(ValueError, match="`target` 'b' has the label 'yes', which no row of `train` has"):
            leave_one_domain_out(make({("a", 0): 5, ("b", 0): 5, ("b", 1): 5}), "b")

    def test_other_label_names(self, train):
        other = make({("a", 0): 4, ("b", 0): 4}, label_names=("yes", "no"))
        with pytest.raises(ValueError, match="`test` has the labels 'yes', 'no'"):
            leave_one_domain_out(train, "a", test=other)


class TestOverlapInSplits:
    @pytest.fixture
    def leaky(self, train):
        """Rows 0 and 3 of domain `a` are also in `c`, once in another spelling."""
        rows = train["text"]
        c = [i for i, domain in enumerate(train["domain"]) if domain == "c"]
        rows[0], rows[3] = rows[c[5]], rows[c[7]].upper() + " !"
        return train.with_columns(text=rows)

    def test_raise_names_counts_rows_and_mend(self, leaky, test):
        with pytest.raises(ValueError) as error:
            leave_one_domain_out(leaky, "c", dev_fraction=0.05)
        message = str(error.value)
        assert "overlap: 2 of " in message and "(2 of its 30)" in message and 'on_overlap="drop"' in message
        assert "row 0 of `train` is row 5 of `test` and row 3 of `train` is row 7 of `test`" in message

    def test_drop_spares_the_test_rows(self, leaky, caplog):
        with caplog.at_level(logging.WARNING):
            split = leave_one_domain_out(leaky, "c", on_overlap="drop")
        assert len(split.test) == 30 and len(split.train) + len(split.dev) == 58
        assert not find_overlap(split.train, split.test) and not find_overlap(split.dev, split.test)
        assert "also in `test` and were dropped" in caplog.text

    def test_drop_takes_dev_rows_out_of_train(self, train, test, caplog):
        both = DomainDataset.concatenate([train, test.domain("a")[:3]])
        split = leave_one_domain_out(both, "c", test=test, on_overlap="drop")
        assert len(split.dev) == 16 and len(split.train) == 60
        with caplog.at_level(logging.WARNING):
            split = leave_one_domain_out(both, "c", test=test)
        assert len(split.train) == 63 and "3 of 63 rows of `train` are also in `dev`" in caplog.text


class TestOverlap:
    def rows(self, *values, column="text", **more):
        return DomainDataset({column: list(values), "domain": ["x"] * len(values), **more})

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("A  Fine\tday\n", "a fine day"),
            ("ﬁne ｄay", "fine day"),
            ("STRASSE und Weg", "straße und weg"),
            ("Caf\u00e9 bar", "Cafe\u0301 bar"),
            ("It's fine, really.", "it 's fine , really ."),
        ],
    )
    def test_spelling_does_not_matter(self, one, other):
        assert row_hashes(self.rows(one)) == row_hashes(self.rows(other))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("a fine day", "a fine way"),
            ("CC(C)C", "CCCC"),
            ("good \U0001f600", "good \U0001f621"),
            ("यह की", "यह का"),
            ("!!! ???", "??? !!!"),
        ],
    )
    def test_meaning_does(self, one, other):
        assert row_hashes(self.rows(one)) != row_hashes(self.rows(other))

    def test_pairs_count_as_a_whole(self):
        a = self.rows("one two", "one two", text_pair=["three", "four"])
        b = self.rows("one two", "one", text_pair=["three", "two three"])
        assert find_overlap(a, b) == [(0, 0)]

    def test_labels_and_domains_do_not_count(self):
        a = DomainDataset({"text": ["x y"], "label": [0], "domain": ["a"]})
        assert find_overlap(a, DomainDataset({"text": ["x y"], "label": [1], "domain": ["b"]})) == [(0, 0)]

    def test_tokens_images_graphs_and_ids(self, tmp_path):
        path = tmp_path / "a.jpg"
        path.write_bytes(b"one")
        assert find_overlap(self.rows(["A", "b"], column="tokens"), self.rows(["a", "b"], column="tokens"))
        assert find_overlap(self.rows(str(path), column="image"), self.rows(b"two", b"one", column="image")) == [(0, 1)]
        graphs = [{"edges": [[0, 1]], "n": 2}, {"n": 2, "edges": [[1, 0]]}]
        assert find_overlap(self.rows(*graphs, column="graph"), self.rows(*graphs[:1], column="graph")) == [(0, 0)]
        ids = self.rows([1, 2], [12], column="input_ids")
        assert find_overlap(ids, ids) == [(0, 0), (1, 1)]
        with pytest.raises(ValueError, match="no column 'text'"):
            row_hashes(self.rows(1, column="other"))

    def test_one_question_about_two_images_is_two_rows(self):
        a, b = (self.rows("what is it", image=[image]) for image in (b"cat", b"dog"))
        assert find_overlap(a, b) == [] and find_overlap(a, a) == [(0, 0)]

    def test_check_overlap(self):
        a, b = self.rows("x y", "z", "x y"), self.rows("w", "x y")
        with pytest.raises(
            ValueError, match=r"`train` and `test` overlap: 2 of 3 rows.*\(1 of its 2\).*`find_overlap`"
        ):
            check_overlap(a, b)
        with pytest.raises(ValueError, match="row 0 of `dev` is row 1 of `final`.*Throw them away."):
            check_overlap(a, b, names=("dev", "final"), hint="Throw them away.")
        check_overlap(a[1:2], b)


def test_splits_that_the_data_brings(train, test):
    dev = make({(domain, label): 3 for domain in ("a", "b") for label in (0, 1)}, prefix="dev")
    assert check_given_splits(train, dev, test) == (train, dev)
    with pytest.raises(ValueError, match="`dev` has rows of the domain 'd', missing from `train`"):
        check_given_splits(train, make({("d", 0): 2}), test)
    with pytest.raises(ValueError, match="`test` has the label 'yes', which no row of `train` has"):
        check_given_splits(make({("a", 0): 4}, prefix="other"), make({("a", 0): 2}, prefix="dev"), make({("a", 1): 2}))
    both = DomainDataset.concatenate([dev, test[:2]])
    with pytest.raises(ValueError, match='`dev` and `test` overlap.*`on_overlap="drop"`'):
        check_given_splits(train, both, test)
    assert texts(check_given_splits(train, both, test, on_overlap="drop")[1]) == texts(dev)
    assert check_given_splits(train, both, test, on_overlap="ignore")[1] is both
    with pytest.raises(ValueError, match="`dev` has no row once the overlap is dropped"):
        check_given_splits(train, test, test, on_overlap="drop")
