# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""One training run, as a script, so that it can also be started under torchrun. Writes losses and final weights."""

import json
import sys
from pathlib import Path


def train(name: str, output: Path, per_device: int, accumulation: int, **kwargs):
    import torch
    from families import CASES
    from tiny_backbones import QUIET
    from transformers import Trainer, TrainingArguments

    from hf_memaug import MemoryUpdateCallback

    torch.set_num_threads(1)
    case = next(case for case in CASES if case.name == name)
    rows, collator = case.training_rows(24)
    model = case.model(**kwargs.pop("config", {}))
    settings = {**QUIET, "per_device_train_batch_size": per_device, "gradient_accumulation_steps": accumulation}
    settings |= {"logging_steps": 1, "seed": 0, "num_train_epochs": 2, "remove_unused_columns": not case.is_graph}
    # Adam would make as much of a gradient that is nothing but rounding (a key's bias) as of any other.
    settings |= {"optim": "sgd", "learning_rate": 0.1, **kwargs}
    arguments = TrainingArguments(output_dir=str(output), **settings)
    trainer = Trainer(
        model=model, args=arguments, train_dataset=rows, data_collator=collator, callbacks=[MemoryUpdateCallback()]
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    weights = {
        name: value.clone() for name, value in trainer.accelerator.unwrap_model(trainer.model).state_dict().items()
    }
    return trainer, [(entry["loss"], entry["grad_norm"]) for entry in logs], weights


if __name__ == "__main__":
    import torch
    from families import leave_together

    name, output, per_device = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    trainer, logs, weights = train(name, output, per_device, 1, config=json.loads(sys.argv[4]))
    if trainer.is_world_process_zero():
        torch.save(weights, output / "weights.pt")
        (output / "logs.json").write_text(json.dumps({"logs": logs, "processes": trainer.args.world_size}))
    leave_together()
