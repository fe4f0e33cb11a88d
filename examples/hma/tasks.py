# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What HMA is tried on: for each block of the paper's evidence, its rows, its backbones and its score."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from coloured import BACKBONES, load

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
    """

    model_class: type
    backbone: torch.nn.Module
    parts: dict[str, "Rows"]
    metric: str
    options: dict = field(default_factory=dict)


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
    found = load(f"{folder}/mnist", int(size), (float(flips[0]), float(flips[1])), seed)

    def rows(part):
        def collate(index):
            return {"pixel_values": part.images[index], "labels": part.labels[index]}

        return Rows(len(part), collate, part.labels)

    module = BACKBONES[backbone](int(size))
    parts = {name: rows(part) for name, part in found.items()}
    return Task(HMAForImageClassification, module, parts, "accuracy", {"feature_size": module.width, "num_labels": 2})


NETWORKS = {
    "gcn": {"network": "gcn"},
    "gcn-v": {"network": "gcn", "virtual_node": True},
    "gin": {"network": "gin"},
    "gin-v": {"network": "gin", "virtual_node": True},
}


def _graph_task(parts: dict, backbone: str, metric: str, **sizes) -> Task:
    """`backbone` is a network, its layers and its width, such as `gin-3x64`."""
    from hf_memaug import GraphNetworkConfig, GraphNetworkModel, HMAForGraphClassification
    from hf_memaug.data.graphs import GraphCollator, feature_sizes

    name, _, shape = backbone.rpartition("-")
    layers, width = map(int, shape.split("x"))
    found = feature_sizes(*parts.values())
    config = GraphNetworkConfig(
        **NETWORKS[name], num_hidden_layers=layers, hidden_size=width, **{**found._asdict(), **sizes}
    )
    collator = GraphCollator()

    def rows(part):
        kept = [{"graph": row["graph"], "label": row["label"]} for row in part]
        labels = torch.tensor([row["label"] for row in kept])
        return Rows(len(kept), lambda index: collator([kept[row] for row in index.tolist()]), labels)

    made = {name: rows(part) for name, part in parts.items()}
    labels = 1 + max(int(part.labels.max()) for part in made.values())
    return Task(HMAForGraphClassification, GraphNetworkModel(config), made, metric, {"num_labels": labels})


@cache
def _molecules(folder: str) -> dict:
    from hf_memaug.data.molecules import load_molecules

    places = {name: Path(folder) / "molecules" / f"bace.{name}.jsonl.gz" for name in ("train", "dev", "test")}
    return {name: load_molecules({"bace": place}) for name, place in places.items()}


def bace(folder: str, setting: str, backbone: str, seed: int) -> Task:
    """Table 3: the published split by scaffolds."""
    return _graph_task(_molecules(folder), backbone, "auroc")


@cache
def _tu(folder: str, name: str):
    from hf_memaug.data.graphs import tu_graphs

    return tu_graphs(f"{folder}/tu_graphs", name)


def tu(name: str, metric: str):
    def make(folder: str, setting: str, backbone: str, seed: int) -> Task:
        """`setting` is a fold, 0 to 9 (Table 4), or `size` (Table 6)."""
        from hf_memaug.data.graphs import fold_split, size_shift_split, tu_folds

        whole = _tu(folder, name)
        if setting == "size":
            split = size_shift_split(whole, seed=seed)
        else:
            split = fold_split(whole, tu_folds(f"{folder}/tu_graphs", name), int(setting))
        parts = {part: getattr(split, part) for part in ("train", "dev", "test")}
        return _graph_task(parts, backbone, metric)

    return make


TASKS = {
    "coloured_mnist": coloured_mnist,
    "bace": bace,
    "proteins": tu("PROTEINS", "accuracy"),
    "imdb-binary": tu("IMDB-BINARY", "accuracy"),
    "proteins_size": tu("PROTEINS", "mcc"),
}
