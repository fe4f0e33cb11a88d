# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A checkpoint that carries guard rows protects its domains when others are written."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from hf_memaug import (
    ContinualTrainingArguments,
    WritableMemoryForImageClassification,
    WritableMemoryForSequenceClassification,
    export_with_code,
)
from hf_memaug.configuration.configuration_writable_memory import GUARD_FILE
from hf_memaug.data import DomainDataset
from hf_memaug.hub import complete_folder
from training.continual_runs import word_tokenizer
from training.domain_runs import domain_trainer, rows
from training.image_runs import digits, image_trainer
from training.test_writing_strategy import TOKENIZER, classifier, reviews

pytestmark = [pytest.mark.usefixtures("light_collector"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def said(monkeypatch) -> list[str]:
    found: list[str] = []
    for name, level in (("memory", "warning"), ("memory", "warning_once")):
        monkeypatch.setattr(f"hf_memaug.modeling.modeling_writable_{name}.logger.{level}", found.append)
    monkeypatch.setattr("hf_memaug.modeling.modeling_writing.logger.warning_once", found.append)
    return found


@pytest.fixture
def trained(tmp_path):
    """A checkpoint that was trained on books; films were scored as well."""
    train, held_out = (reviews(count, seed).tokenize(TOKENIZER) for count, seed in ((40, 1), (20, 2)))
    given = {"model": classifier(), "train": train.domain("books"), "processing_class": TOKENIZER, "evaluate": held_out}
    given |= {"num_train_epochs": 4, "per_device_train_batch_size": 4, "guard_rows": 500, "save_strategy": "epoch"}
    trainer = domain_trainer("bert", tmp_path / "run", **given)
    trainer.train()
    trainer.save_model(str(tmp_path / "model"))
    return tmp_path / "model"


def right(model, domain: str) -> float:
    scored = reviews(20, 3, [domain])
    with torch.no_grad():
        answers = model(**TOKENIZER(scored["text"], return_tensors="pt", padding=True)).logits.argmax(dim=-1)
    return (answers == torch.tensor(scored["label"])).float().mean().item()


def test_the_old_domain_is_protected_without_its_rows(trained, said):
    stored = load_file(trained / GUARD_FILE)
    assert 10 < len(stored["labels"]) <= 20, "of books, not of films"
    assert not list((trained.parent / "run").rglob(GUARD_FILE)), "checkpoints to resume from have none"
    plain = AutoModelForSequenceClassification.from_pretrained(trained)
    assert right(plain, "books") >= 0.9 and right(plain, "films") <= 0.7
    model = WritableMemoryForSequenceClassification.from_classifier(trained)
    given, bare = (WritableMemoryForSequenceClassification.from_classifier(plain) for _ in range(2))
    films = reviews(domains=["films"])
    for one, guard in ((model, None), (given, reviews(20, 2, ["books"]))):
        one.write(films, domain="films", tokenizer=TOKENIZER, guard=guard)
        assert not said and right(one, "films") >= 0.9 and right(one, "books") >= 0.9
    bare.write(films, domain="films", tokenizer=TOKENIZER)
    assert "There are no guard rows" in said.pop() and right(bare, "books") <= 0.7
    # The same rows as those that are made of the texts.
    keys, probabilities = (
        [values(one.memory)[~one.memory.written].flatten(1) for one in (model, given)]
        for values in (lambda memory: memory.keys.view(torch.float16).float(), lambda memory: memory.probabilities)
    )
    for mine, theirs in (keys, probabilities):
        assert mine.shape == theirs.shape and torch.cdist(mine, theirs).min(dim=1).values.max() < 0.01
    model.save_pretrained(trained.parent / "written")
    again = WritableMemoryForSequenceClassification.from_pretrained(trained.parent / "written")
    assert int((~again.memory.written).sum()) == len(stored["row_ids"].unique())
    with pytest.raises(ValueError, match="`tokenizer` is not the one that the rows in the memory were read with"):
        again.write(reviews(domains=["phones"]), domain="phones", tokenizer=word_tokenizer())


def test_guard_rows_that_do_not_fit_are_left_out(trained, said):
    model = WritableMemoryForSequenceClassification.from_classifier(trained, key_layers=[1])
    assert not model.config.memory_rows and "`general` and `key_layers` make other keys. Pass `guard=`" in said.pop()
    changed = AutoModelForSequenceClassification.from_pretrained(trained)
    with torch.no_grad():
        changed.classifier.bias += 1
    changed.save_pretrained(trained)
    model = WritableMemoryForSequenceClassification.from_classifier(trained)
    assert not model.config.memory_rows and "the weights of the classifier were changed" in said.pop()
    assert model.config.fingerprint is None


def test_they_go_along_when_a_checkpoint_is_published(tmp_path):
    trainer = domain_trainer("kv", tmp_path / "run", max_steps=1, guard_rows=5)
    trainer.train()
    trainer.save_model()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    export_with_code(model, tmp_path / "code")
    (tmp_path / "pushed").mkdir()
    complete_folder(model, tmp_path / "pushed", "me/model")
    expected = (tmp_path / "run" / GUARD_FILE).read_bytes()
    assert all((tmp_path / name / GUARD_FILE).read_bytes() == expected for name in ("code", "pushed"))
    assert WritableMemoryForSequenceClassification.from_classifier(tmp_path / "code").config.memory_rows == 5


def test_images(tmp_path):
    trainer = image_trainer("vit", tmp_path, max_steps=1, guard_rows=7)
    trainer.save_model()
    model = WritableMemoryForImageClassification.from_classifier(tmp_path)
    assert model.config.memory_rows == 7
    # The same rows as images have the same ids, and count once.
    model.write(digits(3, seed=1), domain="new", image_processor=trainer.processing_class, guard=digits())
    assert int((~model.memory.written).sum()) == 24


def test_refused_before_training(tmp_path):
    tags = rows()
    columns = {name: tags[name] for name in tags.column_names} | {"labels": [[0]] * len(tags)}
    memory = WritableMemoryForSequenceClassification.from_classifier(classifier())
    for given, said in (
        ({"train": DomainDataset(columns)}, "one `label` for each row"),
        ({"model": memory, "processing_class": TOKENIZER}, "`model` has a writable memory"),
        ({"config": {"num_labels": 1}}, "needs one label of two or more"),
        ({"guard_rows": -1}, "`guard_rows` is -1; it must be 0 or more"),
    ):
        with pytest.raises(ValueError, match=said):
            domain_trainer("bert", tmp_path, **{"guard_rows": 5, **given})
    with pytest.raises(ValueError, match="`guard_rows` is not supported by `ContinualTrainer`"):
        ContinualTrainingArguments(str(tmp_path), guard_rows=5)
