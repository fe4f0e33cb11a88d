# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The card says what happened, and nothing else."""

import pytest
import yaml
from families import CASES, HEADS, KV_CASES, Case

from hf_memaug import record_run
from hf_memaug.reporting.model_card import is_ours_to_write, model_card


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
    assert ["weight 0 and is not read" in card.content for card in cards] == [False, True]
    assert ["memory" in metadata(card)["tags"] for card in cards] == [True, False]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_left_open_even_before_training(case: Case):
    text = model_card(case.model().config, case.name, "me/x").content
    assert "more information needed" not in text.lower() and "None" not in text
    assert "It has not been trained yet." in text
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
    with pytest.raises(ValueError, match="lacks \['seed'\]"):
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
