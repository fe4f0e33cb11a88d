# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The paper's choices, and what a wrong field gets."""

import json

import pytest
from families import vit_gmoe_config
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, BertConfig, DeiTConfig, ViTConfig

from hf_memaug import ViTGMoEConfig, ViTGMoEForImageClassification, ViTGMoEModel


def test_defaults_are_the_papers():
    config = ViTGMoEConfig()
    assert (config.num_experts, config.num_experts_per_tok, config.aux_loss_weight) == (6, 2, 0.01)
    assert (config.router, config.router_dim, config.router_scale, config.router_max_scale) == ("cosine", 256, 2, 100)
    assert config.num_hidden_layers == 12 and config.expert_layers == [8, 10]
    assert config.noise == pytest.approx(1 / 6)
    assert ViTGMoEConfig(moe_placement="every_two").expert_layers == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(("depth", "last"), [(1, [0]), (2, [0, 1]), (4, [2, 3]), (5, [3, 4]), (6, [2, 4])])
def test_the_layers_follow_the_depth(depth, last):
    config = ViTGMoEConfig(num_hidden_layers=depth)
    assert config.expert_layers == last
    config.num_hidden_layers = 12
    assert config.expert_layers == [8, 10], "fixed too early"


@pytest.mark.parametrize(("depth", "then", "now"), [(4, [0, 2], [2, 3]), (12, [8, 10], [8, 10])])
def test_a_saved_configuration_keeps_its_layers(depth, then, now, tmp_path):
    assert ViTGMoEConfig(num_hidden_layers=4, moe_placement="every_two").expert_layers == [0, 2]
    ViTGMoEConfig(num_hidden_layers=depth).save_pretrained(tmp_path)
    assert ViTGMoEConfig.from_pretrained(tmp_path).expert_layers == now
    # Before 0.2.0, files had no layers.
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), "moe_layers": None}), encoding="utf-8")
    config = AutoConfig.from_pretrained(tmp_path)
    assert config.expert_layers == then
    config.save_pretrained(tmp_path)
    assert ViTGMoEConfig.from_pretrained(tmp_path).expert_layers == then


def test_layers_by_number_and_noise_by_value():
    config = ViTGMoEConfig(moe_layers=(10, 3), moe_placement="every_two", router_noise=0)
    assert config.expert_layers == [3, 10] and config.noise == 0.0
    assert ViTGMoEConfig(num_experts=4).noise == 0.25


def test_round_trip(tmp_path):
    config = vit_gmoe_config(moe_layers=(2, 1), router="linear", router_noise=0.5, id2label={0: "dog", 1: "elephant"})
    config.save_pretrained(tmp_path)
    again = ViTGMoEConfig.from_pretrained(tmp_path)
    assert again.to_dict() == config.to_dict()
    assert again.moe_layers == [1, 2] and again.num_labels == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_experts_per_tok": 5}, r"`num_experts_per_tok` \(5\) is more than `num_experts` \(4\). Choose 1 to 4"),
        ({"num_experts_per_tok": 0}, "`num_experts_per_tok` must be between 1 and 4096; got 0"),
        ({"num_experts": 0}, "`num_experts` must be between 1 and"),
        ({"router_dim": 0}, "`router_dim` must be between 1 and"),
        ({"moe_layers": [3]}, "`moe_layers` names layer 3, and there are layers 0 to 2. Layers are counted from 0"),
        ({"moe_layers": [-1]}, "`moe_layers` names layer -1"),
        ({"moe_layers": [1, 1]}, "`moe_layers` names a layer twice"),
        ({"moe_layers": []}, "`moe_layers` is empty.*leave it out and set `moe_placement`"),
        ({"router_noise": -0.1}, "`router_noise` must be between 0 and 1000; got -0.1"),
        ({"router_noise": float("nan")}, "`router_noise` must be between 0 and 1000; got nan"),
        ({"aux_loss_weight": float("inf")}, "`aux_loss_weight` must be between 0 and 1000; got inf"),
        ({"router_scale": 0.0}, "`router_scale` must be between 1e-06 and 1000000.0; got 0.0"),
        ({"router_scale": 200.0}, r"no more than `router_max_scale` \(100.0\)"),
        ({"num_experts": "six"}, "'num_experts'"),
        ({"moe_layer": [1]}, "no field `moe_layer`. Did you mean `moe_layers`"),
        ({"num_expert": 3}, "no field `num_expert`. Did you mean `num_experts`"),
        ({"router_size": 3}, "no field `router_size`"),
        ({"aux_weight": 3}, "no field `aux_weight`.*`aux_loss_weight`"),
    ],
)
def test_wrong_fields_are_refused_by_name(wrong, message):
    with pytest.raises((StrictDataclassError, TypeError, ValueError), match=f"(?s){message}"):
        vit_gmoe_config(**wrong)


@pytest.mark.parametrize("model_class", [ViTGMoEModel, ViTGMoEForImageClassification])
@pytest.mark.parametrize(
    ("name", "value"), [("num_experts_per_tok", 9), ("moe_layers", [7]), ("num_hidden_layers", 1), ("router_scale", -1)]
)
def test_a_changed_configuration_is_checked_when_a_model_is_built(model_class, name, value):
    config = vit_gmoe_config(moe_layers=[1])
    setattr(config, name, value)
    named = "moe_layers" if name == "num_hidden_layers" else name
    with pytest.raises(ValueError, match=f"`{named}`"):
        model_class(config)


class TestFromAPlainConfiguration:
    def test_everything_is_inherited(self):
        plain = ViTConfig(hidden_size=48, image_size=32, num_hidden_layers=5, id2label={0: "a", 1: "b", 2: "c"})
        config = ViTGMoEConfig.from_vit_config(plain, num_experts=3)
        assert (config.hidden_size, config.image_size, config.num_experts) == (48, 32, 3)
        assert config.id2label == plain.id2label and config.expert_layers == [3, 4]
        assert config.model_type == "vit_gmoe" and not config.distillation_token

    def test_new_labels_win(self):
        plain = ViTConfig(id2label={0: "a", 1: "b", 2: "c"}, problem_type="multi_label_classification")
        config = ViTGMoEConfig.from_vit_config(plain, num_labels=7)
        assert config.num_labels == 7 and config.problem_type is None
        assert ViTGMoEConfig.from_vit_config(plain).problem_type == "multi_label_classification"
        assert ViTGMoEConfig.from_vit_config(plain, id2label={0: "x", 1: "y"}).id2label == {0: "x", 1: "y"}

    def test_a_deit_has_its_second_token(self):
        assert ViTGMoEConfig.from_vit_config(DeiTConfig()).distillation_token
        with pytest.raises(ValueError, match="`distillation_token` is True in a `deit` checkpoint: leave it out"):
            ViTGMoEConfig.from_vit_config(DeiTConfig(), distillation_token=False)
        with pytest.raises(ValueError, match="`distillation_token` is False in a `vit`"):
            ViTGMoEConfig.from_vit_config(ViTConfig(), distillation_token=True)

    def test_another_kind_is_refused(self):
        with pytest.raises(ValueError, match=r"plain vision transformer \(vit, deit\), and this is a `bert`"):
            ViTGMoEConfig.from_vit_config(BertConfig())
