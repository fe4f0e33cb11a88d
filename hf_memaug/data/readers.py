# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""From files and in-memory tables to plain columns. Nothing here knows what a domain or a label is."""

import csv
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from hf_memaug.messages import listed

# Longest first, so that the suffix of "a.jsonl.gz" is not taken to be ".gz".
TABLE_SUFFIXES = (".jsonl.gz", ".json.gz", ".csv.gz", ".tsv.gz", ".jsonl", ".json", ".csv", ".tsv", ".parquet")
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")

Columns = dict[str, list]
# Texts are packed to a tenth of their size or so. Files that unpack to fewer bytes are not checked.
MOST_TIMES, MOST_UNPACKED = 200, 2**24


def table_suffix(path: Path) -> str | None:
    """The suffix of a file that `read_table` can read, else `None`."""
    return next((suffix for suffix in TABLE_SUFFIXES if path.name.lower().endswith(suffix)), None)


def table_stem(path: Path) -> str:
    """The name of a file without the suffix of its kind."""
    return path.name[: len(path.name) - len(table_suffix(path) or "")]


def read_table(path: Path) -> Columns:
    """Reads one file into columns; missing cells are `None`."""
    suffix = table_suffix(path)
    if suffix is None:
        raise ValueError(f"`source` is {str(path)!r}, an unsupported file. Give one of {listed(TABLE_SUFFIXES)}.")
    with readable(path, "source"):
        if suffix == ".parquet":
            columns = _read_parquet(path)
        elif suffix.startswith((".csv", ".tsv")):
            columns = _read_csv(path, delimiter="\t" if suffix.startswith(".tsv") else ",")
        else:
            columns = columns_of(json_rows(path))
    if not columns or not len(next(iter(columns.values()))):
        raise ValueError(f"`source`: {path} is empty, it has no row. Remove it or fill it.")
    return columns


@contextmanager
def readable(path: Path, option: str):
    """Says of a file that cannot be decoded what is wrong with it."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"`{option}`: {path} is a pipe or a device. Save what it gives in a file.")
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"`{option}`: {path} is not UTF-8 ({error.reason}). Save it as UTF-8.") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"`{option}`: {path} is not a whole gzip file ({error}). Fetch or compress it again."
        ) from error


def columns_of(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """Turns rows into columns, with `None` where a row lacks one."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def visible(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "_")))


def opened(path: Path, newline: str | None = None) -> TextIO:
    """A text file, compressed or not."""
    # utf-8-sig reads plain UTF-8 too, and drops the mark that spreadsheets put in front.
    if path.name.lower().endswith(".gz"):
        return io.TextIOWrapper(_GzipFile(path), encoding="utf-8-sig", newline=newline)
    return open(path, encoding="utf-8-sig", newline=newline)


class _GzipFile(gzip.GzipFile):
    """Raises an error for a small file that fills the memory."""

    def read1(self, size: int = -1) -> bytes:
        found = super().read1(size)
        if self.tell() > max(MOST_UNPACKED, MOST_TIMES * os.fstat(self.fileno()).st_size):
            raise gzip.BadGzipFile(f"it unpacks to more than {MOST_TIMES} times its size; unpack it if that is right")
        return found


def json_rows(path: Path, option: str = "source") -> Iterator[Mapping[str, Any]]:
    """The rows of a file of JSON lines, or of a JSON list, one at a time. Errors name the option that gave the file."""
    with opened(path) as file:
        is_list = next((line for line in file if line.strip()), "").lstrip().startswith("[")
    with opened(path) as file:
        texts = [("", file.read())] if is_list else ((f", line {number}", line) for number, line in enumerate(file, 1))
        for place, text in texts:
            if not text.strip():
                continue
            try:
                found = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"`{option}`: {path}{place}: not valid JSON ({error}). Fix or delete it.") from error
            for number, row in enumerate(found if is_list else [found]):
                if not isinstance(row, dict):
                    place = f", entry {number}" if is_list else place
                    kind = type(row).__name__
                    raise ValueError(f"`{option}`: {path}{place}: a {kind}, where a row {{...}} is needed.")
                yield row


def _read_csv(path: Path, delimiter: str) -> Columns:
    limit = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        with opened(path, newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = next(reader, [])
            if len(set(header)) != len(header):
                raise ValueError(f"`source`: {path} has two columns of one name: {listed(header)}. Rename one.")
            rows = []
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(
                        f"`source`: {path}, line {reader.line_num}: {len(row)} fields, but the header has "
                        f"{len(header)}. Put fields that hold a separator or a line break in double quotes."
                    )
                rows.append(row)
    except csv.Error as error:
        raise ValueError(f"`source`: {path}, line {reader.line_num}: not valid CSV ({error}).") from error
    finally:
        csv.field_size_limit(limit)
    return dict(zip(header, map(list, zip(*filter(None, rows), strict=True)), strict=False))


def _read_parquet(path: Path) -> Columns:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"`source`: {path} is not a whole Parquet file ({str(error).splitlines()[0]}).") from error
