# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The baselines of MIL's Table 3: layers that are added instead of a memory, with as many parameters.

The paper adds a feed-forward network, or self-attention and a feed-forward network, after the last layer. Both are made
of the backbone's own parts, fresh; the width of the feed-forward network makes up the count.
"""

from torch import nn


class FeedForwardLayer(nn.Module):
    """The feed-forward half of a Transformer layer, in an encoder's list of layers."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.intermediate = layer.intermediate
        self.output = layer.output

    def forward(self, hidden_states, *args, **kwargs):
        return self.output(self.intermediate(hidden_states), hidden_states)


def add_layer(model, with_attention: bool):
    """Puts a fresh layer after the last one of `model`, with as many parameters as its memory, within one row."""
    config = model.config
    hidden = config.hidden_size
    wanted = sum(parameter.numel() for parameter in model.memory_parameters())
    # Two biases and the layer norm of the feed-forward half; four projections and a layer norm of the other.
    wanted -= 3 * hidden + ((4 * hidden * (hidden + 1) + 2 * hidden) if with_attention else 0)
    layers = model.base_model.encoder.layer
    # The layer keeps the model's own configuration, which also says how attention is computed.
    before, config.intermediate_size = config.intermediate_size, max(round(wanted / (2 * hidden + 1)), 1)
    layer = type(layers[-1])(config, layer_idx=len(layers))
    config.intermediate_size = before
    layer.apply(model._init_weights)
    layers.append(layer if with_attention else FeedForwardLayer(layer))
    return model
