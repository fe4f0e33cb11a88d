# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What a trainer knows of its run: method, settings, and whose score is whose."""

import pytest
from families import Case
from tiny_backbones import QUIET, tiny_tokenizer
from training.domain_runs import domain_trainer, rows, tiny_model
from training.image_runs import digits, image_trainer

from hf_memaug import BilevelTrainer, BilevelTrainingArguments, record_run
from hf_memaug.hub.card import model_card
from hf_memaug.training.model_cards import facts_from_trainer

EVALUATION = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
EPISODES = {"episodes": 2, "episode_steps": 1}


def scores_of(facts) -> dict:
    return {(score["domain"], score["metric"]): score["value"] for score in facts["scores"]}


def accuracy(prediction) -> dict:
    return {"f1": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def bilevel_trainer(output, config=None, **kwargs):
    settings = {**QUIET, "per_device_train_batch_size": 6, **EVALUATION, **EPISODES, **kwargs}
    args = BilevelTrainingArguments(output_dir=str(output), **settings)
    model, tokenizer = tiny_model("kv", **(config or {})), tiny_tokenizer("roberta")
    return BilevelTrainer(model, args, train_dataset=rows(), eval_dataset=rows(), processing_class=tokenizer)


def test_scores_of_each_domain_and_their_average(tmp_path):
    trainer = domain_trainer("kv", tmp_path, evaluate=rows(25, 5), **EVALUATION)
    trainer.train()
    logged = next(entry for entry in trainer.state.log_history if "eval_f1" in entry)
    scores = scores_of(facts_from_trainer(trainer))
    wheres = {"books", "films", "phones", "average"}
    assert set(scores) == {(where, metric) for where in wheres for metric in ("accuracy", "macro_f1", "mcc")}
    assert scores["books", "macro_f1"] == 100 * logged["eval_books_f1"]
    assert scores["average", "macro_f1"] == 100 * logged["eval_f1"]


def test_epochs_of_stages_are_not_said_to_be_none(tmp_path):
    """`ContinualTrainer` has no epoch of its own: the trainer of each domain has."""
    trainer = domain_trainer("kv", tmp_path, evaluate=rows(), **{**EVALUATION, "max_steps": -1, "num_train_epochs": 3})
    trainer.state.epoch = 0
    assert facts_from_trainer(trainer)["training"]["epochs"] == 3
    trainer.args.max_steps = 2
    assert facts_from_trainer(trainer)["training"]["epochs"] is None
    trainer.state.epoch = 1.234
    assert facts_from_trainer(trainer)["training"]["epochs"] == 1.23


def test_a_users_own_score_keeps_its_name(tmp_path):
    trainer = domain_trainer("kv", tmp_path, evaluate=rows(), compute_metrics=accuracy, **EVALUATION)
    trainer.train()
    assert set(scores_of(facts_from_trainer(trainer))) == {(w, "f1") for w in ("books", "films", "phones", "average")}


def test_a_dictionary_of_data_names_whose_score_it_is(tmp_path):
    by_domain = domain_trainer("kv", tmp_path, evaluate=rows().by_domain(), **EVALUATION)
    by_domain.train()
    expected = {"average", "books", "films", "phones"}
    assert {domain for domain, _ in scores_of(facts_from_trainer(by_domain))} == expected
    in_parts = {"near": rows(), "far": rows(domains=("books",))}
    parts = domain_trainer("kv", tmp_path, evaluate=in_parts, **EVALUATION)
    parts.train()
    expected = {"near", "near/books", "near/films", "near/phones", "far", "far/books"}
    assert {domain for domain, _ in scores_of(facts_from_trainer(parts))} == expected


def test_one_score_of_all_rows_is_no_average_over_domains(tmp_path):
    """The unmodified `Trainer` scores the rows of all domains together."""
    trainer = domain_trainer("kv", tmp_path, evaluate=rows(), **EVALUATION)
    trainer.state.log_history = [{"eval_macro_f1": 0.5, "eval_loss": 1.0, "step": 2}]
    assert scores_of(facts_from_trainer(trainer)) == {("all", "macro_f1"): 50.0}


@pytest.mark.parametrize(
    "algorithm, weight, method", [("erm", 0.5, "+memory"), ("erm", 0, "erm"), ("coral", 0.5, "coral+memory")]
)
def test_domain_trainer_says_its_method_and_algorithm(tmp_path, algorithm, weight, method):
    config = {"memory_weight": weight}
    trainer = domain_trainer("kv", tmp_path, config=config, algorithm=algorithm, max_steps=1)
    facts = facts_from_trainer(trainer)
    assert facts["method"] == method and facts["training"]["algorithm"] == algorithm
    assert "memory_learning_rate" not in facts["training"], "it was not set"
    assert "episodes" not in facts["training"]


def test_a_method_that_is_known_stays(tmp_path):
    trainer = domain_trainer("kv", tmp_path, max_steps=1)
    record_run(trainer.model, method="mil-fresh")
    assert facts_from_trainer(trainer)["method"] == "mil-fresh"


def test_bilevel_trainer_says_how_the_memory_was_learned(tmp_path):
    trainer = bilevel_trainer(tmp_path)
    trainer.train()
    facts = facts_from_trainer(trainer)
    assert facts["method"] == "mil"
    expected = {**EPISODES, "inner_steps": 1, "meta_steps": 2, "hypergradient": "first_order"}
    expected["memory_learning_rate"] = 1e-4
    assert expected.items() <= facts["training"].items() and "algorithm" not in facts["training"]
    card = model_card(trainer.model.config, type(trainer.model).__name__, "me/x").content
    assert "Trained as `mil` of the paper's tables." in card and "| episodes | 2 |" in card
    assert "name: data without a name, mean over the domains" in card


def test_mil_is_not_claimed_of_a_memory_that_is_not_read(tmp_path):
    with pytest.raises(ValueError, match="`memory_weight=0`: its memory is not read, and learns nothing"):
        bilevel_trainer(tmp_path, config={"memory_weight": 0})


def test_scores_say_how_rows_were_read_when_they_were_scored(tmp_path):
    model = Case("hma", "HMAForImageClassification").model(num_labels=10, real_memory_size=64, inference="batch")
    trainer = image_trainer("gmoe", tmp_path, model=model, evaluate=digits(3, seed=1))
    trainer.evaluate()
    in_batches = trainer.state.log_history[-1]["eval_accuracy"]
    model.config.inference = "independent"
    scores = [score for score in facts_from_trainer(trainer)["scores"] if score["metric"] == "accuracy"]
    assert {score["inference"] for score in scores} == {"batch"}
    trainer.evaluate()
    alone = trainer.state.log_history[-1]["eval_accuracy"]
    scores = [score for score in facts_from_trainer(trainer)["scores"] if score["metric"] == "accuracy"]
    found = {score["inference"]: score["value"] for score in scores if score["domain"] == "average"}
    assert found == {"batch": 100 * in_batches, "independent": 100 * alone}
    # Where rows are read one by one in any case, nothing is said.
    model.config.augmentation = "rma"
    assert model.config.inference_mode is None
