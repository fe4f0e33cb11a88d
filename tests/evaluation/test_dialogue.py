# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""BLEU-2 against numbers made by hand."""

import math

import pytest

from hf_memaug.evaluation.dialogue import bleu


def test_a_case_by_hand():
    # "the" may count twice, not three times: 2 + 1 of 4 words; runs of two: "the cat" of 3.
    found = bleu(["the the the cat"], ["the cat sat on the mat"])
    assert found == pytest.approx(math.sqrt(3 / 4 * 1 / 3) * math.exp(1 - 6 / 4))
    # Of all replies together: 3 of 4 and 2 of 2 words, 1 of 3 and 1 of 1 runs, 6 words against 8.
    found = bleu(["the the the cat", "a dog"], ["the cat sat on the mat", "a dog"])
    assert found == pytest.approx(math.sqrt(5 / 6 * 2 / 4) * math.exp(1 - 8 / 6))


def test_the_same_is_one_and_nothing_alike_is_zero():
    assert bleu(["it is a test"], ["it is a test"]) == pytest.approx(1)
    assert bleu(["it is"], ["no match"]) == 0
    assert bleu(["is it"], ["it is"]) == 0, "no run of two words"


def test_longer_replies_are_not_rewarded_for_their_length():
    assert bleu(["it is a test it is"], ["it is a test"]) == pytest.approx(math.sqrt(4 / 6 * 3 / 5))


def test_empty_replies():
    assert bleu([""], ["it is"]) == 0


def test_refusals():
    with pytest.raises(ValueError, match="`predictions` has 1 items and `references` has 2"):
        bleu(["a"], ["a", "b"])
