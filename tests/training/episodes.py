# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Runs of `BilevelTrainer` on tiny data, also as a script for torchrun."""

import json
import sys
from pathlib import Path


def make_trainer(output, rows: int = 8, accumulation: int = 1, callbacks=(), name=None, dropout: float = 0.1, **kwargs):
    import torch
    from families import CASES
    from tiny_backbones import QUIET, SENTENCES, tiny_tokenizer

    from hf_memaug import BilevelTrainer, BilevelTrainingArguments
    from hf_memaug.data import load_domains

    torch.set_num_threads(1)
    case = next(case for case in CASES if case.name == (name or "RobertaWithKVMemoryForSequenceClassification"))
    tokenizer = tiny_tokenizer(case.backbone)
    texts = [f"{SENTENCES[row % 6]} {row}" for row in range(96)]
    data = load_domains(
        [{"text": text, "label": row // 3 % 3, "domain": "abc"[row % 3]} for row, text in enumerate(texts)]
    ).tokenize(tokenizer)
    dtype = kwargs.pop("dtype", torch.float32)
    config = {"num_labels": 3, "vocab_size": len(tokenizer), "hidden_dropout_prob": dropout}
    rates = ("learning_rate", "memory_learning_rate", "discriminator_learning_rate")
    settings = {**QUIET, **dict.fromkeys(rates, 1e-2), "discriminator_hidden_size": 16, "logging_steps": 1, "seed": 3}
    settings |= {"episodes": 3, "episode_steps": 2, "inner_steps": 1, "max_steps": 8}
    settings |= {"per_device_train_batch_size": rows, "gradient_accumulation_steps": accumulation, **kwargs}
    args = BilevelTrainingArguments(output_dir=str(output), **settings)
    model = case.model(**config).to(dtype)
    return BilevelTrainer(
        model=model, args=args, train_dataset=data, processing_class=tokenizer, callbacks=list(callbacks)
    )


def weights_of(trainer) -> dict:
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


if __name__ == "__main__":
    import torch
    from families import leave_together

    task, output, settings = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    trainer = make_trainer(output, **settings)
    trainer.train()
    if trainer.is_world_process_zero():
        torch.save(weights_of(trainer), output / "weights.pt")
        (output / "logs.json").write_text(json.dumps({"meta": trainer.meta_log, "processes": trainer.args.world_size}))
    leave_together()
