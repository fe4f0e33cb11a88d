# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Random settings of every configuration: an error names the field, or the model is built and runs."""

import json
import math
import re
import tempfile
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import torch
from families import CASES, features_of
from huggingface_hub.errors import StrictDataclassError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedConfig

from hf_memaug import GraphNetworkConfig
from hf_memaug.data.graphs import GraphCollator
from hf_memaug.modeling.modeling_graph_network import GraphNetworkModel
from hf_memaug.modeling.modeling_utils import positions_of

COMMON = {field.name for field in fields(PreTrainedConfig)}
NASTY = [math.nan, math.inf, -math.inf, -1, 0, 10**12, -(10**12), 1e-30, 0.5, True, None, "", "xyzzy"]
NASTY += [[], [0], [-1], [10**12], [math.nan], [1, 1], [[]], [[10**12]], {}, {"xyzzy": 1}, {"model_type": "xyzzy"}]


class GraphNetwork:
    """The backbone for graphs, in the form of a case."""

    model_type, model_class, is_image, is_graph, is_text = "graph_network", GraphNetworkModel, False, True, False

    def config(self, **kwargs):
        sizes = {"hidden_size": 8, "num_hidden_layers": 2, "node_vocab_sizes": [5], "edge_vocab_sizes": [3]}
        return GraphNetworkConfig(**{**sizes, **kwargs})


def settable(config: PreTrainedConfig) -> dict[str, Any]:
    """The types of its fields, and of those of its parts."""
    found: dict[str, Any] = {"num_labels": int}
    parts = [getattr(config, name) for name in config.sub_configs]
    # The factory gives a graph network these fields alone.
    names = {"graph_network": ("node_vocab_sizes", "edge_vocab_sizes", "dropout")}
    for one in (config, *(part for part in parts if part is not None)):
        theirs = {field.name: field.type for field in fields(one) if field.name not in COMMON}
        kept = names.get(one.model_type, theirs) if one is not config else theirs
        found = {name: theirs[name] for name in kept} | found
    return found


def of_type(annotation) -> st.SearchStrategy:
    """Small values of a field's type."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in (Union, UnionType):
        return st.one_of(*map(of_type, parts))
    if origin in (list, tuple):
        return st.lists(of_type(parts[0]), max_size=4).map(origin)
    simple = {bool: st.booleans(), int: st.integers(0, 40), float: st.floats(0, 1), NoneType: st.none()}
    return simple.get(annotation, st.sampled_from(["", "gelu", "{text} {mask}"]) if annotation is str else st.just({}))


def inputs_for(case, model) -> dict:
    """Inputs that fit the configuration: its words, its channels, and no text longer than its positions."""
    config, generator = model.config, torch.Generator().manual_seed(1)
    if case.is_graph:
        config = getattr(config, "backbone_config", config)
        ring = torch.stack([torch.arange(4), (torch.arange(4) + 1) % 4])
        draw = [
            torch.stack([torch.randint(0, size, (4,), generator=generator) for size in sizes], dim=1).tolist()
            for sizes in (config.node_vocab_sizes, config.edge_vocab_sizes)
            if sizes
        ]
        graph = {"node_features": draw[0], "edge_index": ring.tolist()}
        graph |= {"edge_features": draw[1]} if config.edge_vocab_sizes else {}
        return GraphCollator()([{"graph": graph}] * 2)
    if not case.is_text:
        size = getattr(config, "image_size", 0) if case.is_image else config.hidden_size
        height, width = size if isinstance(size, list | tuple) else (size, size)
        shape = (config.num_channels, height, width) if case.is_image else (width,)
        return {model.main_input_name: torch.randn(2, *shape, generator=generator)}
    length = min([9, *positions_of(model)])
    ids = torch.randint(0, config.vocab_size, (2, length), generator=generator)
    mask = getattr(config, "mask_token_id", None)
    ids[:, length // 2] = ids[:, length // 2] if mask is None else mask
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if getattr(config, "sentence_pairs", False):
        inputs["token_type_ids"] = torch.arange(length).ge(5).long().expand(2, -1)
    return inputs | ({"decoder_input_ids": ids} if case.model_type == "memory_rnn" and "Gen" in str(case) else {})


def fault(case, changes: dict[str, Any]) -> str | None:
    """What is not clean about a setting."""
    doing = "configuration"
    try:
        config = case.config(**changes)
        with tempfile.TemporaryDirectory() as folder:
            config.save_pretrained(folder)
            again = type(config).from_pretrained(folder)
        # As JSON, which has no tuples; NaN is not equal to itself.
        if json.loads(json.dumps(again.to_dict())) != json.loads(json.dumps(config.to_dict())):
            return "another configuration is loaded"
        doing = "model"
        torch.manual_seed(0)
        model = case.model_class(config).eval()
        doing = "forward pass"
        with torch.no_grad():
            found = features_of(model(**inputs_for(case, model)))
    except (ValueError, TypeError, StrictDataclassError) as error:
        # A changed field, or one that it no longer fits.
        known = "|".join(map(re.escape, {*changes, *settable(case.config())}))
        named = re.search(rf"[`'](\w+\.)?({known})[`'=\[]", str(error))
        return None if named and doing != "forward pass" else f"{doing}: {type(error).__name__}: {error}"
    except Exception as error:
        return f"{doing}: {type(error).__name__}: {error}"
    return None if found.isfinite().all() else f"the output is not finite: {found}"


BY_TYPE = {"graph_network": [GraphNetwork()]}
for one in CASES:
    # One class for each head that reads the fields in a way of its own.
    if one.has_head or one.name == "HMAHead":
        BY_TYPE.setdefault(one.model_type, []).append(one)


def run(model_type: str, count: int, check) -> None:
    cases = BY_TYPE[model_type]
    types = [settable(case.config()) for case in cases]

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def draw(data):
        place = data.draw(st.integers(0, len(cases) - 1))
        names = data.draw(st.lists(st.sampled_from(sorted(types[place])), min_size=1, max_size=2, unique=True))
        one_of = {name: st.one_of(of_type(types[place][name]), st.sampled_from(NASTY)) for name in names}
        changes = {name: data.draw(values) for name, values in one_of.items()}
        check(cases[place], changes)

    draw()


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("model_type", BY_TYPE)
def test_a_setting_is_refused_by_name_or_runs(model_type, count):
    def check(case, changes):
        found = fault(case, changes)
        assert found is None, f"{type(case).__name__} {case}: {changes}: {found}"

    run(model_type, count, check)
