# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Entities, answers and BLEU-2 by hand; the loss of a masked language model is the mean over masked tokens."""

import math

import pytest
import torch
from tiny_backbones import SENTENCES, save_backbone
from transformers import AutoModelForMaskedLM, AutoTokenizer

from hf_memaug.data.corpus import PackedTexts, WholeWordMasking
from hf_memaug.evaluation import answer_scores, bleu, entity_f1, masked_lm_loss
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


def test_bleu_by_hand():
    # "the" may count twice, not three times: 2 + 1 of 4 words; runs of two: "the cat" of 3.
    found = bleu(["the the the cat"], ["the cat sat on the mat"])
    assert found == pytest.approx(math.sqrt(3 / 4 * 1 / 3) * math.exp(1 - 6 / 4))
    # Of all replies together: 3 of 4 and 2 of 2 words, 1 of 3 and 1 of 1 runs, 6 words against 8.
    found = bleu(["the the the cat", "a dog"], ["the cat sat on the mat", "a dog"])
    assert found == pytest.approx(math.sqrt(5 / 6 * 2 / 4) * math.exp(1 - 8 / 6))


def test_bleu_of_the_same_is_one_and_nothing_alike_is_zero():
    assert bleu(["it is a test"], ["it is a test"]) == pytest.approx(1)
    assert bleu(["it is"], ["no match"]) == 0
    assert bleu(["is it"], ["it is"]) == 0, "no run of two words"


def test_longer_replies_are_not_rewarded_for_their_length():
    assert bleu(["it is a test it is"], ["it is a test"]) == pytest.approx(math.sqrt(4 / 6 * 3 / 5))
    assert bleu([""], ["it is"]) == 0


def test_bleu_needs_one_reference_each():
    with pytest.raises(ValueError, match="`predictions` has 1 items and `references` has 2"):
        bleu(["a"], ["a", "b"])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = save_backbone("bert", tmp_path_factory.mktemp("bert"))
    return AutoModelForMaskedLM.from_pretrained(folder).train(), AutoTokenizer.from_pretrained(folder)


def test_it_is_the_mean_over_the_masked_tokens(loaded):
    model, tokenizer = loaded
    rows = list(PackedTexts(SENTENCES * 4, tokenizer, length=20, keep_rest=True))
    found = masked_lm_loss(model, rows, WholeWordMasking(tokenizer, seed=3))
    assert model.training, "as it was before"
    batch = WholeWordMasking(tokenizer, seed=3)(rows)
    losses = []
    with torch.no_grad():
        logits = model.eval()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    model.train()
    for row, column in (batch["labels"] != -100).nonzero().tolist():
        losses.append(-logits[row, column].log_softmax(-1)[batch["labels"][row, column]])
    assert found == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)
    again = masked_lm_loss(model, rows, WholeWordMasking(tokenizer, seed=3), batch_size=2)
    assert again == pytest.approx(found, rel=1e-5)
    assert masked_lm_loss(model, rows, WholeWordMasking(tokenizer, seed=4)) != pytest.approx(found, rel=1e-5)
    with pytest.raises(ValueError, match="`rows` is empty"):
        masked_lm_loss(model, [], WholeWordMasking(tokenizer))
