# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Graph networks for other models to stand on: GIN and GCN, with or without a virtual node. Configuration."""

import re
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from hf_memaug.configuration.checks import check_fields, refuse_misspelt_fields

# What a network is called: its kind, `-v` or `-vn` where it has a virtual node, and its layers and width.
_NAME = re.compile(r"(gin|gcn)(-vn?)?(?:-([1-9]\d*)x([1-9]\d*))?")


def is_network(name: str) -> bool:
    """Whether `network_fields` knows the name."""
    return _NAME.fullmatch(name) is not None


def network_fields(name: str) -> dict[str, Any]:
    """
    The fields of `GraphNetworkConfig` that a name stands for: `gin-3x64` has three layers of width 64, `gcn-vn-5x300` a
    virtual node too; `gin` alone has the sizes of OGB.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(
            f"There is no network {name!r}. Write gin, gcn, gin-vn or gcn-vn (with a virtual node), and behind it, if "
            "you like, how many layers of which width: gin-3x64."
        )
    kind, virtual_node, layers, width = found.groups()
    sizes = {} if layers is None else {"num_hidden_layers": int(layers), "hidden_size": int(width)}
    return {"network": kind, "virtual_node": virtual_node is not None, **sizes}


@strict
class GraphNetworkConfig(PreTrainedConfig):
    r"""
    A graph network as the molecule baselines of OGB (Hu et al., 2020) have it. The defaults are theirs, but for the
    features: `hf_memaug.data.molecules` has those of molecules.

    Args:
        network (`str`, *optional*, defaults to `"gin"`):
            `"gin"` (Xu et al., 2019) or `"gcn"` (Kipf and Welling, 2017).
        virtual_node (`bool`, *optional*, defaults to `False`):
            Whether every graph has one more node, which all its nodes hear before each layer and speak to behind it.
        num_hidden_layers (`int`, *optional*, defaults to 5):
            How often nodes hear their neighbours.
        hidden_size (`int`, *optional*, defaults to 300):
            Width of nodes and graphs.
        dropout (`float`, *optional*, defaults to 0.5):
            Behind every layer, and on the virtual node.
        node_vocab_sizes (`list[int]`, *optional*, defaults to `[1]`):
            For each categorical feature of a node, how many values it has. Each has a table of embeddings, and they are
            summed. The default, one feature of one value, tells nodes apart by their neighbours alone.
        edge_vocab_sizes (`list[int]`, *optional*, defaults to `[]`):
            The same of an edge, in each layer. Empty: edges have no features.
        pooling (`str`, *optional*, defaults to `"mean"`):
            How a graph is made of its nodes: `"mean"`, `"sum"` or `"max"`.
        jumping_knowledge (`str`, *optional*, defaults to `"last"`):
            What is taken of a node: the `"last"` layer, or the `"sum"` of all layers and the embeddings.
    """

    model_type = "graph_network"

    network: Literal["gin", "gcn"] = "gin"
    virtual_node: bool = False
    num_hidden_layers: int = 5
    hidden_size: int = 300
    dropout: float | int = 0.5
    node_vocab_sizes: list[int] | tuple[int, ...] = (1,)
    edge_vocab_sizes: list[int] | tuple[int, ...] = ()
    pooling: Literal["mean", "sum", "max"] = "mean"
    jumping_knowledge: Literal["last", "sum"] = "last"

    def __post_init__(self, **kwargs):
        prefixes = ("network", "virtual_", "node_", "edge_", "pool", "jumping_", "dropout")
        refuse_misspelt_fields(type(self), kwargs, own_prefixes=prefixes)
        self.node_vocab_sizes, self.edge_vocab_sizes = list(self.node_vocab_sizes), list(self.edge_vocab_sizes)
        super().__post_init__(**kwargs)

    def validate_sizes(self):
        check_fields(vars(self))
        if not self.node_vocab_sizes:
            raise ValueError(
                "`node_vocab_sizes` is empty, so that nodes would have no features. Give `[1]` where all nodes are "
                "alike, and a feature that is 0 everywhere."
            )
