# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Backbones of timm, by transformers' wrapper of it and as plain modules."""

import pytest
import torch
from training.image_runs import image_trainer
from transformers import (
    AutoModelForImageClassification,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
    TimmWrapperModel,
    Trainer,
    TrainingArguments,
)

from hf_memaug import HMAForImageClassification, MemoryUpdateCallback
from hf_memaug.training import ALGORITHMS

try:
    import timm
except Exception as error:
    # It wants torchvision, which ends the import with more than an `ImportError` where it does not fit torch.
    pytest.skip(f"timm cannot be imported: {str(error).splitlines()[0]}", allow_module_level=True)

NETWORKS = ["resnet10t", "vit_tiny_patch16_224"]
SIZE = {"resnet10t": 32, "vit_tiny_patch16_224": 224}


def wrapped(name: str) -> TimmWrapperModel:
    torch.manual_seed(0)
    return TimmWrapperModel(TimmWrapperConfig(architecture=name))


def batch(name: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    images = torch.randn(4, 3, SIZE[name], SIZE[name])
    return {"pixel_values": images, "labels": torch.tensor([0, 1, 2, 0])}


def test_a_classifier_and_a_folder_are_the_same_backbone(tmp_path):
    torch.manual_seed(0)
    classifier = TimmWrapperForImageClassification(TimmWrapperConfig(architecture="resnet10t", num_labels=5))
    encoder = wrapped("resnet10t")
    encoder.load_state_dict(classifier.state_dict(), strict=False)
    encoder.save_pretrained(tmp_path)
    found = []
    for backbone in (classifier, encoder, str(tmp_path)):
        hma = HMAForImageClassification.from_backbone(backbone, num_labels=3)
        assert hma.config.feature_size == 512
        with torch.no_grad():
            found.append(hma(batch("resnet10t")["pixel_values"]).features)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("name", NETWORKS)
def test_a_wrapped_model_is_a_backbone(name, tmp_path):
    hma = HMAForImageClassification.from_backbone(
        wrapped(name), num_labels=3, real_memory_size=8, synthetic_slots=2, inference="independent"
    )
    hma.train()
    hma(**batch(name)).loss.backward()
    without = [one for one, parameter in hma.named_parameters() if parameter.requires_grad and parameter.grad is None]
    assert not without
    hma.eval()
    hma.save_pretrained(tmp_path)
    again = AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    assert type(again) is HMAForImageClassification
    with torch.no_grad():
        one, other = hma(**batch(name)).logits, again(**batch(name)).logits
    assert torch.equal(one, other)


def test_a_plain_model_is_a_backbone():
    torch.manual_seed(0)
    network = timm.create_model("resnet10t", pretrained=False, num_classes=0)
    hma = HMAForImageClassification.from_backbone(network, num_labels=3)
    assert hma.config.feature_size == network.num_features
    loss = hma.train()(**batch("resnet10t")).loss
    assert torch.isfinite(loss)


def test_the_unmodified_trainer(tmp_path):
    hma = HMAForImageClassification.from_backbone(wrapped("resnet10t"), num_labels=3, real_memory_size=8)
    rows = [{name: value[row] for name, value in batch("resnet10t").items()} for row in range(4)]
    arguments = TrainingArguments(str(tmp_path), max_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True)
    Trainer(hma, arguments, train_dataset=rows, callbacks=[MemoryUpdateCallback()]).train()
    written = [value for name, value in hma.named_buffers() if name.endswith("written")]
    assert len(written) == 1 and written[0] == 4


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_on_a_resnet_of_timm(algorithm, tmp_path):
    torch.manual_seed(0)
    model = TimmWrapperForImageClassification(TimmWrapperConfig(architecture="resnet10t", num_labels=10))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = image_trainer("timm", tmp_path, model=model, algorithm=algorithm)
    trainer.train()
    assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items() if "conv" in name)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


@pytest.mark.parametrize("algorithm", ["coral", "dann"])
def test_memories_and_algorithms(algorithm, tmp_path):
    model = HMAForImageClassification.from_backbone(wrapped("resnet10t"), num_labels=10, real_memory_size=16)
    image_trainer("timm", tmp_path, model=model, algorithm=algorithm).train()
