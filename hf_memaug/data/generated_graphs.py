# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Graphs made on the spot, the same on every machine: a motif hangs on a larger graph, whose kind shifts."""

import random

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.generated import check_generated
from hf_memaug.data.graphs import Graph, degree_features, undirected_graph

# Five nodes each. A cycle and a bull have as many edges, too.
MOTIFS = {
    "cycle": ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0)),
    "bull": ((0, 1), (1, 2), (2, 0), (1, 3), (2, 4)),
    "house": ((0, 1), (1, 2), (2, 3), (3, 0), (3, 4), (4, 2)),
}
BASES = ("path", "tree", "ladder", "wheel")
SIZES = {"small": (8, 13), "medium": (16, 21), "large": (32, 37)}
MAX_DEGREE = 8


def generated_graphs(
    rows_per_domain: int = 300, seed: int = 0, noise: float = 0.05, spurious: float = 0.6
) -> DomainDataset:
    """
    Graphs with a cycle, a bull or a house of five nodes somewhere on them: which of the three is the label.

    The graph that it hangs on is a path, a tree, a ladder or a wheel, small, medium or large; a few more leaves hang on
    it. Its kind is the domain. Its size goes with the label, but with another label in each domain, so that a model
    which relies on it fails in a domain it has not seen. A node's feature is its number of neighbours, up to 8.

    Args:
        rows_per_domain (`int`, *optional*, defaults to 300): rows in each domain, as many of each motif as of the
            others, give or take one.
        seed (`int`, *optional*, defaults to 0): which graphs are made. A domain's rows do not depend on the others.
        noise (`float`, *optional*, defaults to 0.05): the part of the labels that is wrong.
        spurious (`float`, *optional*, defaults to 0.6): how often the size is the one that goes with the label;
            otherwise it is any.
    """
    check_generated(rows_per_domain, noise=noise, spurious=spurious)
    motifs = list(MOTIFS)
    sizes = list(SIZES)
    columns: dict[str, list] = {"graph": [], "label": [], "domain": []}
    for number, base in enumerate(BASES):
        # A string seed goes through SHA-512, so that it gives the same stream in every process.
        rng = random.Random(f"graphs/{seed}/base/{base}")
        order = [row % len(motifs) for row in range(rows_per_domain)]
        rng.shuffle(order)
        for motif in order:
            label = motif if rng.random() >= noise else (motif + rng.choice((1, 2))) % len(motifs)
            size = sizes[(label + number) % len(sizes)] if rng.random() < spurious else rng.choice(sizes)
            columns["graph"].append(_graph(rng, base, rng.randint(*SIZES[size]), motifs[motif]))
            columns["label"].append(label)
            columns["domain"].append(base)
    return DomainDataset(columns, motifs)


def _graph(rng: random.Random, base: str, size: int, motif: str) -> Graph:
    edges = _base_edges(rng, base, size)
    # Leaves, so that there is more than one wheel of a size.
    for leaf in range(size, size + rng.randint(1, 4)):
        edges.append((rng.randrange(size), leaf))
        count = leaf + 1
    edges += [(count + one, count + other) for one, other in MOTIFS[motif]]
    edges.append((rng.randrange(count), count + rng.randrange(5)))
    count += 5
    # No node is known by its number.
    place = list(range(count))
    rng.shuffle(place)
    edges = [(place[one], place[other]) for one, other in edges]
    rng.shuffle(edges)
    return undirected_graph(degree_features(count, edges, MAX_DEGREE), edges)


def _base_edges(rng: random.Random, base: str, size: int) -> list[tuple[int, int]]:
    if base == "path":
        return [(node - 1, node) for node in range(1, size)]
    if base == "tree":
        return [(rng.randrange(node), node) for node in range(1, size)]
    if base == "ladder":
        rungs = size // 2
        sides = [(node, node + 2) for node in range(size - 2)]
        return sides + [(2 * rung, 2 * rung + 1) for rung in range(rungs)]
    rim = list(range(1, size))
    return [(0, node) for node in rim] + [(node, node % (size - 1) + 1) for node in rim]
