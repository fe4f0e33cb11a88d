# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What both encoders share is stored once, and each has it again."""

import copy
import json

import pytest
import torch
from families import gmap_config
from safetensors.torch import load_file, save_file
from tiny_backbones import save_backbone

import hf_memaug
from hf_memaug.training.checks import check_frozen_encoders

HEADS = ["GMAPModel", "GMAPForSequenceClassification", "GMAPForMaskedLM"]
every_kind = pytest.mark.parametrize("kind", ["roberta", "bert"])


def stored(model, folder) -> dict:
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def assert_it_comes_back(model, folder):
    again, info = type(model).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    found, expected = again.state_dict(), model.state_dict()
    assert set(found) == set(expected)
    assert not [name for name, value in expected.items() if not torch.equal(found[name], value)]
    pointers = {p.data_ptr() for p in again.base_model.general.parameters()}
    assert not pointers & {p.data_ptr() for p in again.base_model.domain.parameters()}, "the one learns, not the other"
    assert not any(p.requires_grad for p in again.base_model.general.parameters())
    assert all(p.requires_grad for p in again.base_model.domain.parameters())


@every_kind
@pytest.mark.parametrize("head", HEADS)
def test_one_encoder_twice_takes_the_room_of_one(kind, head, tmp_path):
    backbone = save_backbone(kind, tmp_path / "backbone")
    model = getattr(hf_memaug, head).from_general_and_domain(backbone, backbone)
    general = model.base_model.general
    file = stored(model, tmp_path)
    assert not [name for name, value in file.items() if "general." in name and value.ndim > 1]
    matrices = sum(p.numel() for p in general.parameters() if p.ndim > 1)
    assert sum(value.numel() for value in file.values()) == sum(p.numel() for p in model.parameters()) - matrices
    assert matrices > 0.9 * sum(p.numel() for p in general.parameters())
    assert_it_comes_back(model, tmp_path)
    if head != "GMAPModel":
        again = hf_memaug.GMAPModel.from_pretrained(tmp_path).state_dict()
        assert all(torch.equal(again[name], value) for name, value in model.base_model.state_dict().items())


@every_kind
def test_what_training_left_alone_is_stored_once(kind, tmp_path):
    backbone = save_backbone(kind, tmp_path / "backbone")
    model = hf_memaug.GMAPForSequenceClassification.from_general_and_domain(backbone, backbone)
    with torch.no_grad():
        for parameter in model.gmap.domain.encoder.parameters():
            parameter += 0.1
    file = stored(model, tmp_path)
    left_out = {name.removeprefix("gmap.general.") for name in set(model.state_dict()) - set(file)}
    expected = {n for n, p in model.gmap.general.named_parameters() if n.startswith("embeddings.") and p.ndim > 1}
    assert left_out == expected and len(expected) == 3
    assert_it_comes_back(model, tmp_path)


@pytest.mark.parametrize("frozen", [True, False])
def test_one_tensor_in_both_is_stored_once(frozen, tmp_path):
    torch.manual_seed(0)
    model = hf_memaug.GMAPForMaskedLM(gmap_config("gmap"))
    model.gmap.general.embeddings = model.gmap.domain.embeddings
    model.gmap.freeze_general(frozen)
    file = stored(model, tmp_path)
    assert not [name for name in file if "general.embeddings" in name]
    assert set(model.state_dict()) - set(file) == {
        "lm_head.decoder.weight",
        "lm_head.decoder.bias",
        *(f"gmap.general.embeddings.{name}" for name in model.gmap.domain.embeddings.state_dict()),
    }
    again = hf_memaug.GMAPForMaskedLM.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(again[name], value) for name, value in model.state_dict().items())


def test_encoders_that_both_learn_are_both_stored(tmp_path):
    backbone = save_backbone("bert", tmp_path / "backbone")
    model = hf_memaug.GMAPModel.from_general_and_domain(backbone, backbone, freeze_general=False)
    assert set(stored(model, tmp_path)) == set(model.state_dict())


def test_what_neither_has_is_still_missing(tmp_path):
    model = hf_memaug.GMAPModel(gmap_config("gmap"))
    file = stored(model, tmp_path)
    names = {f"{part}.encoder.layer.0.output.dense.weight" for part in ("general", "domain")}
    save_file({name: value for name, value in file.items() if name not in names}, tmp_path / "model.safetensors")
    _, info = hf_memaug.GMAPModel.from_pretrained(tmp_path, output_loading_info=True)
    assert set(info["missing_keys"]) == names


def test_shared_weights_are_not_offloaded_to_disk(tmp_path):
    backbone = save_backbone("bert", tmp_path / "backbone")
    hf_memaug.GMAPModel.from_general_and_domain(backbone, backbone).save_pretrained(tmp_path)
    device_map = {"general": "cpu", "domain": "disk", "memory": "cpu"}
    with pytest.raises(ValueError, match="is stored as `domain.*`device_map` offloads to disk"):
        hf_memaug.GMAPModel.from_pretrained(tmp_path, device_map=device_map, offload_folder=tmp_path / "offload")


@every_kind
@pytest.mark.parametrize("fusion", ["memory_attention", "cross_attention", "gate_attention"])
def test_all_that_is_fresh_learns_beside_lora_and_is_saved_with_it(kind, fusion, tmp_path):
    """By the guide's recipe, with a head of two layers."""
    from peft import LoraConfig, get_peft_model

    backbone = save_backbone(kind, tmp_path / "backbone")
    model = hf_memaug.GMAPForSequenceClassification.from_general_and_domain(
        backbone, backbone, classifier_layers=2, fusion=fusion
    )
    fresh = {name for name, _ in model.named_parameters() if "memory" in name or not name.startswith("gmap.")}
    saved = ["memory", "memory_reader"] if fusion == "cross_attention" else ["memory"]
    targets = {"task_type": "SEQ_CLS", "target_modules": model.adapter_targets}
    lora = LoraConfig(modules_to_save=saved, exclude_modules=r".*general\..*", **targets)
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(**targets))
    with pytest.raises(ValueError, match="an adapter would train it. Use .*exclude_modules"):
        check_frozen_encoders(adapted)
    adapted = get_peft_model(model, lora)
    check_frozen_encoders(adapted)
    learning = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    copies = {name.replace(".modules_to_save.default", "").removeprefix("base_model.model.") for name in learning}
    assert len(fresh) > 4 and fresh <= copies
    adapted.save_pretrained(tmp_path / "adapter")
    stored = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert fresh <= {name.removeprefix("base_model.model.") for name in stored}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("strategy", ["single", "multiple", "gated", "chunk_gated"])
@pytest.mark.parametrize("given", ["one", "list"])
def test_states_of_either_half_go_with_either_autocast(dtype, strategy, given):
    torch.manual_seed(0)
    model = hf_memaug.GMAPForSequenceClassification(gmap_config("gmap", strategy=strategy)).eval()
    inputs = {"input_ids": torch.randint(5, 40, (2, 9)), "attention_mask": torch.ones(2, 9, dtype=torch.long)}
    expected = model(**inputs).logits
    states = [one.to(getattr(torch, dtype)) for one in model.gmap.general_states(**inputs)]
    inputs["general_hidden_states"] = states if given == "list" else torch.stack(states, dim=1)
    for computed in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=computed):
            found = model(**inputs, labels=torch.tensor([0, 1]))
        assert (found.logits.float() - expected).norm() / expected.norm() < 0.1
        found.loss.backward()


def test_a_field_of_0_1_0_is_ignored(tmp_path):
    model = hf_memaug.GMAPModel(gmap_config("gmap"))
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "general_dtype": "bfloat16"}))
    assert_it_comes_back(model, tmp_path)
