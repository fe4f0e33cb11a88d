# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Both encoders of G-MAP read the same tokens: what lies beside them says so, where something does."""

import json
import shutil

import pytest
import transformers
from tiny_backbones import save_backbone

import hf_memaug


@pytest.fixture(scope="module")
def general(tmp_path_factory):
    return {kind: save_backbone(kind, tmp_path_factory.mktemp(kind)) for kind in ("roberta", "bert")}


def pair(*places):
    return hf_memaug.GMAPModel.from_general_and_domain(*places, memory_layers=[1, 2])


def changed_tokenizer(general: str, folder, change) -> str:
    """The same encoder, and what `change` makes of its tokenizer."""
    shutil.copytree(general, folder, dirs_exist_ok=True)
    file = folder / "tokenizer.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    change(stored)
    file.write_text(json.dumps(stored), encoding="utf-8")
    return str(folder)


def swap_two_words(stored: dict) -> None:
    words = stored["model"]["vocab"]
    first, second = sorted(words)[-2:]
    words[first], words[second] = words[second], words[first]


def change_case(stored: dict) -> None:
    stored["normalizer"] = None if stored["normalizer"] else {"type": "Lowercase"}


def test_another_vocabulary_is_refused(general, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(general["roberta"])
    transformers.AutoModel.from_pretrained(general["roberta"]).save_pretrained(tmp_path)
    tokenizer.add_tokens(["aspirin"])
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="different tokenizers. Choose two encoders with one"):
        pair(general["roberta"], str(tmp_path))
    with pytest.raises(ValueError, match="different tokenizers"):
        pair(general["roberta"], general["bert"])


@pytest.mark.parametrize("kind", ["roberta", "bert"])
def test_an_encoder_without_a_tokenizer_is_taken(kind, general, tmp_path):
    transformers.AutoModel.from_pretrained(general[kind]).save_pretrained(tmp_path)
    pair(general[kind], tmp_path)
    pair(str(tmp_path), general[kind])


def test_a_model_has_the_tokenizer_of_where_it_came_from(general, tmp_path):
    places = general["roberta"], changed_tokenizer(general["roberta"], tmp_path, swap_two_words)
    one, other = (transformers.AutoModel.from_pretrained(place) for place in places)
    for given in (places, (one, other), (places[0], other), (one, places[1])):
        with pytest.raises(ValueError, match="different tokenizers"):
            pair(*given)
    for model in (one, other):
        model.resize_token_embeddings(model.config.vocab_size + 3)
    pair(one, other)


def test_one_vocabulary_that_is_read_differently_is_refused(general, tmp_path):
    other = changed_tokenizer(general["bert"], tmp_path, change_case)
    with pytest.raises(ValueError, match="different tokenizers"):
        pair(general["bert"], other)
