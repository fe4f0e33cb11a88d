# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Models of graphs: networks by their names, checkpoints of them, and what they can read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hf_memaug.configuration.configuration_graph_network import GraphNetworkConfig, is_network, network_fields
from hf_memaug.data import DomainDataset, GraphCollator, feature_sizes
from hf_memaug.data.graphs import FeatureSizes
from hf_memaug.data.molecules import ATOM_VOCAB_SIZES, BOND_VOCAB_SIZES
from hf_memaug.runs.errors import DataRefused, UsageError
from hf_memaug.runs.settings import graph_settings, option_name
from hf_memaug.runs.small_models import SMALL

# What `--backbone small` is for graphs.
SMALL_NETWORK = "gin-3x64"


def graph_model(parts, **kwargs):
    """`HMAForGraphClassification` on a network that is made here, or on a checkpoint of one."""
    from hf_memaug import GraphNetworkModel, HMAForGraphClassification

    own = {name: value for name, value in parts.settings.items() if name in graph_settings()}
    of_memory = {name: value for name, value in parts.settings.items() if name not in own}
    if is_network(parts.backbone):
        sizes = sizes_of([parts.rows, *parts.others])
        config = GraphNetworkConfig(**network_fields(parts.backbone), **sizes._asdict(), **own)
        network = GraphNetworkModel(config)
    else:
        network = GraphNetworkModel.from_pretrained(parts.backbone, dtype="float32", **own)
    return HMAForGraphClassification.from_backbone(network, **parts.labels, **of_memory, **kwargs)


def sizes_of(several: Sequence[DomainDataset]) -> FeatureSizes:
    """Of molecules, those that any molecule needs; of other graphs, those of all rows that are to be read."""
    if all("smiles" in rows.column_names for rows in several):
        return FeatureSizes(list(ATOM_VOCAB_SIZES), list(BOND_VOCAB_SIZES))
    return feature_sizes(*several)


def reads_molecules(config) -> bool:
    """Whether a model was made for the features that SMILES are given."""
    network = config.backbone_config
    return [network.node_vocab_sizes, network.edge_vocab_sizes] == [ATOM_VOCAB_SIZES, BOND_VOCAB_SIZES]


def check_backbone(name: str, kind: str, several: Sequence[DomainDataset], settings: Mapping[str, Mapping]) -> None:
    """Refuses a network for rows that are no graphs, and for graphs anything but one that can read them."""
    if kind != "graph":
        given = next((key for own in settings.values() for key in own if key in graph_settings()), None)
        if is_network(name) or given is not None:
            what = f"`--backbone` {name}" if is_network(name) else f"`{option_name(given)}`"
            rows = kind if kind.endswith("s") else f"{kind}s"
            raise UsageError(f"{what} is for graphs, and the rows are {rows}. Leave it out.")
        return
    if is_network(name) or name == SMALL:
        return
    from transformers import AutoConfig

    import hf_memaug  # noqa: F401  (registers the families)

    try:
        config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError):
        config = None
    if getattr(config, "model_type", None) != GraphNetworkConfig.model_type:
        found = "no checkpoint of one" if config is None else f"a {config.model_type}"
        try:
            network_fields(name)
        except ValueError as error:
            raise UsageError(f"`--backbone`: the rows are graphs, and {name!r} is {found}. {error}") from None
    check_values(config, several, f"`--backbone` {name}")


def check_values(network, several: Sequence[DomainDataset], what: str) -> None:
    """Refuses graphs with values that a network has no place for."""
    for field, found in feature_sizes(*several)._asdict().items():
        known = list(getattr(network, field))
        if len(found) != len(known) and not (field.startswith("edge") and not found):
            raise DataRefused(
                f"`--data`: {field.split('_')[0]}s of the graphs have {len(found)} features, and {what} reads "
                f"{len(known)}. Give graphs as those that it was trained on."
            )
        for place, (size, largest) in enumerate(zip(known, found, strict=False)):
            if largest > size:
                raise DataRefused(
                    f"`--data`: feature {place} of some {field.split('_')[0]} is {largest - 1}, and {what} knows the "
                    f"values 0 to {size - 1}. Take those graphs out, or train with them."
                )


def classify_graphs(model, graphs: Sequence[Mapping[str, Any]], batch_size: int, top_k: int) -> Iterator[list[dict]]:
    """For each graph its labels, best first, as a pipeline gives them."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, collator = model.eval().to(device), GraphCollator()
    for start in range(0, len(graphs), batch_size):
        batch = collator([{"graph": graph} for graph in graphs[start : start + batch_size]])
        placed = {name: value.to(device) if torch.is_tensor(value) else value for name, value in batch.items()}
        with torch.no_grad():
            shares = model(**placed).logits.float().softmax(dim=-1).cpu()
        for row in shares:
            best = row.argsort(descending=True)[:top_k].tolist()
            yield [{"label": model.config.id2label[label], "score": float(row[label])} for label in best]
