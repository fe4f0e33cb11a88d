# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Damaged checkpoints end each command that reads one with a sentence, and nothing is written."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_backbones import save_backbone

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
COMMANDS = {
    "evaluate": ["{folder}", "--data", "rows.csv"],
    "predict": ["{folder}", "a good book"],
    "write": ["{folder}", "--data", "rows.csv", "--domain", "new"],
    "memory": ["{folder}"],
    "erase": ["{folder}", "--domain", "shops"],
    "push": ["{folder}", "you/reviews"],
    "app": ["{folder}"],
}


def content(file, text):
    return lambda folder: (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())


def fields(file=CONFIG, **kwargs):
    """Sets fields of a JSON file; of the classifier in it, those that begin with `inner_`."""

    def change(folder):
        found = json.loads((folder / file).read_text())
        for name, value in kwargs.items():
            inner = found["classifier_config"] if name.startswith("inner_") else found
            inner[name.removeprefix("inner_")] = value
        (folder / file).write_text(json.dumps(found))

    return change


def weights(change):
    def damage(folder):
        found = load_file(folder / WEIGHTS)
        change(found)
        save_file(found, folder / WEIGHTS, metadata={"format": "pt"})

    return damage


def removed(file):
    return lambda folder: (folder / file).unlink()


def as_folder(file):
    return lambda folder: ((folder / file).unlink(), (folder / file).mkdir())


def linked(file, target):
    return lambda folder: ((folder / file).unlink(), (folder / file).symlink_to(target))


def cut(file, share):
    return lambda folder: (folder / file).write_bytes(
        (folder / file).read_bytes()[: int(share * (folder / file).stat().st_size)]
    )


HEAD = "classifier.classifier.weight"
EMBEDDINGS = "classifier.bert.embeddings.word_embeddings.weight"
DAMAGE = {
    "no config": removed(CONFIG),
    "empty config": content(CONFIG, ""),
    "config is a list": content(CONFIG, "[1]"),
    "config is null": content(CONFIG, "null"),
    "config is not JSON": content(CONFIG, "{broken"),
    "config is not UTF-8": content(CONFIG, b'{"model_type": "\xff"}'),
    "config nests": content(CONFIG, "[" * 100000),
    "config is a loop of links": linked(CONFIG, CONFIG),
    "model_type unknown": fields(model_type="nothing"),
    "architectures a string": fields(architectures="Nothing"),
    "architecture unknown": fields(architectures=["BertForNothingClassification"]),
    "classifier a list": fields(classifier_config=[1]),
    "classifier unknown": fields(inner_model_type="nothing"),
    "hidden_size 0": fields(inner_hidden_size=0),
    "hidden_size huge": fields(inner_hidden_size=2**60),
    "vocab_size a word": fields(inner_vocab_size="many"),
    "labels missing": fields(id2label={"0": "a"}, label2id={"a": 0}, inner_id2label={"0": "a"}),
    "labels a list": fields(id2label=["a", "b"]),
    "rows wrong": fields(memory_rows=5),
    "domains wrong": fields(domains=[3]),
    "no weights": removed(WEIGHTS),
    "empty weights": content(WEIGHTS, ""),
    "weights cut": cut(WEIGHTS, 0.5),
    "weights header too long": content(WEIGHTS, b"\xff" * 8 + b"{}"),
    "weights a folder": as_folder(WEIGHTS),
    "weights a loop of links": linked(WEIGHTS, WEIGHTS),
    "weights NaN": weights(lambda found: found[EMBEDDINGS].fill_(float("nan"))),
    "weights lack the head": weights(lambda found: found.pop(HEAD)),
    "weights lack the memory": weights(lambda found: [found.pop(key) for key in list(found) if key.startswith("mem")]),
    "weights of another shape": weights(lambda found: found.update({EMBEDDINGS: torch.ones(3, 3)})),
    "weights of integers": weights(lambda found: found.update({EMBEDDINGS: found[EMBEDDINGS].to(torch.int64)})),
    "no tokenizer": lambda folder: [path.unlink() for path in folder.glob("*token*")],
    "empty tokenizer": content(TOKENIZER, ""),
    "tokenizer cut": cut(TOKENIZER, 0.7),
    "tokenizer not UTF-8": content(TOKENIZER, b"\xff\xfe"),
    "tokenizer a folder": as_folder(TOKENIZER),
    "tokenizer config a list": content("tokenizer_config.json", "[]"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A classifier with a writable memory, and rows."""
    from transformers import AutoModelForSequenceClassification

    from hf_memaug_cli.app import main

    folder = tmp_path_factory.mktemp("written")
    save_backbone("bert", folder / "plain")
    names = {0: "negative", 1: "positive"}
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    AutoModelForSequenceClassification.from_pretrained(folder / "plain", **labels).save_pretrained(folder / "plain")
    rows = ["text,label,domain", "a good book,positive,shops", "a bad phone,negative,shops"]
    (folder / "rows.csv").write_text("\n".join([*rows, "the hotel was fine,positive,shops"]))
    words = ["--data", str(folder / "rows.csv"), "--domain", "shops", "--output", str(folder / "checkpoint")]
    assert main(["write", str(folder / "plain"), *words]) == 0
    return folder


def files(folder):
    return {path: path.lstat().st_mtime_ns for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage(written, tmp_path, monkeypatch, capsys, damage, name):
    from hf_memaug_cli.app import main

    monkeypatch.chdir(tmp_path)
    shutil.copytree(written / "checkpoint", "checkpoint")
    shutil.copy(written / "rows.csv", "rows.csv")
    DAMAGE[damage](tmp_path / "checkpoint")
    before = files(tmp_path)
    if name == "app":
        import hf_memaug.app
        from hf_memaug.app.session import load_session

        monkeypatch.setattr(hf_memaug.app, "launch", lambda checkpoint, **kwargs: load_session(checkpoint))
    code = main([name, *(word.format(folder="checkpoint") for word in COMMANDS[name])])
    error = capsys.readouterr().err
    assert code in (1, 2, 3) and error.startswith("Error: ") and error.count("\n") == 1, error
    # A checkpoint may be published without a tokenizer.
    is_whole = name == "push" and damage == "no tokenizer" and "cannot be pushed: Cannot reach" in error
    assert is_whole or "`checkpoint`" in error, error
    assert "Traceback" not in error and "unexpectedly" not in error, error
    assert files(tmp_path) == before
