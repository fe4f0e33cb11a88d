# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`DomainTrainer`: what it trains, what it scores, and what it refuses. For its runs: test_domain_trajectory.py."""

import numpy as np
import pytest
import torch
from tiny_backbones import QUIET
from transformers import (
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    Trainer,
    TrainingArguments,
    get_constant_schedule,
)

from hf_memaug import DomainTrainer, DomainTrainingArguments
from hf_memaug.data.sampling import DomainBalancedSampler
from training.domain_runs import DOMAINS, STEPS, domain_trainer, logged, rows, tiny_model

both_models = pytest.mark.parametrize("kind", ["kv", "bert"])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_erm_without_balance_is_the_trainer_of_transformers(smoothing, tmp_path):
    ours = domain_trainer("bert", tmp_path, balanced_batches=False, label_smoothing_factor=smoothing)
    theirs = Trainer(
        model=tiny_model("bert"),
        args=TrainingArguments(
            output_dir=str(tmp_path), **QUIET, **STEPS, num_train_epochs=2, label_smoothing_factor=smoothing
        ),
        train_dataset=[{name: row[name] for name in row if name != "domain"} for row in rows()],
        processing_class=ours.processing_class,
    )
    ours.train(), theirs.train()
    np.testing.assert_allclose(logged(ours), logged(theirs), rtol=1e-4)


@pytest.mark.parametrize("algorithm, weight", [("coral", 1e9), ("irm", 100.0), ("vrex", 2.0), ("dann", 0.5)])
def test_the_models_own_loss_is_logged_beside_both_together(algorithm, weight, tmp_path):
    options = {"penalty_weight": weight, "gradient_accumulation_steps": 2, "logging_steps": 2}
    trainer = domain_trainer("bert", tmp_path, algorithm=algorithm, **options)
    own, both, loss = [], [], trainer.algorithm.loss

    def noted(batch):
        own.append(batch.task_loss.item())
        both.append(loss(batch))
        return both[-1]

    trainer.algorithm.loss = noted
    trainer.train()
    logs = [(entry["loss"], entry["task_loss"]) for entry in trainer.state.log_history if "loss" in entry]
    # Two steps of two batches each.
    wanted = [(sum(both[i : i + 4]).item() / 4, sum(own[i : i + 4]) / 4) for i in range(0, len(own), 4)]
    assert len(logs) == len(wanted) >= 2
    np.testing.assert_allclose(logs, wanted, rtol=1e-4)
    together, alone = logs[-1]
    assert together > alone + 1e-3


def test_every_batch_holds_the_domains_in_equal_shares(tmp_path):
    uneven = rows(40).select([row for row in range(40) if row % 3 == 0 or row < 12])
    trainer = domain_trainer("kv", tmp_path, train=uneven)
    dataloader = trainer.get_train_dataloader()
    seen = [sorted(batch["domain_ids"].tolist()) for batch in dataloader]
    assert seen[:-1] == [[0, 0, 1, 1, 2, 2]] * (len(uneven) // 6)
    expected = [row for row, _ in zip(DomainBalancedSampler(uneven["domain"], seed=0), range(6), strict=False)]
    first = next(iter(trainer.get_train_dataloader()))
    assert first["labels"].tolist() == [uneven["labels"][row] for row in expected]


def macro_f1(predicted, labels) -> float:
    """2 TP / (2 TP + FP + FN), label by label."""
    scores = []
    for label in range(3):
        hits = sum(p == label == a for p, a in zip(predicted, labels, strict=True))
        wrong = sum((p == label) != (a == label) for p, a in zip(predicted, labels, strict=True))
        scores.append(2 * hits / (2 * hits + wrong) if hits + wrong else 0.0)
    return sum(scores) / 3


@both_models
def test_scores_are_those_of_each_domain_and_their_mean(kind, tmp_path):
    # Unequal domains: the mean over domains is not the mean over rows.
    data = rows(36, seed=3).select([*range(9), *range(9, 36, 3)])
    trainer = domain_trainer(
        kind, tmp_path, evaluate=data, per_device_eval_batch_size=5, config={"initializer_range": 1.0}
    )
    metrics = trainer.evaluate()
    predicted = trainer.predict(data).predictions.argmax(-1).tolist()
    f1, right = {}, {}
    for name in DOMAINS:
        own = [row for row, domain in enumerate(data["domain"]) if domain == name]
        chosen, labels = [predicted[row] for row in own], [data["labels"][row] for row in own]
        f1[name] = macro_f1(chosen, labels)
        right[name] = sum(map(int.__eq__, chosen, labels)) / len(own)
        assert metrics[f"eval_{name}_f1"] == pytest.approx(f1[name])
        assert metrics[f"eval_{name}_accuracy"] == pytest.approx(right[name])
    assert metrics["eval_f1"] == pytest.approx(sum(f1.values()) / 3)
    assert metrics["eval_accuracy"] == pytest.approx(sum(right.values()) / 3)
    assert len(set(predicted)) > 1, "a constant prediction would hide a wrong order of the rows"


def test_own_metrics_are_called_once_for_each_domain(tmp_path):
    calls = []

    def compute_metrics(prediction):
        calls.append(prediction)
        return {"rows": float(len(prediction.label_ids)), "label_sum": float(prediction.label_ids.sum())}

    data = rows(20, seed=4)
    trainer = domain_trainer("kv", tmp_path, evaluate=data, compute_metrics=compute_metrics)
    metrics = trainer.evaluate()
    assert len(calls) == 3
    by_domain = data.by_domain()
    for name, call in zip(by_domain, calls, strict=True):
        assert call.label_ids.tolist() == by_domain[name]["labels"]
        assert call.predictions.shape == (len(by_domain[name]), 3)
        assert metrics[f"eval_{name}_rows"] == len(by_domain[name])
        assert metrics[f"eval_{name}_label_sum"] == sum(by_domain[name]["labels"])
    assert metrics["eval_rows"] == pytest.approx(20 / 3)
    assert "eval_f1" not in metrics


class Strict(BertForSequenceClassification):
    """A model that takes no `**kwargs`, as many do."""

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels)


@pytest.mark.parametrize("kind", ["kv", "bert", "strict"])
def test_rows_without_a_label_are_predicted(kind, tmp_path):
    data = rows(7)
    model = Strict(tiny_model("bert").config) if kind == "strict" else None
    trainer = domain_trainer(kind, tmp_path, model=model)
    expected = trainer.predict(data).predictions
    found = trainer.predict(data.without_columns("labels"))
    np.testing.assert_allclose(found.predictions, expected, rtol=1e-5)
    assert not any("f1" in name for name in found.metrics)


def test_rows_without_a_domain_are_predicted_and_scored_together(tmp_path):
    data = rows(7)
    trainer = domain_trainer("kv", tmp_path)
    plain = [{name: row[name] for name in row if name != "domain"} for row in data]
    found = trainer.predict(plain)
    np.testing.assert_allclose(found.predictions, trainer.predict(data).predictions, rtol=1e-5)
    predicted = found.predictions.argmax(-1).tolist()
    assert found.metrics["test_f1"] == pytest.approx(macro_f1(predicted, data["labels"]))
    assert not any("books" in name for name in found.metrics)


class TestRefusals:
    def test_no_domain_column(self, tmp_path):
        plain = [{name: row[name] for name in row if name != "domain"} for row in rows()]
        with pytest.raises(ValueError, match=r"`train_dataset` has no `domain` column.*load_domains.*tokenize"):
            domain_trainer("kv", tmp_path, train=plain)

    def test_texts_that_are_not_tokenized(self, tmp_path):
        plain = rows().without_columns("input_ids", "attention_mask").with_columns(text=["a text"] * 24)
        with pytest.raises(ValueError, match=r"`train_dataset` has texts that are not tokenized.*rows.tokenize"):
            domain_trainer("kv", tmp_path, train=plain)
        with pytest.raises(ValueError, match=r"`eval_dataset` has texts that are not tokenized"):
            domain_trainer("kv", tmp_path, evaluate=plain)

    def test_rows_to_score_that_the_model_could_not_read(self, tmp_path):
        trainer = domain_trainer("kv", tmp_path)
        places = trainer.model.config.max_position_embeddings
        plain = rows().without_columns("input_ids", "attention_mask").with_columns(text=["a text"] * 24)
        for score in (trainer.predict, trainer.evaluate):
            name = "test" if score == trainer.predict else "eval"
            with pytest.raises(ValueError, match=rf"`{name}_dataset` has texts that are not tokenized.*rows.tokenize"):
                score(plain)
            for ids, said in (([5] * (places + 1), "Set `max_length`"), ([2, 99, 5], "the token 99")):
                ids = [ids, *rows()["input_ids"][1:]]
                other = rows().with_columns(input_ids=ids, attention_mask=[[1] * len(row) for row in ids])
                with pytest.raises(ValueError, match=said):
                    score(other)
        assert "test_f1" in trainer.predict(rows()).metrics

    def test_rows_given_domain_by_domain_are_scored_as_one_set(self, tmp_path):
        one, other = (domain_trainer("kv", tmp_path, evaluate=data) for data in (rows(), rows().by_domain()))
        assert set(one.evaluate()) == set(other.evaluate()) and "eval_f1" in other.evaluate()
        metrics = domain_trainer("kv", tmp_path, evaluate={"one": rows(12), "two": rows(12, seed=8)}).evaluate()
        assert {"eval_one_films_f1", "eval_one_f1", "eval_two_books_accuracy", "eval_two_f1"} <= set(metrics)

    def test_tokens_of_another_vocabulary_and_too_many_for_a_decoder(self, tmp_path):
        ids = [[2, 99, 5], *rows()["input_ids"][1:]]
        other = rows().with_columns(input_ids=ids, attention_mask=[[1] * len(row) for row in ids])
        with pytest.raises(
            ValueError, match=r"the token 99, and the model knows 99 \(0 to 98\).*tokenizer of the model's"
        ):
            domain_trainer("kv", tmp_path, train=other).train()
        decoder = GPT2ForSequenceClassification(
            GPT2Config(vocab_size=99, n_embd=8, n_layer=1, n_head=2, n_positions=4, num_labels=3, pad_token_id=0)
        )
        with pytest.raises(ValueError, match=r"the model has places for 4. Set `max_length`"):
            domain_trainer("gpt2", tmp_path, model=decoder).train()


def test_the_memory_has_a_rate_of_its_own(tmp_path):
    trainer = domain_trainer("kv", tmp_path, memory_learning_rate=0.5, learning_rate=0.25, weight_decay=0.1)
    trainer.create_optimizer()
    groups = trainer.optimizer.param_groups
    memory = {id(parameter) for parameter in trainer.model.memory_parameters()}
    at_rate = {id(p): group for group in groups for p in group["params"] if group["lr"] == 0.5}
    assert len(memory) > 0 and set(at_rate) == memory
    assert all(group["lr"] in (0.25, 0.5) for group in groups)
    every = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(every) == sorted(id(parameter) for parameter in trainer.model.parameters()), "once each"
    # A parameter keeps the decay that it would have had.
    plain = domain_trainer("kv", tmp_path, weight_decay=0.1)
    plain.create_optimizer()
    names = {id(p): name for name, p in plain.model.named_parameters()}
    decays = {names[id(p)]: group["weight_decay"] for group in plain.optimizer.param_groups for p in group["params"]}
    names = {id(p): name for name, p in trainer.model.named_parameters()}
    assert decays == {names[id(p)]: group["weight_decay"] for group in groups for p in group["params"]}


def test_discriminators_have_a_rate_of_their_own_and_no_decay(tmp_path):
    trainer = domain_trainer("bert", tmp_path, algorithm="dann", discriminator_learning_rate=0.125, weight_decay=0.1)
    trainer.create_optimizer()
    (group,) = (group for group in trainer.optimizer.param_groups if group["lr"] == 0.125)
    assert [id(p) for p in group["params"]] == [id(p) for p in trainer.algorithm.parameters()]
    assert group["weight_decay"] == 0.0


def test_a_dataset_of_the_datasets_library_with_more_columns(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = rows()
    columns = {name: data[name] for name in data.column_names if name != "labels"}
    texts = [f"text {row}" for row in range(len(data))]
    extra = datasets.Dataset.from_dict({**columns, "label": data["labels"], "text": texts})
    trainer = domain_trainer("kv", tmp_path, train=extra, evaluate=extra, algorithm="coral")
    trainer.train()
    reference = domain_trainer("kv", tmp_path, train=data, evaluate=data, algorithm="coral")
    reference.train()
    assert logged(trainer) == logged(reference)
    assert trainer.evaluate()["eval_books_f1"] == reference.evaluate()["eval_books_f1"]


@both_models
def test_lora_deceives_the_discriminators(kind, tmp_path):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], r=4)
    model = peft.get_peft_model(tiny_model(kind), lora)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = domain_trainer(kind, tmp_path, model=model, algorithm="dann", evaluate=rows(9))
    batches = []
    loss = trainer.algorithm.loss
    trainer.algorithm.loss = lambda batch: (batches.append(batch), loss(batch))[1]
    trainer.train()
    assert [batch.features.shape for batch in batches] == [(6, 32)] * 8
    assert all(batch.features.requires_grad for batch in batches)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all("lora_" in name or "modules_to_save" in name for name in changed)
    assert any("lora_A" in name for name in changed)
    assert "eval_films_f1" in trainer.evaluate()


def test_features_are_those_that_the_head_reads(tmp_path):
    for kind in ("kv", "bert"):
        trainer = domain_trainer(kind, tmp_path, algorithm="coral")
        batch = next(iter(trainer.get_train_dataloader()))
        seen = []
        trainer.algorithm.loss = lambda found, seen=seen: (seen.append(found), found.task_loss)[1]
        trainer.compute_loss(trainer.model.train(), dict(batch))
        (found,) = seen
        batch.pop("domain_ids")
        outputs = trainer.model.base_model(**{name: batch[name] for name in batch if name != "labels"})
        expected = outputs.augmented_features if kind == "kv" else outputs.pooler_output
        torch.testing.assert_close(found.features, expected)
        torch.testing.assert_close(found.logits, trainer.model(**batch).logits)
        assert not trainer.model.base_model._forward_hooks, "the hook was left behind"


def test_without_arguments_it_is_erm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = DomainTrainer(model=tiny_model("bert"), train_dataset=rows())
    assert trainer.args.algorithm == trainer.method_name == "erm"
    assert domain_trainer("kv", tmp_path).method_name == "+memory"
    assert domain_trainer("kv", tmp_path, algorithm="irm").method_name == "irm+memory"


def test_what_would_be_ignored_is_refused(tmp_path):
    arguments = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": []}
    model = tiny_model("kv", 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = get_constant_schedule(optimizer)
    for own in ({"algorithm": "dann"}, {"memory_learning_rate": 1e-3}):
        with pytest.raises(ValueError, match="Give `optimizer_cls_and_kwargs` instead"):
            DomainTrainer(
                model=model,
                args=DomainTrainingArguments(**arguments, **own),
                train_dataset=rows(),
                optimizers=(optimizer, schedule),
            )
    with pytest.raises(ValueError, match="`args.algorithm` sets the loss"):
        DomainTrainer(
            model=model,
            args=DomainTrainingArguments(**arguments),
            train_dataset=rows(),
            compute_loss_func=lambda outputs, labels, num_items_in_batch=None: outputs.loss,
        )
    with pytest.raises(TypeError, match="`args` is a `TrainingArguments`"):
        DomainTrainer(model=model, args=TrainingArguments(**arguments), train_dataset=rows())
    few = {**arguments, "algorithm": "coral", "per_device_train_batch_size": 4}
    with pytest.raises(ValueError, match="Set it to 6 or more"):
        DomainTrainer(model=model, args=DomainTrainingArguments(**few), train_dataset=rows())
    one = rows().domain(rows().domains[0])
    with pytest.raises(ValueError, match="compares several"):
        DomainTrainer(model=model, args=DomainTrainingArguments(**arguments, algorithm="coral"), train_dataset=one)


def test_every_way_of_choosing_by_an_unseen_domain_is_refused(tmp_path):
    from transformers import EarlyStoppingCallback

    unseen = rows(9, domains=("elsewhere",))
    for own in (
        {"load_best_model_at_end": True, "save_strategy": "epoch"},
        {"save_strategy": "best", "metric_for_best_model": "eval_f1"},
        {"lr_scheduler_type": "reduce_lr_on_plateau"},
        {"callbacks": [EarlyStoppingCallback()]},
    ):
        own = {"eval_strategy": "epoch", **own}
        with pytest.raises(ValueError, match=".*chooses the weights by them"):
            domain_trainer("kv", tmp_path, evaluate=unseen, **own)
    domain_trainer("kv", tmp_path, evaluate=unseen, eval_strategy="epoch").train()


def test_weights_in_float16_are_refused_before_they_are_spoiled(tmp_path):
    with pytest.raises(ValueError, match='`model` has weights in float16.*Load it with `dtype="float32"`'):
        domain_trainer("bert", tmp_path, model=tiny_model("bert").half())
    frozen = tiny_model("bert").half().requires_grad_(False)
    frozen.classifier.float().requires_grad_()
    assert domain_trainer("bert", tmp_path, model=frozen).model is frozen


def test_rows_of_like_length_are_trained_together_and_scored_in_their_order(tmp_path):
    options = {"balanced_batches": False, "train_sampling_strategy": "group_by_length"}
    trainer = domain_trainer("kv", tmp_path, evaluate=rows(25, 5), config={"initializer_range": 1.0}, **options)
    plain = domain_trainer("kv", tmp_path, evaluate=rows(25, 5), config={"initializer_range": 1.0})
    assert trainer.evaluate()["eval_films_f1"] == plain.evaluate()["eval_films_f1"]
    trainer.train()
    lengths = [batch["attention_mask"].shape[1] for batch in trainer.get_train_dataloader()]
    assert lengths == sorted(lengths, reverse=True)


def test_early_stopping_counts_on_after_resuming(tmp_path):
    def trainer():
        # Without learning, the first evaluation stays the best.
        often = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 1, "save_steps": 1, "max_steps": 9}
        best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_f1", "early_stopping_patience": 3}
        return domain_trainer("bert", tmp_path, evaluate=rows(9, 2), learning_rate=0.0, **often, **best)

    for resume in (None, str(tmp_path / "checkpoint-3"), str(tmp_path / "checkpoint-4")):
        stopped = trainer()
        stopped.train(resume_from_checkpoint=resume)
        assert stopped.state.global_step == 4 and stopped.state.best_global_step == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"early_stopping_patience": 0}, "is 0: use 1 or more"),
        ({"early_stopping_patience": 1}, "is 1: .*, and `load_best_model_at_end`"),
    ],
)
def test_early_stopping_without_anything_to_choose_by(tmp_path, given, said):
    with pytest.raises(ValueError, match=f"`early_stopping_patience` {said}"):
        domain_trainer("bert", tmp_path, **given)
