# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Tags and answers survive the way to tokens and back."""

import numpy as np
import pytest
import torch
import transformers
from tiny_backbones import tiny_tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from hf_memaug.data.spans import (
    IGNORED,
    answers_from_logits,
    check_questions,
    check_tags,
    reading_words,
    tag_names,
    tags_from_logits,
    tokenize_questions,
    tokenize_tags,
)
from hf_memaug.evaluation import entity_f1

kinds = pytest.mark.parametrize("kind", ["roberta", "bert"])
NER = [
    {"tokens": ["the", "goods", "battery", "is", "bad"], "ner_tags": ["O", "B-X", "I-X", "O", "B-Y"]},
    {"tokens": ["great", "film"], "ner_tags": ["O", "B-Y"]},
]
CONTEXT = "the phone is bad and the battery is bad. it was long and they were happy with the hotel and the view"


def question(answer: str | None, where: int | None = None) -> dict:
    start = CONTEXT.find(answer) if answer and where is None else where
    answers = {"text": [answer], "answer_start": [start]} if answer else {"text": [], "answer_start": []}
    return {"question": "was it good", "context": CONTEXT, "answers": answers}


def ner_tokenizer(kind):
    tokenizer = tiny_tokenizer(kind)
    if kind == "roberta":
        from tokenizers import pre_tokenizers

        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.add_prefix_space = True
    return tokenizer


@kinds
def test_a_words_first_token_has_its_tag(kind):
    tokenizer = ner_tokenizer(kind)
    labels = tag_names(NER)
    assert labels == ["O", "B-X", "B-Y", "I-X"]
    rows = tokenize_tags(NER, tokenizer, labels)
    for row, given in zip(rows, NER, strict=True):
        assert len(row["labels"]) == len(row["input_ids"]) and row["labels"][0] == row["labels"][-1] == IGNORED
        assert [labels[label] for label in row["labels"] if label != IGNORED] == given["ner_tags"]
    assert any(label == IGNORED for label in rows[0]["labels"][1:-1]), "a word of two tokens is scored once"
    logits = [np.eye(4)[[max(label, 0) for label in row["labels"]]] for row in rows]
    predicted, true = tags_from_logits(logits, rows, labels)
    assert predicted == true == [row["ner_tags"] for row in NER]


class ByToken(torch.nn.Module):
    """Its prediction is in the token: one that is read at another place is another."""

    def forward(self, input_ids, attention_mask, labels=None):
        logits = torch.nn.functional.one_hot(input_ids % 4, 4).float()
        return {"loss": logits.sum(), "logits": logits}


def test_padding_and_batches_of_other_lengths_move_no_tag(tmp_path):
    """As `Trainer` gives the logits: each batch padded to its longest row, and then all to the longest batch."""
    tokenizer, labels = ner_tokenizer("bert"), tag_names(NER)
    given = [NER[1], *NER, NER[1]]
    rows = tokenize_tags(given, tokenizer, labels)
    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_eval_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    collator = transformers.DataCollatorForTokenClassification(tokenizer)
    found = transformers.Trainer(ByToken(), arguments, data_collator=collator).predict(rows).predictions
    assert [len(row["input_ids"]) for row in rows] == [4, 8, 4, 4] and found.shape[:2] == (4, 8)
    predicted, true = tags_from_logits(found, rows, labels)
    firsts = [[tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in row["tokens"]] for row in given]
    assert predicted == [[labels[token % 4] for token in row] for row in firsts] and len(set(predicted[1])) > 2
    assert true == [row["ner_tags"] for row in given]


def test_a_tokenizer_that_pads_on_the_left_is_refused():
    tokenizer = ner_tokenizer("bert")
    tokenizer.padding_side = "left"
    for tokenize in (lambda: tokenize_tags(NER, tokenizer, tag_names(NER)), lambda: tokenize_questions([], tokenizer)):
        with pytest.raises(ValueError, match='pads on the left.*Set `tokenizer.padding_side = "right"`'):
            tokenize()


def test_words_are_read_as_words():
    row = {"tokens": ["the", "film", "is"], "ner_tags": ["O", "B-X", "O"]}
    tokenizer = tiny_tokenizer("roberta")
    tokenizer.backend_tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    with pytest.raises(ValueError, match="the middle of a word. Use `hf_memaug.data.spans.reading_words"):
        tokenize_tags([row], tokenizer, ["O", "B-X"])
    found = tokenize_tags([row], reading_words(tokenizer), ["O", "B-X"])[0]["input_ids"]
    assert found == tokenizer(" the film is")["input_ids"]
    assert reading_words(tiny_tokenizer("bert"))(["a"], is_split_into_words=True)
    row = {"tokens": ["the", " ", "film"], "ner_tags": ["O", "B-X", "I-X"]}
    with pytest.raises(ValueError, match="row 0: the tokenizer has no token for the word ' '.*Remove such words"):
        tokenize_tags([row], tiny_tokenizer("bert"), tag_names([row]))


def test_tags_that_are_not_iob2_are_refused():
    tokenizer = tiny_tokenizer("bert")
    with pytest.raises(ValueError, match="row 0: the tag 'I-X' at place 1 follows 'O'.*Convert the tags"):
        tokenize_tags([{"tokens": ["a", "b"], "ner_tags": ["O", "I-X"]}], tokenizer, ["O", "I-X"])
    with pytest.raises(ValueError, match="row 0 has 2 words and 1 tags"):
        tokenize_tags([{"tokens": ["a", "b"], "ner_tags": ["O"]}], tokenizer, ["O"])
    with pytest.raises(ValueError, match=r"the tag 'B-X', missing from `labels` \['O'\]"):
        tokenize_tags([{"tokens": ["a"], "ner_tags": ["B-X"]}], tokenizer, ["O"])


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([0, 3], r"`ner_tags` must hold a list of strings, and is \[0, 3\] in row 1.*by their names"),
        (["O", None], r"`ner_tags` must hold a list of strings, and is \['O', None\] in row 1"),
        (None, "`ner_tags` must hold a list of strings, and is None in row 1"),
        ("OO", "`ner_tags` must hold a list of strings, and is 'OO' in row 1"),
    ],
)
def test_tags_that_are_no_names_are_refused(tags, message):
    rows = [NER[1], {"tokens": ["a", "b"], "ner_tags": tags}]
    for check in (check_tags, lambda rows: tokenize_tags(rows, tiny_tokenizer("bert"), ["O", "B-Y"])):
        with pytest.raises(ValueError, match=message):
            check(rows)


def test_an_entity_that_is_cut_off_is_missed():
    words = ["the", "film", *["bad"] * 39, "battery"]
    given = [{"tokens": words, "ner_tags": ["O", "B-X", *["O"] * 39, "B-X"]}]
    labels = tag_names(given)
    rows = tokenize_tags(given, ner_tokenizer("bert"), labels, max_length=16)
    logits = [np.eye(2)[[max(label, 0) for label in rows[0]["labels"]]]]
    predicted, true = tags_from_logits(logits, rows, labels)
    assert true == [given[0]["ner_tags"]] and predicted == [["O", "B-X", *["O"] * 40]]
    assert entity_f1(predicted, true) == pytest.approx({"precision": 1.0, "recall": 0.5, "f1": 2 / 3})


@kinds
@pytest.mark.parametrize("max_length", [64, 26])
def test_answers_come_back(kind, max_length):
    tokenizer = tiny_tokenizer(kind)
    rows = [question("battery is bad"), question("hotel"), question(None), question("the view")]
    features = tokenize_questions(rows, tokenizer, max_length=max_length, stride=8)
    assert len(features) == 4 if max_length == 64 else len(features) > 4
    assert all(len(feature["input_ids"]) <= max_length for feature in features)
    assert {feature["row"] for feature in features if feature["start_positions"]} == {0, 1, 3}
    assert len({len(feature) for feature in features}) == 1 and "input_ids" in features[0]
    starts, ends = [], []
    for feature in features:
        one = np.zeros((2, len(feature["input_ids"])))
        one[0, feature["start_positions"]] = one[1, feature["end_positions"]] = 5.0
        starts.append(one[0])
        ends.append(one[1])
    assert answers_from_logits(starts, ends, features, rows) == ["battery is bad", "hotel", "", "the view"]


def test_an_answer_outside_its_context_is_refused():
    tokenizer = tiny_tokenizer("bert")
    lies = CONTEXT.find("hotel")
    with pytest.raises(ValueError, match=f"row 1: the answer 'hotel' is not at 3 of the context. It is at {lies}"):
        tokenize_questions([question(None), question("hotel", 3)], tokenizer)
    with pytest.raises(ValueError, match="row 0: the answer 'aspirin' is not at 900.*It does not occur: remove it"):
        tokenize_questions([question("aspirin", 900)], tokenizer)


@pytest.mark.parametrize(
    ("texts", "starts"),
    [(["phone"], ["4"]), (["phone"], [4.0]), (["phone"], [None]), ([4], [4]), (["phone", "is"], [4]), ("phone", 4)],
)
def test_answers_that_are_not_squads_are_refused(texts, starts):
    row = {**question(None), "answers": {"text": texts, "answer_start": starts}}
    for rows in ([row], [{**row, "answers": None}], [{**row, "answers": {"text": []}}]):
        with pytest.raises(ValueError, match="row 0: `answers` must hold `text` .strings.*Write them as in SQuAD"):
            check_questions(rows)
        with pytest.raises(ValueError, match="row 0: `answers` must hold"):
            tokenize_questions(rows, tiny_tokenizer("bert"))


def test_a_character_of_several_tokens_is_one_answer():
    context = "the phone was \u4e2d and bad"
    rows = [{"question": "was it", "context": context, "answers": {"text": ["\u4e2d"], "answer_start": [14]}}]
    tokenizer = tiny_tokenizer("roberta")
    # All bytes are tokens here, as in a real byte-level vocabulary.
    import json

    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import ByteLevel

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    for sign in sorted(ByteLevel.alphabet()):
        state["model"]["vocab"].setdefault(sign, len(state["model"]["vocab"]))
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(state))
    (feature,) = tokenize_questions(rows, tokenizer, max_length=64, stride=8)
    assert 0 < feature["start_positions"] < feature["end_positions"]
    held = feature["offsets"][feature["start_positions"] : feature["end_positions"] + 1]
    assert all(tuple(offset) in ((14, 15), (13, 15), (13, 14)) for offset in held), held


def test_a_question_that_leaves_no_room_is_refused():
    row = {**question(None), "question": "was it good " * 10}
    with pytest.raises(ValueError, match="row 0: the question leaves .* tokens.*Raise `max_length`"):
        tokenize_questions([row], tiny_tokenizer("bert"), max_length=40, stride=8)
