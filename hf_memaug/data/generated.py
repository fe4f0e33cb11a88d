# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Generated data, the same on every machine, for use without a network."""

import random
from collections.abc import Sequence

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.messages import did_you_mean
from hf_memaug.data.vocabulary import (
    CUES,
    DEGREES,
    FILLER_WORDS,
    FILLERS,
    SAYINGS,
    SHARED,
    VOCABULARIES,
    Vocabulary,
)

ANGLES = (0, 15, 30, 45, 60, 75)
# How often the colour disagrees with the label; the names say how it goes with the label instead.
COLOUR_FLIPS = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}
COLOUR_LABEL_NOISE = 0.25
# With a remark in every review, a bag of words learns only the remarks and falls below chance in a new domain.
REMARK_RATE = 0.25


def generated_reviews(
    rows_per_domain: int = 400,
    domains: Sequence[str] | None = None,
    seed: int = 0,
    noise: float = 0.1,
    spurious: float = 0.9,
) -> DomainDataset:
    """
    Short reviews of books, films, kitchenware, phones and hotels, negative (0) or positive (1).

    The domains share some words of praise and blame; others belong to one domain, or change sides ("long" is good of a
    battery and bad of a film). Some reviews also carry a remark of no meaning that goes with the label, but the other
    way round than elsewhere, so that a model which relies on it fails in a domain it has not seen.

    Args:
        rows_per_domain (`int`, *optional*, defaults to 400): rows in each domain, half of them written as positive.
        domains (`Sequence[str]`, *optional*): which of the domains to write. A domain's rows do not depend on the
            others.
        seed (`int`, *optional*, defaults to 0): which reviews are written.
        noise (`float`, *optional*, defaults to 0.1): the part of the labels that is wrong.
        spurious (`float`, *optional*, defaults to 0.9): how often the meaningless remark agrees with the label; 0.5
            makes it say nothing.
    """
    names = list(VOCABULARIES) if domains is None else list(domains)
    check_generated(rows_per_domain, noise=noise, spurious=spurious)
    for name in names:
        if name not in VOCABULARIES:
            raise ValueError(f"`domains` asks for {name!r}, which is not generated. {did_you_mean(name, VOCABULARIES)}")
    columns: dict[str, list] = {"text": [], "label": [], "domain": []}
    for name in dict.fromkeys(names):
        # A string seed goes through SHA-512, so that it gives the same stream in every process.
        rng = random.Random(f"reviews/{seed}/{name}")
        sentiments = [row % 2 for row in range(rows_per_domain)]
        rng.shuffle(sentiments)
        seen: set[str] = set()
        for sentiment in sentiments:
            label = sentiment if rng.random() >= noise else 1 - sentiment
            text = ""
            while text in seen or not 10 <= len(text.split()) <= 40:
                text = _review(rng, name, sentiment, label, spurious)
            seen.add(text)
            columns["text"].append(text)
            columns["label"].append(label)
            columns["domain"].append(name)
    return DomainDataset(columns, ["negative", "positive"])


def check_generated(rows_per_domain: int, **shares: float) -> None:
    if rows_per_domain < 1:
        raise ValueError(f"`rows_per_domain` is {rows_per_domain}; it must be at least 1.")
    for argument, value in shares.items():
        if not 0 <= value <= 1:
            raise ValueError(f"`{argument}` is {value}; it must lie between 0 and 1.")


def _review(rng: random.Random, domain: str, sentiment: int, label: int, spurious: float) -> str:
    words = VOCABULARIES[domain]
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
        sentences.append(_remark(rng, domain, label, spurious))
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


def _remark(rng: random.Random, domain: str, label: int, spurious: float) -> str:
    order = list(CUES)
    side = label if rng.random() < spurious else 1 - label
    if rng.random() < 0.5:
        return CUES[domain][side]
    return CUES[order[order.index(domain) - 1]][1 - side]


def generated_digits(
    domains: str = "rotated", seed: int = 0, rows_per_domain: int | None = None, image_size: int = 32
) -> DomainDataset:
    """
    Handwritten digits of scikit-learn as RGB images in several domains, each digit in one domain only.

    Args:
        domains (`str`, *optional*, defaults to `"rotated"`): `"rotated"`: ten labels, one angle per domain.
            `"coloured"`: is the digit below five, with a quarter of the labels wrong and a colour that goes with the
            label in 90, 80 and 10 % of the rows (coloured MNIST).
        seed (`int`, *optional*, defaults to 0): which digit goes to which domain, and which labels and colours are
            flipped.
        rows_per_domain (`int`, *optional*): rows in each domain. By default as many as there are digits for.
        image_size (`int`, *optional*, defaults to 32): height and width; the digits themselves are 8 by 8.
    """
    if image_size < 8:
        raise ValueError(f"`image_size` is {image_size}; it must be at least 8, the size of the digits.")
    _check_kind(domains)
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images * (255 / 16)).astype(np.uint8)
    return digit_domains(images, digits.target, domains, seed, rows_per_domain, image_size)


def digit_domains(
    images, digits, domains: str, seed: int, rows_per_domain: int | None, image_size: int
) -> DomainDataset:
    """Digits, as grey images of `(rows, height, width)` and their numbers, dealt out to the domains."""
    _check_kind(domains)
    import numpy as np

    names = [str(angle) for angle in ANGLES] if domains == "rotated" else list(COLOUR_FLIPS)
    # Equal images would put one digit into two domains.
    first: dict[bytes, int] = {}
    for index, image in enumerate(images):
        first.setdefault(image.tobytes(), index)
    distinct = np.array(sorted(first.values()))
    most = len(distinct) // len(names)
    count = most if rows_per_domain is None else rows_per_domain
    if not 1 <= count <= most:
        raise ValueError(
            f"`rows_per_domain` is {count}; there are digits for 1 to {most} rows in {len(names)} domains."
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(distinct)
    columns: dict[str, list] = {"image": [], "label": [], "domain": [], "source_index": []}
    for number, name in enumerate(names):
        for index in order[number * most : number * most + count].tolist():
            digit = int(digits[index])
            if domains == "rotated":
                label, colour = digit, None
            else:
                label = int(digit < 5) ^ int(rng.random() < COLOUR_LABEL_NOISE)
                colour = label ^ int(rng.random() < COLOUR_FLIPS[name])
            angle = ANGLES[number] if colour is None else 0
            columns["image"].append(_digit_image(images[index], image_size, angle, colour))
            columns["label"].append(label)
            columns["domain"].append(name)
            columns["source_index"].append(index)
    return DomainDataset(columns, [str(d) for d in range(10)] if domains == "rotated" else ["5-9", "0-4"])


def _check_kind(domains: str) -> None:
    if domains not in ("rotated", "coloured"):
        raise ValueError(f"`domains` is {domains!r}; it must be 'rotated' or 'coloured'.")


def _digit_image(pixels, size: int, angle: int, colour: int | None):
    from PIL import Image

    grey = Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR)
    if angle:
        grey = grey.rotate(angle, Image.Resampling.BILINEAR)
    empty = Image.new("L", grey.size)
    channels = (grey, grey, grey) if colour is None else (grey, empty, empty) if colour else (empty, grey, empty)
    return Image.merge("RGB", channels)
