# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Message passing between the nodes of many graphs at once, in plain torch: GIN, GCN, the virtual node, pooling."""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn


def count(index: torch.Tensor, kinds: int) -> torch.Tensor:
    """How often each of 0 to `kinds - 1` is in `index`. Unlike `torch.bincount` it does not wait for a GPU."""
    return index.new_zeros(kinds).index_add(0, index, torch.ones_like(index))


def pool_nodes(states: torch.Tensor, graph_index: torch.Tensor, num_graphs: int, pooling: str = "mean") -> torch.Tensor:
    """
    One row for each graph, from the states `(nodes, width)` of its nodes, by `"mean"`, `"sum"` or `"max"`.
    `graph_index`, of shape `(nodes,)`, is the graph of each node, in any order. A graph without nodes gets zeros.
    """
    pooled = states.new_zeros(num_graphs, states.shape[1])
    if pooling == "max":
        return pooled.scatter_reduce(0, graph_index[:, None].expand_as(states), states, "amax", include_self=False)
    pooled = pooled.index_add(0, graph_index, states)
    if pooling == "mean":
        sizes = count(graph_index, num_graphs).clamp(min=1)
        pooled = pooled / sizes[:, None].to(pooled.dtype)
    return pooled


class CategoricalEncoder(nn.Module):
    """An embedding table for each categorical feature; what they say of a node or an edge is summed."""

    def __init__(self, vocab_sizes: Sequence[int], width: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in vocab_sizes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return sum(table(features[:, channel]) for channel, table in enumerate(self.tables))


def graph_mlp(width: int, closed: bool = False) -> nn.Sequential:
    """Two linear layers with batch norm between, as wide again; with `closed`, batch norm and ReLU follow, too."""
    up_proj, down_proj = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
    layers = OrderedDict(up_proj=up_proj, norm=nn.BatchNorm1d(2 * width), activation=nn.ReLU(), down_proj=down_proj)
    if closed:
        layers.update(out_norm=nn.BatchNorm1d(width), out_activation=nn.ReLU())
    return nn.Sequential(layers)


def _messages(states: torch.Tensor, source: torch.Tensor, edges: torch.Tensor | None) -> torch.Tensor:
    """relu(x_j + e_ij), one for each edge from j to i."""
    sent = states[source]
    return torch.relu(sent if edges is None else sent + edges)


class GraphIsomorphismLayer(nn.Module):
    """GIN (Xu et al., 2019) with edge features: MLP((1 + eps) x_i + sum_j relu(x_j + e_ij))."""

    def __init__(self, width: int, edge_vocab_sizes: Sequence[int] = ()):
        super().__init__()
        self.mlp = graph_mlp(width)
        self.eps = nn.Parameter(torch.zeros(1))
        self.edge_encoder = CategoricalEncoder(edge_vocab_sizes, width) if edge_vocab_sizes else None

    def forward(
        self, states: torch.Tensor, edge_index: torch.Tensor, edge_features: torch.Tensor | None = None
    ) -> torch.Tensor:
        source, target = edge_index
        edges = None if self.edge_encoder is None else self.edge_encoder(edge_features)
        messages = _messages(states, source, edges)
        received = torch.zeros_like(states, dtype=messages.dtype).index_add(0, target, messages)
        return self.mlp((1 + self.eps) * states + received)


class GraphConvolutionLayer(nn.Module):
    """
    GCN (Kipf and Welling, 2017) with edge features, as the molecule baselines of OGB have it. With y = W x + b, a root
    vector r, and d_i one more than the edges that leave i:
    sum_j relu(y_j + e_ij) / sqrt(d_i d_j) + relu(y_i + r) / d_i.
    """

    def __init__(self, width: int, edge_vocab_sizes: Sequence[int] = ()):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.root = nn.Parameter(torch.randn(width))
        self.edge_encoder = CategoricalEncoder(edge_vocab_sizes, width) if edge_vocab_sizes else None

    def forward(
        self, states: torch.Tensor, edge_index: torch.Tensor, edge_features: torch.Tensor | None = None
    ) -> torch.Tensor:
        source, target = edge_index
        states = self.linear(states)
        edges = None if self.edge_encoder is None else self.edge_encoder(edge_features)
        degrees = (count(source, states.shape[0]) + 1).to(states.dtype)
        scale = degrees.rsqrt()
        messages = _messages(states, source, edges) * (scale[source] * scale[target])[:, None]
        received = torch.zeros_like(states, dtype=messages.dtype).index_add(0, target, messages)
        return received + torch.relu(states + self.root) / degrees[:, None]


GRAPH_LAYERS = {"gin": GraphIsomorphismLayer, "gcn": GraphConvolutionLayer}


class VirtualNodeUpdate(nn.Module):
    """What a graph's virtual node becomes behind a layer: an MLP of itself and the sum of the nodes that it met."""

    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.mlp = graph_mlp(width, closed=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, virtual: torch.Tensor, states: torch.Tensor, graph_index: torch.Tensor) -> torch.Tensor:
        met = pool_nodes(states, graph_index, virtual.shape[0], "sum")
        return self.dropout(self.mlp(met + virtual))
