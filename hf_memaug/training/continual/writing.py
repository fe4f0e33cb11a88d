# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The first domain is trained on, and later domains are written to a memory."""

import random
from collections.abc import Sequence
from typing import Any

from hf_memaug.configuration.configuration_writable_memory import WritableMemoryConfig
from hf_memaug.data import DomainDataset, find_overlap, load_domains
from hf_memaug.modeling.modeling_writable_memory import WritableMemoryForClassification, memory_class_of
from hf_memaug.modeling.modeling_writable_rows import GUARD_NAME
from hf_memaug.training.algorithms.base import Limits
from hf_memaug.training.continual.base import FineTuning


class WriteRows(FineTuning):
    """
    Trains on the first domain, gives the model a writable memory, and writes the training rows of each later domain to
    it. A model whose memory has rows already is not trained at all.

    The guard rows are `guard_rows` rows of the domains that were trained on: of `eval_dataset`, if R is scored on other
    rows, else of `train_dataset`.
    """

    supports_questions = False
    writes = True
    options = {"guard_rows": 500}
    limits = {"guard_rows": Limits(least=1)}

    def check_model(self, model: Any, processing_class, rows: DomainDataset) -> None:
        super().check_model(model, processing_class, rows)
        reads, this = "image" if model.main_input_name == "pixel_values" else "text", f'`strategy="{self.name}"`'
        if {"input_ids", "pixel_values"} & set(rows.column_names):
            raise ValueError(f"{this} needs the texts or images themselves. Leave `tokenize` out: the trainer does it.")
        if model.config.is_encoder_decoder or rows.labels is None or reads not in rows.column_names:
            raise ValueError(
                f'{this} supports classifiers of texts or images, with one label for each row. Use "ewc", for example.'
            )
        if processing_class is None:
            raise ValueError(f"{this} needs the tokenizer or image processor. Pass it as `processing_class`.")
        memory_class_of(model, this)
        taken = {GUARD_NAME, *(entry["name"] for entry in getattr(model.config, "domains", None) or ())}
        for name in taken & set(rows.domains):
            raise ValueError(f"{this}: the memory has rows called {name!r} already. Rename the domain, or erase them.")
        for name, part in rows.by_domain().items():
            if len(set(part.labels or ())) < 2:
                raise ValueError(f"{this}: all rows of {name!r} have one label. Add rows of other labels.")
        if reads == "text":
            words, size = max(processing_class.get_vocab().values()) + 1, len(model.get_input_embeddings().weight)
            if words > size:
                raise ValueError(
                    f"{this}: `processing_class` has {words:,} words, and `model` {size:,}. Pass the tokenizer that "
                    "`model` was trained with."
                )
        load_domains(labelled(rows, model.config))

    def write(self, trainer, number: int, rows: DomainDataset) -> Any:
        model = trainer.model
        has_memory = isinstance(model, WritableMemoryForClassification)
        if not number and not (has_memory and model.config.memory_rows):
            return None
        if not has_memory:
            facts = getattr(model.config, "run_facts", None)
            model = memory_class_of(model, self.name).from_classifier(model)
            model.config.run_facts = facts
        model.write(
            labelled(rows, model.config),
            rows.domains[0],
            trainer.processing_class,
            guard=self.guard(trainer) if model.memory.written.all() else None,
            max_length=trainer.args.max_length,
            batch_size=trainer.args.per_device_eval_batch_size,
        )
        return model

    def guard(self, trainer) -> DomainDataset | None:
        """Rows of the domains that were trained on: those held out that R is not scored on, else training rows."""
        found = []
        for name in (name for stage in trainer.record.stages if stage["steps"] for name in stage["domains"]):
            held_out = trainer.dev_rows.get(name)
            if held_out is not None:
                scored = {row for row, _ in find_overlap(held_out, trainer.eval_dataset)}
                held_out = held_out.select(row for row in range(len(held_out)) if row not in scored)
            rows = held_out or trainer.train_rows.get(name)
            if rows is not None:
                found.append(labelled(rows, trainer.model.config))
        if not found:
            return None
        whole = DomainDataset.concatenate(found)
        draw = random.Random(f"guard {trainer.args.seed}")
        return whole.select(sorted(draw.sample(range(len(whole)), min(self.guard_rows, len(whole)))))

    def rebuild(self, model: Any, folder: str) -> Any:
        if WritableMemoryConfig.get_config_dict(folder)[0]["model_type"] != WritableMemoryConfig.model_type:
            return None
        return memory_class_of(model, self.name).from_pretrained(folder)


def labelled(rows: DomainDataset, config: Any) -> DomainDataset:
    """The inputs and labels, which have the model's names for them."""
    inputs = ("text", "text_pair", "image", "domain")
    columns: dict[str, Sequence] = {name: rows[name] for name in inputs if name in rows.column_names}
    names = [str(config.id2label[label]) for label in range(config.num_labels)]
    return DomainDataset({**columns, "label": rows.labels or ()}, names)
