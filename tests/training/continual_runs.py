# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Runs of `ContinualTrainer` on tiny models. Also a script, so that it can be killed, and started under torchrun."""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import SequenceClassifierOutput

from training.domain_runs import DOMAINS, STEPS, rows, tiny_model

WORDS = {
    "books": ("plot", "prose", "chapter", "writer"),
    "films": ("actor", "scene", "camera", "score"),
    "phones": ("battery", "screen", "signal", "button"),
}


class GrowingConfig(PreTrainedConfig):
    model_type = "growing_stand_in"
    vocab_size: int = 99
    hidden_size: int = 6
    memory_slots: list[int] | None = None
    run_facts: dict | None = None


class GrowingClassifier(PreTrainedModel):
    """A bag of words that reads a bank of vectors: the least that has the three verbs of growth."""

    config: GrowingConfig
    accepts_loss_kwargs = False

    def __init__(self, config):
        super().__init__(config)
        config.memory_slots = list(config.memory_slots or [5])
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.bank = nn.Embedding(sum(config.memory_slots), config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, (nn.Embedding, nn.Linear)):
            nn.init.normal_(module.weight, std=0.5)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        mask = attention_mask.unsqueeze(-1).to(self.words.weight.dtype)
        query = (self.words(input_ids) * mask).sum(1) / mask.sum(1)
        query = query + torch.softmax(query @ self.bank.weight.T, -1) @ self.bank.weight
        logits = self.out(query)
        return SequenceClassifierOutput(loss=None if labels is None else F.cross_entropy(logits, labels), logits=logits)

    def _longer(self, old: nn.Embedding, count: int) -> nn.Embedding:
        new = nn.Embedding(old.num_embeddings + count, old.embedding_dim)
        nn.init.normal_(new.weight, std=0.5)
        new.weight.data[: old.num_embeddings] = old.weight.data
        return new.to(old.weight.device)

    def grow_memory(self, slots):
        self.bank = self._longer(self.bank, slots)
        self.config.memory_slots = [*self.config.memory_slots, slots]

    def grow_vocabulary(self, words, vectors=None, tokenizer=None):
        from hf_memaug.data import add_words

        add_words(tokenizer, words)
        self.words = self._longer(self.words, len(words))
        self.config.vocab_size += len(words)

    def grow_hidden(self, units):
        for name in ("words", "bank", "out"):
            old = getattr(self, name).weight.data
            new = torch.cat([old, 0.5 * torch.randn(len(old), units)], dim=1)
            getattr(self, name).weight = nn.Parameter(new)
        self.words.embedding_dim = self.bank.embedding_dim = self.out.in_features = new.shape[1]
        self.config.hidden_size = new.shape[1]


def growing(**kwargs) -> GrowingClassifier:
    torch.manual_seed(0)
    return GrowingClassifier(GrowingConfig(**{"num_labels": 3, **kwargs}))


def word_tokenizer(words=WORDS["books"]) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    names = ["[PAD]", "[UNK]", "good", "bad", "fair", "the", "is", *words]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(names)}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32, model_input_names=inputs
    )


def texts(count: int = 24, seed: int = 1, domains=DOMAINS):
    """Texts whose label hangs on a word that all domains share."""
    import random

    from hf_memaug.data import DomainDataset

    draw = random.Random(seed)
    columns = {"text": [], "label": [], "domain": []}
    for row in range(count):
        domain, label = domains[row % len(domains)], draw.randrange(3)
        columns["text"].append(f"The {draw.choice(WORDS[domain])} is {('bad', 'fair', 'good')[label]}")
        columns["label"].append(label)
        columns["domain"].append(domain)
    return DomainDataset(columns, ["low", "middle", "high"])


def continual_trainer(strategy: str, output, *, model=None, train=None, test=None, processing_class=None, **kwargs):
    """A `ContinualTrainer` on the CPU. `kwargs` are arguments of the run, or of the trainer where it has them."""
    from tiny_backbones import QUIET, tiny_tokenizer

    from hf_memaug import ContinualTrainer, ContinualTrainingArguments

    torch.set_num_threads(1)
    if model is None:
        model = growing() if strategy.startswith("f+") else tiny_model("kv", hidden_dropout_prob=0.1)
    if "+v" in strategy and train is None:
        processing_class = processing_class or word_tokenizer()
        model = growing(vocab_size=len(processing_class)) if model.config.vocab_size == 99 else model
        train, test = texts(24, 1), test or texts(12, 2)
    names = ("callbacks", "compute_metrics", "history", "eval_dataset", "data_collator")
    of_trainer = {name: kwargs.pop(name) for name in names if name in kwargs}
    if processing_class is None:
        processing_class = tiny_tokenizer("roberta")
    options = {"f+m": {"slots": 3}, "f+m+v": {"slots": 3}, "f+h": {"units": 2}, "f+h+v": {"units": 2}}
    options |= {"ewc": {"fisher_samples": 4}, "replay": {"rows_per_domain": 3}}
    arguments = {**QUIET, **STEPS, "per_device_train_batch_size": 4, "num_train_epochs": 2}
    arguments |= {"strategy": strategy, "strategy_kwargs": options.get(strategy), **kwargs}
    return ContinualTrainer(
        model=model,
        args=ContinualTrainingArguments(output_dir=str(output), **arguments),
        train_dataset=rows() if train is None else train,
        test_dataset=rows(15, 2) if test is None else test,
        processing_class=processing_class,
        **of_trainer,
    )


def weights(trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_same(trainer, other):
    assert trainer.record == other.record
    expected = weights(other)
    found = weights(trainer)
    assert set(found) == set(expected)
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name


def plain(strategy):
    """Without dropout, which draws other numbers for other batches."""
    return None if strategy.startswith("f+") else tiny_model("kv")


def assert_near(found, expected):
    assert set(found) == set(expected)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=5e-4, msg=lambda text, n=name: f"{n}: {text}")


if __name__ == "__main__":
    # strategies, output, rows of a device
    strategies, output, per_device = sys.argv[1:]
    output = Path(output)
    for strategy in strategies.split(","):
        saves = {"per_device_train_batch_size": int(per_device), "save_strategy": "steps", "save_steps": 4}
        trainer = continual_trainer(strategy, output / strategy, model=plain(strategy), **saves)
        trainer.train()
        if trainer.is_world_process_zero():
            torch.save(weights(trainer), output / f"{strategy}.pt")
            found = {"record": trainer.record.to_dict(), "processes": trainer.args.world_size}
            (output / f"{strategy}.json").write_text(json.dumps(found))
    from families import leave_together

    leave_together()
