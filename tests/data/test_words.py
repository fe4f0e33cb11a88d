# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Tokenizers of whole words, which grow, and the vectors of words."""

import pytest
import torch
from transformers import AutoTokenizer, DataCollatorWithPadding, PreTrainedTokenizerFast

from hf_memaug.data import add_words, new_words, read_word_vectors, word_tokenizer

TEXTS = ["The party was great, the art was not.", "An artist came to the party!"]


def test_words_are_whole_and_the_frequent_ones_first():
    tokenizer = word_tokenizer(TEXTS)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    assert tokenizer.convert_ids_to_tokens(range(7)) == ["<pad>", "<unk>", "<s>", "</s>", "the", "party", "was"]
    found = tokenizer("The ARTIST, partying")
    assert tokenizer.convert_ids_to_tokens(found["input_ids"]) == ["the", "artist", ",", "<unk>"]
    assert tokenizer.decode(found["input_ids"], skip_special_tokens=True) == "the artist ,"
    assert tokenizer.pad_token_id == 0 and tokenizer.unk_token_id == 1
    assert tokenizer("")["input_ids"] == []


def test_limits():
    assert len(word_tokenizer(TEXTS, max_words=3)) == 7
    assert len(word_tokenizer(TEXTS, max_length=4)(TEXTS[0], truncation=True)["input_ids"]) == 4


def test_two_texts_and_the_end_of_each():
    plain, ending = word_tokenizer(TEXTS), word_tokenizer(TEXTS, end_of_text=True)
    assert plain("the party", "art")["token_type_ids"] == [0, 0, 1]
    found = ending("the party", "art")
    assert found["token_type_ids"] == [0, 0, 0, 1, 1] and found["input_ids"][2] == found["input_ids"][4] == 3
    assert ending(text_target="the party")["input_ids"][-1] == ending.eos_token_id
    batch = DataCollatorWithPadding(plain)([plain("the party", "art"), plain("the", "art")])
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]


def test_it_grows_in_place_and_comes_back_from_a_folder(tmp_path):
    tokenizer = word_tokenizer(TEXTS, end_of_text=True)
    before, old = tokenizer.get_vocab(), len(tokenizer)
    words = new_words(tokenizer, ["Quay by the quay", "art zebra", "The Owl"])
    assert words == ["quay", "by", "owl", "zebra"]
    assert new_words(tokenizer, ["quay owl quay"], min_count=2) == ["quay"]
    add_words(tokenizer, words)
    assert len(tokenizer) == old + 4 and tokenizer.vocab_size == old + 4
    assert {word: tokenizer.get_vocab()[word] for word in before} == before
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "the Quay, quays and an owl"
    for one in (tokenizer, again):
        assert one.convert_ids_to_tokens(one(text)["input_ids"]) == [
            "the", "quay", ",", "<unk>", "<unk>", "an", "owl", "</s>",
        ]  # fmt: skip
    add_words(again, ["quays"])
    assert again.convert_tokens_to_ids("quays") == old + 4


def test_growth_by_what_is_known_is_refused():
    tokenizer = word_tokenizer(TEXTS)
    for words, message in ((["art"], "knows already"), ([], "is empty"), (["owl", "owl"], "more than once")):
        with pytest.raises(ValueError, match=message):
            add_words(tokenizer, words)
    assert "owl" not in tokenizer.get_vocab()


def test_vectors_from_a_file(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("the 1 2 3\n. . . 4 5 6\nart 7 8 9\nbad 1 x 3\n")
    found = read_word_vectors(file, ["art", "owl", ". . ."])
    assert set(found) == {"art", ". . ."} and torch.equal(found["art"], torch.tensor([7.0, 8.0, 9.0]))
    with pytest.raises(ValueError, match="Line 4 .* 'bad'"):
        read_word_vectors(file, ["bad"])
    file.write_text("2 3\nthe 1 2 3\nart 7 8 9\n")
    assert set(read_word_vectors(file, ["art", "2"])) == {"art"}
