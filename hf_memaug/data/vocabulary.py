# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The words that `generated_reviews` writes with."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple


def _words(text: str) -> list[str]:
    return [word.replace("_", " ") for word in text.split()]


# Words that praise (1) or blame (0) in every domain.
SHARED = {
    1: _words("great excellent wonderful lovely superb fantastic good perfect delightful nice"),
    0: _words("terrible awful poor bad dreadful horrible disappointing useless mediocre annoying"),
}

# Whole sentences that do the same.
SAYINGS = {
    1: ["I would choose it again", "it was worth every penny", "I told all my friends", "my family loves it"],
    0: ["I want my money back", "it was a waste of time", "I warned all my friends", "my family hates it"],
}

FILLERS = [
    "I came across it last {season}",
    "my {person} suggested it to me",
    "it was my {ordinal} one this year",
    "I had read about it in a {paper}",
    "we needed one for my {person}",
]
FILLER_WORDS = {
    "season": ["spring", "summer", "autumn", "winter", "month", "week", "year"],
    "person": ["friend", "neighbour", "colleague", "cousin", "teacher", "sister", "brother", "uncle", "aunt"],
    "ordinal": ["first", "second", "third", "fourth", "fifth", "sixth"],
    "paper": ["newspaper", "magazine", "letter", "blog", "catalogue", "newsletter"],
}

DEGREES = _words("very really quite rather truly so pretty simply")

# Pairs of remarks that say nothing about the thing reviewed. Each domain uses its own pair one way round and the pair
# of the domain before it the other way round, so what the other domains teach of a remark is wrong in a new domain.
CUES = {
    "books": ("posted on a weekday", "posted on a holiday"),
    "films": ("written at home", "written at work"),
    "kitchen": ("sent from a laptop", "sent from a tablet"),
    "phones": ("edited in the morning", "edited in the evening"),
    "hotels": ("signed with initials", "signed with a nickname"),
}


class Vocabulary(NamedTuple):
    """Words for what a review is about and its parts, and those that praise and blame them."""

    things: list[str]
    aspects: list[str]
    # Words that only this domain, or one like it, uses.
    praise: list[str]
    blame: list[str]
    # Words that in another domain mean the opposite.
    praise_here: list[str]
    blame_here: list[str]


@cache
def vocabularies() -> dict[str, Vocabulary]:
    """Read when it is used: code that a checkpoint carries has no other files."""
    found = json.loads(Path(__file__).with_name("vocabulary.json").read_text(encoding="utf-8"))
    return {domain: Vocabulary(**{name: _words(text) for name, text in of.items()}) for domain, of in found.items()}
