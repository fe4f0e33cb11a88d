# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Rows with a column `graph`: `{"node_features": [[...], ...], "edge_index": [[from, ...], [to, ...]],
"edge_features": [[...], ...]}`.

Features are categories: integers from 0. An undirected edge is stored in both directions. `edge_features` is optional.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hf_memaug.data.broken_rows import check_column
from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.labels import how_named, labels_of
from hf_memaug.data.loading import load_domains
from hf_memaug.data.readers import json_rows, table_stem, table_suffix, visible
from hf_memaug.messages import listed

Graph = dict[str, list]
_EDGE_COLUMNS = ("num_nodes", "edges", "node_labels")


def undirected_graph(
    node_features: Sequence[Sequence[int]],
    edges: Iterable[Sequence[int]],
    edge_features: Sequence[Sequence[int]] | None = None,
) -> Graph:
    """
    A graph of undirected edges. An edge that is given in both directions counts once.

    Args:
        node_features (`Sequence[Sequence[int]]`): the features of each node.
        edges (`Iterable[Sequence[int]]`): pairs of nodes, counted from 0.
        edge_features (`Sequence[Sequence[int]]`, *optional*): the features of each of these edges.
    """
    pairs: dict[tuple[int, int], list[int]] = {}
    edges = list(edges)
    if edge_features is not None and len(edge_features) != len(edges):
        raise ValueError(f"`edge_features` has {len(edge_features)} rows, and there are {len(edges)} `edges`.")
    for number, edge in enumerate(edges):
        pair = (min(edge), max(edge))
        features = [] if edge_features is None else list(edge_features[number])
        if pairs.setdefault(pair, features) != features:
            raise ValueError(f"`edges` has the edge {pair} twice, with features that differ. Keep one of them.")
    # A node's edge to itself is the same in both directions.
    back = [pair for pair in pairs if pair[0] != pair[1]]
    sources = [one for one, _ in pairs] + [other for _, other in back]
    targets = [other for _, other in pairs] + [one for one, _ in back]
    graph: Graph = {"node_features": [list(row) for row in node_features], "edge_index": [sources, targets]}
    if edge_features is not None:
        graph["edge_features"] = [list(pairs[pair]) for pair in [*pairs, *back]]
    check_graph(graph)
    return graph


def degree_features(num_nodes: int, edges: Iterable[Sequence[int]], max_degree: int = 64) -> list[list[int]]:
    """The number of each node's neighbours as its only feature, no more than `max_degree`."""
    neighbours: list[set[int]] = [set() for _ in range(num_nodes)]
    for one, other in edges:
        neighbours[one].add(other)
        neighbours[other].add(one)
    return [[min(len(found), max_degree)] for found in neighbours]


def check_graph(graph: Any) -> None:
    """Raises `ValueError` for what is not a graph, or is an empty one."""
    if not isinstance(graph, Mapping) or not {"node_features", "edge_index"} <= set(graph):
        found = listed(graph) if isinstance(graph, Mapping) else type(graph).__name__
        raise ValueError(f"`graph` must be a dict with 'node_features' and 'edge_index', and is {found or 'empty'}.")
    nodes, index = graph["node_features"], graph["edge_index"]
    if not len(nodes):
        raise ValueError("`graph` is empty: it has no node.")
    if len(index) != 2 or len(index[0]) != len(index[1]):
        raise ValueError("`edge_index` must hold two lists of the same length: source and target nodes.")
    if len(index[0]) and not (0 <= min(map(min, index)) and max(map(max, index)) < len(nodes)):
        raise ValueError(f"`edge_index` names a missing node; the nodes are 0 to {len(nodes) - 1}.")
    edge_features = graph.get("edge_features")
    if edge_features is not None and len(edge_features) != len(index[0]):
        raise ValueError(f"`edge_features` has {len(edge_features)} rows, and there are {len(index[0])} edges.")
    for name, rows in (("node_features", nodes), ("edge_features", edge_features or [])):
        if len({len(row) for row in rows}) > 1 or (name == "node_features" and not len(rows[0])):
            raise ValueError(f"`{name}` must hold the same number of features in every row, at least 1.")
        wrong = next((v for row in rows for v in row if not hasattr(v, "__index__") or v < 0), None)
        if wrong is not None:
            raise ValueError(f"`{name}` must hold integers from 0, and holds {wrong!r}.")


def check_graphs(dataset, broken: str = "refuse"):
    """
    Checks every graph before training.

    Args:
        dataset (`DomainDataset` or `datasets.Dataset`): rows with `graph`.
        broken (`str`, *optional*, defaults to `"refuse"`): `"refuse"` raises an error that names the broken rows;
            `"skip"` returns the dataset without them and logs a warning.
    """
    return check_column(dataset, "graph", check_graph, broken, "rows are no graphs")


def holds_edges(source: Any) -> bool:
    """Whether a file of JSON lines, or the first such file of a folder, has rows with `num_nodes` and `edges`."""
    if not isinstance(source, (str, os.PathLike)) or not Path(source).exists():
        return False
    path = Path(source)
    files = (file for file in (visible(path) if path.is_dir() else [path]) if file.is_file())
    first = next((file for file in files if table_suffix(file) in (".jsonl", ".jsonl.gz")), None)
    return first is not None and {"num_nodes", "edges"} <= set(next(json_rows(first), {}))


def load_graphs(source: Any, *, broken: str = "refuse", **kwargs) -> DomainDataset:
    """
    Loads rows with a graph from any source of `load_domains`. Where nodes have no labels, or all the same, in any of
    the files, a node's feature is its number of neighbours, no more than 64.

    Args:
        source (`Any`): rows with `graph`; or with `num_nodes`, `edges` (pairs of nodes, each edge once) and optionally
            `node_labels`. A file of these without a column of domains is one domain of its name.
        broken (`str`, *optional*, defaults to `"refuse"`): see `check_graphs`.
        kwargs (*optional*): `label`, `domain`, `split`, `labels`, `on_empty` of `load_domains`.
    """
    if holds_edges(source) and Path(source).is_file():
        path = Path(source)
        if kwargs.get("domain", "domain") not in next(json_rows(path)):
            source = {table_stem(path): path}
    rows = load_domains(source, text=None, **kwargs)
    if "graph" not in rows.column_names:
        columns = [name for name in _EDGE_COLUMNS if name in rows.column_names]
        if columns[:2] != ["num_nodes", "edges"]:
            raise ValueError(
                f"`source` has no column 'graph', nor 'num_nodes' and 'edges'; it has: {listed(rows.column_names)}."
            )
        rows = rows.with_columns(graph=_graphs_of_edges(list(rows))).without_columns(*columns)
    return check_graphs(rows, broken)


def tu_graphs(folder: str | os.PathLike, name: str) -> DomainDataset:
    """
    A set of the TU collection (Morris et al., 2020), such as PROTEINS or IMDB-BINARY, as one domain of its name.
    Torch-geometric reads it from `folder`, and downloads it if it is missing.
    """
    try:
        from torch_geometric.datasets import TUDataset
    except ImportError as error:
        raise ImportError("`tu_graphs` needs torch-geometric; run `pip install hf_memaug[graph]`.") from error
    rows = [
        {
            "num_nodes": data.num_nodes,
            "edges": data.edge_index.t().tolist(),
            "node_labels": None if data.x is None else data.x.argmax(dim=-1).tolist(),
            "label": int(data.y),
            "domain": name,
        }
        for data in TUDataset(str(folder), name)
    ]
    return load_graphs(rows)


def _graphs_of_edges(rows: Sequence[Mapping[str, Any]]) -> list[Graph]:
    labels = [row.get("node_labels") for row in rows]
    given = [one for one in labels if one is not None]
    degrees = len(given) < len(labels) or len({label for one in given for label in one}) < 2
    graphs = []
    for number, row in enumerate(rows):
        try:
            count, edges = row["num_nodes"], row["edges"]
            features = degree_features(count, edges) if degrees else [[one] for one in row["node_labels"]]
            if len(features) != count:
                raise ValueError(f"`num_nodes` is {count}, and there are {len(features)} `node_labels`")
            graphs.append(undirected_graph(features, edges))
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(f"`source`: graph {number} cannot be read: {error}") from error
    return graphs


class FeatureSizes(NamedTuple):
    """How many values each feature has: fields of `GraphNetworkConfig`."""

    node_vocab_sizes: list[int]
    edge_vocab_sizes: list[int]


def feature_sizes(*datasets) -> FeatureSizes:
    """
    For each feature of nodes and edges, one more than its largest value. Give all rows that the model will read, test
    rows too: a larger value has no embedding.
    """
    sizes: dict[str, list[int]] = {"node_features": [], "edge_features": []}
    for dataset in datasets:
        for row, graph in enumerate(dataset["graph"]):
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
    Makes a batch of rows with `graph`, as `GraphNetworkModel` takes it: `node_features`, `edge_index`, `edge_features`
    (where edges have some), `graph_index` (the graph of each node), `num_graphs` and `labels`.
    """

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor | int]:
        nodes, indices, edge_features, graph_index, start = [], [], [], [], 0
        for number, row in enumerate(rows):
            if "graph" not in row:
                hint = how_named("graph", row)
                if "smiles" in row:
                    hint = "Convert `smiles` with `molecule_graphs(dataset)`, or load the rows with `load_molecules`."
                raise ValueError(f"a row has no `graph`, but {listed(row)}. {hint}")
            graph = row["graph"]
            features, index = _integers(graph["node_features"]), _integers(graph["edge_index"]).reshape(2, -1)
            count = len(features)
            if features.ndim != 2 or not count or (index.numel() and not (0 <= index.min() and index.max() < count)):
                raise ValueError(
                    f"`graph` is empty or broken in row {number} of a batch. `check_graphs(dataset)` finds all such "
                    'rows before training, and leaves them out with `broken="skip"`.'
                )
            nodes.append(features)
            indices.append(index + start)
            graph_index.append(torch.full((count,), number))
            start += count
            if index.numel():
                edge_features.append(graph.get("edge_features"))
        batch: dict[str, torch.Tensor | int] = {}
        labels = labels_of(rows)
        if labels is not None:
            # First, because `Trainer` takes the length of the first tensor for the number of rows.
            batch["labels"] = torch.tensor(labels)
        batch["node_features"] = torch.cat(nodes)
        batch["edge_index"] = torch.cat(indices, dim=1)
        batch["graph_index"] = torch.cat(graph_index)
        described = [_integers(features) for features in edge_features if features is not None]
        if described:
            if len(described) < len(edge_features):
                raise ValueError("`graph`: some graphs of a batch have `edge_features`, and some do not.")
            batch["edge_features"] = torch.cat(described)
        batch["num_graphs"] = len(rows)
        return batch


def _integers(values) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.int64))
