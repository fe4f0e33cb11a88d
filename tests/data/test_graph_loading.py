# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Files of graphs, written out or as lists of edges."""

import json

import pytest

from hf_memaug.data import generated_graphs, load_graphs
from hf_memaug.data.graphs import holds_edges

TRIANGLE = {"label": 1, "num_nodes": 3, "edges": [[0, 1], [1, 2], [0, 2]], "node_labels": [0, 1, 1]}
PATH = {"label": 0, "num_nodes": 3, "edges": [[0, 1], [1, 2]], "node_labels": [0, 0, 2]}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_one_domain(tmp_path):
    path = write(tmp_path / "RINGS.jsonl", [TRIANGLE, PATH])
    assert holds_edges(path) and holds_edges(tmp_path)
    rows = load_graphs(path)
    assert rows.domains == ["RINGS"] and rows["graph"][1]["edge_index"] == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert set(rows.column_names) == {"graph", "label", "domain"}
    named = write(tmp_path / "named.jsonl", [{**TRIANGLE, "lab": "x"}, {**PATH, "lab": "y"}])
    assert load_graphs(named, domain="lab").domains == ["x", "y"]


def test_a_folder_is_a_domain_for_each_file(tmp_path):
    write(tmp_path / "RINGS.jsonl", [TRIANGLE, PATH])
    write(tmp_path / "FRIENDS.jsonl", [{**PATH, "node_labels": None}, {**TRIANGLE, "node_labels": None}])
    rows = load_graphs(tmp_path)
    assert rows.domains == ["FRIENDS", "RINGS"]
    # One has no labels of nodes: degrees in both, for a feature must mean one thing.
    assert rows.domain("RINGS")["graph"][0]["node_features"] == [[2], [2], [2]]


def test_rows_with_graphs_and_without(tmp_path):
    whole = generated_graphs(rows_per_domain=2)
    path = write(tmp_path / "graphs.jsonl", [dict(row) for row in whole])
    assert not holds_edges(path) and not holds_edges("nowhere") and not holds_edges([TRIANGLE])
    assert load_graphs(path)["graph"] == whole["graph"]
    with pytest.raises(ValueError, match="has no column 'graph', nor 'num_nodes' and 'edges'"):
        load_graphs([{"nodes": 3, "label": 0, "domain": "a"}])
    for wrong, words in (
        ({"edges": [[0, 7]]}, "graph 0 cannot be read"),
        ({"num_nodes": 0, "node_labels": [], "edges": []}, "is empty: it has no node"),
        ({"node_labels": [0, 1, 2, 3]}, "4 `node_labels`"),
    ):
        with pytest.raises(ValueError, match=words):
            load_graphs([{**TRIANGLE, **wrong, "label": 0, "domain": "a"}])
