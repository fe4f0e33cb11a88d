# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Files that cannot be read raise a `ValueError` that names them, within seconds."""

import gzip
import io
import json
import os
import random
import struct
import zlib

import pytest

from hf_memaug.data import check_images, load_domains

CSV = "text,label,domain\na,x,d\nb,y,d\n"
ROW = '{"text": "a", "label": 0, "domain": "d"}\n'


def png_header(pixels: int) -> bytes:
    """A picture of many pixels in a few bytes."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", pixels, pixels, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(bytes(9))]
    packed = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def parquet(columns: dict | list, names=None) -> bytes:
    pq, file = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow"), io.BytesIO()
    from pyarrow import table

    pq.write_table(table(columns, names=names), file)
    return file.getvalue()


# The file, its content, and a part of the message.
CASES = [
    ("x.csv", "", "is empty, it has no row"),
    ("x.csv", "text,label\n", "is empty, it has no row"),
    ("x.csv", "\n\n", "is empty, it has no row"),
    ("x.csv", bytes(range(256)), "is not UTF-8"),
    ("x.csv", CSV.encode("utf-16"), "is not UTF-8"),
    ("x.csv", CSV.replace("a,x", "caf\u00e9,x").encode("latin-1"), "is not UTF-8"),
    ("x.csv", "text,text,domain\na,0,x\n", "has two columns of one name"),
    ("x.csv", CSV + "a, c,x,d\n", "line 4: 4 fields, but the header has 3.*double quotes"),
    ("x.csv", CSV + "a\n", "line 4: 1 fields, but the header has 3"),
    ("x.csv", CSV + '"a,x,d\n', "line 4: not valid CSV"),
    ("x.csv.gz", CSV, "is not a whole gzip file"),
    ("x.csv.gz", b"", "is empty, it has no row"),
    ("x.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:-8] + bytes(8), "is not a whole gzip file .CRC"),
    (
        "x.jsonl.gz",
        gzip.compress(random.Random(0).randbytes(2000).hex().encode(), mtime=0)[:200],
        "is not a whole gzip file|not valid JSON",
    ),
    ("x.csv.gz", lambda: gzip.compress(CSV.encode() + bytes(2**25)), "it unpacks to more than 200 times its size"),
    ("x.jsonl.gz", lambda: gzip.compress((b" " * 999 + b"\n") * 2**15), "it unpacks to more than 200 times its size"),
    ("x.jsonl", "", "is empty, it has no row"),
    ("x.jsonl", "\n\n", "is empty, it has no row"),
    ("x.jsonl", f"{ROW}\n{{broken\n", "x.jsonl, line 3: not valid JSON"),
    ("x.jsonl", f"{ROW}17\n", "x.jsonl, line 2: a int, where a row"),
    ("x.jsonl", ROW.replace("0", "9" * 5000), "line 1: not valid JSON"),
    ("x.jsonl", '{"text": ' + "[" * 100_000, "line 1: not valid JSON"),
    ("x.json", "[" * 100_000, "not valid JSON"),
    ("x.json", "[1, 2]", "entry 0: a int"),
    ("x.jsonl", json.dumps({"text": "\ud800", "label": 0, "domain": "d"}), "half a character"),
    ("x.parquet", "text", "is not a whole Parquet file"),
    ("x.parquet", lambda: parquet({"text": ["a"] * 900})[:-20], "is not a whole Parquet file"),
    ("x.parquet", lambda: parquet({"text": []}), "is empty, it has no row"),
    ("x.parquet", lambda: parquet({"text": [b"\xff"], "label": ["a"], "domain": ["d"]}), "must hold strings"),
    ("x.parquet", lambda: parquet([["a"], ["b"]], ["text", "text"]), "is not a whole Parquet file"),
    ("labels.json", b"\xff", "labels.json is not valid JSON"),
    ("labels.json", "{}", "must hold a list of label names"),
    ("x.docx", "text", "`source` is .*x.docx.*'.parquet'"),
    ("a/dog/1.png", b"", "1 of 1 images cannot be decoded"),
    ("a/dog/1.png", b"no picture", "no image format that is known"),
    ("a/dog/1.png", png_header(10), "1 of 1 images cannot be decoded"),
    ("a/dog/1.png", png_header(60_000), "exceeds limit of .* pixels"),
]


@pytest.mark.parametrize("name, content, said", CASES, ids=lambda value: str(value)[:20])
def test_content(tmp_path, name, content, said):
    content = content() if callable(content) else content
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    is_image, is_labels = name.endswith("png"), name == "labels.json"
    if is_labels:
        (tmp_path / "rows.csv").write_text(CSV)
    with pytest.raises(ValueError, match=said):
        rows = load_domains(tmp_path if is_image or is_labels else path)
        check_images(rows)


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl.gz", "x.parquet"])
def test_no_file(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(ValueError, match="is a pipe or a device"):
        load_domains(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="is a pipe or a device"):
        load_domains(path)
    path.unlink()
    path.symlink_to(name)
    with pytest.raises(FileNotFoundError, match="there is no"):
        load_domains(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="the folder .* is empty"):
        load_domains(path)
