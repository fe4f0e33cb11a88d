# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`load_graphs`: files of graphs, written out or as lists of edges, to a checked `DomainDataset`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.graphs import check_graphs, graphs_of_edges
from hf_memaug.data.loading import load_domains
from hf_memaug.data.messages import listed
from hf_memaug.data.readers import json_rows, table_suffix, visible

# Of a row as the TU collection's, what its graph is made of.
_EDGES = ("num_nodes", "edges", "node_labels")


def holds_edges(source: Any) -> bool:
    """Whether a file of JSON lines, or the first such file of a folder, has rows as those of the TU collection."""
    if not isinstance(source, (str, os.PathLike)) or not Path(source).exists():
        return False
    path = Path(source)
    files = [path] if path.is_file() else [file for file in visible(path) if file.is_file()]
    first = next((file for file in files if table_suffix(file) in (".jsonl", ".jsonl.gz")), None)
    return first is not None and {"num_nodes", "edges"} <= set(next(json_rows(first), {}))


def load_graphs(
    source: Any, *, max_degree: int = 64, degrees: bool | None = None, broken: str = "refuse", **kwargs
) -> DomainDataset:
    """
    Loads rows with a graph from any source of `load_domains`.

    Args:
        source (`Any`):
            Rows with `graph`; or with `num_nodes`, `edges` and perhaps `node_labels`, as the sets of the TU collection
            are written. A file of these without a column of domains is one domain of its name, and of a folder each
            file is one.
        max_degree (`int`, *optional*, defaults to 64), degrees (`bool`, *optional*):
            See `tu_graphs`. What holds for one file holds for all: where one has no labels of nodes, none are read.
        broken (`str`, *optional*, defaults to `"refuse"`):
            See `check_graphs`.
        kwargs (*optional*):
            `label`, `domain`, `split`, `labels`, `on_empty` of `load_domains`.
    """
    if holds_edges(source) and Path(source).is_file():
        path = Path(source)
        if kwargs.get("domain", "domain") not in next(json_rows(path)):
            source = {path.name[: -len(table_suffix(path))]: path}
    rows = load_domains(source, text=None, **kwargs)
    if "graph" not in rows.column_names:
        columns = [name for name in _EDGES if name in rows.column_names]
        if columns[:2] != ["num_nodes", "edges"]:
            raise ValueError(
                f"`source` has no column 'graph', nor 'num_nodes' and 'edges'; it has: {listed(rows.column_names)}."
            )
        values = zip(*(rows[name] for name in columns), strict=True)
        edges = [dict(zip(columns, row, strict=True)) for row in values]
        graphs = graphs_of_edges(edges, "`source`: graph {}", max_degree, degrees)
        rows = rows.with_columns(graph=graphs).without_columns(*columns)
    return check_graphs(rows, broken)
