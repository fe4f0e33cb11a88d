# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Choosing the collator of a `DomainTrainer`, and the checks of columns that go with it."""

import inspect
from collections.abc import Callable, Iterable

from transformers import PreTrainedTokenizerBase, default_data_collator
from transformers.utils import find_labels

from hf_memaug.data.augmentation import SEED_COLUMN
from hf_memaug.data.collators import PaddingCollator
from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.general_cache import GeneralStatesCollator, cached_parts
from hf_memaug.data.graphs import GraphCollator
from hf_memaug.data.images import ImageCollator, makes_pixel_values
from hf_memaug.messages import listed

# Lengths that CUDA graphs are recorded for: few enough to record, near enough to waste little.
GRAPH_LENGTHS = 32
# What a model takes, or what is made into it batch by batch.
_READ_BY_MODELS = {"input_ids", "inputs_embeds", "pixel_values", "image", "graph", "node_features"}


def choose_collator(args, data_collator: Callable | None, processing_class, train_dataset, eval_dataset) -> Callable:
    """The caller's, or one that pads texts, decodes images or joins graphs, or that of transformers."""
    reads_images = makes_pixel_values(processing_class)
    if args.augment_images and not (isinstance(data_collator, ImageCollator) or (reads_images and not data_collator)):
        raise ValueError(
            "`augment_images=True` needs an image processor as `processing_class`, and no `data_collator`."
        )
    if data_collator is not None:
        return data_collator
    has_images = has_graphs = False
    for name, columns in _columns(train_dataset=train_dataset, eval_dataset=eval_dataset):
        if "image" in columns and not reads_images and not {"input_ids", "pixel_values"} & set(columns):
            raise ValueError(
                f"`{name}` has images, but `processing_class` is {type(processing_class).__name__}. Use "
                "`AutoImageProcessor.from_pretrained(...)`, or a `data_collator` with `remove_unused_columns=False`."
            )
        if reads_images and "image" not in columns and "pixel_values" not in columns:
            raise ValueError(
                f"`{name}` has no column `image`; it has: {listed(columns)}. Rename the column that holds the images."
            )
        has_images |= reads_images and "image" in columns
        has_graphs |= "graph" in columns and not {"input_ids", "node_features"} & set(columns)
    if isinstance(processing_class, PreTrainedTokenizerBase):
        padding = PaddingCollator(processing_class, GRAPH_LENGTHS if args.cuda_graphs else 1)
        is_cached = any(any(cached_parts(rows)) for rows in (train_dataset, eval_dataset))
        return GeneralStatesCollator(padding) if is_cached else padding
    if has_graphs:
        return GraphCollator()
    return ImageCollator(processing_class) if has_images else default_data_collator


def joined(eval_dataset):
    """Of rows that are given domain by domain, as plain `Trainer` takes them, one set: each domain is scored anyway."""
    parts = list(eval_dataset.items()) if isinstance(eval_dataset, dict) else []
    is_by_domain = all(isinstance(rows, DomainDataset) and set(rows.domains) == {name} for name, rows in parts)
    return DomainDataset.concatenate([rows for _, rows in parts]) if parts and is_by_domain else eval_dataset


def check_tokenized(**datasets) -> None:
    """Refuses texts that nothing makes tokens of. Data sets by the names of their arguments."""
    for name, columns in _columns(**datasets):
        if "text" in columns and not _READ_BY_MODELS & set(columns):
            raise ValueError(
                f"`{name}` has texts that are not tokenized. Pass `rows.tokenize(tokenizer, max_length=...)`."
            )


def columns_to_collate(model, data_collator: Callable) -> list[str]:
    """The columns of a row that the collator sees: those that the model takes."""
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    # Progressive networks take what their columns take.
    of_model = [*inspect.signature(getattr(model, "column", model).forward).parameters]
    of_model += ["label", "label_ids", *find_labels(type(model))]
    if isinstance(data_collator, ImageCollator):
        # What an image is decoded of, called and varied by, no model takes.
        return [*of_model, "image", "domain", SEED_COLUMN]
    return [*of_model, "graph"] if isinstance(data_collator, GraphCollator) else of_model


def _columns(**datasets) -> Iterable[tuple[str, list[str]]]:
    for name, several in datasets.items():
        for dataset in several.values() if isinstance(several, dict) else [several]:
            columns = getattr(dataset, "column_names", None)
            if columns:
                yield name, list(columns)


def domains_of(dataset, argument: str) -> list[str]:
    """The `domain` column of a dataset, or an error that says how to get one."""
    if dataset is not None and not hasattr(dataset, "__len__"):
        raise ValueError(
            f"`{argument}` is a stream. Use rows that have a length, such as `load_domains(...)` or a "
            "`datasets.Dataset`."
        )
    if "domain" not in (getattr(dataset, "column_names", None) or ()):
        raise ValueError(
            f"`{argument}` has no `domain` column. Load it with `load_domains(..., domain=...)` and "
            "`.tokenize(tokenizer)`, or add the column to your `datasets.Dataset`."
        )
    domains = list(dataset["domain"])
    # Tensors of equal numbers would be different domains.
    wrong = next((row for row, one in enumerate(domains) if one is None or hasattr(one, "item")), None)
    if wrong is not None:
        raise ValueError(f"`{argument}` has the domain {domains[wrong]!r} in row {wrong}. Use a name or a number.")
    return domains
