# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Runs of `DomainTrainer` on tiny models. Also a script, so that it can be started under torchrun."""

import json
import random
import sys
from pathlib import Path

from transformers import TrainerCallback

DOMAINS = ("books", "films", "phones")
STEPS = {"per_device_train_batch_size": 6, "learning_rate": 1e-2, "logging_steps": 1, "seed": 0}


class StopAt(TrainerCallback):
    def __init__(self, step: int | None):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True


class States(TrainerCallback):
    """The model after each step."""

    def __init__(self):
        self.seen = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.seen.append({name: value.clone() for name, value in model.state_dict().items()})


class Gradients(TrainerCallback):
    """Which parameters have had no gradient at some step, and which began a step with that of the last."""

    def __init__(self):
        self.missing: set[str] = set()
        self.stale: set[str] = set()
        self.steps = 0

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        named = [*model.named_parameters(), *self.trainer.algorithm.named_parameters()]
        self.stale |= {name for name, parameter in named if parameter.grad is not None}

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.steps += 1
        named = [*model.named_parameters(), *self.trainer.algorithm.named_parameters()]
        for name, parameter in named:
            # The softmax of attention does not change when every key is moved alike.
            if parameter.requires_grad and not name.endswith("key.bias"):
                if parameter.grad is None or not parameter.grad.any() or not parameter.grad.isfinite().all():
                    self.missing.add(name)


def rows(count: int = 24, seed: int = 1, domains=DOMAINS):
    """Tokenized rows of several lengths, by turns from each domain; a token tells most of the labels."""
    from hf_memaug.data import DomainDataset

    generator = random.Random(seed)
    labels = [generator.randrange(3) for _ in range(count)]
    ids = []
    for label in labels:
        hint = 11 + (label if generator.random() < 0.8 else generator.randrange(3))
        ids.append([2, hint, *(generator.randrange(14, 99) for _ in range(generator.randrange(3, 8)))])
    return DomainDataset(
        {
            "input_ids": ids,
            "attention_mask": [[1] * len(row) for row in ids],
            "labels": labels,
            "domain": [domains[row % len(domains)] for row in range(count)],
        }
    )


def tiny_model(kind: str, seed: int = 0, **config):
    """`"kv"`, our RoBERTa with a memory, or `"bert"`, transformers' own class without one."""
    import torch
    from families import kv_memory_config
    from tiny_backbones import SIZES
    from transformers import BertConfig, BertForSequenceClassification

    from hf_memaug import RobertaWithKVMemoryForSequenceClassification

    torch.manual_seed(seed)
    if kind == "kv":
        return RobertaWithKVMemoryForSequenceClassification(kv_memory_config("roberta_kv_memory", **config))
    return BertForSequenceClassification(BertConfig(**{"vocab_size": 99, "num_labels": 3, **SIZES, **config}))


def domain_trainer(kind: str, output, *, config=None, model=None, train=None, evaluate=None, seed=0, **kwargs):
    """A `DomainTrainer` on the CPU. `kwargs` are arguments of the run, or of the trainer where it has them."""
    import torch
    from tiny_backbones import QUIET, tiny_tokenizer

    from hf_memaug import DomainTrainer, DomainTrainingArguments

    torch.set_num_threads(1)
    if kwargs.get("algorithm") == "swad" and evaluate is None:
        kwargs, evaluate = {"eval_strategy": "steps", "eval_steps": 2, **kwargs}, rows(12, 2)
    of_trainer = {"processing_class": tiny_tokenizer("roberta" if kind == "kv" else "bert")}
    names = ("callbacks", "compute_metrics", "data_collator", "processing_class")
    of_trainer |= {name: kwargs.pop(name) for name in names if name in kwargs}
    arguments = {**QUIET, **STEPS, "num_train_epochs": 2, **kwargs}
    return DomainTrainer(
        model=tiny_model(kind, seed, **(config or {})) if model is None else model,
        args=DomainTrainingArguments(output_dir=str(output), **arguments),
        train_dataset=rows() if train is None else train,
        eval_dataset=evaluate,
        **of_trainer,
    )


def logged(trainer) -> list[tuple[float, float]]:
    return [(entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "loss" in entry]


def weights(trainer) -> dict:
    """Copies of all that was trained: the model and the algorithm's own parameters."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    states = {"model": model.state_dict(), "algorithm": trainer.algorithm.state_dict()}
    return {
        f"{part}.{name}": value.clone()
        for part, state in states.items()
        for name, value in state.items()
        if hasattr(value, "clone")  # and not what an algorithm keeps besides
    }


def scored(output) -> dict[str, float]:
    """The evaluation of a model whose predictions differ from row to row."""
    return domain_trainer("kv", output, config={"initializer_range": 1.0}, evaluate=rows(25, 5)).evaluate()


if __name__ == "__main__":
    import torch
    from families import leave_together

    output, per_device = Path(sys.argv[1]), int(sys.argv[2])
    for algorithm in sys.argv[3:]:
        trainer = domain_trainer("kv", output / algorithm, algorithm=algorithm, per_device_train_batch_size=per_device)
        trainer.train()
        if trainer.is_world_process_zero():
            torch.save(weights(trainer), output / f"{algorithm}.pt")
            found = {"logs": logged(trainer), "processes": trainer.args.world_size}
            (output / f"{algorithm}.json").write_text(json.dumps(found))
    metrics = scored(output)
    if trainer.is_world_process_zero():
        (output / "metrics.json").write_text(json.dumps(metrics))
    leave_together()
