# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What an explanation says of the memory is what is in it."""

import json

import numpy as np
import pytest
import torch
from saved_checkpoints import CONTEXT, NAMES, PREDICTING, TEXT, case_of, example, picture, save
from tiny_backbones import SENTENCES

from hf_memaug.inference import explain, load_predictor
from hf_memaug.inference.explanations import MOST_SLOTS
from hf_memaug.inference.patches import EXPERT_COLOURS, image_as_seen, tinted
from hf_memaug.inference.training_rows import read_training_rows

KV = case_of("RobertaWithKVMemoryForSequenceClassification")
GMAP = case_of("GMAPForSequenceClassification")
GMOE = case_of("ViTGMoEForImageClassification")
HMA = case_of("HMAForSequenceClassification")
RNN = case_of("MemoryRNNForSequenceClassification")
QUESTIONS = case_of("GMAPForQuestionAnswering")


def explained(folder, given=TEXT, **kwargs):
    predictor = load_predictor(folder)
    return explain(predictor, given, read_training_rows(predictor), **kwargs)


@pytest.mark.parametrize("case", PREDICTING, ids=str)
def test_every_class_is_explained(case, tmp_path):
    predictor = load_predictor(save(case, tmp_path))
    found = explain(predictor, example(case))
    assert found.prediction == predictor.predict([example(case)])[0] and found.readings
    for reading in found.readings:
        shares = [slot.share for slot in reading.slots]
        assert shares == sorted(shares, reverse=True) and shares[0] > 0 and len(shares) <= MOST_SLOTS
        assert len(shares) + reading.others == reading.num_slots
        assert 0 < sum(shares) + reading.rest <= 1 + 1e-5
    if case is GMOE:
        assert found.plain is None and "cannot be switched off" in found.plain_is
    else:
        assert found.plain != found.prediction and "memory switched off" in found.plain_is
    assert explain(predictor, example(case)).prediction == found.prediction, "nothing stays switched"


def test_slots_are_those_that_the_heads_read(tmp_path):
    predictor = load_predictor(save(KV, tmp_path))
    inputs = predictor.processor(TEXT, return_tensors="pt")
    weights = predictor.model(**inputs, output_memory_weights=True).memory_weights[0].mean(dim=0).detach()
    (reading,) = explain(predictor, TEXT).readings
    best = weights.argsort(descending=True)[:MOST_SLOTS].tolist()
    assert [slot.name for slot in reading.slots] == [f"slot {number}" for number in best]
    assert [slot.share for slot in reading.slots] == pytest.approx(weights[best].tolist(), abs=1e-6)
    assert reading.others == 4 and reading.rest == pytest.approx(1 - float(weights[best].sum()), abs=1e-5)


def test_a_long_context_is_explained_by_the_part_with_the_answer(tmp_path):
    predictor = load_predictor(save(QUESTIONS, tmp_path))
    found = explain(predictor, ("what is bad", f" {CONTEXT} " * 10))
    assert found.prediction.text and found.readings and found.prediction.notes


def test_a_baseline_stands_beside(tmp_path, backbones):
    plain = load_predictor(backbones["vit"])
    found = explain(load_predictor(save(GMOE, tmp_path)), picture(), baseline=plain)
    assert found.plain == plain.predict([picture()])[0] and backbones["vit"] in found.plain_is


def test_a_model_that_reads_no_memory_says_so(tmp_path):
    found = explained(save(KV, tmp_path, memory_weight=0.0))
    assert found.plain is None and "reads no memory" in found.plain_is and not found.readings


# What is stored in a slot


def write_rows(folder, texts=SENTENCES):
    np.savez(
        folder / "features.npz",
        text=np.array(texts),
        domain=np.array([f"domain{number % 2}" for number in range(len(texts))]),
        label=np.array(["good"] * len(texts)),
    )


def other_values(model):
    torch.manual_seed(5)
    for module in model.modules():
        if hasattr(module, "slot_values"):
            torch.nn.init.normal_(module.slot_values, std=3.0)


@pytest.mark.parametrize("case", [KV, RNN], ids=str)
def test_texts_beside_a_checkpoint_tell_what_is_in_a_slot(case, tmp_path):
    save(case, tmp_path / "checkpoint", other_values)
    write_rows(tmp_path)
    predictor = load_predictor(tmp_path / "checkpoint")
    (reading,) = explain(predictor, TEXT, read_training_rows(predictor)).readings
    reads = {}
    for text in SENTENCES:
        inputs = predictor.processor(text, return_tensors="pt")
        weights = predictor.model(**inputs, output_memory_weights=True).memory_weights[0].detach()
        per_slot = weights.reshape(-1, weights.shape[-1]).sum(dim=0)
        reads[text] = (per_slot / per_slot.sum()).tolist()
    for one in reading.slots:
        slot = int(one.name.split()[1])
        most = max(reads, key=lambda text: reads[text][slot])
        domain = f"domain{SENTENCES.index(most) % 2}"
        assert one.contents[0] == f"“{most}” ({domain}, good) reads {reads[most][slot]:.1%} of its memory here"
    assert "6 texts of `features.npz`" in reading.source


def test_memory_json_tells_who_reads(tmp_path):
    save(KV, tmp_path / "checkpoint")
    by_domain = {"books": [0.3] + [0.7 / 11] * 11, "films": [0.1] + [0.9 / 11] * 11}
    (tmp_path / "memory.json").write_text(json.dumps({"kind": "slots", "what": "slot", "by_domain": by_domain}))
    (reading,) = explained(tmp_path / "checkpoint").readings
    found = {slot.name: slot.readers for slot in reading.slots}
    assert found["slot 0"] == pytest.approx({"books": 0.75, "films": 0.25})
    assert "`memory.json`" in reading.source


@pytest.mark.parametrize("file", ["memory.json", "features.npz"])
def test_broken_files_beside_a_checkpoint_are_ignored(file, tmp_path):
    save(KV, tmp_path)
    (tmp_path / file).write_bytes(b'{"kind": "slo')
    predictor = load_predictor(tmp_path)
    rows = read_training_rows(predictor)
    assert f"`{file}` cannot be read" in rows.warnings[0] and explain(predictor, TEXT, rows).readings
    # A memory.json of another model fits no slot.
    (tmp_path / "memory.json").write_text('{"by_domain": {"books": [1.0]}}')
    assert explain(predictor, TEXT, read_training_rows(predictor)).readings[0].slots


def test_the_real_memory_shows_its_classes(tmp_path):
    real, synthetic = explained(save(HMA, tmp_path)).readings
    # Twenty rows of three classes in turn.
    assert set(real.groups) == {"bad (7 datapoints)", "fair (7 datapoints)", "good (6 datapoints)"}
    for slot in real.slots:
        assert slot.owner == NAMES[int(slot.name.split()[1]) % 3]
    assert len(synthetic.groups) == 3 and len(synthetic.slots) == 6 and "is read of" in real.about
    found = explained(save(HMA, tmp_path / "empty", lambda model: model.head.memory.queue.clear()))
    assert "empty" in found.readings[0].about and not found.readings[0].slots


def test_layers_of_a_general_encoder(tmp_path):
    predictor = load_predictor(save(GMAP, tmp_path))
    (layers,) = explain(predictor, TEXT).readings
    assert sum(slot.share for slot in layers.slots) == pytest.approx(1, abs=1e-5)
    assert {slot.name for slot in layers.slots} == {"layer 1", "layer 2", "layer 3", "layer 4"}
    found = explained(save(GMAP, tmp_path / "cross", strategy="single", fusion="cross_attention"))
    assert not found.readings and found.plain != found.prediction


def test_experts_lie_over_the_patches(tmp_path):
    save(GMOE, tmp_path)
    shares = {"bad": [0.7, 0.1, 0.1, 0.1], "fair": [0.1, 0.7, 0.1, 0.1], "good": [0.2, 0.2, 0.2, 0.4]}
    by_layer = {"0": {"sketch": [0.4, 0.2, 0.2, 0.2], "photo": [0.1, 0.3, 0.3, 0.3]}}
    (tmp_path / "memory.json").write_text(json.dumps({"kind": "experts", "by_class": shares, "by_layer": by_layer}))
    predictor = load_predictor(tmp_path)
    lower, upper = explain(predictor, picture(), read_training_rows(predictor)).readings
    pixels = predictor.processor(images=picture(), return_tensors="pt")
    logits = predictor.model(**pixels, output_router_logits=True).router_logits
    for reading, of_layer in zip((lower, upper), logits, strict=True):
        assert np.array_equal(reading.experts, of_layer[1:].argmax(dim=-1).reshape(4, 4).numpy())
    in_upper, in_lower = ({slot.name: slot for slot in one.slots} for one in (upper, lower))
    assert in_upper["expert 0"].contents == ("chosen most for patches of: bad 70%, good 20%, fair 10%",)
    assert in_lower["expert 0"].readers == pytest.approx({"sketch": 0.8, "photo": 0.2})
    assert not in_lower["expert 0"].contents and not in_upper["expert 0"].readers


def test_patches_have_the_colour_of_their_expert(tmp_path):
    predictor = load_predictor(save(GMOE, tmp_path))
    image = image_as_seen(predictor.processor, picture())
    assert image.shape == (16, 16, 3) and 0 <= image.min() < image.max() <= 1
    experts = np.array([[0, 1], [2, len(EXPERT_COLOURS)]])
    found = tinted(image, experts)
    assert found.shape == image.shape
    same = tinted(np.zeros((16, 16, 3)), experts)
    assert np.allclose(same[0, 0], same[-1, -1]) and not np.allclose(same[0, 0], same[0, -1])
    odd = tinted(np.zeros((17, 16, 3)), experts)
    assert (odd[-1] == 0).all(), "pixels behind the last whole patch"
