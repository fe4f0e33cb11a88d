# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Graphs from files: `load_graphs` for JSON lines, `tu_graphs` for the TU collection."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.graphs import Graph, check_graphs, degree_features, undirected_graph
from hf_memaug.data.loading import load_domains
from hf_memaug.data.messages import listed
from hf_memaug.data.readers import json_rows, table_stem, table_suffix, visible

_EDGE_COLUMNS = ("num_nodes", "edges", "node_labels")


def holds_edges(source: Any) -> bool:
    """Whether a file of JSON lines, or the first such file of a folder, has rows with `num_nodes` and `edges`."""
    if not isinstance(source, (str, os.PathLike)) or not Path(source).exists():
        return False
    path = Path(source)
    files = [path] if path.is_file() else [file for file in visible(path) if file.is_file()]
    first = next((file for file in files if table_suffix(file) in (".jsonl", ".jsonl.gz")), None)
    return first is not None and {"num_nodes", "edges"} <= set(next(json_rows(first), {}))


def load_graphs(source: Any, *, max_degree: int = 64, broken: str = "refuse", **kwargs) -> DomainDataset:
    """
    Loads rows with a graph from any source of `load_domains`. Where nodes have no labels, or all the same, in any of
    the files, a node's feature is its number of neighbours.

    Args:
        source (`Any`): rows with `graph`; or with `num_nodes`, `edges` (pairs of nodes, each edge once) and optionally
            `node_labels`. A file of these without a column of domains is one domain of its name, and of a folder each
            file is one.
        max_degree (`int`, *optional*, defaults to 64): nodes with more neighbours count as having this many.
        broken (`str`, *optional*, defaults to `"refuse"`): see `check_graphs`.
        kwargs (*optional*):
            `label`, `domain`, `split`, `labels`, `on_empty` of `load_domains`.
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
        values = zip(*(rows[name] for name in columns), strict=True)
        edges = [dict(zip(columns, row, strict=True)) for row in values]
        rows = rows.with_columns(graph=_graphs_of_edges(edges, max_degree)).without_columns(*columns)
    return check_graphs(rows, broken)


def tu_graphs(folder: str | os.PathLike, name: str, max_degree: int = 64) -> DomainDataset:
    """
    A set of the TU collection (Morris et al., 2020), such as PROTEINS or IMDB-BINARY, as one domain of its name.

    Args:
        folder (`str` or `os.PathLike`): the `root` of torch-geometric's `TUDataset`, which downloads the set if it is
            missing.
        name (`str`): the set.
        max_degree (`int`, *optional*, defaults to 64): as in `load_graphs`.
    """
    try:
        from torch_geometric.datasets import TUDataset
    except ImportError as error:
        raise ImportError("`tu_graphs` needs torch-geometric; run `pip install hf_memaug[graph]`.") from error
    rows, labels = [], []
    for data in TUDataset(str(folder), name):
        node_labels = None if data.x is None else data.x.argmax(dim=-1).tolist()
        rows.append({"num_nodes": data.num_nodes, "edges": data.edge_index.t().tolist(), "node_labels": node_labels})
        labels.append(int(data.y))
    graphs = _graphs_of_edges(rows, max_degree)
    return DomainDataset({"graph": graphs, "label": labels, "domain": [name] * len(graphs)})


def _graphs_of_edges(rows: Sequence[Mapping[str, Any]], max_degree: int) -> list[Graph]:
    if max_degree < 1:
        raise ValueError(f"`max_degree` is {max_degree}; it must be at least 1.")
    labels = [row.get("node_labels") for row in rows]
    given = [one for one in labels if one is not None]
    degrees = len(given) < len(labels) or len({label for one in given for label in one}) < 2
    graphs = []
    for number, row in enumerate(rows):
        try:
            count, edges = row["num_nodes"], row["edges"]
            features = degree_features(count, edges, max_degree) if degrees else [[one] for one in row["node_labels"]]
            if len(features) != count:
                raise ValueError(f"`num_nodes` is {count}, and there are {len(features)} `node_labels`")
            graphs.append(undirected_graph(features, edges))
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(f"`source`: graph {number} cannot be read: {error}") from error
    return graphs
