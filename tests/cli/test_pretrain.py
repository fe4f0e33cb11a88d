# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug pretrain`."""

import json
import shutil

import pytest


def test_an_encoder_without_a_masked_lm_head(command, backbones, tmp_path):
    import torch
    from transformers import AutoModel, AutoTokenizer

    encoder = AutoModel.from_pretrained(backbones["roberta"])
    encoder.save_pretrained(tmp_path / "headless")
    AutoTokenizer.from_pretrained(backbones["roberta"]).save_pretrained(tmp_path / "headless")
    texts = ["the phone is good and the battery lasts", "a slow film with a great end"] * 30
    (tmp_path / "domain.txt").write_text("\n".join(texts))
    words = ["pretrain", "--corpus", "domain.txt", "--length", 32, "--num-train-epochs", 2, "--learning-rate", "1e-2"]
    said = "has no masked-LM head"
    code, out, error = command(*words, "--backbone", "headless", "--output", "both")
    assert code == 0 and said in out and "`--only-head --learning-rate 1e-3`" in out, error
    code, out, error = command(*words, "--backbone", "headless", "--output", "head", "--only-head")
    assert code == 0 and said not in out, error
    record = json.loads((tmp_path / "head/pretraining.json").read_text())
    assert record["after"]["domain"] < record["before"]["domain"]
    kept = AutoModel.from_pretrained(tmp_path / "head").state_dict()
    assert all(torch.equal(kept[name], value) for name, value in encoder.state_dict().items() if "pooler" not in name)
    code, out, error = command(*words, "--backbone", "head", "--output", "then")
    assert code == 0 and said not in out, error


@pytest.mark.slow
def test_further_pretraining(command, backbones, columns, no_report, tmp_path):
    texts = ["the phone is good and the battery lasts", "a slow film with a great end"] * 30
    (tmp_path / "domain.txt").write_text("\n".join(texts))
    (tmp_path / "general.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    words = ["pretrain", "--backbone", backbones["roberta"], "--corpus", "domain.txt", "--also", "general.jsonl"]
    more = ["--length", 32, "--num-train-epochs", 2, "--learning-rate", "1e-3", "--output", "dapt"]
    code, out, error = command(*words, *more)
    assert code == 0, error
    record = json.loads((tmp_path / "dapt/pretraining.json").read_text())
    assert set(record["before"]) == {"domain", "general"}
    assert record["after"]["domain"] < record["before"]["domain"]

    from transformers import AutoModelForMaskedLM, AutoTokenizer, GPT2Config, GPT2Model

    AutoModelForMaskedLM.from_pretrained(tmp_path / "dapt")
    AutoTokenizer.from_pretrained(tmp_path / "dapt")
    code, out, _ = command(*words, *more)
    assert code == 0 and "is done already" in out
    code, _, error = command(*words, *more, "--masked", 0.3)
    assert code == 2 and "`masked` is 0.3" in error
    decoder = GPT2Config(vocab_size=40, n_embd=8, n_layer=1, n_head=2)
    GPT2Model(decoder).save_pretrained(tmp_path / "gpt2")
    AutoTokenizer.from_pretrained(backbones["roberta"]).save_pretrained(tmp_path / "gpt2")
    code, _, error = command("pretrain", "--backbone", "gpt2", "--corpus", "domain.txt", "--output", "no")
    assert code == 2 and "`--backbone` is a `gpt2`, which has no masked-LM head" in error
    # One that read a memory in pre-training goes on as it is.
    with_memory = ["pretrain", "--backbone", backbones["roberta"], "--general", backbones["roberta"], "--corpus"]
    short = ["domain.txt", "--max-steps", 1, "--length", 32, "--output"]
    assert command(*with_memory, *short, "memory")[0] == 0
    further = ["pretrain", "--backbone", "memory", "--corpus"]
    code, _, error = command(*further, *short, "no", "--general", backbones["roberta"])
    assert code == 2 and "`--backbone` is a `gmap` already. Leave `--general` out." in error
    code, _, error = command(*words, "--general", "nothing", "--output", "no")
    assert code == 2 and "`--general` 'nothing' cannot be loaded" in error
    (tmp_path / "one.txt").write_text("a text")
    code, _, error = command("pretrain", "--backbone", backbones["roberta"], "--corpus", "one.txt", "--output", "no")
    assert code == 3 and "Its only text is held out to measure the loss. Use more texts, or `--held-out 0`." in error
    (tmp_path / "body.jsonl").write_text('{"body": "a text"}\n')
    code, _, error = command("pretrain", "--backbone", backbones["roberta"], "--corpus", "body.jsonl", "--output", "no")
    assert code == 3 and "`--corpus`" in error and "by `--field`" in error
    assert command("pretrain", "--backbone", "memory", "--corpus", *short, "further")[0] == 0
    # And learns a task as it is: its general encoder is in it.
    task = ["train", *columns, "--target", "books", "--backbone", "memory", "--max-steps", 1, "--output"]
    code, _, error = command(*task, "task", "--method", "gmap", "--general", backbones["roberta"])
    assert code == 2 and "`--backbone` is a G-MAP model already" in error and "Train it by `erm`" in error
    code, _, error = command(*task, "task", "--method", "gmap")
    assert code == 2 and "Set `--general`. (A backbone that was pre-trained with one contains it" in error
    with no_report():
        code, _, error = command(*task, "task", "--method", "erm")
    assert code == 0, error
    config = json.loads(next(tmp_path.glob("task/jobs/*/checkpoint/config.json")).read_text())
    assert config["architectures"] == ["GMAPForSequenceClassification"]
    assert command("pretrain", "--corpus", "nowhere.txt")[0] == 3
    assert "Set `--general` too" in command(*words, "--fusion", "gate_attention")[2]


def test_pretraining_keeps_corpora_apart_and_says_what_does_not_fit(command, backbones, tmp_path):
    text = "the phone is good and the battery lasts"
    (tmp_path / "same.txt").write_text("\n".join([text] * 90))
    (tmp_path / "same.jsonl").write_text("".join(json.dumps({"text": f"a film {n}"}) + "\n" for n in range(90)))
    encoder = tmp_path / "encoder"
    shutil.copytree(backbones["roberta"], encoder)
    settings = json.loads((encoder / "tokenizer_config.json").read_text())
    settings.pop("model_max_length", None)
    (encoder / "tokenizer_config.json").write_text(json.dumps(settings))
    words = ["pretrain", "--backbone", encoder, "--corpus", "same.txt", "--also", "same.jsonl", "--max-steps", 1]
    code, out, error = command(*words, "--length", 10_000, "--output", "dapt")
    assert code == 0, error
    assert "tokens, the most that the encoder has positions for" in out
    record = json.loads((tmp_path / "dapt/pretraining.json").read_text())
    assert set(record["before"]) == {"same.txt", "same.jsonl"}
    code, _, error = command(*words, "--general", backbones["bert"], "--output", "pair")
    assert code == 2 and "`--general`" in error and "`--backbone`" in error and "Traceback" not in error


def test_pretraining_from_a_stream(command, backbones, tmp_path, monkeypatch):
    from hf_memaug.cli import pretrain

    monkeypatch.setattr(pretrain, "FIRST_TEXTS", 3)
    (tmp_path / "domain.txt").write_text("\n".join(["the phone is good and the battery lasts"] * 40))
    words = ["pretrain", "--backbone", backbones["roberta"], "--corpus", "domain.txt", "--stream", "--length", 32]
    # More steps than the corpus has rows for: it begins again.
    code, _, error = command(*words, "--max-steps", 12, "--learning-rate", "1e-3", "--output", "dapt")
    assert code == 0, error
    record = json.loads((tmp_path / "dapt/pretraining.json").read_text())
    assert record["steps"] == 12 and record["after"]["domain"] < record["before"]["domain"]
