# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Pictures of what is in HMA's memories, and of who reads it (Qiu et al., 2023, Figures 3, 4 and 6), as PNG files:

    python -m hf_memaug.reporting.memory_pictures CHECKPOINT DATA --output PICTURES

Figure 5, the score against the size of the memories, is drawn from an accuracy file by `memory_sizes`.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.loading import load_domains
from hf_memaug.data.molecules import load_molecules
from hf_memaug.evaluation.checks import check_name
from hf_memaug.reporting import memory_maps, plots
from hf_memaug.reporting.memory_panels import MOST_STYLES, plot_datapoint_attention, plot_real_memory, plot_slots

# What each picture needs of an augmentation, and its file.
PICTURES = {
    "slots": ("synthetic", "memory_slots.png"),
    "attention": ("between rows", "datapoint_attention.png"),
    "real_memory": ("real", "real_memory.png"),
}
MOST_CLASSES = 10


def draw_memories(
    model,
    processor,
    dataset: DomainDataset,
    output: str | Path,
    pictures: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    rows_per_class: int = 100,
    attention_rows: int = 10,
    batch_size: int = 32,
    seed: int = 0,
    report: Callable[[Path], None] | None = None,
) -> list[Path]:
    """All pictures of a model at hand, which is left as it was; gives the files written.

    Args:
        model: an HMA model with a backbone.
        processor: its image processor or tokenizer; for graphs None.
        dataset: labelled rows, whose labels have the numbers that the model gives them.
        output: the folder to write to, which is made if need be.
        pictures: some of "slots", "attention" and "real_memory". By default those of the parts that the model has.
        classes: the classes to show. By default the first 10 that have rows. Other slots of the real memory are shown
            together, other synthetic slots are left out.
        rows_per_class: how many rows of each class are drawn among the slots, and ask the real memory. They are the
            first ones of the domains in turn.
        attention_rows: how many rows of each class make up the batch in which rows read each other.
        batch_size: rows at a time for the backbone.
        seed: seed of t-SNE.
        report: called with each file as soon as it is written.
    """
    output, written = Path(output), []
    hma = memory_maps.hma_of(model)
    pictures = _chosen_pictures(hma, pictures)
    for name, value in (("rows_per_class", rows_per_class), ("attention_rows", attention_rows)):
        if value < 1:
            raise ValueError(f"`{name}` is {value}: pass at least 1.")
    if dataset.labels is None or not len(dataset):
        raise ValueError("`dataset` has no labelled row: pass rows with a column 'label'.")
    if dataset.num_labels > hma.config.num_labels:
        raise ValueError(
            f"`dataset` has {dataset.num_labels} classes and the model {hma.config.num_labels}: pass rows of its own."
        )
    shown = _chosen_classes(dataset, classes)
    if "slots" in pictures:
        slots = memory_maps.synthetic_slots(hma)
        kept = np.isin(slots.labels, shown)
        if kept.sum() < plots.LEAST_ROWS:
            raise ValueError(
                f"There are {kept.sum()} synthetic slots to show, and t-SNE needs at least {plots.LEAST_ROWS}: pass "
                'more `classes`, train with more `synthetic_slots`, or leave "slots" out of `pictures`.'
            )
    rows = [_rows_in_turn(dataset, label, max(rows_per_class, attention_rows)) for label in shown]
    if "slots" in pictures and sum(len(of_class[:rows_per_class]) for of_class in rows) < plots.LEAST_ROWS:
        raise ValueError(
            f"`dataset` has fewer than {plots.LEAST_ROWS} rows to show, and t-SNE needs as many: pass more rows, or a "
            'larger `rows_per_class`, or leave "slots" out of `pictures`.'
        )
    features = memory_maps.features_of(hma, processor, dataset.select(sum(rows, [])), batch_size)
    turns = np.concatenate([np.arange(len(of_class)) for of_class in rows])
    # From here on a class is its place among those shown, and one more stands for all others.
    labels = np.repeat(np.arange(len(shown)), [len(of_class) for of_class in rows])
    places = np.full(hma.config.num_labels, len(shown))
    places[shown] = np.arange(len(shown))
    names = [dataset.label_names[label] for label in shown]
    many, few = turns < rows_per_class, turns < attention_rows

    def add(path: Path) -> None:
        written.append(path)
        if report is not None:
            report(path)

    files = {name: output / file for name, (_, file) in PICTURES.items()}
    if "slots" in pictures:
        rows_seen = memory_maps.after_real_memory(hma, features[many])
        of_slots = slots.features[kept], places[slots.labels[kept]]
        add(plot_slots(*of_slots, files["slots"], rows_seen, labels[many], names, seed))
    if "attention" in pictures:
        found = memory_maps.datapoint_attention(hma, features[few])
        kept = np.isin(found.slot_labels, shown)
        weights = found.rows, found.slots[:, kept]
        slot_labels = places[found.slot_labels[kept]]
        add(plot_datapoint_attention(*weights, labels[few], slot_labels, files["attention"], names))
    if "real_memory" in pictures:
        real = memory_maps.real_attention(hma, features[many])
        slot_labels = places[real.slot_labels]
        if len(shown) in slot_labels:
            names = [*names, "others"]
        add(plot_real_memory(real.slots, real.own, labels[many], slot_labels, files["real_memory"], names)[0])
    return written


def write_pictures(
    checkpoint: str | Path,
    data: Any,
    output: str | Path,
    split: str | None = None,
    text: str = "text",
    label: str = "label",
    domain: str | None = "domain",
    smiles: str | None = None,
    **kwargs,
) -> list[Path]:
    """All pictures of a checkpoint; gives the files written. The model is read in float32.

    Args:
        checkpoint: an HMA model with its image processor or tokenizer, as a folder or a repository of the hub.
        data: images in `domain/class/*.jpg`, or anything else that `load_domains` reads: texts in CSV or JSON lines,
            graphs in JSON lines, molecules with their SMILES.
        output: the folder to write to, which is made if need be.
        split: the split to read, where `data` has several.
        text, label, domain: the columns of `data`; a `domain` of None says that there is no such column.
        smiles: the column with molecules, where `data` has such.
        kwargs (*optional*): the other arguments of `draw_memories`.
    """
    model, processor = _load(checkpoint)
    pictures = _chosen_pictures(model, kwargs.pop("pictures", None))
    source, columns = (data, {"domain": domain}) if domain is not None else ({"data": data}, {})
    names = [model.config.id2label[number] for number in range(model.config.num_labels)]
    unnamed = names == [f"LABEL_{number}" for number in range(len(names))]
    columns |= {"label": label, "split": split, "labels": None if unnamed else names}
    if smiles is not None:
        dataset = load_molecules(source, smiles=smiles, **columns)
    else:
        dataset = load_domains(source, text=text, **columns)
    # Without names nobody can say which of the model's classes are there.
    if unnamed and dataset.num_labels != len(names):
        raise ValueError(
            f"`data` has {dataset.num_labels} classes and `checkpoint` {len(names)} without names: save it with an "
            "`id2label` that names them, or pass rows of all classes."
        )
    return draw_memories(model, processor, dataset, output, pictures=pictures, **kwargs)


def _chosen_pictures(hma, pictures: Sequence[str] | None) -> list[str]:
    if pictures is None:
        pictures = [name for name, (part, _) in PICTURES.items() if hma.config.has(part)]
        if not pictures:
            raise ValueError(
                f'The `augmentation` "{hma.config.augmentation}" has no memory and no attention between datapoints, '
                'of which there is nothing to show: pass a model that was trained with another, such as "hma".'
            )
    for name in pictures:
        check_name("pictures", name, PICTURES)
        memory_maps.head_with(hma, PICTURES[name][0])
    return list(pictures)


def _chosen_classes(dataset: DomainDataset, classes: Sequence[str] | None) -> list[int]:
    there = set(dataset.labels)
    if classes is None:
        return sorted(there)[:MOST_CLASSES]
    for name in classes:
        check_name("classes", name, dataset.label_names)
        if dataset.label_names.index(name) not in there:
            raise ValueError(f"`classes` names {name!r}, of which `dataset` has no row: name others.")
    chosen = [dataset.label_names.index(name) for name in dict.fromkeys(classes)]
    if not 0 < len(chosen) <= MOST_STYLES:
        raise ValueError(f"`classes` are {len(chosen)}: name from 1 to {MOST_STYLES}, which can be told apart.")
    return chosen


def _rows_in_turn(dataset: DomainDataset, label: int, count: int) -> list[int]:
    """Up to `count` rows of a class: the first of every domain, then the second, and so on."""
    turns: dict[str, int] = {}
    ranked = []
    for row, (domain, found) in enumerate(zip(dataset["domain"], dataset.labels, strict=True)):
        if found == label:
            ranked.append((turns.setdefault(domain, 0), row))
            turns[domain] += 1
    return [row for _, row in sorted(ranked)[:count]]


def _load(name_or_path: str | Path):
    import torch
    import transformers

    import hf_memaug

    config = transformers.AutoConfig.from_pretrained(name_or_path)
    kinds = {
        "HMAForImageClassification": ("AutoImageProcessor", "image processor"),
        "HMAForSequenceClassification": ("AutoTokenizer", "tokenizer"),
        "HMAForGraphClassification": (None, None),
    }
    name = next((name for name in config.architectures or () if name in kinds), None)
    if config.model_type != "hma" or name is None:
        found = " or ".join(config.architectures or ()) or config.model_type
        raise ValueError(
            f"`checkpoint` is a {found}, which is no HMA model with a backbone: pass a checkpoint of one of "
            f"{', '.join(kinds)}. `from_backbone` makes one of a backbone."
        )
    auto_class, kind = kinds[name]
    processor = None
    if auto_class is not None:
        try:
            processor = getattr(transformers, auto_class).from_pretrained(name_or_path)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"`checkpoint`: {str(name_or_path)!r} has no {kind} that can be read. Save the one it was trained with "
                "there: `processor.save_pretrained(...)`."
            ) from error
    model = getattr(hf_memaug, name).from_pretrained(name_or_path, dtype=torch.float32)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), processor


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m hf_memaug.reporting.memory_pictures",
        description="Draws what is in the memories of an HMA model: t-SNE of the synthetic slots, and of slots and "
        "rows (memory_slots.png), what rows of a batch read of each other and of the slots (datapoint_attention.png), "
        "and what is in the real memory and who reads it (real_memory.png).",
    )
    parser.add_argument("checkpoint", help="an HMA model with its processor: a folder, or a repository of the hub")
    parser.add_argument(
        "data", help="images in domain/class/*.jpg, or CSV or JSON lines with texts, graphs or molecules, and labels"
    )
    parser.add_argument("--output", type=Path, default=Path("pictures"), help="folder to write to (default: pictures)")
    parser.add_argument(
        "--pictures", nargs="+", choices=list(PICTURES), help="which to draw (default: all that the model has)"
    )
    parser.add_argument("--classes", nargs="+", help=f"classes to show (default: the first {MOST_CLASSES})")
    parser.add_argument(
        "--rows-per-class", type=int, default=100, help="rows among the slots, and that ask the real memory (100)"
    )
    parser.add_argument("--attention-rows", type=int, default=10, help="rows of each class that read each other (10)")
    parser.add_argument("--split", help="the split to read, where the data has several")
    parser.add_argument("--text", default="text", help="column with the text (default: text)")
    parser.add_argument("--smiles", metavar="COLUMN", help="column with molecules, where the rows are such")
    parser.add_argument("--label", default="label", help="column with the class (default: label)")
    parser.add_argument("--domain", default="domain", help="column with the domain (default: domain)")
    parser.add_argument(
        "--no-domain", dest="domain", action="store_const", const=None, help="the data has no column with a domain"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="rows at a time for the backbone (default: 32)")
    parser.add_argument("--seed", type=int, default=0, help="seed of t-SNE (default: 0)")
    try:
        write_pictures(**vars(parser.parse_args(arguments)), report=lambda path: print(path, flush=True))
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
