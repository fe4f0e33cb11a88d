# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`--lora`: what trains, that it resumes to the same weights, and that the merged model is a plain one."""

import pytest
import torch
from training.domain_runs import domain_trainer, rows, tiny_model
from transformers import AutoModelForSequenceClassification

from hf_memaug.runs.lora import add_lora


@pytest.mark.parametrize(("kind", "adapted"), [("bert", "dense"), ("kv", "query")])
def test_head_and_memory_train_in_full_and_the_rest_by_adapters(kind, adapted, tmp_path):
    def run(resume=None):
        model = tiny_model(kind)
        names, before = set(model.state_dict()), {name: value.clone() for name, value in model.state_dict().items()}
        tuner = add_lora(model, 2)
        settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "train": rows()}
        trainer = domain_trainer(kind, tmp_path, model=model, **settings)
        trainer.train(resume_from_checkpoint=resume)
        logits = trainer.predict(rows()).predictions
        tuner.merge_and_unload()
        assert set(model.state_dict()) == names
        torch.testing.assert_close(trainer.predict(rows()).predictions, logits, rtol=1e-4, atol=1e-5)
        return trainer, {name for name, value in model.state_dict().items() if not value.equal(before[name])}

    trainer, changed = run()
    assert any(name.startswith("classifier") for name in changed) and any(
        f"{adapted}.weight" in name for name in changed
    )
    assert any("memory" in name for name in changed) == (kind == "kv")
    assert not any("embeddings" in name or "LayerNorm" in name for name in changed)
    resumed = run(str(tmp_path / "checkpoint-2"))[0].model.state_dict()
    assert all(value.equal(resumed[name]) for name, value in trainer.model.state_dict().items())


@pytest.mark.slow
def test_the_kept_checkpoint_is_merged(command, columns, quick, encoder, no_report, read_lines, tmp_path):
    call = ["compare", *columns, "--methods", "erm,hma", "--target", "books", "--seeds", 1, "--backbone", encoder]
    with no_report():
        code, _, error = command(*call, "--lora-rank", 2, *quick, "--output", "run")
    assert code == 0, error
    for record in read_lines(tmp_path / "run/runs.jsonl"):
        kept = tmp_path / "run" / record["checkpoint"]
        assert record["job"]["lora"] == 2 and record["trainable"] < record["parameters"]
        model, info = AutoModelForSequenceClassification.from_pretrained(kept, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"]
        code, out, error = command("evaluate", kept, *columns)
        assert code == 0, error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "erm,mil", "--lora"], "`--lora` is not supported by `mil`: both levels"),
        (["--methods", "memory-rnn", "--lora"], "`--lora` is not supported by `memory-rnn`: its models are trained"),
        (["--methods", "erm", "--lora-rank", 0], "`--lora-rank` is 0; it must be 1 or more."),
    ],
)
def test_refused(command, columns, words, said):
    code, _, error = command("compare", *columns, *words)
    assert code == 2 and said in error
