# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import gzip
import struct

import numpy as np
import pytest

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

    def test_digits_are_read_with_their_labels(self, written, arrays):
        dataset, (images, digits) = mnist_domains(written), arrays
        assert len(dataset) == 1800 and dataset[0]["image"].size == (28, 28) and dataset[0]["image"].mode == "RGB"
        assert dataset["label"] == digits[dataset["source_index"]].tolist()
        for row in dataset.domain("0"):
            assert (np.asarray(row["image"]) == images[row["source_index"]][..., None]).all()
        check_disjoint(dataset)
        coloured = mnist_domains(written, "coloured")
        assert len(coloured) == 1800 and coloured.label_names == ["5-9", "0-4"]

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
