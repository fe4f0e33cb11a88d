# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What is kept of a job is what its model gives, reads and routes."""

import base64
import io
import json

import numpy as np
import pytest
import torch
from families import HEADS, fill_real_memory
from PIL import Image
from tiny_backbones import SENTENCES, tiny_image_processor, tiny_tokenizer, tiny_vit
from transformers import AutoModelForSequenceClassification

from hf_memaug import DomainDataset
from hf_memaug.runs.facts import evenly, write_facts

CLASSES = ["bad", "fine", "good"]


def text_rows(count=12) -> DomainDataset:
    texts = [f"{SENTENCES[row % len(SENTENCES)]} {'well ' * (row % 4)}" for row in range(count)]
    domains = [["books", "films", "phones"][row % 3] for row in range(count)]
    return DomainDataset({"text": texts, "label": [row % 2 for row in range(count)], "domain": domains}, CLASSES)


def image_rows(count=8) -> DomainDataset:
    pixels = np.random.default_rng(0).integers(0, 256, size=(count, 4, 4, 3), dtype=np.uint8)
    images = [Image.fromarray(one).resize((200, 120)) for one in pixels]
    columns = {"image": images, "label": [row % 3 for row in range(count)]}
    return DomainDataset({**columns, "domain": [["photo", "sketch"][row % 2] for row in range(count)]}, CLASSES)


def graph_rows(count=6) -> DomainDataset:
    from hf_memaug.data.graphs import undirected_graph

    graphs = [undirected_graph([[row % 5], [1], [2]], [(0, 1), (1, 2)], [[0], [2]]) for row in range(count)]
    columns = {"graph": graphs, "label": [row % 3 for row in range(count)]}
    return DomainDataset({**columns, "domain": [["small", "large"][row % 2] for row in range(count)]}, CLASSES)


def kept(folder) -> tuple[dict, dict | None]:
    arrays = dict(np.load(folder / "features.npz", allow_pickle=False))
    memory = folder / "memory.json"
    return arrays, json.loads(memory.read_text()) if memory.exists() else None


CASES = [case for case in HEADS if case.name.endswith(("SequenceClassification", "ImageClassification"))]


def tokenizer_of(case):
    return tiny_tokenizer(case.backbone if case.backbone in ("roberta", "bert") else None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_family_leaves_its_facts(case, tmp_path):
    rows = image_rows() if case.is_image else text_rows()
    processor = tiny_image_processor() if case.is_image else tokenizer_of(case)
    size = {} if case.is_image else {"vocab_size": len(processor)}
    torch.manual_seed(0)
    model = case.model_class(case.config(**size)).train()
    case.tiny.prepare(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    write_facts(tmp_path, model, processor, rows, batch_size=5)
    arrays, memory = kept(tmp_path)
    assert model.training and all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert arrays["features"].dtype == np.float16 and arrays["features"].shape[0] == len(rows)
    assert arrays["features"].std(axis=0).max() > 0
    assert arrays["domain"].tolist() == rows["domain"] and set(arrays["predicted"]) <= set(CLASSES)
    assert arrays["label"].tolist() == [CLASSES[label] for label in rows.labels]
    assert list(memory["by_domain"]) == rows.domains
    for shares in memory["by_domain"].values():
        assert sum(shares) == pytest.approx(1, abs=1e-3) and min(shares) >= 0 and max(shares) < 1


def test_features_predictions_and_reads_are_those_of_the_model(tmp_path):
    case = next(case for case in CASES if case.name == "RobertaWithKVMemoryForSequenceClassification")
    tokenizer, rows = tiny_tokenizer("roberta"), text_rows()
    torch.manual_seed(0)
    model = case.model_class(case.config(vocab_size=len(tokenizer), initializer_range=0.3)).eval()
    write_facts(tmp_path, model, tokenizer, rows, batch_size=5)
    arrays, memory = kept(tmp_path)
    assert arrays["text"].tolist() == rows["text"]
    total = dict.fromkeys(rows.domains, 0)
    for row, text in enumerate(rows["text"]):
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"), output_memory_weights=True)
        np.testing.assert_allclose(arrays["features"][row], output.augmented_features[0], atol=4e-3)
        assert arrays["predicted"][row] == CLASSES[output.logits.argmax()]
        total[rows["domain"][row]] += output.memory_weights[0].mean(dim=0)
    for name, sums in total.items():
        np.testing.assert_allclose(memory["by_domain"][name], sums / 4, atol=1e-5)


def test_padding_is_no_read_of_gmap(tmp_path):
    case = next(case for case in CASES if case.name == "GMAPForSequenceClassification")
    tokenizer, rows = tiny_tokenizer("roberta"), text_rows()
    torch.manual_seed(0)
    model = case.model_class(case.config(vocab_size=len(tokenizer))).eval()
    found = []
    for batch_size in (1, 12):
        write_facts(tmp_path, model, tokenizer, rows, batch_size=batch_size)
        found.append(kept(tmp_path)[1]["by_domain"]["films"])
    np.testing.assert_allclose(*found, atol=1e-4)
    assert "layer" in kept(tmp_path)[1]["what"]


def test_hma_names_its_slots_and_the_real_memory(tmp_path):
    case = next(case for case in CASES if case.name == "HMAForImageClassification")
    torch.manual_seed(0)
    model = case.model_class(case.config())
    fill_real_memory(model)
    write_facts(tmp_path, model, tiny_image_processor(), image_rows())
    memory = kept(tmp_path)[1]
    assert memory["real"]["classes"] == CLASSES
    assert all(sum(of) == pytest.approx(1, abs=1e-4) for of in memory["real"]["by_domain"].values())


def test_gmoe_counts_experts(tmp_path):
    case = next(case for case in CASES if case.name == "ViTGMoEForImageClassification")
    torch.manual_seed(0)
    write_facts(tmp_path, case.model_class(case.config()), tiny_image_processor(), image_rows())
    memory = kept(tmp_path)[1]
    assert memory["kind"] == "experts" and list(memory["by_layer"]) == ["0", "2"]
    assert memory["by_domain"] == memory["by_layer"]["2"] and list(memory["by_class"]) == CLASSES


def test_pictures_are_small(tmp_path):
    (tmp_path / "memory.json").write_text("{}")  # of an earlier model
    write_facts(tmp_path, tiny_vit(num_labels=3), tiny_image_processor(), image_rows())
    arrays, memory = kept(tmp_path)
    assert memory is None
    picture = Image.open(io.BytesIO(base64.b64decode(arrays["picture"][0])))
    assert picture.format == "JPEG" and max(picture.size) == 96


def test_a_plain_encoder_has_features_and_no_memory(backbones, tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(backbones["bert"], num_labels=3)
    assert [file.name for file in write_facts(tmp_path, model, tiny_tokenizer("bert"), text_rows())] == ["features.npz"]


def test_a_decoder_shows_the_token_that_its_head_reads(tmp_path):
    from transformers import GPT2Config, GPT2ForSequenceClassification

    tokenizer = tiny_tokenizer("roberta")
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 64}
    model = GPT2ForSequenceClassification(GPT2Config(**sizes, num_labels=3, pad_token_id=tokenizer.pad_token_id))
    model.score.weight.data.normal_()
    write_facts(tmp_path, model, tokenizer, text_rows())
    arrays, _ = kept(tmp_path)
    logits = model.score(torch.from_numpy(arrays["features"]).float())
    assert [CLASSES[label] for label in logits.argmax(dim=-1)] == arrays["predicted"].tolist()
    assert len(set(arrays["predicted"].tolist())) > 1, "features of one token would be all alike"


def test_texts_are_cut_as_in_training(backbones, tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(backbones["bert"], num_labels=3)
    lengths = []
    model.register_forward_pre_hook(
        lambda _, args, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    write_facts(tmp_path, model, tiny_tokenizer("bert"), text_rows(), max_length=4)
    assert set(lengths) == {4}


def test_a_graph_model_too(tmp_path):
    case = next(case for case in HEADS if case.name == "HMAForGraphClassification")
    torch.manual_seed(0)
    model = case.model_class(case.config())
    write_facts(tmp_path, model, None, graph_rows())
    arrays, memory = kept(tmp_path)
    assert len(arrays["features"]) == 6 and set(memory["by_domain"]) == {"small", "large"}
    assert set(arrays["text"]) == {"3 nodes, 2 edges"}
    # A molecule is known by its SMILES.
    write_facts(tmp_path, model, None, graph_rows().with_columns(smiles=["CCO"] * 6))
    assert set(kept(tmp_path)[0]["text"]) == {"CCO"}


def test_rows_are_drawn_evenly_and_always_alike():
    domains = ["a"] * 50 + ["b"] * 3 + ["c"] * 20
    rows = DomainDataset({"text": [str(row) for row in range(73)], "domain": domains})
    drawn = evenly(rows, 21)
    assert {name: len(part) for name, part in drawn.by_domain().items()} == {"a": 9, "b": 3, "c": 9}
    assert drawn["text"] == evenly(rows, 21)["text"] and evenly(rows, 73) is rows
