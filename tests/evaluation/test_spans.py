# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Entities and answers, by hand."""

import pytest

from hf_memaug.evaluation import answer_scores, entity_f1
from hf_memaug.iob2 import entities


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-D I-D O B-D", [("D", 0, 2), ("D", 3, 4)]),
        ("B-D B-D I-D", [("D", 0, 1), ("D", 1, 3)]),
        ("B-D I-G", [("D", 0, 1), ("G", 1, 2)]),
        ("O I-D I-D", [("D", 1, 3)]),
        ("B-G-x I-G-x", [("G-x", 0, 2)]),
    ],
)
def test_entities(tags, expected):
    assert entities(tags.split()) == expected


@pytest.mark.parametrize("tags", ["O I-D", "I-D", "B-D I-G", "B-D O I-D"])
def test_what_is_not_iob2_is_refused_if_asked(tags):
    with pytest.raises(ValueError, match="in IOB2 an entity begins with B-"):
        entities(tags.split(), strict=True)
    for wrong in ("X-D", "D", "B-"):
        with pytest.raises(ValueError, match="is not IOB2: a tag is O, B-TYPE or I-TYPE"):
            entities([wrong])


def test_entity_f1_counts_whole_entities():
    references = ["B-D I-D O B-G".split(), "O B-D".split()]
    predictions = ["B-D I-D O B-D".split(), "B-D B-D".split()]
    # Right: (0, D 0-2) and (1, D 1-2). Predicted 4, wanted 3.
    scores = entity_f1(predictions, references)
    assert scores == pytest.approx({"precision": 2 / 4, "recall": 2 / 3, "f1": 4 / 7})
    assert entity_f1([["O"]], [["O"]])["f1"] == 0.0
    with pytest.raises(ValueError, match="2 tags in row 0, and `references` has 1"):
        entity_f1([["O", "O"]], [["O"]])
    with pytest.raises(ValueError, match="`predictions` has 1 items"):
        entity_f1([["O"]], [])


def test_answers_are_compared_as_squad_does():
    scores = answer_scores(["The Cat.", "a dog ran", "", "x"], [["cat"], ["dog", "dogs run"], [], []])
    assert scores["exact_match"] == pytest.approx(2 / 4)
    # "dog ran" and "dog": 2 * 1 / (2 + 1).
    assert scores["f1"] == pytest.approx((1 + 2 / 3 + 1 + 0) / 4)
