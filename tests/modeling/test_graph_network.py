# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""GIN and GCN against slow references, node by node, and against PyG."""

import pytest
import torch
from transformers import AutoConfig, AutoModel

from hf_memaug import GraphNetworkConfig, GraphNetworkModel
from hf_memaug.layers.graph import GraphConvolutionLayer, GraphIsomorphismLayer, pool_nodes

NODES, EDGES = (7, 3), (4, 2)
KINDS = [(network, virtual) for network in ("gin", "gcn") for virtual in (False, True)]


def graph(num_nodes, edges, seed=0, node_sizes=NODES, edge_sizes=EDGES):
    """One graph, its edges in both directions."""
    generator = torch.Generator().manual_seed(seed)

    def features(count, sizes):
        columns = [torch.randint(size, (count,), generator=generator) for size in sizes]
        return torch.stack(columns, dim=1) if columns else torch.zeros(count, 0, dtype=torch.long)

    pairs = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    about = features(pairs.shape[1], edge_sizes)
    return {
        "node_features": features(num_nodes, node_sizes),
        "edge_index": torch.cat([pairs, pairs.flip(0)], dim=1),
        "edge_features": torch.cat([about, about]) if edge_sizes else None,
    }


def together(*graphs):
    """Several graphs as one batch."""
    sizes = [len(one["node_features"]) for one in graphs]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    edge_features = [one["edge_features"] for one in graphs]
    return {
        "node_features": torch.cat([one["node_features"] for one in graphs]),
        "edge_index": torch.cat([one["edge_index"] + start for one, start in zip(graphs, starts, strict=True)], dim=1),
        "graph_index": torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor(sizes)),
        "edge_features": None if edge_features[0] is None else torch.cat(edge_features),
        "num_graphs": len(graphs),
    }


RING = graph(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)], seed=1)
STAR = graph(6, [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)], seed=2)
PATH = graph(3, [(0, 1), (1, 2)], seed=3)
LONELY = graph(2, [], seed=4)
BATCH = together(RING, STAR, PATH, LONELY)


def built(network="gin", virtual_node=False, **kwargs):
    """A small model whose running means are not those of a fresh one."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "node_vocab_sizes": NODES, "edge_vocab_sizes": EDGES}
    model = GraphNetworkModel(GraphNetworkConfig(network=network, virtual_node=virtual_node, **{**sizes, **kwargs}))
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2)
            elif tensor.is_floating_point():
                tensor.add_(torch.randn_like(tensor) * 0.3)
    return model.eval()


# The references: one node, one edge, one graph at a time.


def slow_encoder(encoder, row):
    return sum(encoder.tables[channel].weight[value] for channel, value in enumerate(row.tolist()))


def slow_norm(norm, vector):
    return (vector - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias


def slow_mlp(mlp, vector):
    vector = mlp.up_proj.weight @ vector + mlp.up_proj.bias
    vector = mlp.down_proj.weight @ slow_norm(mlp.norm, vector).clamp(min=0) + mlp.down_proj.bias
    return slow_norm(mlp.out_norm, vector).clamp(min=0) if hasattr(mlp, "out_norm") else vector


def slow_layer(layer, nodes, one):
    """The nodes of one graph behind one convolution."""
    edges = one["edge_index"].T.tolist()
    about = [slow_encoder(layer.edge_encoder, row) for row in one["edge_features"]]
    if isinstance(layer, GraphIsomorphismLayer):
        heard = []
        for node in range(len(nodes)):
            total = (1 + layer.eps) * nodes[node]
            for (source, target), edge in zip(edges, about, strict=True):
                if target == node:
                    total = total + (nodes[source] + edge).clamp(min=0)
            heard.append(slow_mlp(layer.mlp, total))
        return heard
    nodes = [layer.linear.weight @ node + layer.linear.bias for node in nodes]
    degree = [1 + sum(source == node for source, _ in edges) for node in range(len(nodes))]
    heard = []
    for node in range(len(nodes)):
        total = (nodes[node] + layer.root).clamp(min=0) / degree[node]
        for (source, target), edge in zip(edges, about, strict=True):
            if target == node:
                total = total + (nodes[source] + edge).clamp(min=0) / (degree[source] * degree[node]) ** 0.5
        heard.append(total)
    return heard


def slow_model(model, one):
    """The nodes of one graph, at the end."""
    nodes = [slow_encoder(model.node_encoder, row) for row in one["node_features"]]
    virtual = model.virtual_node
    sums = torch.zeros(len(nodes), model.config.hidden_size)
    for number, layer in enumerate(model.layers):
        if virtual is not None:
            nodes = [node + virtual for node in nodes]
        before = nodes
        sums = sums + torch.stack(nodes)
        nodes = [slow_norm(layer.norm, node) for node in slow_layer(layer.convolution, nodes, one)]
        if number < len(model.layers) - 1:
            nodes = [node.clamp(min=0) for node in nodes]
            if virtual is not None:
                virtual = slow_mlp(model.virtual_node_updates[number].mlp, sum(before) + virtual)
    nodes = torch.stack(nodes)
    return nodes + sums if model.config.jumping_knowledge == "sum" else nodes


@pytest.mark.parametrize("jumping_knowledge", ["last", "sum"])
@pytest.mark.parametrize("network, virtual_node", KINDS)
@torch.no_grad()
def test_against_the_slow_model(network, virtual_node, jumping_knowledge):
    model = built(network, virtual_node, jumping_knowledge=jumping_knowledge)
    output = model(**BATCH)
    graphs = [slow_model(model, one) for one in (RING, STAR, PATH, LONELY)]
    torch.testing.assert_close(output.last_hidden_state, torch.cat(graphs), rtol=1e-4, atol=1e-5)
    means = torch.stack([nodes.mean(0) for nodes in graphs])
    torch.testing.assert_close(output.pooler_output, means, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network, virtual_node", KINDS)
@torch.no_grad()
def test_edges_that_go_one_way(network, virtual_node):
    one_way = {**STAR, "edge_index": STAR["edge_index"][:, :5], "edge_features": STAR["edge_features"][:5]}
    model = built(network, virtual_node)
    states = model(**together(one_way)).last_hidden_state
    torch.testing.assert_close(states, slow_model(model, one_way), rtol=1e-4, atol=1e-5)


def test_pooling_by_hand():
    states = torch.tensor([[1.0, -5.0], [3.0, -1.0], [10.0, 2.0]])
    index = torch.tensor([0, 0, 2])
    expected = {
        "mean": [[2.0, -3.0], [0.0, 0.0], [10.0, 2.0]],
        "sum": [[4.0, -6.0], [0.0, 0.0], [10.0, 2.0]],
        "max": [[3.0, -1.0], [0.0, 0.0], [10.0, 2.0]],
    }
    for pooling, rows in expected.items():
        assert pool_nodes(states, index, 3, pooling).tolist() == rows
        model = built(pooling=pooling)
        output = model(**BATCH)
        assert torch.equal(output.pooler_output, pool_nodes(output.last_hidden_state, BATCH["graph_index"], 4, pooling))


class TestAgainstPyG:
    @pytest.fixture(autouse=True)
    def pyg(self):
        return pytest.importorskip("torch_geometric", reason="torch-geometric is not installed: the extra `graph`")

    @torch.no_grad()
    def test_gin_is_their_gine(self):
        from torch_geometric.nn import GINEConv

        torch.manual_seed(0)
        ours = GraphIsomorphismLayer(8, EDGES).eval()
        ours.eps.fill_(0.3)
        theirs = GINEConv(ours.mlp, eps=0.3)
        states = torch.randn(len(BATCH["node_features"]), 8)
        expected = theirs(states, BATCH["edge_index"], ours.edge_encoder(BATCH["edge_features"]))
        torch.testing.assert_close(ours(states, BATCH["edge_index"], BATCH["edge_features"]), expected)

    @torch.no_grad()
    def test_gcn_has_the_weights_of_theirs(self):
        from torch_geometric.nn import GCNConv

        torch.manual_seed(0)
        ours = GraphConvolutionLayer(8)
        ours.root.zero_()
        # Where no ReLU cuts anything off and the root says nothing, this is Kipf and Welling's, loops and all.
        ours.linear.weight.abs_()
        ours.linear.bias.zero_()
        theirs = GCNConv(8, 8, bias=False)
        theirs.lin.weight.copy_(ours.linear.weight)
        states = torch.rand(len(BATCH["node_features"]), 8)
        torch.testing.assert_close(ours(states, BATCH["edge_index"]), theirs(states, BATCH["edge_index"]))


@pytest.mark.parametrize("network, virtual_node", KINDS)
class TestEveryKind:
    @torch.no_grad()
    @torch.no_grad()
    def test_the_order_of_nodes_changes_nothing(self, network, virtual_node):
        model = built(network, virtual_node)
        generator = torch.Generator().manual_seed(5)
        order = torch.randperm(len(BATCH["node_features"]), generator=generator)
        place = torch.argsort(order)
        edges = torch.randperm(BATCH["edge_index"].shape[1], generator=generator)
        mixed = {
            "node_features": BATCH["node_features"][order],
            "edge_index": place[BATCH["edge_index"]][:, edges],
            "graph_index": BATCH["graph_index"][order],
            "edge_features": BATCH["edge_features"][edges],
        }
        expected, output = model(**BATCH), model(**mixed)
        torch.testing.assert_close(output.pooler_output, expected.pooler_output)
        torch.testing.assert_close(output.last_hidden_state, expected.last_hidden_state[order])

    @torch.no_grad()
    def test_graphs_without_edges(self, network, virtual_node):
        model = built(network, virtual_node, edge_vocab_sizes=[])
        batch = together(graph(2, [], edge_sizes=()), graph(1, [], seed=1, edge_sizes=()))
        assert batch["edge_index"].shape == (2, 0)
        output = model(**batch)
        assert output.pooler_output.shape == (2, 8) and output.pooler_output.isfinite().all()
        model, batch = built(network, virtual_node), together(LONELY, LONELY)
        expected = model(**batch).pooler_output
        for features in (None, torch.zeros(0, 0)):
            assert torch.equal(model(**{**batch, "edge_features": features}).pooler_output, expected)

    @torch.no_grad()
    def test_what_a_graph_is_made_of_counts(self, network, virtual_node):
        model = built(network, virtual_node)
        before = model(**BATCH).pooler_output
        for name in ("node_features", "edge_features"):
            changed = {**BATCH, name: BATCH[name].clone()}
            changed[name][0, 0] = 1 - changed[name][0, 0].clamp(max=1)
            after = model(**changed).pooler_output
            assert not torch.allclose(before[0], after[0]) and torch.allclose(before[1:], after[1:])

    def test_every_parameter_gets_a_gradient(self, network, virtual_node):
        # With running means: in training, batch norm takes what a bias before it adds away again.
        model = built(network, virtual_node, jumping_knowledge="sum")
        weights = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
        (model(**BATCH).pooler_output * weights).sum().backward()
        assert not [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]

    def test_it_can_be_trained_and_saved(self, network, virtual_node, tmp_path):
        model = built(network, virtual_node, dropout=0.1).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            model(**BATCH).pooler_output.square().sum().backward()
            optimizer.step()
        model.eval().save_pretrained(tmp_path)
        again = AutoModel.from_pretrained(tmp_path)
        assert type(again) is GraphNetworkModel and again.config.node_vocab_sizes == [7, 3]
        assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
        with torch.no_grad():
            assert torch.equal(again(**BATCH).pooler_output, model(**BATCH).pooler_output)


@torch.no_grad()
def test_hidden_states_and_tuples():
    model = built()
    output = model(**BATCH, output_hidden_states=True)
    assert len(output.hidden_states) == 4 and output.hidden_states[-1] is output.last_hidden_state
    assert torch.equal(output.hidden_states[0], model.node_encoder(BATCH["node_features"]))
    assert torch.equal(model(**BATCH, return_dict=False)[1], output.pooler_output)
    last = {name: value for name, value in BATCH.items() if name != "num_graphs"}
    assert torch.equal(model(**last).pooler_output, output.pooler_output)
    assert model(**{**BATCH, "num_graphs": 6}).pooler_output.shape == (6, 8)


def test_features_that_do_not_fit():
    with pytest.raises(ValueError, match="`node_features` has 1 features of each node"):
        built()(**{**BATCH, "node_features": BATCH["node_features"][:, :1]})
    with pytest.raises(ValueError, match="`edge_features` has 0 features of each edge"):
        built()(**{**BATCH, "edge_features": None})
    with pytest.raises(ValueError, match="`edge_vocab_sizes` has the sizes of 0"):
        built(edge_vocab_sizes=[])(**BATCH)


def test_a_batch_of_one_is_refused_in_training():
    one = together(graph(1, []))
    with pytest.raises(ValueError, match="at least two nodes, in training.*`dataloader_drop_last=True`"):
        built().train()(**one)
    with pytest.raises(ValueError, match="at least two graphs, as there is a virtual node"):
        built(virtual_node=True).train()(**together(RING))
    built().train()(**together(RING))
    built(virtual_node=True)(**one)


class TestConfiguration:
    def test_defaults_are_those_of_ogb(self):
        config = GraphNetworkConfig()
        assert (config.num_hidden_layers, config.hidden_size, config.dropout) == (5, 300, 0.5)
        assert (config.pooling, config.jumping_knowledge, config.virtual_node) == ("mean", "last", False)
        assert type(AutoConfig.for_model("graph_network", network="gcn")) is GraphNetworkConfig

    @pytest.mark.parametrize(
        "fields, words",
        [
            ({"network": "gat"}, "network"),
            ({"pooling": "attention"}, "pooling"),
            ({"num_hidden_layers": 0}, "`num_hidden_layers` must be between 1 and 4096; got 0"),
            ({"hidden_size": 0}, "`hidden_size` must be between 1 and"),
            ({"dropout": 1.0}, "`dropout` must be between 0 and 0.999; got 1.0"),
            ({"node_vocab_sizes": []}, r"`node_vocab_sizes` is empty.*Give `\[1\]`"),
            ({"node_vocab_sizes": [3, 0]}, r"`node_vocab_sizes` must be between 1 and 16777216; got \[3, 0\]"),
            ({"edge_vocab_sizes": [0]}, "`edge_vocab_sizes` must be between 1 and"),
            ({"virtual_nodes": True}, "has no field `virtual_nodes`. Did you mean `virtual_node`?"),
            ({"node_sizes": [3]}, "has no field `node_sizes`. "),
        ],
    )
    def test_refusals(self, fields, words):
        with pytest.raises(Exception, match=words):
            GraphNetworkConfig(**fields)
