# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The images of a data set as one tensor on the device.

    python examples/gmoe/pixels.py FOLDER FILE.npz   # the encoded images of all domains, as they are, in one file
"""

import json
from pathlib import Path

import numpy as np


class Pixels:
    """
    Args:
        images: `(rows, 3, height, width)`, uint8.
        labels: `(rows,)`.
        domains: the domain of each row, by name.
        label_names: their names.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, domains: list[str], label_names: list[str]):
        import torch

        self.images, self.labels, self.domains = torch.from_numpy(images), torch.from_numpy(labels), list(domains)
        self.label_names = label_names
        self.names = sorted(set(self.domains))

    @classmethod
    def of(cls, dataset, size: int) -> "Pixels":
        """From a `DomainDataset` with a column `image`."""
        images = np.stack([_resized(row["image"], size) for row in dataset])
        return cls(images, np.array(dataset["label"]), list(dataset["domain"]), dataset.label_names)

    @classmethod
    def read(cls, path: str | Path, size: int, rows: int | None = None) -> "Pixels":
        """
        From a folder of Parquet files, one for each domain, from what `pack` wrote, or from `rotated_mnist:FOLDER` or
        `coloured_mnist:FOLDER`, of which so many `rows` of each domain are made.
        """
        kind, colon, folder = str(path).partition("_mnist:")
        if colon:
            from hf_memaug.data import mnist_domains

            return cls.of(mnist_domains(folder, kind, rows_per_domain=rows, image_size=size), size)
        path = Path(path)
        if path.suffix == ".npz":
            packed = np.load(path)
            ends = packed["ends"]
            starts = np.concatenate([[0], ends[:-1]])
            content = packed["content"].tobytes()
            images = [_resized(content[start:end], size) for start, end in zip(starts, ends, strict=True)]
            return cls(np.stack(images), packed["labels"], packed["domains"].tolist(), packed["names"].tolist())
        rows = _parquet_rows(path)
        images = np.stack([_resized(content, size) for content, _, _ in rows])
        names = json.loads((path / "labels.json").read_text(encoding="utf-8"))
        labels = np.array([label for _, label, _ in rows])
        return cls(images, labels, [domain for _, _, domain in rows], _names(names))

    def to(self, device) -> "Pixels":
        self.images, self.labels = self.images.to(device), self.labels.to(device)
        return self

    def split(self, seed: int) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """DomainBed's: of each domain, four fifths of the rows to train on, and one to validate by."""
        from hf_memaug.data import DomainDataset, split_domains

        columns = {"image": list(self.images.cpu().numpy()), "label": self.labels.tolist(), "domain": self.domains}
        parts = split_domains(DomainDataset({**columns, "row": range(len(self.domains))}), seed=seed)
        return tuple({name: part[side]["row"] for name, part in parts.items()} for side in (0, 1))


def pack(folder: str | Path, path: str | Path) -> None:
    """The encoded images of a folder in one file, as they are."""
    folder = Path(folder)
    rows = _parquet_rows(folder)
    contents, labels, domains = zip(*rows, strict=True)
    names = _names(json.loads((folder / "labels.json").read_text(encoding="utf-8")))
    np.savez(
        path,
        content=np.frombuffer(b"".join(contents), dtype=np.uint8),
        ends=np.cumsum([len(one) for one in contents]),
        labels=np.array(labels),
        domains=np.array(domains),
        names=np.array(names),
    )


def _parquet_rows(folder: Path) -> list[tuple[bytes, int, str]]:
    import pyarrow.parquet

    rows = []
    for file in sorted(folder.glob("*.parquet")):
        table = pyarrow.parquet.read_table(file, columns=["image", "label"]).to_pylist()
        rows += [(row["image"], row["label"], file.stem) for row in table]
    if not rows:
        raise SystemExit(f"{folder} has no Parquet files with images. Name another folder with --data.")
    return rows


def _names(labels) -> list[str]:
    return list(labels.values()) if isinstance(labels, dict) else list(labels)


def _resized(image, size: int) -> np.ndarray:
    from PIL import Image

    from hf_memaug.data.images import decode_image

    image = decode_image(image)
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1)


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="with a Parquet file for each domain (image, label) and labels.json")
    parser.add_argument("file", help="the .npz file to write, for --data of tables.py")
    options = parser.parse_args()
    pack(options.folder, options.file)
