# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the app says is what the models say, and what it says of the memory is what is in it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from families import SENTENCES, save_backbone, tiny_tokenizer

sys.path.insert(0, str(Path(__file__).parent))
from served import NAMES, SERVED, TEXT, case_of, picture, question, save

import hf_memaug
from hf_memaug.app import answers, readings
from hf_memaug.app.answers import answer, load_served
from hf_memaug.app.errors import NotServed
from hf_memaug.reporting.expert_maps import first_experts

KV = case_of("RobertaWithKVMemoryForSequenceClassification")
GMAP = case_of("GMAPForSequenceClassification")
GMOE = case_of("ViTGMoEForImageClassification")
HMA = case_of("HMAForSequenceClassification")
RNN = case_of("MemoryRNNForSequenceClassification")
TALK = case_of("MemoryRNNForConditionalGeneration")
# Those that say one thing of one text or picture; the others are in `test_tasks.py`.
WHOLE = [case for case in SERVED if not case.is_per_token and not case.is_graph]


def scores(prediction) -> dict[str, float]:
    return dict(prediction.scores)


def test_every_family_is_served():
    assert {case.model_type for case in SERVED} == set(hf_memaug.FAMILIES)


@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_the_answer_is_the_models_own(case, tmp_path):
    served = load_served(save(case, tmp_path))
    found = answer(served, **question(case))
    model, processor = case.model_class.from_pretrained(tmp_path), served.checkpoint.processor
    if case.is_image:
        inputs = processor(images=picture(), return_tensors="pt")
    else:
        inputs = processor(TEXT, return_tensors="pt")
    if case is TALK:
        said = model.generate(input_ids=inputs["input_ids"], max_new_tokens=answers.MOST_NEW_TOKENS, do_sample=False)
        assert found.prediction.text == processor.decode(said[0], skip_special_tokens=True).strip()
    else:
        expected = model(**inputs).logits[0].softmax(dim=-1).tolist()
        assert scores(found.prediction) == pytest.approx(dict(zip(NAMES.values(), expected, strict=True)), abs=1e-5)
        shown = [score for _, score in found.prediction.scores]
        assert shown == sorted(shown, reverse=True)
    assert found.readings and not found.notes
    for reading in found.readings:
        shares = [place.share for place in reading.places]
        assert shares == sorted(shares, reverse=True) and shares[0] > 0
        assert 0 < sum(shares) + reading.rest <= 1 + 1e-5
    assert (found.plain is None) == (case is GMOE)
    assert bool(found.patches) == (case is GMOE)
    if found.plain is not None:
        assert "memory switched off" in found.plain_is and found.plain != found.prediction


def test_slots_are_those_that_the_heads_read(tmp_path):
    served = load_served(save(KV, tmp_path))
    inputs = served.checkpoint.processor(TEXT, return_tensors="pt")
    weights = served.checkpoint.model(**inputs, output_memory_weights=True).memory_weights[0].mean(dim=0).detach()
    (reading,) = answer(served, text=TEXT).readings
    best = weights.argsort(descending=True)[: readings.MOST_PLACES].tolist()
    assert [place.name for place in reading.places] == [f"slot {number}" for number in best]
    assert [place.share for place in reading.places] == pytest.approx(weights[best].tolist(), abs=1e-6)
    assert reading.others == 4 and reading.rest == pytest.approx(1 - float(weights[best].sum()), abs=1e-5)


# Without the memory


def test_key_value_memory_off_is_lambda_zero(tmp_path):
    served = load_served(save(KV, tmp_path))
    plain = hf_memaug.RobertaWithKVMemoryForSequenceClassification.from_pretrained(tmp_path, memory_weight=0.0)
    expected = plain(**served.checkpoint.processor(TEXT, return_tensors="pt")).logits[0].softmax(dim=-1).tolist()
    found = answer(served, text=TEXT)
    assert scores(found.plain) == pytest.approx(dict(zip(NAMES.values(), expected, strict=True)), abs=1e-6)
    assert "λ of the memory is 0" in found.plain_is
    assert served.checkpoint.config.memory_weight == 0.5, "and it is on again afterwards"


def other_general_encoder(model):
    torch.manual_seed(5)
    for parameter in model.gmap.general.parameters():
        torch.nn.init.normal_(parameter, std=0.3)


def other_datapoints(model):
    torch.manual_seed(5)
    model.head.memory.queue.write(torch.randn(20, model.head.memory.queue.slots.shape[1]), torch.arange(20) % 2)
    torch.nn.init.normal_(model.head.memory.synthetic_slots, std=2.0)


def other_values(model):
    torch.manual_seed(5)
    for module in model.modules():
        if hasattr(module, "slot_values"):
            torch.nn.init.normal_(module.slot_values, std=3.0)


@pytest.mark.parametrize(
    "case, change", [(GMAP, other_general_encoder), (HMA, other_datapoints), (RNN, other_values), (TALK, other_values)]
)
def test_the_plain_answer_knows_nothing_of_the_memory(case, change, tmp_path):
    first, second = (load_served(save(case, tmp_path / str(one), one)) for one in (None, change))
    found, other = answer(first, text=TEXT), answer(second, text=TEXT)
    assert found.plain.text == other.plain.text
    assert scores(found.plain) == pytest.approx(scores(other.plain), abs=1e-6)
    assert found.prediction != other.prediction
    again = answer(second, text=TEXT)
    assert again.prediction == other.prediction, "and it is on again afterwards"


def test_a_baseline_stands_beside(tmp_path, backbones):
    from transformers import AutoTokenizer, RobertaForSequenceClassification

    plain = RobertaForSequenceClassification.from_pretrained(backbones["roberta"], num_labels=3).eval()
    plain.config.id2label = dict(NAMES)
    plain.save_pretrained(tmp_path / "plain")
    tokenizer = AutoTokenizer.from_pretrained(backbones["roberta"])
    tokenizer.save_pretrained(tmp_path / "plain")
    found = answer(load_served(save(KV, tmp_path / "ours"), tmp_path / "plain"), text=TEXT)
    expected = plain(**tokenizer(TEXT, return_tensors="pt")).logits[0].softmax(dim=-1).tolist()
    assert scores(found.plain) == pytest.approx(dict(zip(NAMES.values(), expected, strict=True)), abs=1e-5)
    assert str(tmp_path / "plain") in found.plain_is and found.plain_name == "Plain model" and not found.notes

    plain.config.id2label = {0: "no", 1: "perhaps", 2: "yes"}
    plain.save_pretrained(tmp_path / "plain")
    found = answer(load_served(tmp_path / "ours", tmp_path / "plain"), text=TEXT)
    assert "other labels: no, perhaps, yes" in found.notes[0]


def test_a_vit_stands_beside_a_gmoe(tmp_path, backbones):
    found = answer(load_served(save(GMOE, tmp_path), backbones["vit"]), image=picture())
    assert found.plain is not None and backbones["vit"] in found.plain_is
    found = answer(load_served(tmp_path), image=picture())
    assert found.plain is None and "cannot be switched off" in found.plain_is


def test_a_model_that_reads_no_memory_says_so(tmp_path):
    for number, (case, off) in enumerate(
        [(KV, {"memory_weight": 0.0}), (RNN, {"memory_slots": []}), (HMA, {"augmentation": "param"})]
    ):
        found = answer(load_served(save(case, tmp_path / str(number), **off)), text=TEXT)
        assert found.plain is None and "reads no memory" in found.plain_is and not found.readings


# What lives in the memory


def write_rows(folder, texts=SENTENCES):
    np.savez(
        folder / "features.npz",
        features=np.zeros((len(texts), 2), np.float16),
        text=np.array(texts),
        domain=np.array([f"domain{number % 2}" for number in range(len(texts))]),
        label=np.array(["good"] * len(texts)),
    )


@pytest.mark.parametrize("case", [KV, RNN], ids=str)
def test_the_texts_beside_a_checkpoint_tell_what_lives_in_a_slot(case, tmp_path):
    save(case, tmp_path / "checkpoint", other_values)
    write_rows(tmp_path)
    served = load_served(tmp_path / "checkpoint")
    (reading,) = answer(served, text=TEXT).readings
    reads = {}
    for text in SENTENCES:
        inputs = served.checkpoint.processor(text, return_tensors="pt")
        weights = served.checkpoint.model(**inputs, output_memory_weights=True).memory_weights[0]
        per_slot = weights.reshape(-1, weights.shape[-1]).sum(dim=0)
        reads[text] = (per_slot / per_slot.sum()).tolist()
    for place in reading.places:
        slot = int(place.name.split()[1])
        most = max(reads, key=lambda text: reads[text][slot])
        number = SENTENCES.index(most)
        assert (
            place.contents[0] == f"“{most}” (domain{number % 2}, good) reads {reads[most][slot]:.1%} of its memory here"
        )
    assert "6 texts of `features.npz`" in reading.source


def test_without_texts_the_nearest_words_say_it_plainly(tmp_path):
    def great_in_slot_3(model):
        memory = model.roberta.memory
        with torch.no_grad():
            torch.nn.init.eye_(memory.output.weight)
            word = tiny_tokenizer("roberta").convert_tokens_to_ids("Ġgreat")
            memory.slot_values[:, 3] = model.get_input_embeddings().weight[word] / memory.heads
            memory.slot_keys[3] = 40.0
            torch.nn.init.zeros_(memory.query_network.weight)
            torch.nn.init.ones_(memory.query_network.bias)

    (reading,) = answer(load_served(save(KV, tmp_path, great_in_slot_3)), text=TEXT).readings
    assert reading.places[0].name == "slot 3" and reading.places[0].share > 0.99
    assert reading.places[0].contents[0].startswith("nearest words: great (1.00), ")
    assert "No `features.npz`" in reading.source and "hint" in reading.source


def test_memory_json_tells_who_reads(tmp_path):
    save(KV, tmp_path / "checkpoint")
    by_domain = {"books": [0.3] + [0.7 / 11] * 11, "films": [0.1] + [0.9 / 11] * 11}
    (tmp_path / "memory.json").write_text(json.dumps({"kind": "slots", "by_domain": by_domain}))
    (reading,) = answer(load_served(tmp_path / "checkpoint"), text=TEXT).readings
    found = {place.name: place.readers for place in reading.places}
    assert found["slot 0"] == pytest.approx({"books": 0.75, "films": 0.25})
    assert "`memory.json`" in reading.source


@pytest.mark.parametrize("file", ["memory.json", "features.npz"])
def test_what_is_broken_beside_a_checkpoint_is_left_aside(file, tmp_path):
    save(KV, tmp_path)
    (tmp_path / file).write_bytes(b'{"kind": "slo')
    found = answer(load_served(tmp_path), text=TEXT)
    assert found.readings and f"`{file}` cannot be read" in found.notes[0]
    # A memory.json of another model fits no slot.
    (tmp_path / "memory.json").write_text('{"by_domain": {"books": [1.0]}}')
    assert answer(load_served(tmp_path), text=TEXT).readings[0].places


def test_slots_belong_to_the_domains_they_came_with(tmp_path):
    def trained(model):
        model.config.run_facts = {"continual": {"stages": [{"domains": ["fiction"]}, {"domains": ["travel"]}]}}

    served = load_served(save(RNN, tmp_path, trained))
    (reading,) = answer(served, text=TEXT).readings
    for place in reading.places:
        assert place.owner == ("fiction" if int(place.name.split()[1]) < 8 else "travel")
    assert set(reading.groups) == {"fiction", "travel"} and sum(reading.groups.values()) == pytest.approx(1, abs=1e-5)
    encoder, decoder = answer(load_served(save(TALK, tmp_path / "talk", trained)), text=TEXT).readings
    assert set(decoder.groups) == {"fiction", "travel"} and decoder.places != encoder.places


def test_the_real_memory_shows_its_classes_and_their_numbers(tmp_path):
    served = load_served(save(HMA, tmp_path))
    real, synthetic = answer(served, text=TEXT).readings
    # Twenty rows of three classes in turn.
    assert set(real.groups) == {"bad (7 stored)", "fair (7 stored)", "good (6 stored)"}
    for place in real.places:
        assert place.owner == NAMES[int(place.name.split()[1]) % 3]
    assert set(synthetic.groups) == set(NAMES.values()) and len(synthetic.places) == 6

    found = answer(load_served(save(HMA, tmp_path / "empty", lambda model: model.head.memory.queue.clear())), text=TEXT)
    assert "empty" in found.readings[0].about and not found.readings[0].places


def test_gmap_shows_layers_and_words(tmp_path):
    served = load_served(save(GMAP, tmp_path))
    layers, lower, upper = answer(served, text=TEXT).readings
    assert sum(place.share for place in layers.places) == pytest.approx(1, abs=1e-5)
    assert {place.name for place in layers.places} == {"layer 1", "layer 2", "layer 3", "layer 4"}
    assert "layer 2" in lower.title and "layer 4" in upper.title
    assert {"good", "phone"} & {place.name for place in lower.places}
    assert served.checkpoint.config._attn_implementation == "sdpa"
    for number, (strategy, fusion) in enumerate([("single", "memory_attention"), ("single", "cross_attention")]):
        found = answer(load_served(save(GMAP, tmp_path / str(number), strategy=strategy, fusion=fusion)), text=TEXT)
        assert len(found.readings) == (fusion == "memory_attention") and found.plain != found.prediction


def test_experts_lie_over_the_patches(tmp_path):
    served = load_served(save(GMOE, tmp_path))
    shares = {"bad": [0.7, 0.1, 0.1, 0.1], "fair": [0.1, 0.7, 0.1, 0.1], "good": [0.2, 0.2, 0.2, 0.4]}
    (tmp_path / "memory.json").write_text(json.dumps({"kind": "experts", "by_class": shares}))
    served = load_served(tmp_path)
    found = answer(served, image=picture())
    (expected,) = first_experts(served.checkpoint.model, served.checkpoint.processor, [picture()])
    assert [one.title for one in found.patches] == ["layer 0", "layer 2"]
    for one, experts in zip(found.patches, expected, strict=True):
        assert np.array_equal(one.experts, experts) and one.image.shape == (16, 16, 3)
    lower, upper = found.readings
    lives = {place.name: place.contents for place in upper.places}
    assert lives["expert 0"][0].startswith("chosen most for patches of: bad 70%")
    assert "says nothing" in lower.source and not any(place.contents for place in lower.places)


def test_a_family_without_a_reader_of_its_own_is_read_too(tmp_path, monkeypatch):
    served = load_served(save(KV, tmp_path))
    (expected,) = answer(served, text=TEXT).readings
    monkeypatch.delitem(readings.READERS, "roberta_kv_memory")
    (found,) = answer(served, text=TEXT).readings
    assert found.places == expected.places


# What is said instead of an answer


@pytest.mark.parametrize(
    "case, given, said",
    [
        (KV, {"text": "  "}, "no text yet"),
        (KV, {"image": 1}, "reads texts"),
        (KV, {"text": "a" * 100_001}, "Shorten it"),
        (RNN, {"text": TEXT, "pair": TEXT}, "reads one text"),
        (GMOE, {}, "no picture yet"),
        (GMOE, {"text": TEXT}, "looks at pictures"),
        (GMOE, {"image": b"no picture"}, "cannot be read"),
    ],
)
def test_questions_that_have_no_answer(case, given, said, tmp_path):
    served = load_served(save(case, tmp_path))
    with pytest.raises(NotServed, match=said):
        answer(served, **given)


def test_a_model_of_pairs_asks_for_both(tmp_path):
    served = load_served(save(RNN, tmp_path, sentence_pairs=True))
    with pytest.raises(NotServed, match="compares two texts"):
        answer(served, text=TEXT)
    found = answer(served, text=TEXT, pair="the phone is bad")
    assert found.readings and found.prediction != answer(served, text=TEXT, pair="great film").prediction
    encoder = load_served(save(KV, tmp_path / "kv"))
    alone, both = answer(encoder, text=TEXT), answer(encoder, text=TEXT, pair="the phone is bad")
    assert alone.prediction != both.prediction


@pytest.mark.parametrize("case", [KV, HMA, GMAP], ids=str)
def test_a_long_text_is_cut_and_the_page_says_so(case, tmp_path):
    def unlimited(tokenizer_file):
        settings = json.loads(tokenizer_file.read_text())
        settings.pop("model_max_length", None)
        tokenizer_file.write_text(json.dumps(settings))

    save(case, tmp_path, max_position_embeddings=40)
    unlimited(tmp_path / "tokenizer_config.json")
    served = load_served(tmp_path)
    most = 38 if case.backbone == "roberta" else 40
    long = ("good " * 60).strip()
    found, tokens = answer(served, text=long), len(served.checkpoint.processor(long)["input_ids"])
    assert f"has {tokens} tokens and the model takes {most}" in found.notes[0]
    assert not answer(served, text=TEXT).notes


def test_checkpoints_that_are_not_served(tmp_path, backbones):
    save_backbone("roberta", tmp_path / "plain")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    (tmp_path / "nothing").mkdir()
    save(KV, tmp_path / "run" / "jobs" / "mil" / "checkpoint")
    save(KV, tmp_path / "bare")
    for file in (tmp_path / "bare").glob("tokenizer*"):
        file.unlink()
    case_of("GMAPModel").model().save_pretrained(tmp_path / "headless")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    for name, said in {
        "missing": "is no folder here",
        "plain": "no model of hf_memaug",
        "adapter": "merge_and_unload",
        "nothing": "has no `config.json`",
        "run": "Did you mean .*mil.checkpoint",
        "bare": "has no tokenizer",
        "headless": "GMAPModel.*serves models that classify",
        "broken": "cannot be read",
    }.items():
        with pytest.raises(NotServed, match=said):
            load_served(tmp_path / name)
    with pytest.raises(NotServed, match="neither a folder here nor a repository"):
        load_served("nobody/nothing")
    with pytest.raises(NotServed, match="`baseline`.* reads pictures and `checkpoint` texts"):
        load_served(tmp_path / "run/jobs/mil/checkpoint", backbones["vit"])
    with pytest.raises(NotServed, match="classifies and `checkpoint` writes"):
        load_served(save(TALK, tmp_path / "talk"), save(KV, tmp_path / "kv"))


def test_what_people_and_files_say_is_escaped(tmp_path):
    from hf_memaug.app import looks

    def named(model):
        model.config.id2label = {0: "<script>alert(1)</script>", 1: "b", 2: "c"}

    save(KV, tmp_path, named)
    write_rows(tmp_path, ["<img src=x onerror=alert(2)>", "good"])
    served = load_served(tmp_path)
    page = looks.header(served) + looks.answered(answer(served, text=TEXT)) + looks.message("`<b>` and <i>")
    assert "<script" not in page and "<img" not in page and "<i>" not in page and "<code>&lt;b&gt;</code>" in page
    assert "&lt;script&gt;" in page and "&lt;img" in page
