# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""HMA's backbones: which there are, and how checkpoints of them are read and refused."""

import copy

import pytest
import torch
import transformers
from families import Case, fill_real_memory
from tiny_backbones import tiny_vit
from torch import nn

from hf_memaug import HMAForGraphClassification, HMAForImageClassification, HMAForSequenceClassification, HMAHead

HEAD, IMAGES, TEXT = (
    Case("hma", name) for name in ("HMAHead", "HMAForImageClassification", "HMAForSequenceClassification")
)


class TwoLayers(nn.Module):
    """A module of one's own."""

    def __init__(self, width: int = 12):
        super().__init__()
        self.first, self.second = nn.Linear(3 * 16 * 16, 20), nn.Linear(20, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, images):
        return self.norm(self.second(torch.relu(self.first(images.flatten(1)))))


MEMORY = {"real_memory_size": 24, "synthetic_slots": 2, "label_embedding_size": 8, "num_labels": 3}


def test_weights_are_taken_over_and_the_given_model_is_not_changed():
    vit = tiny_vit(num_labels=3)
    before = copy.deepcopy(vit.state_dict())
    model = HMAForImageClassification.from_backbone(vit, **MEMORY)
    for name, value in model.backbone.state_dict().items():
        assert torch.equal(value, vit.vit.state_dict()[name]), name
        assert torch.equal(value, model.momentum_backbone.state_dict()[name]), name
    with torch.no_grad():
        next(model.backbone.parameters()).add_(1)
    assert all(torch.equal(value, vit.state_dict()[name]) for name, value in before.items())
    assert model.config.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_checkpoint_of_text(kind, backbones):
    model = HMAForSequenceClassification.from_backbone(backbones[kind], **MEMORY)
    plain = transformers.AutoModel.from_pretrained(backbones[kind], add_pooling_layer=False).eval()
    inputs = TEXT.inputs()
    assert torch.equal(model.features(**inputs), plain(**inputs).last_hidden_state[:, 0])
    assert model(**inputs).logits.shape == (3, 3) and not model.training


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_pooling_is_over_what_is_not_padding(pooling):
    model, inputs = TEXT.model(pooling=pooling), TEXT.inputs()
    inputs["attention_mask"][1, 6:] = 0
    states = model.backbone(**inputs).last_hidden_state
    kept = states[1, :6]
    expected = {"first": kept[0], "last": kept[-1], "mean": kept.mean(dim=0)}[pooling]
    torch.testing.assert_close(model.features(**inputs)[1], expected)


def test_a_convolutional_network():
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    resnet = transformers.ResNetModel(transformers.ResNetConfig(**sizes))
    model = HMAForImageClassification.from_backbone(resnet, **MEMORY)
    inputs = IMAGES.inputs()
    assert torch.equal(model.features(**inputs), resnet.eval()(**inputs).pooler_output.flatten(1))
    assert model.config.hidden_size == 16


def test_a_decoder_is_read_at_its_last_token():
    """Its first has seen nothing of the text."""
    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=99)
    model = HMAForSequenceClassification.from_backbone(transformers.GPT2Model(config), **MEMORY)
    inputs = TEXT.inputs()
    inputs["attention_mask"][1, 6:] = 0
    states = model.backbone(**inputs).last_hidden_state
    expected = torch.stack([states[0, -1], states[1, 5], states[2, -1]])
    torch.testing.assert_close(model.features(**inputs), expected)


def test_of_a_t5_the_encoder_is_taken(tmp_path):
    """Its decoder waits for a text of its own."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4, "vocab_size": 99}
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)).eval()
    t5.save_pretrained(tmp_path / "t5")
    inputs = TEXT.inputs()
    expected = t5.get_encoder()(**{n: inputs[n] for n in ("input_ids", "attention_mask")}).last_hidden_state[:, 0]
    inputs.pop("token_type_ids", None)
    for given in (t5, transformers.T5EncoderModel.from_pretrained(tmp_path / "t5"), str(tmp_path / "t5")):
        model = HMAForSequenceClassification.from_backbone(given, **MEMORY)
        assert torch.equal(model.features(**inputs), expected)
    model.save_pretrained(tmp_path / "whole")
    again = HMAForSequenceClassification.from_pretrained(tmp_path / "whole")
    assert torch.equal(again(**inputs).logits, model(**inputs).logits)
    with pytest.raises(ValueError, match="would restore `T5Stack` as `T5EncoderModel`"):
        HMAForSequenceClassification.from_backbone(t5.get_encoder(), **MEMORY)


def test_a_model_whose_base_is_its_layers_alone_is_taken_whole(tmp_path):
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    given = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(image_size=16, patch_size=4, **small))
    assert type(given.base_model) is not type(given)
    model = HMAForImageClassification.from_backbone(given, real_memory_size=8, synthetic_slots=2).eval()
    assert type(model.backbone) is transformers.DINOv3ViTModel
    model.save_pretrained(tmp_path)
    images = torch.randn(2, 3, 16, 16)
    again = HMAForImageClassification.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(images).logits, model(images).logits, rtol=0, atol=0)


@pytest.mark.parametrize("pooling", ["auto", "first"])
def test_the_first_token_is_no_padding(pooling):
    model, inputs = TEXT.model(pooling=pooling), TEXT.inputs()
    inputs["attention_mask"][1, :4] = 0
    states = model.backbone(**inputs).last_hidden_state
    torch.testing.assert_close(model.features(**inputs)[1], states[1, 4])


def test_a_momentum_encoder_that_a_checkpoint_lacks_begins_as_the_backbone(tmp_path):
    IMAGES.model(momentum_encoder="none").save_pretrained(tmp_path)
    model = HMAForImageClassification.from_pretrained(tmp_path, momentum_encoder="copy")
    leading, following = model.backbone.state_dict(), model.momentum_backbone.state_dict()
    assert all(torch.equal(value, following[name]) for name, value in leading.items())


@pytest.mark.parametrize("case", [IMAGES, HEAD], ids=str)
@pytest.mark.parametrize(
    ("other", "written"),
    [
        ({"real_memory_size": 48}, 0),
        ({"label_embedding_size": 16}, 0),
        ({"num_labels": 5}, 0),  # its rows carry embeddings of labels that are no more
        ({"synthetic_slots": 4}, 20),
    ],
)
def test_a_queue_that_does_not_fit_what_is_asked_for_is_empty(case, other, written, tmp_path):
    case.model().save_pretrained(tmp_path)
    kwargs = {**other, "ignore_mismatched_sizes": True}
    model, info = case.model_class.from_pretrained(tmp_path, output_loading_info=True, **kwargs)
    queue = getattr(model, "head", model).memory.queue
    assert int(queue.written) == written and queue.slots.any().item() is bool(written)
    assert queue.slot_labels.any().item() is bool(written) and info["mismatched_keys"]


def test_a_module_of_ones_own(tmp_path):
    torch.manual_seed(0)
    module = TwoLayers()
    model = HMAForImageClassification.from_backbone(module, feature_size=12, **MEMORY)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), model.backbone.parameters(), strict=True))
    fill_real_memory(model)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="a module of yours. Pass it as `backbone`, also to `from_pretrained`"):
        HMAForImageClassification.from_pretrained(tmp_path)
    again = HMAForImageClassification.from_pretrained(tmp_path, backbone=TwoLayers())
    inputs = IMAGES.inputs()
    assert torch.equal(again(**inputs).logits, model(**inputs).logits)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in again.state_dict().items())


def test_a_backbone_without_a_pooled_feature_is_refused():
    model = HMAForImageClassification.from_backbone(nn.Flatten(), feature_size=12, **MEMORY)
    with pytest.raises(ValueError, match=r"a feature of shape \(rows, 12\); got \(3, 768\).*`feature_size`"):
        model(**IMAGES.inputs())

    class Nothing(nn.Module):
        def forward(self, images):
            return {"boxes": images}

    model = HMAForImageClassification.from_backbone(Nothing(), feature_size=12, **MEMORY)
    with pytest.raises(ValueError, match="got neither a tensor nor"):
        model(**IMAGES.inputs())


def test_a_backbone_that_reads_something_else_is_refused(backbones):
    graphs = Case("hma", "HMAForGraphClassification").model()
    for wrong, right, backbone in (
        (HMAForImageClassification, "Sequence", backbones["bert"]),
        (HMAForSequenceClassification, "Image", tiny_vit()),
        (HMAForGraphClassification, "Image", tiny_vit()),
        (HMAForSequenceClassification, "Graph", graphs.backbone),
    ):
        with pytest.raises(ValueError, match=f"Use `HMAFor{right}Classification`"):
            wrong.from_backbone(backbone, num_labels=3)
    with pytest.raises(ValueError, match="`Linear` takes no `node_features`. Wrap it in"):
        HMAForGraphClassification.from_backbone(nn.Linear(3, 4), feature_size=4, num_labels=3)
    with pytest.raises(ValueError, match="`node_features` is missing. `GraphCollator` makes it"):
        graphs(labels=torch.tensor([0, 1]))


def test_a_checkpoint_of_another_class_is_refused(tmp_path):
    IMAGES.model().save_pretrained(tmp_path)
    for wrong in (
        HMAForSequenceClassification,
        transformers.AutoModelForSequenceClassification,
        HMAForGraphClassification,
    ):
        with pytest.raises(ValueError, match="reads `pixel_values`, not .* Use `HMAForImageClassification`"):
            wrong.from_pretrained(tmp_path)


def test_a_model_of_hma_and_a_configuration_are_no_backbones(tmp_path):
    model = IMAGES.model()
    model.save_pretrained(tmp_path)
    for backbone in (model, str(tmp_path)):
        with pytest.raises(ValueError, match="`backbone` is an HMA model. .* pass its `model.backbone`"):
            HMAForImageClassification.from_backbone(backbone, num_labels=2)
    assert HMAForImageClassification.from_backbone(model.backbone, num_labels=2).config.num_labels == 2
    with pytest.raises(TypeError, match="`backbone` is a `ViTConfig`, which has no weights. Pass a model"):
        HMAForImageClassification.from_backbone(tiny_vit().config, num_labels=2)


def test_a_larger_vocabulary_is_the_momentum_encoders_too():
    model = TEXT.model().train()
    model.resize_token_embeddings(120)
    for backbone in (model.backbone, model.momentum_backbone):
        assert backbone.get_input_embeddings().weight.shape[0] == 120
    assert not any(p.requires_grad for p in model.momentum_backbone.parameters())
    new = [one.get_input_embeddings().weight[99:] for one in (model.backbone, model.momentum_backbone)]
    assert torch.equal(*new)
    model(input_ids=torch.full((2, 5), 119), labels=torch.arange(2)).loss.backward()


def test_a_head_out_of_a_whole_checkpoint(tmp_path):
    model = IMAGES.model()
    model.save_pretrained(tmp_path)
    alone = transformers.AutoModel.from_pretrained(tmp_path)
    inputs = IMAGES.inputs()
    assert type(alone) is HMAHead
    assert torch.equal(alone(model.features(**inputs)).logits, model(**inputs).logits)


def test_without_the_momentum_encoder_it_predicts_the_same(tmp_path):
    model, inputs = IMAGES.model(), IMAGES.inputs()
    before, size = model(**inputs).logits, model.num_parameters()
    copied = sum(p.numel() for p in model.momentum_backbone.parameters())
    model.save_pretrained(tmp_path)
    again = HMAForImageClassification.from_pretrained(tmp_path, momentum_encoder="none")
    assert again.momentum_backbone is None and again.num_parameters() == size - copied
    assert torch.equal(again(**inputs).logits, before)
