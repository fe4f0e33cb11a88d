# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
from statistics import mean

import numpy as np
import pytest

from hf_memaug.data import find_overlap, generated_digits, generated_reviews, leave_one_domain_out, row_hashes
from hf_memaug.data.vocabulary import CUES

# What the generators gave when they were written: another value means that published results cannot be repeated.
REVIEWS_FINGERPRINT = "e6235da9b8933ad54a4853260757133986fe60cacc1a2a3ca9b222248c343f99"
LABELS_FINGERPRINT = "fb0811a8ea691f5332967a42c00658095c6b5e20988aaa01ba62cf8d9c0d5d3c"


def word_accuracy(train, test):
    """Accuracy in points of logistic regression on TF-IDF."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=4, max_iter=1000))
    return 100 * model.fit(train["text"], train["label"]).score(test["text"], test["label"])


def accuracies(dataset):
    """Per domain: trained in it, and trained with as many rows of the others."""
    inside, outside = [], []
    for name in dataset.domains:
        own = dataset.domain(name)
        cut = len(own) * 3 // 4
        others = dataset.select(row for row, domain in enumerate(dataset["domain"]) if domain != name).shuffle(0)
        inside.append(word_accuracy(own[:cut], own[cut:]))
        outside.append(word_accuracy(others[:cut], own[cut:]))
    return inside, outside


class TestReviews:
    def test_shape(self):
        dataset = generated_reviews(50)
        assert dataset.domains == ["books", "films", "kitchen", "phones", "hotels"] and len(dataset) == 250
        assert dataset.column_names == ["text", "label", "domain"] and dataset.label_names == ["negative", "positive"]
        lengths = [len(text.split()) for text in generated_reviews()["text"]]
        assert min(lengths) >= 10 and max(lengths) <= 40 and len(set(lengths)) > 20

    def test_same_in_every_process(self):
        # Each process of the tests has another seed for its hashes.
        assert generated_reviews().fingerprint() == REVIEWS_FINGERPRINT

    def test_seed_and_choice_of_domains(self):
        first = generated_reviews(30)
        assert generated_reviews(30, seed=1).fingerprint() != first.fingerprint()
        few = generated_reviews(30, domains=["hotels", "books"])
        assert few.domains == ["hotels", "books"]
        assert few.domain("books").fingerprint() == first.domain("books").fingerprint()

    def test_no_row_twice_so_that_the_overlap_check_passes(self):
        dataset = generated_reviews(1500)
        assert len(set(row_hashes(dataset))) == len(dataset)
        assert leave_one_domain_out(dataset, "books").target == "books"

    def test_labels_are_balanced_and_some_are_wrong(self):
        rows = generated_reviews(1000)
        assert all(430 < number < 570 for counts in rows.counts().values() for number in counts.values())
        sayings = [i for i, text in enumerate(rows["text"]) if "my money back" in text]
        assert 0.05 < mean(rows["label"][i] for i in sayings) < 0.15

    def test_remarks_go_with_the_label_one_way_here_and_the_other_way_next_door(self):
        dataset = generated_reviews(4000)
        order = list(CUES)
        for number, name in enumerate(order):
            pair = [remark.capitalize() for remark in CUES[name]]
            for domain, turned in ((name, False), (order[(number + 1) % 5], True)):
                agree = [
                    (pair[1] in text) == (bool(label) != turned)
                    for text, label in zip(dataset.domain(domain)["text"], dataset.domain(domain)["label"], strict=True)
                    if pair[0] in text or pair[1] in text
                ]
                assert len(agree) > 300 and 0.86 <= mean(agree) <= 0.94
            elsewhere = {other for other in order if other not in (name, order[(number + 1) % 5])}
            assert not any(pair[0] in row["text"] for row in dataset if row["domain"] in elsewhere)

    def test_a_domain_not_seen_is_harder_but_not_hopeless(self):
        pairs = [accuracies(generated_reviews(seed=seed)) for seed in range(2)]
        inside, outside = (mean(value for pair in pairs for value in pair[side]) for side in (0, 1))
        assert inside - outside >= 4 and outside > 65 and inside < 90

    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [
            ({"rows_per_domain": 0}, "`rows_per_domain` is 0"),
            ({"domains": ["book"]}, "`domains` asks for 'book'.*Did you mean 'books'"),
        ],
    )
    def test_refusals(self, kwargs, message):
        with pytest.raises(ValueError, match=message):
            generated_reviews(**kwargs)


class TestDigits:
    @pytest.mark.parametrize("kind", ["rotated", "coloured"])
    def test_shape_and_no_digit_twice(self, kind):
        dataset = generated_digits(kind)
        assert len(set(dataset["source_index"])) == len(dataset) > 1700
        assert {(image.mode, image.size) for image in dataset["image"]} == {("RGB", (32, 32))}
        parts = list(dataset.by_domain().values())
        assert not any(find_overlap(a, b) for a in parts for b in parts if a is not b)
        assert len(set(row_hashes(dataset))) == len(dataset)

    def test_same_in_every_process(self):
        dataset = generated_digits("coloured").without_columns("image")
        # Without the pixels: how an image is enlarged may differ in a bit between releases of Pillow.
        assert dataset.fingerprint() == LABELS_FINGERPRINT
        assert generated_digits(seed=1).fingerprint() == generated_digits(seed=1).fingerprint()
        assert generated_digits(seed=1)["source_index"] != generated_digits()["source_index"]

    def test_rotated_domains_are_rotated(self):
        from sklearn.datasets import load_digits

        dataset = generated_digits("rotated", rows_per_domain=20)
        assert dataset.domains == ["0", "15", "30", "45", "60", "75"] and dataset.num_labels == 10
        assert dataset["label"] == load_digits().target[dataset["source_index"]].tolist()
        for name, part in dataset.by_domain().items():
            back = np.mean(
                [np.asarray(image.rotate(-int(name)), float).mean(axis=2) for image in part["image"]], axis=0
            )
            plain = np.kron(load_digits().images[part["source_index"]].mean(axis=0), np.ones((4, 4)))
            wrong = np.mean(
                [np.asarray(image.rotate(int(name) or 90), float).mean(axis=2) for image in part["image"]], axis=0
            )
            assert (
                np.corrcoef(back.ravel(), plain.ravel())[0, 1] > 0.9 > np.corrcoef(wrong.ravel(), plain.ravel())[0, 1]
            )

    def test_coloured_domains_have_the_correlations_they_are_named_after(self):
        from sklearn.datasets import load_digits

        dataset = generated_digits("coloured")
        assert dataset.domains == ["+90%", "+80%", "-90%"] and dataset.label_names == ["5-9", "0-4"]
        for name, expected in (("+90%", 0.9), ("+80%", 0.8), ("-90%", 0.1)):
            part = dataset.domain(name)
            channels = np.stack([np.asarray(image).sum(axis=(0, 1)) for image in part["image"]])
            assert (channels[:, 2] == 0).all() and ((channels[:, 0] == 0) != (channels[:, 1] == 0)).all()
            red = channels[:, 0] > 0
            labels = np.array(part["label"])
            assert abs(np.mean(red == labels) - expected) < 0.05
            low = load_digits().target[part["source_index"]] < 5
            assert abs(np.mean(low == labels) - 0.75) < 0.06

    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [
            ({"domains": "blurred"}, "`domains` is 'blurred'; it must be 'rotated' or 'coloured'"),
            ({"rows_per_domain": 300}, "`rows_per_domain` is 300; there are digits for 1 to 299"),
            ({"rows_per_domain": 0}, "`rows_per_domain` is 0"),
            ({"image_size": 4}, "`image_size` is 4; it must be at least 8"),
        ],
    )
    def test_refusals(self, kwargs, message):
        with pytest.raises(ValueError, match=message):
            generated_digits(**kwargs)
