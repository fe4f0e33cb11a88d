# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
import gzip
import struct

import numpy as np
import pytest

pytest.importorskip("PIL")

from PIL import Image

from hf_memaug.data import find_overlap, mnist_domains

SIZES = {"train": 1500, "t10k": 300}


def idx(array) -> bytes:
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder, compressed=True):
    """Digits that are known by their pixels: bars of the digit's height, and noise that makes each its own."""
    rng = np.random.default_rng(0)
    for part, count in SIZES.items():
        digits = rng.integers(0, 10, count).astype(np.uint8)
        images = np.zeros((count, 28, 28), np.uint8)
        for image, digit in zip(images, digits, strict=True):
            image[4 : 6 + 2 * digit, 12:16] = 200
            image[20:24, 8:20] = rng.integers(0, 50, (4, 12))
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", digits)):
            if compressed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))
    return folder


def read_back(folder, kind="images-idx3-ubyte", head=16):
    return b"".join(gzip.decompress((folder / f"{part}-{kind}.gz").read_bytes())[head:] for part in SIZES)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_mnist(tmp_path_factory.mktemp("mnist"))


def check_rotated(dataset, images, digits):
    """The pixels of each row are those of its digit, turned by the angle that names its domain."""
    assert dataset.domains == ["0", "15", "30", "45", "60", "75"] and dataset.num_labels == 10
    assert dataset["label"] == digits[dataset["source_index"]].tolist()
    for name, part in dataset.by_domain().items():
        likeness = {0: [], -int(name): [], int(name) or 90: []}
        for image, index in zip(part["image"], part["source_index"], strict=True):
            for angle, values in likeness.items():
                turned = np.asarray(image.rotate(angle, Image.Resampling.BILINEAR), float)[..., 0]
                values.append(np.corrcoef(turned.ravel(), images[index].ravel())[0, 1])
        best = max(likeness, key=lambda angle: np.mean(likeness[angle]))
        assert best == -int(name) and np.mean(likeness[best]) > 0.9, name


def check_coloured(dataset, digits, within):
    assert dataset.domains == ["+90%", "+80%", "-90%"] and dataset.label_names == ["5-9", "0-4"]
    for name, expected in (("+90%", 0.9), ("+80%", 0.8), ("-90%", 0.1)):
        part = dataset.domain(name)
        channels = np.stack([np.asarray(image).reshape(-1, 3).any(axis=0) for image in part["image"]])
        assert not channels[:, 2].any() and (channels[:, 0] != channels[:, 1]).all()
        labels = np.array(part["label"])
        assert abs(np.mean(channels[:, 0] == labels) - expected) < within
        assert abs(np.mean((digits[part["source_index"]] < 5) == labels) - 0.75) < within


def check_disjoint(dataset):
    assert len(set(dataset["source_index"])) == len(dataset)
    parts = list(dataset.by_domain().values())
    assert not any(find_overlap(a, b) for number, a in enumerate(parts) for b in parts[:number])
    assert len({len(part) for part in parts}) == 1


class TestWritten:
    @pytest.fixture
    def arrays(self, written):
        images = np.frombuffer(read_back(written), np.uint8).reshape(-1, 28, 28)
        return images, np.frombuffer(read_back(written, "labels-idx1-ubyte", 8), np.uint8)

    def test_rotated(self, written, arrays):
        dataset = mnist_domains(written)
        assert len(dataset) == 1800 and dataset[0]["image"].size == (28, 28) and dataset[0]["image"].mode == "RGB"
        check_rotated(dataset, *arrays)
        check_disjoint(dataset)

    def test_coloured(self, written, arrays):
        dataset = mnist_domains(written, "coloured")
        assert len(dataset) == 1800
        check_coloured(dataset, arrays[1], within=0.06)
        check_disjoint(dataset)

    def test_files_that_are_not_compressed(self, written, tmp_path):
        assert mnist_domains(write_mnist(tmp_path, compressed=False)).fingerprint() == (
            mnist_domains(written).fingerprint()
        )

    def test_a_digit_that_is_there_twice_comes_once(self, written, tmp_path):
        write_mnist(tmp_path)
        images = np.zeros((300, 28, 28), np.uint8)
        (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        assert len(mnist_domains(tmp_path)) == 1500, "300 equal images are one"


class TestRefusals:
    def test_unknown_domains(self, written):
        with pytest.raises(ValueError, match="`domains` is 'blurred'; it must be 'rotated' or 'coloured'"):
            mnist_domains(written, "blurred")

    def test_a_folder_that_is_not_there_or_not_of_mnist(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="`folder`: .*no 'train-images-idx3-ubyte'.*four files"):
            mnist_domains(tmp_path / "nowhere")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (gzip.compress(idx(np.zeros((300, 28, 28), np.uint8)))[:-9], "is broken"),
            (b"plain", "is broken"),
            (gzip.compress(idx(np.zeros(300, np.uint8))), "not an idx file of bytes with 3 axes"),
            (gzip.compress(b"\0\0"), "is broken"),
            (gzip.compress(idx(np.zeros((300, 28, 28), np.uint8))[:-1]), "is broken"),
        ],
        # Not by their content, which has the time in it.
        ids=["cut gzip", "no gzip", "other axes", "no head", "a byte short"],
    )
    def test_a_file_that_is_not_whole(self, content, message, tmp_path):
        write_mnist(tmp_path)
        (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            mnist_domains(tmp_path)
