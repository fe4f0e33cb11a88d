# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_memaug.data import (
    DomainDataset,
    GraphCollator,
    check_graphs,
    feature_sizes,
    find_overlap,
    generated_graphs,
    graph_from_smiles,
    load_graphs,
    tu_graphs,
    undirected_graph,
)
from hf_memaug.data.graphs import check_graph, degree_features

DATA = Path(os.environ.get("HF_MEMAUG_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "tu_graphs"
# What the generator gave when it was written: another value means that published results cannot be repeated.
FINGERPRINT = "ab2c9b5d6dfa2064c7b81d2257e15abbfa8d686e8fa155ffe10058b2926e70b9"


def path_of(count):
    """A path of `count` nodes."""
    return undirected_graph([[node % 3] for node in range(count)], [(node - 1, node) for node in range(1, count)])


def rows_of(graphs):
    count = len(graphs)
    return DomainDataset({"graph": graphs, "label": [0, 1] * (count // 2) + [0] * (count % 2), "domain": ["a"] * count})


class TestOneGraph:
    def test_edges_are_there_in_both_directions(self):
        graph = undirected_graph([[0], [1], [2]], [(0, 1), (2, 1)], [[5], [6]])
        found = dict(zip(zip(*graph["edge_index"], strict=True), graph["edge_features"], strict=True))
        assert found == {(0, 1): [5], (1, 0): [5], (1, 2): [6], (2, 1): [6]}

    def test_an_edge_that_is_named_both_ways_counts_once(self):
        graph = undirected_graph([[0], [0]], [(0, 1), (1, 0), (0, 1), (1, 1)])
        assert sorted(zip(*graph["edge_index"], strict=True)) == [(0, 1), (1, 0), (1, 1)]
        assert "edge_features" not in graph
        with pytest.raises(ValueError, match=r"`edges` has the edge \(0, 1\) twice, with features that differ"):
            undirected_graph([[0], [0]], [(0, 1), (1, 0)], [[1], [2]])
        with pytest.raises(ValueError, match="`edge_features` has 1 rows, and there are 2 `edges`"):
            undirected_graph([[0], [0], [0]], [(0, 1), (1, 2)], [[1]])

    def test_degrees_are_capped(self):
        star = [(0, leaf) for leaf in range(1, 6)]
        assert degree_features(7, [*star, (1, 0)], 9) == [[5], [1], [1], [1], [1], [1], [0]]
        assert degree_features(6, star, 3)[0] == [3]

    @pytest.mark.parametrize(
        "graph, words",
        [
            ([1, 2], "must be a dict with 'node_features' and 'edge_index', and is list"),
            ({"nodes": []}, "and is 'nodes'"),
            ({"node_features": [], "edge_index": [[], []]}, "`graph` is empty: it has no node"),
            ({"node_features": [[0], [1, 2]], "edge_index": [[], []]}, "same number of features in every row"),
            ({"node_features": [[]], "edge_index": [[], []]}, "in every row, at least 1"),
            ({"node_features": [[0.5]], "edge_index": [[], []]}, "integers from 0, and holds 0.5"),
            ({"node_features": [[-1]], "edge_index": [[], []]}, "integers from 0, and holds -1"),
            ({"node_features": [[0]], "edge_index": [[0]]}, "two lists of the same length"),
            ({"node_features": [[0]], "edge_index": [[0], [0, 0]]}, "two lists of the same length"),
            ({"node_features": [[0]], "edge_index": [[0], [1]]}, "names a missing node; the nodes are 0 to 0"),
            ({"node_features": [[0]], "edge_index": [[-1], [0]]}, "names a missing node"),
            ({"node_features": [[0]], "edge_index": [[0], [0]], "edge_features": []}, "0 rows, and there are 1 edges"),
        ],
    )
    def test_refusals(self, graph, words):
        with pytest.raises(ValueError, match=words):
            check_graph(graph)


class TestCheckGraphs:
    def test_all_are_named_or_left_out(self, caplog):
        empty = {"node_features": [], "edge_index": [[], []]}
        dataset = rows_of([path_of(3), empty, path_of(2), {"x": 1}])
        with pytest.raises(ValueError, match=r"2 of 4 rows are no graphs. row 1 \(domain 'a'\): .*empty.* row 3 "):
            check_graphs(dataset)
        kept = check_graphs(dataset, broken="skip")
        assert [len(graph["node_features"]) for graph in kept["graph"]] == [3, 2]
        assert "2 of 4 rows are no graphs" in caplog.text and "left out" in caplog.text
        assert check_graphs(kept) is kept

    def test_a_domain_does_not_vanish(self):
        dataset = DomainDataset({"graph": [path_of(2), None], "domain": ["a", "b"]})
        with pytest.raises(ValueError, match="no row of 'b' is left"):
            check_graphs(dataset, broken="skip")
        with pytest.raises(ValueError, match="`broken` is 'drop'; it must be 'refuse' or 'skip'"):
            check_graphs(dataset, broken="drop")
        with pytest.raises(ValueError, match="`dataset` has no column 'graph'; it has: 'domain'"):
            check_graphs(dataset.without_columns("graph"))


class TestCollator:
    def test_by_hand(self):
        one = undirected_graph([[1, 2], [3, 4]], [(0, 1)], [[7]])
        other = undirected_graph([[5, 6], [7, 8], [9, 0]], [(0, 1), (1, 2)], [[8], [9]])
        batch = GraphCollator()([{"graph": one, "label": 1, "domain": "a"}, {"graph": other, "label": 0}])
        assert batch["node_features"].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 0]]
        assert batch["graph_index"].tolist() == [0, 0, 1, 1, 1] and batch["num_graphs"] == 2
        assert batch["edge_index"].tolist() == [[0, 1, 2, 3, 3, 4], [1, 0, 3, 4, 2, 3]]
        assert batch["edge_features"].tolist() == [[7], [7], [8], [9], [8], [9]]
        assert batch["labels"].tolist() == [1, 0] and next(iter(batch)) == "labels"
        assert all(value.dtype == torch.long for value in batch.values() if torch.is_tensor(value))

    def test_without_labels_edges_or_edge_features(self):
        lonely = undirected_graph([[0]], [])
        batch = GraphCollator()([{"graph": lonely}, {"graph": lonely}])
        assert set(batch) == {"node_features", "edge_index", "graph_index", "num_graphs"}
        assert batch["edge_index"].shape == (2, 0) and batch["edge_index"].dtype == torch.long
        # A molecule of one atom has no bond to be described.
        atom = undirected_graph([[0]], [], [])
        pair = undirected_graph([[0], [0]], [(0, 1)], [[1, 2]])
        assert GraphCollator()([{"graph": atom}, {"graph": pair}])["edge_features"].shape == (2, 2)
        assert "edge_features" not in GraphCollator()([{"graph": atom}])

    @pytest.mark.parametrize(
        "rows, words",
        [
            ([{"text": "x"}], "a row has no `graph`, but 'text'. Name that column 'graph'"),
            ([{"label": 1}], "a row has no `graph`, but 'label'.*set `remove_unused_columns=False`"),
            ([{"smiles": "CC", "label": 1}], "a row has no `graph`, but .*load the rows with `load_molecules`"),
            ([{"graph": path_of(2), "label": 0.5}], "`label` is 0.5"),
            (
                [{"graph": {"node_features": [], "edge_index": [[], []]}}],
                r"row 0 of a batch. `check_graphs\(dataset\)`",
            ),
            ([{"graph": {"node_features": [[0]], "edge_index": [[1], [0]]}}], "empty or broken in row 0"),
            (
                [{"graph": path_of(2)}, {"graph": undirected_graph([[1], [1]], [(0, 1)], [[3]])}],
                "some graphs of a batch have `edge_features`, and some do not",
            ),
        ],
    )
    def test_refusals(self, rows, words):
        with pytest.raises(ValueError, match=words):
            GraphCollator()(rows)

    def test_the_model_takes_it(self):
        from hf_memaug import GraphNetworkConfig, GraphNetworkModel

        dataset = generated_graphs(rows_per_domain=4)
        sizes = feature_sizes(dataset)
        config = GraphNetworkConfig(hidden_size=8, num_hidden_layers=2, **sizes._asdict())
        model = GraphNetworkModel(config).eval()
        batch = GraphCollator()([dataset[row] for row in range(6)])
        labels = batch.pop("labels")
        assert model(**batch).pooler_output.shape == (6, 8) and len(labels) == 6


def test_feature_sizes():
    first = rows_of([undirected_graph([[0, 4], [2, 1]], [(0, 1)], [[3]]), undirected_graph([[0, 0]], [], [])])
    second = rows_of([undirected_graph([[6, 0], [0, 0]], [(0, 1)], [[0]])])
    assert feature_sizes(first, second) == ([7, 5], [4])
    assert feature_sizes(rows_of([path_of(2)])) == ([2], [])
    with pytest.raises(ValueError, match="row 0 has 1 `node_features`, and rows before it 2"):
        feature_sizes(first, rows_of([path_of(2)]))
    with pytest.raises(ValueError, match="`datasets` has no graph"):
        feature_sizes()


def test_tu_sets_are_read_by_torch_geometric(monkeypatch, tmp_path):
    datasets = pytest.importorskip("torch_geometric.datasets", reason="torch-geometric is not installed")
    from torch_geometric.data import Data

    def graph(edges, labels, label):
        both = torch.tensor([*edges, *((b, a) for a, b in edges)]).t()
        features = None if labels is None else torch.eye(3)[labels]
        return Data(x=features, edge_index=both, y=torch.tensor([label]), num_nodes=3)

    sets = {
        "ENZYMES": [graph([(0, 1), (1, 2)], [0, 2, 1], 1), graph([(0, 1)], [1, 1, 1], 0)],
        "FRIENDS": [graph([(0, 1), (1, 2)], None, 0)],
    }
    monkeypatch.setattr(datasets, "TUDataset", lambda root, name: sets[name])
    dataset = tu_graphs(tmp_path, "ENZYMES")
    assert [graph["node_features"] for graph in dataset["graph"]] == [[[0], [2], [1]], [[1], [1], [1]]]
    assert dataset["graph"][0]["edge_index"] == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert dataset.labels == [1, 0] and dataset.domains == ["ENZYMES"]
    assert tu_graphs(tmp_path, "FRIENDS")["graph"][0]["node_features"] == [[1], [2], [1]]


def test_real_graphs():
    if not DATA.is_dir():
        pytest.skip("no real data: set HF_MEMAUG_DATA to a folder that has 'tu_graphs'")
    dataset = load_graphs(DATA / "PROTEINS.jsonl.gz")
    assert len(dataset) == 1113 and feature_sizes(dataset) == ([3], [])
    dataset = load_graphs(DATA / "IMDB-BINARY.jsonl.gz")
    assert len(dataset) == 1000 and feature_sizes(dataset) == ([65], []), "of nodes without labels, their degrees"


def test_without_rdkit_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(ImportError, match=r"pip install hf_memaug\[graph\]"):
        graph_from_smiles("C")


class TestGenerated:
    @pytest.mark.slow
    def test_same_in_every_process(self):
        assert generated_graphs().fingerprint() == FINGERPRINT
        assert generated_graphs(seed=1).fingerprint() != FINGERPRINT

    def test_shape(self):
        dataset = generated_graphs(rows_per_domain=30)
        assert dataset.domains == ["path", "tree", "ladder", "wheel"]
        assert check_graphs(dataset) is dataset and dataset.label_names == ["cycle", "bull", "house"]
        assert feature_sizes(dataset).edge_vocab_sizes == []
        assert find_overlap(*(generated_graphs(seed=seed) for seed in (0, 1))) == []

    @pytest.fixture
    def clean(self, monkeypatch):
        monkeypatch.setattr("hf_memaug.data.generated.GRAPH_NOISE", 0)

    def test_the_label_is_the_motif(self, clean):
        # On a tree, every cycle is the motif's: one of five nodes, one of three, or two.
        for domain in ("path", "tree"):
            for row in generated_graphs(rows_per_domain=60).domain(domain):
                assert len(cycle_nodes(row["graph"])) == (5, 3, 5)[row["label"]]
                edges, nodes = len(row["graph"]["edge_index"][0]) // 2, len(row["graph"]["node_features"])
                assert edges - nodes + 1 == (1, 1, 2)[row["label"]]

    def test_the_cue_goes_another_way_in_each_domain(self, clean):
        # How large graphs with each motif are, domain by domain.
        order = []
        for part in generated_graphs(rows_per_domain=300).by_domain().values():
            sizes = np.array([len(graph["node_features"]) for graph in part["graph"]])
            order.append(tuple(np.argsort([sizes[np.array(part.labels) == label].mean() for label in range(3)])))
        assert order[:3] == [(0, 1, 2), (2, 0, 1), (1, 2, 0)] and order[3] == order[0]

    @pytest.mark.slow
    def test_a_network_learns_it(self, clean):
        from hf_memaug import GraphNetworkConfig, GraphNetworkModel

        torch.manual_seed(0)
        dataset = generated_graphs(rows_per_domain=240).domain("tree")
        sizes = feature_sizes(dataset)._asdict()
        body = GraphNetworkModel(GraphNetworkConfig(num_hidden_layers=3, hidden_size=32, dropout=0.0, **sizes))
        head = torch.nn.Linear(32, 3)
        optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)

        def logits(rows):
            batch = GraphCollator()([dataset[row] for row in rows])
            labels = batch.pop("labels")
            return head(body(**batch).pooler_output), labels

        for _ in range(20):
            for rows in torch.randperm(180).split(30):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(*logits(rows.tolist())).backward()
                optimizer.step()
        body.eval()
        scores, labels = logits(range(180, 240))
        assert (scores.argmax(1) == labels).float().mean() > 0.7

    def test_refusals(self):
        with pytest.raises(ValueError, match="`rows_per_domain` is 0"):
            generated_graphs(rows_per_domain=0)


def cycle_nodes(graph):
    """The nodes that are left when leaves are taken off until there are none."""
    neighbours = {node: set() for node in range(len(graph["node_features"]))}
    for one, other in zip(*graph["edge_index"], strict=True):
        neighbours[one].add(other)
    while leaves := [node for node, found in neighbours.items() if len(found) < 2]:
        for leaf in leaves:
            for other in neighbours.pop(leaf):
                neighbours[other].discard(leaf)
    return set(neighbours)
