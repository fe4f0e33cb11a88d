# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The paper's choices, and what a wrong field gets."""

import pytest
from families import gmap_config

from hf_memaug import GMAPConfig, GMAPModel


def test_defaults_are_the_papers():
    config = GMAPConfig()
    assert (config.strategy, config.fusion, config.freeze_general) == ("chunk_gated", "memory_attention", True)
    assert config.augmented_layers == [6, 12] and config.num_hidden_layers == 12
    assert GMAPConfig(strategy="single").augmented_layers == GMAPConfig(strategy="gated").augmented_layers == [9]
    assert GMAPConfig(strategy="multiple").augmented_layers == list(range(1, 13))


@pytest.mark.parametrize(
    ("depth", "chunks", "one"), [(6, [3, 6], 4), (24, [12, 24], 18), (4, [2, 4], 3), (2, [1, 2], 2)]
)
def test_the_layers_scale_with_the_depth(depth, chunks, one):
    assert gmap_config("gmap", num_hidden_layers=depth).augmented_layers == chunks
    assert gmap_config("gmap", num_hidden_layers=depth, strategy="gated").augmented_layers == [one]


def test_round_trip(tmp_path):
    config = gmap_config("gmap", kind="bert", memory_layers=(2, 3), id2label={0: "a", 1: "b"}, classifier_layers=2)
    config.save_pretrained(tmp_path)
    again = GMAPConfig.from_pretrained(tmp_path)
    assert again.to_dict() == config.to_dict()
    assert type(again.domain).__name__ == type(again.general).__name__ == "BertConfig"
    assert again.memory_layers == [2, 3] and again.num_labels == 2


def test_the_whole_answers_for_the_domain_encoder():
    config = gmap_config("gmap", vocab_size=50)
    assert (config.vocab_size, config.hidden_size, config.pad_token_id) == (50, 32, 1)
    config.vocab_size = 60
    assert config.domain.vocab_size == config.general.vocab_size == 60 and config.get_text_config() is config.domain


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"memory_layers": [2, 5]}, "`memory_layers` names layer 5, and the domain encoder has layers 1 to 4"),
        ({"memory_layers": [0, 4]}, "names layer 0.*counted from 1"),
        ({"memory_layers": [2, 2]}, "names a layer twice"),
        ({"memory_layers": [2]}, "makes 2 memory representations.*Name 2 layers"),
        ({"strategy": "gated", "memory_layers": [2, 4]}, "makes 1 memory representation, .*Name 1 layer"),
        ({"num_attention_heads": 5}, "`general.num_attention_heads` is 5. It must divide `hidden_size` .32."),
        ({"strategy": "multiple", "memory_layers": []}, "`memory_layers` is empty.*Name a layer, or leave it out"),
        ({"num_hidden_layers": 1}, 'reads in two layers, and the domain encoder has 1. Choose "single"'),
        ({"is_decoder": True}, "`general` is a `roberta` with `is_decoder=True`.*Load it with `is_decoder=False`"),
    ],
)
def test_a_wrong_field_is_refused_when_a_model_is_built(wrong, message):
    with pytest.raises(ValueError, match=message):
        GMAPModel(gmap_config("gmap", **wrong))


@pytest.mark.parametrize(("name", "value"), [("hidden_size", 64), ("num_hidden_layers", 6), ("vocab_size", 100)])
def test_encoders_of_another_shape_are_refused(name, value):
    config = gmap_config("gmap")
    setattr(config.general, name, value)
    with pytest.raises(ValueError, match=f"`general` has `{name}={value}` and `domain` has.*one tokenizer"):
        GMAPModel(config)


def test_words_that_are_no_choice_are_refused():
    with pytest.raises(TypeError, match="Did you mean `freeze_general`"):
        GMAPConfig(freeze_generals=True)
    with pytest.raises(ValueError, match="`general` is a `vit` encoder. Supported: roberta, bert"):
        GMAPModel(GMAPConfig(general={"model_type": "vit"}))
