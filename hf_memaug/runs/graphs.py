# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Models of graphs: networks by their names, checkpoints of them, and the graphs that they can read."""

from collections.abc import Mapping, Sequence
from typing import Any

from hf_memaug.configuration.configuration_graph_network import GraphNetworkConfig, is_network, network_fields
from hf_memaug.data import DomainDataset, feature_sizes
from hf_memaug.data.graphs import FeatureSizes
from hf_memaug.data.molecules import ATOM_VOCAB_SIZES, BOND_VOCAB_SIZES
from hf_memaug.inference.checkpoints import read_config
from hf_memaug.inference.predictions import InferenceError
from hf_memaug.registry import BACKBONES
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.settings import GRAPH_SETTINGS, option_name
from hf_memaug.runs.small_models import SMALL, SMALL_NETWORK
from hf_memaug.runs.tasks import in_words


def graph_network(
    name: str, several: Sequence[DomainDataset], settings: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """(the network of a name or a checkpoint, the settings that are not the network's)."""
    own = {key: value for key, value in settings.items() if key in GRAPH_SETTINGS}
    rest = {key: value for key, value in settings.items() if key not in own}
    name = SMALL_NETWORK if name == SMALL else name
    row = BACKBONES[GraphNetworkConfig.model_type]
    network_class = row.load(row.model_names[0])
    if not is_network(name):
        return network_class.from_pretrained(name, dtype="float32", **own), rest
    if all("smiles" in rows.column_names for rows in several):
        # What any molecule needs.
        sizes = FeatureSizes(list(ATOM_VOCAB_SIZES), list(BOND_VOCAB_SIZES))
    else:
        sizes = feature_sizes(*several)
    return network_class(GraphNetworkConfig(**network_fields(name), **sizes._asdict(), **own)), rest


def check_backbone(name: str, kind: str, several: Sequence[DomainDataset], settings: Mapping[str, Mapping]) -> None:
    """Graphs need a network that can read them, and other rows do not have one."""
    if kind != "graph":
        given = next((key for own in settings.values() for key in own if key in GRAPH_SETTINGS), None)
        what = f"`{option_name(given)}`" if given is not None else ""
        if is_network(name):
            what = f"`--backbone` {name}"
        if what:
            raise UsageError(f"{what} is for graphs, and the rows are {in_words(kind)}. Leave it out.")
        return
    if is_network(name) or name == SMALL:
        return
    try:
        config = read_config(name)
    except InferenceError:
        config = None
    if getattr(config, "model_type", None) != GraphNetworkConfig.model_type:
        found = "not a checkpoint of a graph network" if config is None else f"a {config.model_type}"
        try:
            network_fields(name)
        except ValueError as error:
            raise UsageError(f"`--backbone`: the rows are graphs, and {name!r} is {found}. {error}") from None
    check_values(config, several, f"`--backbone` {name}")


def check_values(network, several: Sequence[DomainDataset], what: str) -> None:
    """A network has embeddings for the values that it was trained on, and for no others."""
    for field, found in feature_sizes(*several)._asdict().items():
        known, part = list(getattr(network, field)), field.split("_")[0]
        if len(found) != len(known) and not (part == "edge" and not found):
            raise DataRefused(
                f"`--data`: {part}s of the graphs have {len(found)} features, and {what} reads {len(known)}. Use "
                "graphs like those that it was trained on."
            )
        for place, (size, largest) in enumerate(zip(known, found, strict=False)):
            if largest > size:
                raise DataRefused(
                    f"`--data`: feature {place} of some {part} is {largest - 1}, and {what} knows the values 0 to "
                    f"{size - 1}. Remove those graphs, or train with them."
                )
