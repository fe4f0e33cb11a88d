# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""transformers' own common model and configuration tests, over one class of every family."""

import unittest

import pytest
import torch
from families import CONFIGS
from upstream.upstream import load

import hf_memaug
from hf_memaug.registry import FAMILIES

pytestmark = [pytest.mark.slow, pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]
common = load("transformers", "test_modeling_common")
ConfigTester = load("transformers", "test_configuration_common").ConfigTester


class Tester:
    """What the common tests ask of a model tester."""

    def __init__(self, model_type: str, config_kwargs: dict):
        self.model_type, self.config_kwargs = model_type, config_kwargs
        self.batch_size, self.seq_length, self.is_training = 13, 7, True
        config = self.get_config()
        self.is_recurrent = self.model_type == "memory_rnn"
        self.hidden_size, self.num_hidden_layers = config.hidden_size, getattr(config, "num_hidden_layers", 1)
        self.num_attention_heads = getattr(config, "num_attention_heads", 1)
        self.is_image = hasattr(config, "image_size")
        if self.is_image:
            self.seq_length = 1 + (config.image_size // config.patch_size) ** 2
        else:
            self.vocab_size = config.vocab_size

    def get_config(self):
        return CONFIGS[self.model_type](self.model_type, **self.config_kwargs)

    def prepare_config_and_inputs_for_common(self):
        if self.is_image:
            config = self.get_config()
            sizes = [self.batch_size, config.num_channels, config.image_size, config.image_size]
            return config, {"pixel_values": common.floats_tensor(sizes)}
        # No padding ids: RoBERTa counts its positions by them, and embeddings do not show where they were.
        ids = common.ids_tensor([self.batch_size, self.seq_length], self.vocab_size - 5) + 5
        ids[:, 2] = 4  # the mask token
        mask = common.random_attention_mask([self.batch_size, self.seq_length])
        if self.is_recurrent:
            return self.get_config(), {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids.flip(1)}
        return self.get_config(), {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


class CommonTests(common.ModelTesterMixin):
    model_type: str
    config_kwargs: dict = {}

    def setUp(self):
        self.model_tester = Tester(self.model_type, self.config_kwargs)
        config_class = type(self.model_tester.get_config())
        sizes = {"hidden_size": 37}
        if config_class.sub_configs:
            # The sizes of two encoders are theirs.
            sizes = {"has_text_modality": False, "common_properties": ["strategy"], "strategy": "gated"}
        if self.model_tester.is_image:
            sizes["has_text_modality"] = False
        if self.model_tester.is_recurrent:
            # It has one layer, and no heads.
            sizes["common_properties"] = ["hidden_size"]
            self.has_attentions = False
        self.config_tester = ConfigTester(self, config_class=config_class, **sizes)
        # The common tests look up by these names which classes have no head.
        mappings = {
            "AutoModel": "MODEL_MAPPING_NAMES",
            "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
            "AutoModelForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
            "AutoModelForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
            "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
            "AutoModelForSeq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
            "AutoModelForImageClassification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        }
        for family_type, family in FAMILIES.items():
            for auto_class, names in family.models.items():
                getattr(common, mappings[auto_class])[family_type] = names[0]

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels)
        if not model_class.__name__.endswith("ConditionalGeneration"):
            inputs.pop("decoder_input_ids", None)
        if return_labels and model_class.__name__.endswith(("SequenceClassification", "PromptClassification")):
            inputs["labels"] = torch.zeros(self.model_tester.batch_size, dtype=torch.long)
        return inputs

    def test_inputs_embeds_matches_input_ids(self):
        if self.model_type == "gmap":
            self.skipTest("each of the two encoders embeds the tokens by a table of its own")
        super().test_inputs_embeds_matches_input_ids()

    def test_load_with_mismatched_shapes(self):
        if self.model_type == "gmap":
            self.skipTest("it changes the vocabulary of one encoder only, which is refused by name")
        if self.model_type == "hma":
            self.skipTest("it changes the vocabulary of the class without a head, which is the head, and has none")
        super().test_load_with_mismatched_shapes()

    def test_problem_types(self):
        if self.model_type == "hma":
            self.skipTest("it embeds classes, of which a row has one; all else is refused by name")
        super().test_problem_types()

    def test_retain_grad_hidden_states_attentions(self):
        if self.model_type == "hma":
            self.skipTest("it trains without labels, which is refused by name")
        super().test_retain_grad_hidden_states_attentions()

    def test_reverse_loading_mapping(self):
        if self.model_type == "hma":
            self.skipTest("its checkpoints keep the names that a backbone's weights have, or Trainer could not resume")
        if self.model_type == "vit_gmoe":
            self.skipTest("the router's scale of 0.1.0 gets a dimension; its name stays")
        super().test_reverse_loading_mapping()

    def test_model_get_set_embeddings(self):
        if self.model_tester.is_image:
            self.skipTest("patches are embedded by a convolution, not by a table")
        super().test_model_get_set_embeddings()

    def test_resize_tokens_embeddings(self):
        if self.model_tester.is_image:
            self.skipTest("images have no vocabulary")
        # In training it would ask for labels.
        self.model_tester.is_training = self.model_type != "hma"
        if self.model_type.endswith("kv_memory"):
            self.model_tester.config_kwargs = {"mask_token_id": 3}  # the test leaves 4 tokens
        super().test_resize_tokens_embeddings()

    def test_hidden_states_output(self):
        if self.model_tester.is_recurrent:
            self.skipTest("word vectors and both directions' states have widths of their own")
        super().test_hidden_states_output()

    def test_tied_weights_keys(self):
        if self.model_tester.is_recurrent:
            self.skipTest("tying is refused by name")
        super().test_tied_weights_keys()

    def test_generation_tester_mixin_inheritance(self):
        if self.model_tester.is_recurrent:
            self.skipTest("the source distribution has no generation tests; tests/modeling tests `generate`")
        super().test_generation_tester_mixin_inheritance()

    def test_model_weights_reload_no_missing_tied_weights(self):
        self.skipTest("it leaves out all weights; a memory that is missing is refused by name")

    def test_correct_missing_keys(self):
        if self.model_tester.is_recurrent:
            self.skipTest("it leaves out the decoder with its memory, which is refused by name")
        super().test_correct_missing_keys()

    def test_config(self):
        self.config_tester.run_common_tests()


# One class of each family, and what its tiny configuration needs for these tests.
REPRESENTATIVES = {
    "roberta_kv_memory": ("RobertaWithKVMemoryForSequenceClassification", {}),
    "bert_kv_memory": ("BertWithKVMemoryForSequenceClassification", {}),
    # The memory in the second layer: the tests look at the keys of the first.
    "gmap": ("GMAPForSequenceClassification", {"num_hidden_layers": 2, "memory_layers": [2], "strategy": "gated"}),
    # Every expert reads every token: in half precision two ways of attention may choose others in a close call.
    "vit_gmoe": (
        "ViTGMoEForImageClassification",
        {"num_hidden_layers": 2, "num_experts_per_tok": 4, "initializer_range": 0.02, "moe_layers": [0, 1]},
    ),
    # Several backward passes run without a memory update. Small weights keep the rounding of half precision small.
    "hma": ("HMAForSequenceClassification", {"kind": "bert", "real_memory_size": 400, "initializer_range": 0.02}),
    "memory_rnn": ("MemoryRNNForConditionalGeneration", {}),
}

# A writable memory is not trained, and what it wraps has these tests already.
assert set(FAMILIES) == {*REPRESENTATIVES, "writable_memory"}
for _type, (_class, _kwargs) in REPRESENTATIVES.items():
    _name = f"{_type.title().replace('_', '')}Test"
    _body = {"model_type": _type, "all_model_classes": (getattr(hf_memaug, _class),), "config_kwargs": _kwargs}
    globals()[_name] = type(_name, (CommonTests, unittest.TestCase), _body)
