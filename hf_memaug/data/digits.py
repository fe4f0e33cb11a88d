# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Handwritten digits in several domains: those of scikit-learn, and MNIST."""

import gzip
import os
import zlib
from pathlib import Path

import numpy as np

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.readers import columns_of

ANGLES = (0, 15, 30, 45, 60, 75)
# How often the colour disagrees with the label; the names say how it goes with the label instead.
COLOUR_FLIPS = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}
COLOUR_LABEL_NOISE = 0.25


def generated_digits(
    domains: str = "rotated", seed: int = 0, rows_per_domain: int | None = None, image_size: int = 32
) -> DomainDataset:
    """
    Handwritten digits of scikit-learn as RGB images in several domains, each digit in one domain only.

    Args:
        domains (`str`, *optional*, defaults to `"rotated"`): `"rotated"`: ten labels, and a domain for each of 0, 15,
            30, 45, 60 and 75 degrees.
            `"coloured"`: is the digit below five, with a quarter of the labels wrong and a colour that goes with the
            label in 90, 80 and 10 % of the rows (coloured MNIST).
        seed (`int`, *optional*, defaults to 0): deals out the digits, and flips labels and colours.
        rows_per_domain (`int`, *optional*): rows in each domain. By default as many as there are digits for.
        image_size (`int`, *optional*, defaults to 32): height and width; the digits themselves are 8 by 8.
    """
    if image_size < 8:
        raise ValueError(f"`image_size` is {image_size}; it must be at least 8, the size of the digits.")
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images * (255 / 16)).astype(np.uint8)
    return _digit_domains(images, digits.target, domains, seed, rows_per_domain, image_size)


def mnist_domains(folder: str | os.PathLike, domains: str = "rotated", seed: int = 0) -> DomainDataset:
    """
    All 70,000 digits of MNIST as RGB images of 28 by 28 in several domains, each digit in one domain only.

    Args:
        folder (`str` or `os.PathLike`): where `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
            `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte` lie, each as it is or with `.gz`.
        domains, seed: as in `generated_digits`.
    """
    images, digits = (
        np.concatenate([_read_idx(folder, f"{part}-{name}", axes) for part in ("train", "t10k")])
        for name, axes in (("images-idx3-ubyte", 3), ("labels-idx1-ubyte", 1))
    )
    return _digit_domains(images, digits, domains, seed, rows_per_domain=None, image_size=28)


def _digit_domains(
    images, digits, domains: str, seed: int, rows_per_domain: int | None, image_size: int
) -> DomainDataset:
    """Digits, as grey images of `(rows, height, width)` and their numbers, dealt out to the domains."""
    if domains not in ("rotated", "coloured"):
        raise ValueError(f"`domains` is {domains!r}; it must be 'rotated' or 'coloured'.")
    names = [str(angle) for angle in ANGLES] if domains == "rotated" else list(COLOUR_FLIPS)
    # Equal images would put one digit into two domains.
    distinct = np.sort(np.unique(images, axis=0, return_index=True)[1])
    most = len(distinct) // len(names)
    count = most if rows_per_domain is None else rows_per_domain
    if not 1 <= count <= most:
        raise ValueError(
            f"`rows_per_domain` is {count}; there are digits for 1 to {most} rows in {len(names)} domains."
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(distinct)
    rows = []
    for number, name in enumerate(names):
        for index in order[number * most : number * most + count].tolist():
            digit = int(digits[index])
            if domains == "rotated":
                label, colour = digit, None
            else:
                label = int(digit < 5) ^ int(rng.random() < COLOUR_LABEL_NOISE)
                colour = label ^ int(rng.random() < COLOUR_FLIPS[name])
            angle = ANGLES[number] if colour is None else 0
            image = _digit_image(images[index], image_size, angle, colour)
            rows.append({"image": image, "label": label, "domain": name, "source_index": index})
    return DomainDataset(columns_of(rows), [str(d) for d in range(10)] if domains == "rotated" else ["5-9", "0-4"])


def _digit_image(pixels, size: int, angle: int, colour: int | None):
    from PIL import Image

    grey = Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR)
    if angle:
        grey = grey.rotate(angle, Image.Resampling.BILINEAR)
    empty = Image.new("L", grey.size)
    channels = (grey, grey, grey) if colour is None else (grey, empty, empty) if colour else (empty, grey, empty)
    return Image.merge("RGB", channels)


def _read_idx(folder: str | os.PathLike, name: str, axes: int):
    """The array in an idx file: a magic number with the number of axes, their lengths, and bytes."""
    path = next((path for path in (Path(folder, name), Path(folder, f"{name}.gz")) if path.is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"`folder`: {folder} has no {name!r}, with or without `.gz`. Give the folder with the four files of MNIST."
        )
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if content[:4] != bytes((0, 0, 8, axes)):
            raise ValueError(f"it is not an idx file of bytes with {axes} axes")
        shape = np.frombuffer(content, dtype=">i4", offset=4, count=axes)
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)
    except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"`folder`: {path} is broken ({error}). Fetch it again.") from error
