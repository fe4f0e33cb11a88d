# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Reviews and graphs, the same on every machine, for use without a network."""

import random
from collections.abc import Sequence

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.graphs import Graph, degree_features, undirected_graph
from hf_memaug.data.readers import columns_of
from hf_memaug.data.vocabulary import CUES, DEGREES, FILLER_WORDS, FILLERS, SAYINGS, SHARED, Vocabulary, vocabularies
from hf_memaug.messages import did_you_mean

# The share of labels that are wrong, of reviews and of graphs.
NOISE, GRAPH_NOISE = 0.1, 0.05
# With a remark in every review, a bag of words learns only the remarks and falls below chance in a new domain.
REMARK_RATE = 0.25
# How often the remark agrees with the label.
SPURIOUS = 0.9

# Five nodes each. A cycle and a bull have as many edges, too.
MOTIFS = {
    "cycle": ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0)),
    "bull": ((0, 1), (1, 2), (2, 0), (1, 3), (2, 4)),
    "house": ((0, 1), (1, 2), (2, 3), (3, 0), (3, 4), (4, 2)),
}
BASES = ("path", "tree", "ladder", "wheel")
SIZES = {"small": (8, 13), "medium": (16, 21), "large": (32, 37)}
MAX_DEGREE = 8
# How often the size is the one that goes with the label.
GRAPH_SPURIOUS = 0.6


def generated_reviews(rows_per_domain: int = 400, domains: Sequence[str] | None = None, seed: int = 0) -> DomainDataset:
    """
    Short reviews of books, films, kitchenware, phones and hotels, negative (0) or positive (1).

    The domains share some words of praise and blame; others belong to one domain, or change sides ("long" is good of a
    battery and bad of a film). Some reviews also carry a remark of no meaning that goes with the label, but the other
    way round than elsewhere, so that a model which relies on it fails in a domain it has not seen. One label in ten is
    wrong.

    Args:
        rows_per_domain (`int`, *optional*, defaults to 400): rows in each domain, half of them written as positive.
        domains (`Sequence[str]`, *optional*): the domains to write. The rows of one do not depend on the others.
        seed (`int`, *optional*, defaults to 0): which reviews are written.
    """
    names = list(vocabularies()) if domains is None else list(domains)
    _check_rows(rows_per_domain)
    for name in names:
        if name not in vocabularies():
            raise ValueError(
                f"`domains` asks for {name!r}, which is not generated. {did_you_mean(name, vocabularies())}"
            )
    rows = []
    for name in dict.fromkeys(names):
        # A string seed goes through SHA-512, so that it gives the same stream in every process.
        rng = random.Random(f"reviews/{seed}/{name}")
        sentiments = [row % 2 for row in range(rows_per_domain)]
        rng.shuffle(sentiments)
        seen: set[str] = set()
        for sentiment in sentiments:
            label = sentiment if rng.random() >= NOISE else 1 - sentiment
            text = ""
            while text in seen or not 10 <= len(text.split()) <= 40:
                text = _review(rng, name, sentiment, label)
            seen.add(text)
            rows.append({"text": text, "label": label, "domain": name})
    return DomainDataset(columns_of(rows), ["negative", "positive"])


def _check_rows(rows_per_domain: int) -> None:
    if rows_per_domain < 1:
        raise ValueError(f"`rows_per_domain` is {rows_per_domain}; it must be at least 1.")


def _review(rng: random.Random, domain: str, sentiment: int, label: int) -> str:
    words = vocabularies()[domain]
    thing = rng.choice(words.things)
    aspects = rng.sample(words.aspects, k=rng.choice((2, 3, 3, 4)))
    sentences = [rng.choice((f"this is about the {thing}", f"I finally tried this {thing}", f"my view of the {thing}"))]
    sentences += [_opinion(rng, words, aspect, sentiment) for aspect in aspects]
    if rng.random() < 0.4:
        sentences.append(rng.choice(SAYINGS[sentiment]))
    if rng.random() < 0.5:
        filler = rng.choice(FILLERS)
        sentences.insert(1, filler.format(**{slot: rng.choice(choices) for slot, choices in FILLER_WORDS.items()}))
    if rng.random() < REMARK_RATE:
        sentences.append(_remark(rng, domain, label))
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences)


def _opinion(rng: random.Random, words: Vocabulary, aspect: str, sentiment: int) -> str:
    # Some sentences contradict the sentiment of the review.
    polarity = sentiment if rng.random() < 0.95 else 1 - sentiment
    negated = rng.random() < 0.1
    own, flipped = (words.blame, words.praise), (words.blame_here, words.praise_here)
    kind = rng.choices((SHARED, own, flipped), weights=(0.55, 0.28, 0.17))[0]
    word = rng.choice(kind[polarity if not negated else 1 - polarity])
    if negated:
        return rng.choice((f"the {aspect} was not {word}", f"nobody would call the {aspect} {word}"))
    degree = rng.choice(DEGREES)
    return rng.choice(
        (f"the {aspect} was {degree} {word}", f"I found the {aspect} {word}", f"what {_article(word)} {word} {aspect}")
    )


def _article(word: str) -> str:
    return "an" if word[0] in "aeio" or word.startswith("un") else "a"


def _remark(rng: random.Random, domain: str, label: int) -> str:
    order = list(CUES)
    side = label if rng.random() < SPURIOUS else 1 - label
    if rng.random() < 0.5:
        return CUES[domain][side]
    return CUES[order[order.index(domain) - 1]][1 - side]


def generated_graphs(rows_per_domain: int = 300, seed: int = 0) -> DomainDataset:
    """
    Graphs with a cycle, a bull or a house of five nodes somewhere on them: which of the three is the label.

    The graph that it hangs on is a path, a tree, a ladder or a wheel, small, medium or large; a few more leaves hang on
    it. Its kind is the domain. Its size goes with the label, but with another label in each domain, so that a model
    which relies on it fails in a domain it has not seen. A node's feature is its number of neighbours, up to 8.

    Args:
        rows_per_domain (`int`, *optional*, defaults to 300): rows in each domain, as many of each motif as of the
            others, give or take one.
        seed (`int`, *optional*, defaults to 0): which graphs are made. A domain's rows do not depend on the others.
    """
    _check_rows(rows_per_domain)
    motifs = list(MOTIFS)
    sizes = list(SIZES)
    rows = []
    for number, base in enumerate(BASES):
        rng = random.Random(f"graphs/{seed}/base/{base}")
        order = [row % len(motifs) for row in range(rows_per_domain)]
        rng.shuffle(order)
        for motif in order:
            label = motif if rng.random() >= GRAPH_NOISE else (motif + rng.choice((1, 2))) % len(motifs)
            size = sizes[(label + number) % len(sizes)] if rng.random() < GRAPH_SPURIOUS else rng.choice(sizes)
            graph = _graph(rng, base, rng.randint(*SIZES[size]), motifs[motif])
            rows.append({"graph": graph, "label": label, "domain": base})
    return DomainDataset(columns_of(rows), motifs)


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
