# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The words that `generated_reviews` writes with."""

from __future__ import annotations

from dataclasses import dataclass

# Words that praise or blame in every domain.
SHARED = {
    1: ["great", "excellent", "wonderful", "lovely", "superb", "fantastic", "good", "perfect", "delightful", "nice"],
    0: [
        "terrible",
        "awful",
        "poor",
        "bad",
        "dreadful",
        "horrible",
        "disappointing",
        "useless",
        "mediocre",
        "annoying",
    ],
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

DEGREES = ["very", "really", "quite", "rather", "truly", "so", "pretty", "simply"]

# Pairs of remarks that say nothing about the thing reviewed. Each domain uses its own pair one way round and the pair
# of the domain before it the other way round, so what the other domains teach of a remark is wrong in a new domain.
CUES = {
    "books": ("posted on a weekday", "posted on a holiday"),
    "films": ("written at home", "written at work"),
    "kitchen": ("sent from a laptop", "sent from a tablet"),
    "phones": ("edited in the morning", "edited in the evening"),
    "hotels": ("signed with initials", "signed with a nickname"),
}


@dataclass(frozen=True)
class Vocabulary:
    """
    Args:
        things (`list[str]`):
            What a review of the domain is about.
        aspects (`list[str]`):
            The parts of it that are praised or blamed.
        own (`dict[int, list[str]]`):
            Words of praise (1) and of blame (0) that only this domain, or one like it, uses.
        flipped (`dict[int, list[str]]`):
            Words that praise here and blame in another domain, or the other way round.
    """

    things: list[str]
    aspects: list[str]
    own: dict[int, list[str]]
    flipped: dict[int, list[str]]


VOCABULARIES = {
    "books": Vocabulary(
        things=["book", "novel", "paperback", "memoir", "thriller", "biography", "anthology", "trilogy"],
        aspects=["plot", "prose", "ending", "chapter", "heroine", "narrator", "dialogue", "opening", "writing"],
        own={
            1: ["gripping", "moving", "witty", "poetic", "insightful", "absorbing", "memorable", "lyrical"],
            0: ["dull", "tedious", "shallow", "rambling", "preachy", "clumsy", "wooden", "derivative"],
        },
        flipped={1: ["unpredictable", "dark", "heavy", "slow"], 0: ["simple", "thin", "light", "smooth"]},
    ),
    "films": Vocabulary(
        things=["film", "movie", "sequel", "comedy", "drama", "western", "documentary", "remake"],
        aspects=["cast", "script", "soundtrack", "direction", "acting", "camera work", "story", "finale", "editing"],
        own={
            1: ["gripping", "hilarious", "stunning", "moving", "stylish", "thrilling", "unforgettable", "charming"],
            0: ["boring", "predictable", "cheesy", "wooden", "overacted", "pointless", "muddled", "forgettable"],
        },
        flipped={1: ["dark", "loud", "unpredictable", "simple"], 0: ["long", "slow", "quiet", "light"]},
    ),
    "kitchen": Vocabulary(
        things=["pan", "kettle", "blender", "knife", "toaster", "mixer", "grater", "saucepan"],
        aspects=["handle", "blade", "lid", "motor", "coating", "base", "switch", "spout", "finish"],
        own={
            1: ["sturdy", "durable", "handy", "sharp", "spotless", "dependable", "practical", "robust"],
            0: ["rusty", "flimsy", "leaky", "blunt", "scratched", "warped", "greasy", "wobbly"],
        },
        flipped={1: ["heavy", "simple", "quiet", "hot"], 0: ["thin", "light", "loud", "small"]},
    ),
    "phones": Vocabulary(
        things=["phone", "handset", "smartphone", "mobile", "headset", "charger", "earpiece", "device"],
        aspects=["battery", "screen", "camera", "speaker", "signal", "keyboard", "casing", "display", "software"],
        own={
            1: ["responsive", "crisp", "intuitive", "sleek", "reliable", "vivid", "bright", "snappy"],
            0: ["laggy", "glitchy", "blurry", "faulty", "frozen", "buggy", "cracked", "unresponsive"],
        },
        flipped={1: ["long", "thin", "small", "light"], 0: ["unpredictable", "heavy", "hot", "dark"]},
    ),
    "hotels": Vocabulary(
        things=["hotel", "hostel", "resort", "inn", "guesthouse", "lodge", "suite", "apartment"],
        aspects=["room", "staff", "breakfast", "bed", "lobby", "pool", "view", "bathroom", "reception"],
        own={
            1: ["cosy", "spacious", "friendly", "welcoming", "clean", "luxurious", "comfortable", "helpful"],
            0: ["dirty", "noisy", "rude", "cramped", "smelly", "shabby", "damp", "overpriced"],
        },
        flipped={1: ["quiet", "hot", "smooth", "long"], 0: ["small", "dark", "loud", "unpredictable"]},
    ),
}
