# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`strategy="write"`: the first domain is trained on, later ones are written."""

import random

import pytest
import torch
from tiny_backbones import SIZES, tiny_image_processor, tiny_vit
from transformers import BertConfig, BertForSequenceClassification, TrainerCallback

from hf_memaug import WritableMemoryForImageClassification, WritableMemoryForSequenceClassification
from hf_memaug.data import DomainDataset
from hf_memaug.modeling.modeling_writable_rows import read_rows
from training.continual_runs import assert_same, continual_trainer, growing, word_tokenizer
from training.image_runs import digits

pytestmark = [pytest.mark.usefixtures("light_collector"), pytest.mark.filterwarnings("ignore")]
# In each domain, its topics, and the words of each label.
TOPICS = {
    "books": ("plot", "prose", "chapter", "writer", "cover", "index"),
    "films": ("actor", "scene", "camera", "score", "sound", "cut"),
    "phones": ("screen", "battery", "signal", "button", "case", "lens"),
}
OPINIONS = {
    "books": (("dull", "vague"), ("gripping", "moving")),
    "films": (("loud", "long"), ("funny", "bright")),
    "phones": (("slow", "heavy"), ("fast", "light")),
}
TOKENIZER = word_tokenizer([word for name in TOPICS for words in (TOPICS[name], *OPINIONS[name]) for word in words])


def reviews(count: int = 40, seed: int = 1, domains=tuple(TOPICS)) -> DomainDataset:
    """What tells the label in one domain is unknown in the others."""
    draw = random.Random(seed)
    found = [
        (
            " ".join(f"the {draw.choice(TOPICS[name])} is {draw.choice(OPINIONS[name][row % 2])}" for _ in "ab"),
            row % 2,
            name,
        )
        for name in domains
        for row in range(count)
    ]
    return DomainDataset(dict(zip(("text", "label", "domain"), zip(*found, strict=True), strict=True)), ["bad", "good"])


def classifier():
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**{**SIZES, "vocab_size": len(TOKENIZER), "num_labels": 2}))


def writer(output, strategy="write", **kwargs):
    rows = {"train": reviews(), "eval_dataset": reviews(20, 2), "test": reviews(20, 3), "num_train_epochs": 4}
    return continual_trainer(
        strategy, output, **{"model": classifier(), "processing_class": TOKENIZER, **rows, **kwargs}
    )


def row_ids(dataset: DomainDataset, domain: str) -> set[int]:
    """As a memory has them."""
    config = BertConfig(id2label={0: "bad", 1: "good"})
    return set(read_rows(dataset, config, domain, {"text": "text", "label": "label"}).ids)


def stored(model, guard: bool) -> set[int]:
    return set(model.memory.row_ids[model.memory.written != guard].tolist())


def test_later_domains_are_learned_and_the_first_one_stays(tmp_path):
    held_out = reviews(20, 2)
    scored = DomainDataset.concatenate([reviews(20, 3), held_out[:5]])
    trainer = writer(tmp_path, test=scored)
    output = trainer.train()
    matrix, figures = trainer.record.matrix(), trainer.figures()
    assert matrix[0][0] >= 0.9 and max(matrix[0][1:]) <= 0.7, "what later domains need is not in the first"
    assert min(matrix[2]) >= 0.9 and figures["acc"] >= 0.9 and figures["forgetting"] <= 0.05
    assert [stage["steps"] for stage in trainer.record.stages] == [40, 0, 0]
    assert trainer.state.global_step == 40 and output.training_loss > 0
    # Held-out rows of the first domain protect it; nothing is learned from the rows of R.
    model, known = trainer.model, reviews().by_domain()
    guard = stored(model, guard=True)
    assert guard == row_ids(held_out.domain("books"), "guard") - row_ids(scored, "guard") and len(guard) > 10
    assert stored(model, guard=False) == row_ids(known["films"], "films") | row_ids(known["phones"], "phones")
    # The first stage leaves the classifier, later ones the memory around it.
    stages = [tmp_path / "_stages" / name for name in ("0-books", "1-films", "2-phones")]
    first = BertForSequenceClassification.from_pretrained(stages[0])
    models = [WritableMemoryForSequenceClassification.from_pretrained(folder) for folder in stages[1:]]
    assert [[entry["name"] for entry in one.domains()] for one in models] == [["films"], ["films", "phones"]]
    for name, value in first.state_dict().items():
        assert torch.equal(value, model.classifier.state_dict()[name]), name


def test_an_interrupted_run_resumes_to_the_same_memory(tmp_path):
    class Stop(TrainerCallback):
        def on_stage_end(self, args, state, control, record=None, **kwargs):
            if len(record.stages) == 2:
                raise KeyboardInterrupt

    given = {"num_train_epochs": 1, "eval_dataset": None}
    whole = writer(tmp_path / "whole", **given)
    whole.train()
    assert stored(whole.model, guard=True) <= row_ids(reviews(domains=["books"]), "guard"), "without dev rows"
    with pytest.raises(KeyboardInterrupt):
        writer(tmp_path / "cut", callbacks=[Stop()], **given).train()
    resumed = writer(tmp_path / "cut", **given)
    resumed.train(resume_from_checkpoint=True)
    assert_same(resumed, whole)


def test_a_memory_with_rows_keeps_them_and_its_classifier(tmp_path):
    first = writer(
        tmp_path / "first", domains=["books", "films"], strategy_kwargs={"guard_rows": 5}, num_train_epochs=1
    )
    first.train()
    assert len(stored(first.model, guard=True)) == 5
    before, guard = first.model.classifier.state_dict(), stored(first.model, guard=True)
    for number, history in enumerate((None, {})):
        model = WritableMemoryForSequenceClassification.from_pretrained(tmp_path / "first/_stages/1-films")
        later = writer(tmp_path / f"{number}", model=model, train=reviews(domains=["phones"]), history=history)
        later.train()
        assert later.record.trained == (["books", "films", "phones"] if history is None else ["phones"])
        assert [entry["name"] for entry in later.model.domains()] == ["films", "phones"]
        assert stored(later.model, guard=True) == guard and later.state.global_step == 0
        assert all(torch.equal(value, before[name]) for name, value in later.model.classifier.state_dict().items())
    with pytest.raises(ValueError, match="the memory has rows called 'films' already"):
        writer(tmp_path / "again", model=later.model, train=reviews(domains=["films"]), history={})
    with pytest.raises(ValueError, match='`strategy="ewc"` trains the classifier, and the rows in the memory'):
        writer(tmp_path / "ewc", model=later.model, strategy="ewc", train=reviews(domains=["books"]), history={})


def test_images(tmp_path):
    data = digits(12)
    rows = {"train": data, "test": digits(4, seed=1), "processing_class": tiny_image_processor()}
    trainer = continual_trainer("write", tmp_path, model=tiny_vit(num_labels=10), **rows, num_train_epochs=1)
    trainer.train()
    assert isinstance(trainer.model, WritableMemoryForImageClassification)
    assert [entry["rows"] for entry in trainer.model.domains()] == [12, 12] and trainer.figures()["bwt"] is not None


def of_columns(**changed) -> DomainDataset:
    data = reviews(4)
    columns = {**{name: data[name] for name in data.column_names}, **changed}
    return DomainDataset({name: values for name, values in columns.items() if values is not None}, data.label_names)


REFUSED = {
    "tokens": ({"train": reviews(4).tokenize(TOKENIZER)}, "needs the texts or images themselves"),
    "tags": (
        {"train": of_columns(text=None, tokens=[["a"]] * 12, label=None, labels=[[0]] * 12)},
        "one label for each",
    ),
    "several labels": ({"train": of_columns(label=None, labels=[[1.0, 0.0]] * 12)}, "one label for each row"),
    "questions": ({"train": of_columns(label=None, start_positions=[0] * 12, labels=[0] * 12)}, "support questions"),
    "no text": ({"train": of_columns(text=["", *["good"] * 11])}, r"`text` is empty in 1 row \(0\)"),
    "one label": ({"train": of_columns(label=[0, 1, 0, 1] + [1] * 4 + [0, 1, 0, 1])}, "all rows of 'films' have one"),
    "tokenizer": ({"processing_class": word_tokenizer([f"word{n}" for n in range(99)])}, "has 106 words, and `model`"),
    "guard": ({"train": of_columns(domain=["books"] * 6 + ["guard"] * 6)}, "rows called 'guard' already"),
    "class": ({"model": growing(num_labels=2)}, "needs a classifier that an `AutoModelFor"),
    "options": ({"strategy_kwargs": {"guard_rows": 0}}, "`guard_rows` is 0; it must be a whole number, 1 or more"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_refused_before_training(wrong, tmp_path):
    given, said = REFUSED[wrong]
    rows = {"test": given["train"], "eval_dataset": None} if "train" in given else {}
    with pytest.raises(ValueError, match=said):
        writer(tmp_path, **given, **rows)
