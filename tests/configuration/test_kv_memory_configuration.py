# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Defaults of the paper, and what a wrong field gets."""

import pytest
from families import CONFIGS, KV_CASES, MEMORY
from tiny_backbones import SIZES

import hf_memaug
from hf_memaug.configuration.prompting import normalise_verbalizer, parse_template, verbalizer_token_ids

TYPES = list(dict.fromkeys(case.model_type for case in KV_CASES))


def config_class(model_type):
    return getattr(hf_memaug, hf_memaug.FAMILIES[model_type].config)


@pytest.mark.parametrize("model_type", TYPES)
def test_defaults_are_the_papers(model_type):
    config = config_class(model_type)()
    assert (config.memory_slots, config.memory_key_size, config.memory_heads) == (1024, 256, 4)
    assert (config.memory_weight, config.memory_query, config.memory_pooling) == (0.5, "linear", "cls")


@pytest.mark.parametrize("model_type", TYPES)
def test_inherits_the_backbones_defaults(model_type):
    from transformers import AutoConfig

    ours, theirs = config_class(model_type)(), AutoConfig.for_model(hf_memaug.FAMILIES[model_type].backbone)
    for name in ("vocab_size", "pad_token_id", "type_vocab_size", "layer_norm_eps", "hidden_act", "bos_token_id"):
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("model_type", TYPES)
def test_round_trip(model_type, tmp_path):
    config = CONFIGS[model_type](
        model_type,
        verbalizer={"a": "x", "b": ["y", "z"], "c": "w"},
        run_facts={"data": "d", "scores": [{"value": 1.5}]},
    )
    config.save_pretrained(tmp_path)
    again = type(config).from_pretrained(tmp_path)
    assert again.to_dict() == config.to_dict()
    assert again.verbalizer == {"a": ["x"], "b": ["y", "z"], "c": ["w"]}


@pytest.mark.parametrize("model_type", TYPES)
def test_a_verbalizer_in_any_order_comes_back(model_type, tmp_path):
    """JSON sorts its keys; which label is which, `id2label` says."""
    words = {"good": ["great"], "bad": ["poor", "awful"], "fair": ["fine"]}
    config = config_class(model_type)(verbalizer=words, verbalizer_token_ids=[[5], [6, 7], [8]])
    assert config.id2label == {0: "good", 1: "bad", 2: "fair"}
    config.save_pretrained(tmp_path)
    again = type(config).from_pretrained(tmp_path)
    assert list(again.verbalizer.items()) == list(words.items()) and again.id2label == config.id2label
    assert again.verbalizer_token_ids == [[5], [6, 7], [8]]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"memry_slots": 3}, r"`memry_slots`.*`memory_slots`"),
        ({"memory_slotz": 3}, r"`memory_slotz`.*`memory_slots`"),
        ({"memory_zzzzzz": 3}, r"`memory_zzzzzz`.*`memory_weight`"),
        ({"hiden_size": 3}, r"`hiden_size`.*`hidden_size`"),
        ({"verbaliser": {}}, r"`verbaliser`.*`verbalizer`"),
        ({"memory_slots": "many"}, "memory_slots.*int"),
        ({"memory_slots": 0}, "`memory_slots` must be between 1 and 16777216; got 0"),
        ({"memory_weight": 1.5}, r"`memory_weight` must be between 0 and 1; got 1.5"),
        ({"template": "{text} It was good."}, r"`template` must hold {text} and {mask} exactly once"),
        ({"verbalizer": {"a": "x", "b": []}}, r"`verbalizer` gives no word for the label 'b'"),
        ({"verbalizer": {"a": "x", "b": "y"}, "num_labels": 3}, r"`verbalizer` names the labels"),
        (
            {"verbalizer": {"a": "x", "b": "y"}, "id2label": {0: "b", 1: "c"}},
            r"`verbalizer` names the labels.*`id2label`",
        ),
        ({"verbalizer": {"a": "x", "b": "y"}, "verbalizer_token_ids": [[1], [2, 3]]}, "number of words"),
        ({"verbalizer_token_ids": [[1], []]}, r"`verbalizer_token_ids` has the row \[\]"),
        ({"verbalizer_token_ids": [[1], [-2]]}, r"`verbalizer_token_ids` has the row \[-2\]"),
        ({"memory_initializer_range": -1}, "`memory_initializer_range` must be between 0 and 1000; got -1"),
        ({"memory_key_initializer_range": -0.1}, "`memory_key_initializer_range` must be between 0 and"),
        ({"memory_key_initializer_range": float("nan")}, "`memory_key_initializer_range` must be between 0 and 1000"),
        ({"initializer_range": float("inf")}, "`initializer_range` must be between 0 and 1000; got inf"),
        ({"layer_norm_eps": -1e-5}, "`layer_norm_eps` must be between 1e-20 and 1; got -1e-05"),
        ({"num_attention_heads": 0}, "`num_attention_heads` must be between 1 and 4096; got 0"),
        ({"vocab_size": 10**12}, "`vocab_size` must be between 1 and 16777216; got 10{12}"),
        ({"num_labels": 10**12}, "`num_labels` must be between 0 and 1048576"),
        ({"num_labels": "three"}, "`num_labels` must be a whole number; got 'three'"),
        (
            {"verbalizer_token_ids": [[1], [99]], "num_labels": 2, "vocab_size": 99},
            r"`verbalizer_token_ids` has the row \[99\].*from 0 to 98 \(`vocab_size` is 99\)",
        ),
        ({"verbalizer_token_ids": [[1]], "num_labels": 3}, r"`verbalizer_token_ids` has 1 rows"),
    ],
)
@pytest.mark.parametrize("model_type", TYPES)
def test_a_wrong_field_is_refused_by_name(model_type, wrong, said):
    with pytest.raises(Exception, match=f"(?s){said}"):
        config_class(model_type)(**wrong)


@pytest.mark.parametrize("model_type", TYPES)
def test_foreign_fields_of_other_checkpoints_pass(model_type):
    config = config_class(model_type)(
        layer_norm_epsilon=1e-5, gradient_checkpointing=False, position_embedding_type="absolute"
    )
    assert config.layer_norm_epsilon == 1e-5


@pytest.mark.parametrize("name", ["memory_heads", "num_attention_heads"])
@pytest.mark.parametrize("model_type", TYPES)
def test_heads_that_do_not_divide_are_refused_before_a_model_is_built(model_type, name):
    config = config_class(model_type)(**{**SIZES, **MEMORY, name: 5})
    with pytest.raises(ValueError, match=rf"`{name}` .*5.* must divide `hidden_size` \(32\)"):
        hf_memaug.FAMILIES[model_type].load(hf_memaug.FAMILIES[model_type].model_names[0])(config)


@pytest.mark.parametrize("model_type", TYPES)
def test_labels_come_from_the_verbalizer(model_type):
    config = config_class(model_type)(verbalizer={"no": "bad", "yes": "good", "so-so": "fine"})
    assert config.id2label == {0: "no", 1: "yes", 2: "so-so"} and config.num_labels == 3


class TestTemplates:
    def test_parts(self):
        assert parse_template("{text} It was {mask}.") == [
            ("text", ""),
            ("words", " It was"),
            ("mask", ""),
            ("words", "."),
        ]
        kinds = [kind for kind, _ in parse_template("{text}? {mask}, {text_pair}")]
        assert kinds == ["text", "words", "mask", "words", "text_pair"]

    @pytest.mark.parametrize(
        ("template", "said"),
        [
            ("It was {mask}.", "{text} and {mask} exactly once"),
            ("{text} {mask} {mask}", "{mask} exactly once, and {text_pair} at most once"),
            ("{text} {masc}", "unknown slot {masc}"),
            ("{text_pair} {mask} {text}", "{text} before {text_pair}"),
        ],
    )
    def test_refused(self, template, said):
        with pytest.raises(ValueError, match=f"`template`.*{said}"):
            parse_template(template)


class TestVerbalizers:
    @pytest.mark.parametrize("kind", ["roberta", "bert"])
    def test_ids_are_those_of_running_text(self, kind):
        from tiny_backbones import tiny_tokenizer

        tokenizer = tiny_tokenizer(kind)
        ids = verbalizer_token_ids(normalise_verbalizer({"no": "bad", "yes": ["good", "great"]}), tokenizer)
        assert [tokenizer.decode(row).split() for row in ids] == [["bad"], ["good", "great"]]
        in_text = tokenizer("it was good", add_special_tokens=False)["input_ids"]
        assert ids[1][0] == in_text[-1]

    @pytest.mark.parametrize(
        ("verbalizer", "said"),
        [
            ({"no": "bad", "yes": "goodness"}, "'goodness' of label 'yes' is [0-9]+ tokens"),
            ({"no": "bad", "yes": "bad"}, "same word for two labels"),
            ({"no": "bad"}, "at least two labels"),
            ({"no": ["bad", "bad"], "yes": "good"}, "or twice for one"),
            ({"no": "", "yes": "good"}, "no word for the label 'no'"),
            ({"no": 5, "yes": "good"}, "the label 'no' 5, which is no word"),
            (["bad", "good"], "Name the labels of the words"),
        ],
    )
    def test_refused(self, verbalizer, said):
        from tiny_backbones import tiny_tokenizer

        with pytest.raises(ValueError, match=f"`verbalizer`.*{said}"):
            verbalizer_token_ids(normalise_verbalizer(verbalizer), tiny_tokenizer("roberta"))

    def test_a_question_that_is_none_is_refused(self):
        with pytest.raises(ValueError, match="`template` is None. Write for example"):
            parse_template(None)

    def test_an_unknown_word_is_refused(self):
        from tiny_backbones import tiny_tokenizer

        with pytest.raises(ValueError, match="'Ω'.*single known token"):
            verbalizer_token_ids({"no": ["bad"], "yes": ["Ω"]}, tiny_tokenizer("bert"))
