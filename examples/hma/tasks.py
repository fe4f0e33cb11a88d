# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What HMA is tried on: for each block of the paper's evidence, its rows, its backbones and its score."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from coloured import BACKBONES, load

sys.path.append(str(Path(__file__).parents[1] / "gmoe"))  # pixels.py and augmenting.py

Batch = dict[str, torch.Tensor]


@dataclass
class Task:
    """
    Args:
        model_class: the class of the library.
        backbone: a module or a model, with fresh or with pretrained weights.
        parts: the batches of `train`, of `dev`, and of each test; rows of one part are shuffled anew for each epoch.
        metric: of the scores, in points.
        options: of `from_backbone`.
        same_shapes: whether batches of as many rows have the same shapes.
    """

    model_class: type
    backbone: torch.nn.Module
    parts: dict[str, "Rows"]
    metric: str
    options: dict = field(default_factory=dict)
    same_shapes: bool = True


class Rows:
    """Rows that are put together to batches when they are asked for."""

    def __init__(self, count: int, collate, labels: torch.Tensor):
        self.count, self.collate, self.labels = count, collate, labels

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        """In another order for each seed. A last batch of one row would have nothing to read: it joins another."""
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(seed))
        parts = list(order.split(size))
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        for rows in parts:
            yield self.collate(rows)


def coloured_mnist(folder: str, setting: str, backbone: str, seed: int) -> Task:
    """`setting` is `size/p1/p2`, such as `14/0.2/0.1` (section 5.2)."""
    from hf_memaug import HMAForImageClassification

    size, *flips = setting.split("/")
    found = load(f"{folder}/data/mnist", int(size), (float(flips[0]), float(flips[1])), seed)

    def rows(part):
        def collate(index):
            return {"pixel_values": part.images[index], "labels": part.labels[index]}

        return Rows(len(part), collate, part.labels)

    module = BACKBONES[backbone](int(size))
    parts = {name: rows(part) for name, part in found.items()}
    return Task(HMAForImageClassification, module, parts, "accuracy", {"feature_size": module.width, "num_labels": 2})


def _graph_task(parts: dict, backbone: str, metric: str, **sizes) -> Task:
    """`backbone` is a network, its layers and its width, such as `gin-3x64`."""
    from hf_memaug import GraphNetworkConfig, GraphNetworkModel, HMAForGraphClassification
    from hf_memaug.configuration.configuration_graph_network import network_fields
    from hf_memaug.data.graphs import GraphCollator, feature_sizes

    found = feature_sizes(*parts.values())
    config = GraphNetworkConfig(**network_fields(backbone), **{**found._asdict(), **sizes})
    collator = GraphCollator()

    def rows(part):
        kept = [{"graph": row["graph"], "label": row["label"]} for row in part]
        labels = torch.tensor([row["label"] for row in kept])
        return Rows(len(kept), lambda index: collator([kept[row] for row in index.tolist()]), labels)

    made = {name: rows(part) for name, part in parts.items()}
    labels = 1 + max(int(part.labels.max()) for part in made.values())
    model = GraphNetworkModel(config)
    return Task(HMAForGraphClassification, model, made, metric, {"num_labels": labels}, same_shapes=False)


@cache
def _molecules(folder: str) -> dict:
    from pack_graphs import PARTS, name_of, unpack

    place = Path(folder) / "data" / "molecules"
    if all((place / name_of(part)).is_file() for part in PARTS):
        return {part: unpack(place / name_of(part)) for part in PARTS}
    from hf_memaug.data.molecules import load_molecules

    return {part: load_molecules({"bace": place / f"bace.{part}.jsonl.gz"}) for part in PARTS}


def bace(folder: str, setting: str, backbone: str, seed: int) -> Task:
    """Table 3: the published split by scaffolds."""
    return _graph_task(_molecules(folder), backbone, "auroc")


@cache
def _tu(folder: str, name: str):
    from hf_memaug.data.graphs import tu_graphs

    return tu_graphs(f"{folder}/data/tu_graphs", name)


def tu(name: str, metric: str):
    def make(folder: str, setting: str, backbone: str, seed: int) -> Task:
        """`setting` is a fold, 0 to 9 (Table 4), or `size` (Table 6)."""
        from hf_memaug.data.graphs import fold_split, size_shift_split, tu_folds

        whole = _tu(folder, name)
        if setting == "size":
            split = size_shift_split(whole, seed=seed)
        else:
            split = fold_split(whole, tu_folds(f"{folder}/data/tu_graphs", name), int(setting))
        parts = {part: getattr(split, part) for part in ("train", "dev", "test")}
        return _graph_task(parts, backbone, metric)

    return make


@cache
def _pixels(folder: str, name: str, size: int):
    """From a folder of Parquet files, or from what pixels.py made of one."""
    from pixels import Pixels

    packed = Path(folder) / "data" / f"{name}.npz"
    return Pixels.read(packed if packed.is_file() else packed.with_suffix(""), size)


def images(name: str):
    def make(folder: str, setting: str, backbone: str, seed: int) -> Task:
        """
        Table 1 form. `setting` is a domain, of which a tenth is held out for dev and a fifth for test; or empty, where
        there are the files `train` and `test`. `backbone` is a folder with a ViT in `weights/`.
        """
        from augmenting import normalised
        from transformers import AutoConfig, AutoModel

        from hf_memaug import HMAForImageClassification

        place = Path(folder) / "weights" / backbone
        size = AutoConfig.from_pretrained(place).image_size
        pixels = _pixels(folder, name, size)
        mean, std = _mean_and_std(place)
        draw = torch.Generator().manual_seed(seed)
        of = {domain: [row for row, one in enumerate(pixels.domains) if one == domain] for domain in pixels.names}
        known = torch.tensor(of[setting or "train"])
        known = known[torch.randperm(len(known), generator=draw)]
        test = torch.tensor(of["test"]) if not setting else known[: len(known) // 5]
        rest = known if not setting else known[len(known) // 5 :]
        dev, train = rest[: len(rest) // 10], rest[len(rest) // 10 :]

        def rows(part, flip):
            def collate(index):
                chosen = pixels.images[part[index]]
                if flip:
                    turned = torch.rand(len(chosen)) < 0.5
                    chosen = torch.where(turned[:, None, None, None], chosen.flip(-1), chosen)
                return {"pixel_values": normalised(chosen, mean, std), "labels": pixels.labels[part[index]]}

            return Rows(len(part), collate, pixels.labels[part])

        parts = {"train": rows(train, flip=True), "dev": rows(dev, flip=False), "test": rows(test, flip=False)}
        model = AutoModel.from_pretrained(place, dtype=torch.float32, add_pooling_layer=False)
        options = {"num_labels": len(pixels.label_names)}
        return Task(HMAForImageClassification, model, parts, "accuracy", options)

    return make


def _mean_and_std(place: Path) -> tuple[torch.Tensor, torch.Tensor]:
    import json

    stored = json.loads((place / "preprocessor_config.json").read_text(encoding="utf-8"))
    return tuple(torch.tensor(stored[name]).view(1, 3, 1, 1) for name in ("image_mean", "image_std"))


def amazon(folder: str, setting: str, backbone: str, seed: int) -> Task:
    """Leave-one-domain-out: `setting` is the domain. `backbone` is a folder with an encoder of text in `weights/`."""
    from transformers import AutoModel, AutoTokenizer

    from hf_memaug import DomainDataset, HMAForSequenceClassification, load_domains

    place = Path(folder) / "weights" / backbone
    tokenizer = AutoTokenizer.from_pretrained(place)
    longest = min(192, tokenizer.model_max_length)
    found = {split: load_domains(Path(folder) / "data" / "amazon", split=split) for split in ("train", "test")}

    def rows(part):
        encoded = tokenizer(part["text"], truncation=True, max_length=longest)
        labels = torch.tensor(part["label"])

        def collate(index):
            chosen = [{name: values[row] for name, values in encoded.items()} for row in index.tolist()]
            padded = tokenizer.pad(chosen, padding="max_length", max_length=longest, return_tensors="pt")
            return {**padded, "labels": labels[index]}

        return Rows(len(labels), collate, labels)

    def sources(split):
        return DomainDataset.concatenate([part for name, part in found[split].by_domain().items() if name != setting])

    parts = {
        "train": rows(sources("train")),
        # What is held out of the domains that are trained on; nothing of the other one but its test rows.
        "dev": rows(sources("test")),
        "test": rows(found["test"].domain(setting)),
    }
    model = AutoModel.from_pretrained(place, dtype=torch.float32, add_pooling_layer=False)
    return Task(HMAForSequenceClassification, model, parts, "macro_f1", {"num_labels": 2})


TASKS = {
    "coloured_mnist": coloured_mnist,
    "bace": bace,
    "proteins": tu("PROTEINS", "accuracy"),
    "imdb-binary": tu("IMDB-BINARY", "accuracy"),
    "proteins_size": tu("PROTEINS", "mcc"),
    "imdb-binary_size": tu("IMDB-BINARY", "mcc"),
    "cifar10": images("cifar10"),
    "pacs": images("pacs"),
    "amazon": amazon,
}
