# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Graph networks as backbones: GIN and GCN as in OGB's baselines for molecules."""

import math

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import auto_docstring
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from hf_memaug.configuration.configuration_graph_network import GraphNetworkConfig
from hf_memaug.layers.graph import (
    GRAPH_LAYERS,
    CategoricalEncoder,
    GraphConvolutionLayer,
    GraphIsomorphismLayer,
    VirtualNodeUpdate,
    pool_nodes,
)


class GraphNetworkLayer(nn.Module):
    """Message passing, then batch norm, ReLU (except in the last layer) and dropout."""

    def __init__(self, config: GraphNetworkConfig, is_last: bool):
        super().__init__()
        self.convolution = GRAPH_LAYERS[config.network](config.hidden_size, config.edge_vocab_sizes)
        self.norm = nn.BatchNorm1d(config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.is_last = is_last

    def forward(
        self, states: torch.Tensor, edge_index: torch.Tensor, edge_features: torch.Tensor | None = None
    ) -> torch.Tensor:
        states = self.norm(self.convolution(states, edge_index, edge_features))
        return self.dropout(states if self.is_last else torch.relu(states))


@auto_docstring
class GraphNetworkPreTrainedModel(PreTrainedModel):
    config: GraphNetworkConfig
    base_model_prefix = "graph_network"
    main_input_name = "node_features"
    # There is no attention, so every implementation is supported.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True
    _can_record_outputs = {"hidden_states": GraphNetworkLayer}

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        # The initialisation of OGB's baselines.
        if isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            init.uniform_(module.weight, -bound, bound)
            if module.bias is not None:
                init.uniform_(module.bias, -bound, bound)
        elif isinstance(module, nn.Embedding):
            init.xavier_uniform_(module.weight)
        elif isinstance(module, GraphIsomorphismLayer):
            init.zeros_(module.eps)
        elif isinstance(module, GraphConvolutionLayer):
            init.normal_(module.root)
        elif isinstance(module, GraphNetworkModel) and module.virtual_node is not None:
            init.zeros_(module.virtual_node)


@auto_docstring
class GraphNetworkModel(GraphNetworkPreTrainedModel):
    def __init__(self, config: GraphNetworkConfig):
        config.validate_sizes()
        super().__init__(config)
        self.node_encoder = CategoricalEncoder(config.node_vocab_sizes, config.hidden_size)
        last = config.num_hidden_layers - 1
        self.layers = nn.ModuleList(GraphNetworkLayer(config, layer == last) for layer in range(last + 1))
        self.virtual_node = nn.Parameter(torch.zeros(config.hidden_size)) if config.virtual_node else None
        # Not after the last layer, where nothing reads it.
        updates = last if config.virtual_node else 0
        self.virtual_node_updates = nn.ModuleList(
            VirtualNodeUpdate(config.hidden_size, config.dropout) for _ in range(updates)
        )
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    @auto_docstring
    def forward(
        self,
        node_features: torch.LongTensor,
        edge_index: torch.LongTensor,
        graph_index: torch.LongTensor,
        edge_features: torch.Tensor | None = None,
        num_graphs: int | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        r"""
        node_features (`torch.LongTensor` of shape `(nodes, channels)`):
            The categorical features of the nodes of all graphs.
        edge_index (`torch.LongTensor` of shape `(2, edges)`):
            From which node to which each edge goes. An edge without direction is there twice.
        graph_index (`torch.LongTensor` of shape `(nodes,)`):
            Which graph each node belongs to.
        edge_features (`torch.LongTensor` of shape `(edges, channels)`, *optional*):
            The categorical features of the edges, where `edge_vocab_sizes` says that they have some.
        num_graphs (`int`, *optional*):
            How many graphs there are. Left out, it is read from `graph_index`, which waits for the GPU.
        """
        if not edge_index.shape[1]:
            # Without edges, the number of their features is unknown.
            channels = len(self.config.edge_vocab_sizes)
            edge_features = edge_index.new_zeros(0, channels) if channels else None
        self._check_features(node_features, edge_features)
        if num_graphs is None:
            num_graphs = int(graph_index.max()) + 1
        if self.training:
            self._check_batch(len(node_features), num_graphs)

        states = self.node_encoder(node_features)
        virtual = None if self.virtual_node is None else self.virtual_node.expand(num_graphs, -1)
        seen = []
        for number, layer in enumerate(self.layers):
            if virtual is not None:
                states = states + virtual[graph_index]
            seen.append(states)
            states = layer(states, edge_index, edge_features)
            if number < len(self.virtual_node_updates):
                virtual = self.virtual_node_updates[number](virtual, seen[-1], graph_index)
        if self.config.jumping_knowledge == "sum":
            states = sum(seen, start=states)
        return BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=pool_nodes(states, graph_index, num_graphs, self.config.pooling),  # type: ignore[arg-type]
        )

    def _check_features(self, node_features, edge_features) -> None:
        for what, features in (("node", node_features), ("edge", edge_features)):
            channels = len(getattr(self.config, f"{what}_vocab_sizes"))
            found = 0 if features is None else features.shape[1]
            if found != channels:
                raise ValueError(
                    f"`{what}_features` has {found} features of each {what}, and `{what}_vocab_sizes` has the sizes of "
                    f"{channels}. Give the model those of your data."
                )

    def _check_batch(self, num_nodes: int, num_graphs: int) -> None:
        if num_nodes < 2 or (self.virtual_node_updates and num_graphs < 2):
            what = "graphs, as there is a virtual node" if num_nodes > 1 else "nodes"
            raise ValueError(
                f"Batch norm needs at least two {what}, in training. Use larger batches, and "
                "`dataloader_drop_last=True` to drop a small last one."
            )
