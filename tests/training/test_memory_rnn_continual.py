# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Memory RNNs and HMA's models in `ContinualTrainer`: every strategy of the paper, on the family it is of."""

import pytest
import torch
from families import Case

from hf_memaug import MemoryRNNConfig, MemoryRNNForSequenceClassification
from hf_memaug.data import word_tokenizer
from training.continual_runs import continual_trainer, texts

DATA = texts(36, 1)


def parts():
    tokenizer = word_tokenizer(DATA.domain("books")["text"])
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "embedding_size": 6, "memory_slots": [4], "classifier_size": 6, "num_labels": 3}
    return MemoryRNNForSequenceClassification(MemoryRNNConfig(vocab_size=len(tokenizer), **sizes)), tokenizer


def run(strategy: str, folder, **kwargs):
    model, tokenizer = parts()
    return continual_trainer(
        strategy, folder, model=model, processing_class=tokenizer, train=DATA, test=texts(18, 2), **kwargs
    )


@pytest.mark.parametrize("strategy", ["f+m", "f+h+v", "ewc", "progressive"])
def test_strategies_train_three_domains(strategy, tmp_path):
    # As many units as match three slots.
    kwargs = {"strategy_kwargs": {"slots": 3}} if strategy == "f+h+v" else {}
    trainer = run(strategy, tmp_path, max_steps=2, **kwargs)
    trainer.train()
    stages = trainer.record.stages
    assert len(stages) == 3
    growth = {"f+m": {"slots"}, "f+h+v": {"units", "words"}, "ewc": set(), "progressive": {"columns"}}
    assert all(set(stage["growth"]) == growth[strategy] for stage in stages[1:])
    if strategy == "progressive":
        return  # a model of columns, none of which grows
    config = trainer.model.config
    assert config.memory_slots == ([4, 3, 3] if "m" in strategy.split("+") else [4])
    assert config.vocab_size == len(trainer.processing_class)
    if "v" in strategy.split("+"):
        assert all(stage["growth"]["words"] == 4 for stage in stages[1:])


@pytest.mark.parametrize("strategy", ["f+m+v", "f+h+v"])
def test_vectors_that_do_not_fit_are_refused_and_nothing_grows(strategy, tmp_path):
    file = tmp_path / "vectors.txt"
    options = {"slots": 3, "word_vectors": str(file)}
    with pytest.raises(FileNotFoundError):
        run(strategy, tmp_path / "run", strategy_kwargs=options)
    for text, message in (("zebra 1 2 3\n", "have 3 numbers, and those of `model`"), ("", "has no word vectors")):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            run(strategy, tmp_path / "run", strategy_kwargs=options)
    width = parts()[0].config.embedding_size
    file.write_text("2 9\nzebra" + " 1" * width + "\n")
    trainer = run(strategy, tmp_path / "run", strategy_kwargs=options, max_steps=1)
    # The file goes away between two domains.
    file.unlink()
    before = trainer.model.config.to_dict()
    with pytest.raises(FileNotFoundError):
        trainer.train()
    after = trainer.model.config.to_dict()
    assert all(after[name] == before[name] for name in ("memory_slots", "vocab_size", "hidden_size"))


def test_columns_of_a_model_whose_memory_is_written(tmp_path):
    from tiny_backbones import tiny_tokenizer

    case = Case("hma", "HMAForSequenceClassification")
    tokenizer = tiny_tokenizer("bert")
    model = case.model(vocab_size=len(tokenizer))
    model.head.memory.queue.clear()
    model.freeze_memory()
    trainer = continual_trainer(
        "progressive", tmp_path, model=model, processing_class=tokenizer, train=DATA, test=texts(18, 2), max_steps=2
    )
    trainer.train()
    first, *_, last = trainer.model.columns
    assert int(last.head.memory.queue.written) > int(first.head.memory.queue.written) == 8
    assert not any(p.requires_grad for p in last.memory_parameters()), "what was frozen learns again"
    assert not any(p.requires_grad for p in last.momentum_backbone.parameters())


def test_training_twice_deletes_nothing(tmp_path):
    trainer = run("f", tmp_path, max_steps=1)
    trainer.train()
    before = sorted(path.name for path in (tmp_path / "_stages").iterdir())
    with pytest.raises(ValueError, match="`train` was called already. Create a new trainer"):
        trainer.train()
    assert sorted(path.name for path in (tmp_path / "_stages").iterdir()) == before and len(before) == 4
