# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Teach a trained classifier classes that it has never had: write rows of them to a memory, or train on them.

A classifier is trained without some classes. Then each way gets the same rows of these classes, and is scored on other
rows of the new and of the old classes. Guard rows are held-out rows of the old classes.

    python examples/figures/new_classes.py --data data/pacs --backbone vit --bf16 true --max_steps 700 \\
        --per_device_train_batch_size 96
"""

import copy
import json
import random
from pathlib import Path

import torch
from transformers import HfArgumentParser, set_seed
from transformers.utils import logging
from write_or_finetune import Data, ScriptArguments, outputs_of, train

from hf_memaug import (
    DomainDataset,
    DomainTrainingArguments,
    WritableMemoryForImageClassification,
    WritableMemoryForSequenceClassification,
)

ROWS = 64
NEW = 2


def of_classes(rows, classes: list[int], names: list[str]):
    """The rows of some classes, with labels among the classes `names`."""
    kept = rows.select([place for place, label in enumerate(rows["label"]) if label in classes])
    labels = [names.index(rows.label_names[label]) for label in kept["label"]]
    columns = {name: kept[name] for name in kept.column_names if name != "label"}
    return DomainDataset({**columns, "label": labels}, label_names=names)


def grown(classifier, classes: int):
    """A copy whose head has more classes."""
    model = copy.deepcopy(classifier)
    head = torch.nn.Linear(model.classifier.in_features, classes).to(model.device)
    head.weight.data.normal_(std=0.02)
    head.bias.data.zero_()
    head.weight.data[: model.num_labels] = model.classifier.weight.data
    head.bias.data[: model.num_labels] = model.classifier.bias.data
    model.classifier = head
    model.num_labels = model.config.num_labels = classes
    return model


def main() -> None:
    parser = HfArgumentParser((ScriptArguments, DomainTrainingArguments), description=__doc__)
    parser.set_defaults(output_dir="runs/new_classes", learning_rate=5e-5, num_train_epochs=3, results="classes.jsonl")
    parser.set_defaults(per_device_train_batch_size=32, weight_decay=0.01, warmup_steps=0.06)
    script, args = parser.parse_args_into_dataclasses()
    logging.set_verbosity_error()
    data = Data(script)
    pool, held_out, everything = data.train, data.test, data.train.label_names
    for seed in map(int, script.seeds.split(",")):
        set_seed(seed)
        args.seed = seed
        new = sorted(random.Random(seed).sample(range(len(everything)), NEW))
        old = [label for label in range(len(everything)) if label not in new]
        names = [everything[label] for label in (*old, *new)]
        data.train = of_classes(pool, old, names[: len(old)])
        model = train(data.classifier(), data.prepared(data.train), data, args)
        olds = of_classes(held_out, old, names).shuffle(seed)
        guard, old_test = olds.select(range(min(500, len(olds) // 2))), olds.select(range(len(olds) // 2, len(olds)))
        drawn = [of_classes(pool, [label], names).shuffle(seed).select(range(ROWS)) for label in new]
        few, new_test = DomainDataset.concatenate(drawn), of_classes(held_out, new, names)
        scored = {"new": data.prepared(new_test), "old": data.prepared(old_test)}
        for way in ("erm", "write", "finetune", "finetune+guard"):
            adapted = model
            if way == "write":
                name = (
                    WritableMemoryForImageClassification if data.is_image else WritableMemoryForSequenceClassification
                )
                adapted = name.from_classifier(model)
                known = of_classes(held_out, old, names[: len(old)]).shuffle(seed).select(range(len(guard)))
                adapted.write(few, "new", data.processor, guard=known, new_labels=True, max_length=script.max_length)
                names_now = [adapted.config.id2label[label] for label in range(adapted.config.num_labels)]
            elif way != "erm":
                rows = few if way == "finetune" else DomainDataset.concatenate([few, guard])
                epochs = {"num_train_epochs": 10, "max_steps": -1, "per_device_train_batch_size": 32}
                adapted = train(grown(model, len(names)), data.prepared(rows), data, args, **epochs)
            order = [names.index(name) for name in names_now] if way == "write" else list(range(len(names)))
            row = {"data": Path(script.data).name, "seed": seed, "method": way, "classes": names[len(old) :]}
            for part, rows in scored.items():
                answers = outputs_of(adapted, rows, data).argmax(dim=-1).tolist()
                right = [order[one] == label for one, label in zip(answers, rows["labels"], strict=True)]
                row[part] = round(100 * sum(right) / len(right), 2)
            with open(script.results, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)


if __name__ == "__main__":
    main()
