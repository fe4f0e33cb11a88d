# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Rotated and coloured MNIST, made of the files of MNIST as DomainBed makes them."""

import gzip
import os
import zlib
from pathlib import Path

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.generated import digit_domains


def mnist_domains(folder: str | os.PathLike, domains: str = "rotated", seed: int = 0) -> DomainDataset:
    """
    All 70,000 digits of MNIST as RGB images of 28 by 28 in several domains, each digit in one domain only.

    Args:
        folder (`str` or `os.PathLike`): where `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
            `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte` lie, each as it is or with `.gz`.
        domains (`str`, *optional*, defaults to `"rotated"`): `"rotated"`: ten labels, and a domain for each of 0, 15,
            30, 45, 60 and 75 degrees. `"coloured"`: is the digit below five, with a quarter of the labels wrong and a
            colour that goes with the label in 90, 80 and 10 % of the rows.
        seed (`int`, *optional*, defaults to 0): which digit goes to which domain, and which labels and colours are
            flipped.
    """
    import numpy as np

    images, digits = (
        np.concatenate([_read_idx(folder, f"{part}-{name}", axes) for part in ("train", "t10k")])
        for name, axes in (("images-idx3-ubyte", 3), ("labels-idx1-ubyte", 1))
    )
    return digit_domains(images, digits, domains, seed, rows_per_domain=None, image_size=28)


def _read_idx(folder: str | os.PathLike, name: str, axes: int):
    """The array in an idx file: a magic number with the number of axes, their lengths, and bytes."""
    import numpy as np

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
