# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What the names of graph networks stand for."""

import pytest

from hf_memaug import GraphNetworkConfig
from hf_memaug.configuration.configuration_graph_network import is_network, network_fields


@pytest.mark.parametrize(
    "name, fields",
    [
        ("gin-3x64", ("gin", False, 3, 64)),
        ("gcn-v-3x64", ("gcn", True, 3, 64)),
        ("gin-vn-5x300", ("gin", True, 5, 300)),
        ("gcn", ("gcn", False, 5, 300)),
        ("gin-vn", ("gin", True, 5, 300)),
    ],
)
def test_a_name_is_a_network(name, fields):
    config = GraphNetworkConfig(**network_fields(name))
    assert (config.network, config.virtual_node, config.num_hidden_layers, config.hidden_size) == fields


@pytest.mark.parametrize("name", ["gat-3x64", "gin-3", "gin-0x64", "gin-x", "gin-3x64-v", "ginger"])
def test_what_is_none(name):
    assert not is_network(name)
    with pytest.raises(ValueError, match="Write gin, gcn, gin-vn or gcn-vn"):
        network_fields(name)
