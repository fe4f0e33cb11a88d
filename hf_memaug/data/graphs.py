# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Rows with `graph`, one shape for all: `{"node_features": [[...], ...], "edge_index": [[from, ...], [to, ...]],
"edge_features": [[...], ...]}`.

Features are categories, whole numbers from 0. An edge without direction is there twice, once each way.
`edge_features` may be left out.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.labels import how_named, labels_of
from hf_memaug.data.messages import did_you_mean, listed, some_rows
from hf_memaug.data.readers import json_rows, visible
from hf_memaug.data.splits import DomainSplit, split_domains

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

Graph = dict[str, list]


def undirected_graph(
    node_features: Sequence[Sequence[int]],
    edges: Iterable[Sequence[int]],
    edge_features: Sequence[Sequence[int]] | None = None,
) -> Graph:
    """
    A graph of edges without direction, each of which is given once (or in both directions, which counts as once).

    Args:
        node_features (`Sequence[Sequence[int]]`):
            The features of each node.
        edges (`Iterable[Sequence[int]]`):
            Pairs of nodes, counted from 0.
        edge_features (`Sequence[Sequence[int]]`, *optional*):
            The features of each of these edges.
    """
    pairs: dict[tuple[int, int], list[int] | None] = {}
    edges = [tuple(edge) for edge in edges]
    if edge_features is not None and len(edge_features) != len(edges):
        raise ValueError(f"`edge_features` has {len(edge_features)} rows, and there are {len(edges)} `edges`.")
    for number, edge in enumerate(edges):
        pair = (min(edge), max(edge))
        features = None if edge_features is None else list(edge_features[number])
        if pairs.setdefault(pair, features) != features:
            raise ValueError(f"`edges` has the edge {pair} twice, with features that differ. Keep one of them.")
    # A node's edge to itself is the same in both directions.
    back = [pair for pair in pairs if pair[0] != pair[1]]
    sources = [one for one, _ in pairs] + [other for _, other in back]
    targets = [other for _, other in pairs] + [one for one, _ in back]
    graph: Graph = {"node_features": [list(row) for row in node_features], "edge_index": [sources, targets]}
    if edge_features is not None:
        graph["edge_features"] = [list(pairs[pair]) for pair in (*pairs, *back)]
    check_graph(graph)
    return graph


def degree_features(num_nodes: int, edges: Iterable[Sequence[int]], max_degree: int) -> list[list[int]]:
    """The number of each node's neighbours as its only feature, no more than `max_degree`."""
    neighbours: list[set[int]] = [set() for _ in range(num_nodes)]
    for one, other in edges:
        neighbours[one].add(other)
        neighbours[other].add(one)
    return [[min(len(found), max_degree)] for found in neighbours]


def check_graph(graph: Any) -> None:
    """Refuses what is not a graph, or is an empty one."""
    if not isinstance(graph, Mapping) or not {"node_features", "edge_index"} <= set(graph):
        kind = listed(graph) if isinstance(graph, Mapping) else type(graph).__name__
        raise ValueError(f"`graph` must be a dict with 'node_features' and 'edge_index', and is {kind or 'empty'}.")
    nodes, index = graph["node_features"], graph["edge_index"]
    if not len(nodes):
        raise ValueError("`graph` is empty: it has no node.")
    _check_table("node_features", nodes)
    if len(index) != 2 or len(index[0]) != len(index[1]):
        raise ValueError("`edge_index` must hold two lists of one length: from which node, and to which.")
    if len(index[0]) and not (0 <= min(map(min, index)) and max(map(max, index)) < len(nodes)):
        raise ValueError(f"`edge_index` names a node that is not there; there are nodes 0 to {len(nodes) - 1}.")
    features = graph.get("edge_features")
    if features is not None:
        if len(features) != len(index[0]):
            raise ValueError(f"`edge_features` has {len(features)} rows, and there are {len(index[0])} edges.")
        _check_table("edge_features", features)


def _check_table(name: str, rows: Sequence[Sequence[int]]) -> None:
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"`{name}` must hold as many features in every row.")
    if name == "node_features" and not len(rows[0]):
        raise ValueError("`node_features` holds no feature. Give a 0 to every node where all are alike.")
    for row in rows:
        for value in row:
            if not hasattr(value, "__index__") or value < 0:
                raise ValueError(f"`{name}` must hold whole numbers from 0, and holds {value!r}.")


def check_graphs(dataset, broken: str = "refuse"):
    """
    Looks at every graph once, so that a broken or empty one is found before training and not in the midst of it.

    Args:
        dataset (`DomainDataset` or `datasets.Dataset`):
            Rows with `graph`.
        broken (`str`, *optional*, defaults to `"refuse"`):
            What to do with rows that are no graph: `"refuse"` names them in an error, `"skip"` in a warning, and gives
            the dataset without them.
    """
    graphs = _graphs(dataset)
    found = {}
    for row, graph in enumerate(graphs):
        try:
            check_graph(graph)
        except (TypeError, ValueError) as error:
            found[row] = str(error)
    return without_broken(dataset, found, broken, "are no graphs")


def without_broken(dataset, found: Mapping[int, str], broken: str, what: str):
    """`dataset` without the rows in `found`, which says what is wrong with each; or an error that names them."""
    if broken not in ("refuse", "skip"):
        raise ValueError(f"`broken` is {broken!r}; it must be 'refuse' or 'skip'.")
    if not found:
        return dataset
    domains = list(dataset["domain"]) if "domain" in dataset.column_names else [None] * len(dataset)
    named = [
        f"row {row}{'' if domains[row] is None else f' (domain {domains[row]!r})'}: {reason}"
        for row, reason in list(found.items())[:5]
    ]
    shown = " ".join([*named, *([f"And {len(found) - 5} more."] if len(found) > 5 else [])])
    summary = f"{len(found)} of {len(dataset)} rows {what}. {shown}"
    if broken == "refuse":
        raise ValueError(f'`dataset`: {summary} Mend these rows, or leave them out with `broken="skip"`.')
    kept = [row for row in range(len(dataset)) if row not in found]
    lost = sorted({str(name) for name in domains} - {str(domains[row]) for row in kept})
    if lost:
        raise ValueError(f"`dataset`: no row of {listed(lost)} is left. {summary} Mend them or leave it out.")
    logger.warning("%s They are left out.", summary)
    return dataset.select(kept)


class FeatureSizes(NamedTuple):
    """How many values each feature has: fields of `GraphNetworkConfig`."""

    node_vocab_sizes: list[int]
    edge_vocab_sizes: list[int]


def feature_sizes(*datasets) -> FeatureSizes:
    """
    For each feature of nodes and edges, one more than its largest value. Give all the rows that the model is to read,
    those of the test too: a value that has no place in its tables cannot be read at all.
    """
    sizes: dict[str, list[int]] = {"node_features": [], "edge_features": []}
    for dataset in datasets:
        for row, graph in enumerate(_graphs(dataset)):
            for name, largest in sizes.items():
                values = graph.get(name)
                if values is None or not len(values):
                    continue
                if largest and len(largest) != len(values[0]):
                    raise ValueError(
                        f"`datasets`: row {row} has {len(values[0])} `{name}`, and rows before it {len(largest)}. All "
                        "graphs need the same ones."
                    )
                here = [int(max(column)) + 1 for column in zip(*values, strict=True)]
                sizes[name] = [max(pair) for pair in zip(largest or here, here, strict=True)]
    if not sizes["node_features"]:
        raise ValueError("`datasets` has no graph. Give rows with `graph`.")
    return FeatureSizes(sizes["node_features"], sizes["edge_features"])


class GraphCollator:
    """
    Makes one batch, as `GraphNetworkModel` takes it, of rows with `graph`: `node_features`, `edge_index`,
    `edge_features` where edges have some, `graph_index` (in which graph each node is) and `num_graphs`; and `labels`.
    """

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor | int]:
        import numpy as np
        import torch

        graphs = []
        for number, row in enumerate(rows):
            if "graph" not in row:
                mend = how_named("graph", row)
                if "smiles" in row:
                    mend = (
                        "Make graphs of `smiles` by `molecule_graphs(dataset)`, or read the rows by `load_molecules`."
                    )
                raise ValueError(f"a row has no `graph`, but {listed(row)}. {mend}")
            graphs.append(_as_arrays(row["graph"], number))
        sizes = [len(nodes) for nodes, _, _ in graphs]
        starts = np.cumsum([0, *sizes[:-1]])
        batch: dict[str, torch.Tensor | int] = {}
        labels = labels_of(rows)
        if labels is not None:
            # First, because `Trainer` takes the length of the first tensor for the number of rows.
            batch["labels"] = torch.tensor(labels)
        batch["node_features"] = _joined("node_features", [nodes for nodes, _, _ in graphs])
        indices = [index + start for (_, index, _), start in zip(graphs, starts, strict=True)]
        batch["edge_index"] = torch.from_numpy(np.concatenate(indices, axis=1))
        batch["graph_index"] = torch.from_numpy(np.repeat(np.arange(len(graphs)), sizes))
        described = [features for _, index, features in graphs if index.shape[1]]
        if any(features is not None for features in described):
            if any(features is None for features in described):
                raise ValueError("`graph`: some graphs of a batch have `edge_features`, and some have not.")
            batch["edge_features"] = _joined("edge_features", described)
        batch["num_graphs"] = len(graphs)
        return batch


def _as_arrays(graph: Mapping[str, Any], number: int) -> tuple:
    import numpy as np

    nodes = np.asarray(graph["node_features"], dtype=np.int64)
    index = np.asarray(graph["edge_index"], dtype=np.int64).reshape(2, -1)
    if nodes.ndim != 2 or not len(nodes) or (index.size and not (0 <= index.min() and index.max() < len(nodes))):
        raise ValueError(
            f"`graph` is empty or broken in row {number} of a batch. `check_graphs(dataset)` finds all such rows "
            'before training, and leaves them out with `broken="skip"`.'
        )
    features = graph.get("edge_features")
    return nodes, index, None if features is None else np.asarray(features, dtype=np.int64)


def _joined(name: str, tables: Sequence):
    import numpy as np
    import torch

    channels = {table.shape[1] for table in tables}
    if len(channels) > 1:
        raise ValueError(f"`{name}`: the graphs of a batch have {listed(sorted(channels))} features. Give all as many.")
    return torch.from_numpy(np.concatenate(tables))


def _graphs(dataset) -> list:
    if "graph" not in dataset.column_names:
        raise ValueError(f"`dataset` has no column 'graph'; it has: {listed(dataset.column_names)}.")
    return dataset["graph"]


# The sets of the TU collection


def tu_graphs(folder: str | os.PathLike, name: str, max_degree: int = 64, degrees: bool | None = None) -> DomainDataset:
    """
    A set of the TU collection (Morris et al., 2020), such as PROTEINS or IMDB-BINARY, as one domain of its name.

    Args:
        folder (`str` or `os.PathLike`):
            Where `<name>.jsonl` lies, as it is or with `.gz`: a graph a line, with `label`, `num_nodes`, `edges` (pairs
            of nodes, each edge once) and `node_labels`.
        name (`str`):
            The set.
        max_degree (`int`, *optional*, defaults to 64):
            Nodes with more neighbours than that are taken to have so many.
        degrees (`bool`, *optional*):
            Whether a node's feature is the number of its neighbours instead of its label. By default so where nodes
            have no labels, or all the same.
    """
    path = _tu_file(folder, name, ".jsonl")
    rows = list(json_rows(path))
    if not rows:
        raise ValueError(f"`name`: {path} is empty, it has no graph.")
    graphs = graphs_of_edges(rows, f"`name`: graph {{}} of {path}", max_degree, degrees)
    unlabelled = [number for number, row in enumerate(rows) if "label" not in row]
    if unlabelled:
        raise ValueError(f"`name`: graph {unlabelled[0]} of {path} cannot be read: it has no 'label'")
    labels = [row["label"] for row in rows]
    return DomainDataset({"graph": graphs, "label": labels, "domain": [name] * len(graphs)})


def graphs_of_edges(
    rows: Sequence[Mapping[str, Any]], place: str, max_degree: int = 64, degrees: bool | None = None
) -> list[Graph]:
    """
    The graphs of rows as the TU collection's: `num_nodes`, `edges` and `node_labels`. `place` is what an error calls a
    row, with {} for its number; the other arguments are those of `tu_graphs`.
    """
    if max_degree < 1:
        raise ValueError(f"`max_degree` is {max_degree}; it must be at least 1.")
    if degrees is None:
        labels = [row.get("node_labels") for row in rows]
        degrees = any(one is None for one in labels) or len({label for one in labels for label in one}) < 2
    graphs = []
    for number, row in enumerate(rows):
        try:
            count, edges = row["num_nodes"], row["edges"]
            features = degree_features(count, edges, max_degree) if degrees else [[one] for one in row["node_labels"]]
            if len(features) != count:
                raise ValueError(f"`num_nodes` is {count}, and there are {len(features)} `node_labels`")
            graphs.append(undirected_graph(features, edges))
        except (IndexError, KeyError, TypeError, ValueError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{place.format(number)} cannot be read: {reason}") from error
    return graphs


def tu_folds(folder: str | os.PathLike, name: str) -> list[list[int]]:
    """The test rows of each fold, from `<name>.folds.json`. Not every row need be in one."""
    path = _tu_file(folder, name, ".folds.json")
    folds = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for fold in folds for row in fold]
    if len(folds) < 3 or len(set(rows)) != len(rows):
        raise ValueError(f"`name`: {path} must hold at least three lists of rows, no row twice.")
    return folds


class Fold(NamedTuple):
    """One round of cross-validation."""

    train: DomainDataset
    dev: DomainDataset
    test: DomainDataset


def fold_split(dataset: DomainDataset, folds: Sequence[Sequence[int]], fold: int) -> Fold:
    """The test rows of fold number `fold`, those of the next one as dev, and all other rows to train on."""
    if not 0 <= fold < len(folds):
        raise ValueError(f"`fold` is {fold}; there are folds 0 to {len(folds) - 1}.")
    wrong = [row for rows in folds for row in rows if not 0 <= row < len(dataset)]
    if wrong:
        raise ValueError(f"`folds` names {some_rows(wrong)} that `dataset` does not have: it has {len(dataset)} rows.")
    test, dev = folds[fold], folds[(fold + 1) % len(folds)]
    held_out = {*test, *dev}
    train = [row for row in range(len(dataset)) if row not in held_out]
    return Fold(dataset.select(train), dataset.select(dev), dataset.select(test))


def size_shift_split(dataset: DomainDataset, dev_fraction: float = 0.1, seed: int = 0) -> DomainSplit:
    """
    From small graphs to large ones (HMA: Table 6): trains on graphs of fewer nodes than the 50th percentile, of which a
    part is held out as dev, and tests on those of more than the 90th. Their domains are called `small` and `large`.

    Args:
        dataset (`DomainDataset`):
            Rows with `graph`.
        dev_fraction (`float`, *optional*, defaults to 0.1):
            The part of the small graphs, of each label, that is held out.
        seed (`int`, *optional*, defaults to 0):
            Which ones those are.
    """
    import numpy as np

    sizes = np.array([len(graph["node_features"]) for graph in _graphs(dataset)])
    if not len(sizes):
        raise ValueError("`dataset` is empty; give rows with `graph`.")
    half, most = np.percentile(sizes, [50, 90])
    parts = {}
    for name, rows in (("small", np.flatnonzero(sizes < half)), ("large", np.flatnonzero(sizes > most))):
        if not len(rows):
            raise ValueError(
                f"`dataset` has no {name} graph: half of its graphs have up to {half:g} nodes, nine tenths up to "
                f"{most:g}. Give graphs of more sizes."
            )
        parts[name] = dataset.select(rows).with_columns(domain=[name] * len(rows))
    small = split_domains(parts["small"], dev_fraction, seed)["small"]
    return DomainSplit(small.inside, small.out, parts["large"], sources=["small"], target="large")


def _tu_file(folder: str | os.PathLike, name: str, suffix: str) -> Path:
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"`folder`: there is no folder {folder}.")
    for ending in (suffix, f"{suffix}.gz"):
        if (folder / f"{name}{ending}").is_file():
            return folder / f"{name}{ending}"
    there = sorted({file.name.partition(".")[0] for file in visible(folder) if suffix in file.name})
    raise FileNotFoundError(f"`name`: {folder} has no {name}{suffix}. {did_you_mean(name, there)}")
