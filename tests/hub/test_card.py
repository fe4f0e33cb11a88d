# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The card says what happened, and nothing else."""

import copy
from types import SimpleNamespace

import pytest
import torch
import yaml
from families import CASES, HEADS, KV_CASES, Case
from torch import nn
from transformers import ResNetConfig

from hf_memaug import HMAConfig, record_run
from hf_memaug.evaluation import score_table
from hf_memaug.hub.card import is_ours_to_write, model_card
from hf_memaug.runs.cards import run_card


def scores(values, domain="books", metric="macro_f1"):
    return [{"domain": domain, "metric": metric, "value": v, "seed": s} for s, v in enumerate(values)]


def metadata(card) -> dict:
    return yaml.safe_load(card.content.split("---")[1])


@pytest.fixture
def model():
    model = HEADS[0].model()
    record_run(
        model,
        data="amazon",
        domains=["dvd", "kitchen"],
        left_out="books",
        method="+memory",
        scores=scores([90.0, 92.0, 94.0]) + scores([80.0], domain="dvd", metric="accuracy"),
        training={"learning_rate": 1e-4},
    )
    return model


def test_model_index_has_the_mean_and_the_seeds(model):
    results = metadata(model_card(model.config, HEADS[0].name, "me/x"))["model-index"][0]["results"]
    by_domain = {result["dataset"]["config"]: result for result in results}
    metric = by_domain["books"]["metrics"][0]
    assert metric["value"] == 92.0 and metric["type"] == "macro_f1" and "3 seeds: 0, 1, 2" in metric["name"]
    assert by_domain["dvd"]["metrics"][0]["value"] == 80.0


def test_text_says_what_happened(model):
    text = model_card(model.config, HEADS[0].name, "me/x").content
    for said in (
        "The domain **books** was left out",
        "| Domains trained on | dvd, kitchen |",
        "| **books** (left out) | test | 3 seeds: 0, 1, 2 | 92.0 ± 2.0 |",
        "Trained as `+memory`",
        "| learning rate | 0.0001 |",
        "@inproceedings{jia-zhang-2023-memory",
        'AutoModelForSequenceClassification.from_pretrained("me/x")',
        "| `memory_slots` | `12` |",
    ):
        assert said in text


@pytest.mark.parametrize("case", KV_CASES, ids=str)
def test_a_memory_that_is_not_read_is_not_claimed(case: Case):
    cards = [model_card(case.config(memory_weight=weight), case.name, "me/x") for weight in (0.5, 0)]
    claim = "a key-value memory after the last layer augments"
    assert [claim in card.content for card in cards] == [True, False]
    assert ["its memory has the weight 0" in card.content for card in cards] == [False, True]
    assert ["memory" in metadata(card)["tags"] for card in cards] == [True, False]


HMA = Case("hma", "HMAForImageClassification")


@pytest.mark.parametrize(
    ("augmentation", "what", "how", "has_memory"),
    [
        ("hma", "reads the last rows of training, and learned slots for each class.", "(SMA, Eq. 6).", True),
        ("abd+syn", "with the part `abd+syn` of HMA.", "it has `synthetic reader`, `between rows`, `synthetic`.", True),
        ("abd", "with the part `abd` of HMA.", "it has `synthetic reader`, `between rows`.", False),
        ("none", "a backbone and a linear head, without a memory.", "A linear head reads", False),
    ],
)
def test_what_an_augmentation_of_hma_reads(augmentation, what, how, has_memory):
    card = model_card(HMA.config(augmentation=augmentation), HMA.name, "me/x")
    assert what in card.content and how in card.content and "with a vit encoder" in card.content
    assert ("memory" in metadata(card)["tags"]) is has_memory


def test_what_hma_stands_on(tmp_path):
    head = model_card(Case("hma", "HMAHead").config(), "HMAHead", "me/x").content
    assert "on the features of another network" in head and "Tokenizer" not in head
    for name, backbone in (("HMAForSequenceClassification", "bert"), ("HMAForGraphClassification", "GIN of 2 layers")):
        assert f"with a {backbone}" in model_card(Case("hma", name).config(), name, "me/x").content
    resnet = HMAConfig(backbone_config=ResNetConfig(), num_labels=3)
    text = model_card(resnet, HMA.name, "me/x").content
    assert "with a resnet encoder" in text and "AutoImageProcessor" in text and "your.jpg" in text


def test_a_backbone_that_is_a_module_is_asked_for(tmp_path):
    """The code of the card loads it."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 12))
    model = HMA.model_class.from_backbone(module, feature_size=12, num_labels=3, real_memory_size=24)
    model.save_pretrained(tmp_path)
    text = model_card(model.config, HMA.name, str(tmp_path)).content
    assert "bert" not in text and "Tokenizer" not in text and "a module of its author's" in text
    found = {"backbone": copy.deepcopy(module)}
    exec(text.split("```python")[1].split("```")[0], found)
    inputs = HMA.inputs()
    assert torch.equal(found["model"](**inputs).logits, model(**inputs).logits)


def test_a_score_keeps_how_rows_were_read():
    config = HMA.config(inference="batch")
    model = SimpleNamespace(config=config)
    record_run(model, scores=scores([70.0, 72.0], metric="accuracy"))
    config.inference = "independent"
    text = model_card(config, HMA.name, "me/x").content
    assert "| books | test | 2 seeds: 0, 1 | batch | 71.0 ± 1.4 |" in text and "independent |" not in text
    record_run(model, scores=scores([60.0], metric="accuracy"))
    card = model_card(config, HMA.name, "me/x")
    assert "| seed 0 | independent | 60.0 |" in card.content and "| batch | 71.0" in card.content
    (result,) = metadata(card)["model-index"][0]["results"]
    names = [metric["name"] for metric in result["metrics"]]
    assert names == ["accuracy (2 seeds: 0, 1, inference batch)", "accuracy (seed 0, inference independent)"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_left_open_even_before_training(case: Case):
    text = model_card(case.model().config, case.name, "me/x").content
    assert "more information needed" not in text.lower() and "None" not in text
    assert "How it was trained is not recorded." in text and "`record_run(model, ...)`" in text
    assert case.auto_class in text


def test_facts_travel_with_the_checkpoint(model, tmp_path):
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.config.run_facts == model.config.run_facts
    assert (
        model_card(again.config, HEADS[0].name, "me/x").content
        == model_card(model.config, HEADS[0].name, "me/x").content
    )


def test_a_new_figure_replaces_the_old_one(model):
    record_run(model, scores=scores([10.0]))
    values = [s["value"] for s in model.config.run_facts["scores"] if s["domain"] == "books"]
    assert sorted(values) == [10.0, 92.0, 94.0]
    with pytest.raises(ValueError, match="is missing \['seed'\]"):
        record_run(model, scores=[{"domain": "a", "metric": "b", "value": 1}])


def test_a_persons_card_is_left_alone(model, tmp_path):
    readme = tmp_path / "README.md"
    assert is_ours_to_write(readme)
    model_card(model.config, HEADS[0].name, "me/x").save(readme)
    assert is_ours_to_write(readme)
    readme.write_text("# My model\n\nWritten by hand.")
    assert not is_ours_to_write(readme)


def test_a_folder_is_not_named_as_base_model(model, tmp_path):
    model.config._name_or_path = str(tmp_path)
    assert "base_model" not in metadata(model_card(model.config, HEADS[0].name, "me/x"))
    model.config._name_or_path = "FacebookAI/roberta-base"
    card = model_card(model.config, HEADS[0].name, "me/x")
    assert metadata(card)["base_model"] == "FacebookAI/roberta-base"


def test_a_card_for_code_that_is_carried_and_for_an_adapter(model):
    carried = model_card(model.config, HEADS[0].name, "me/x", carries_code=True).content
    assert "trust_remote_code=True" in carried and "import hf_memaug" not in carried
    adapter = model_card(model.config, HEADS[0].name, "me/x", adapter=True, base_model="me/base", license="mit")
    assert metadata(adapter)["library_name"] == "peft" and metadata(adapter)["license"] == "mit"
    assert 'PeftModel.from_pretrained(base, "me/x")' in adapter.content


NASTY = "<img src=x onerror=alert(1)> [a](http://b) `c` | ![d](e)\n# f"


def test_texts_of_the_data_are_shown_as_they_are(model):
    names = {"domains": [NASTY], "left_out": NASTY, "data": NASTY, "method": NASTY}
    record_run(model, **names, scores=scores([1.0], domain=NASTY), training={"note": NASTY})
    model.config.id2label = {0: NASTY, 1: "a < b & c"}
    text = model_card(model.config, HEADS[0].name, f"me/{NASTY}").content.split("---", 2)[2].split("```")
    shown = r"&lt;img src=x onerror=alert(1)> \[a\](http://b) \`c\` \| !\[d\](e) # f"
    for said in (
        f"trained on {shown}.",
        f"**{shown}** was left out",
        f"| Labels | {shown}, a < b & c |",
        f"note | {shown} |",
    ):
        assert said in text[0] + text[4], said
    assert f"| **{shown}** (left out) |" in text[4]
    run = {
        "methods": [NASTY],
        "command": "hf-memaug train",
        "seeds": [0],
        "metric": "f1",
        "device": "CPU",
        "versions": {},
    }
    rows = {"train": 1, "dev": 1, "test": 1}
    table = score_table({NASTY: {NASTY: [1.0]}}, style="markdown")
    readme = run_card(run, {"source": "a", "domains": {NASTY: rows}}, table, [NASTY], NASTY)
    assert readme.count(shown) == 6 and "<img" not in readme
