# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Digests of values that do not depend on the process, the machine or where an image file lies."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np


def image_bytes(image: Any) -> bytes:
    """The bytes that identify an image: of a file or an encoded image as they are, of a decoded one its pixels."""
    if isinstance(image, (bytes, bytearray)):
        return bytes(image)
    if isinstance(image, (str, os.PathLike)):
        return Path(image).read_bytes()
    if isinstance(image, dict) and ("bytes" in image or "path" in image):
        return image_bytes(image["bytes"] if image.get("bytes") is not None else image["path"])
    if hasattr(image, "mode") and hasattr(image, "tobytes"):
        return f"{image.mode}{image.size}".encode() + image.tobytes()
    raise TypeError(f"`image` is a {type(image).__name__}; it must be a path, bytes or a PIL image.")


def feed(digest: hashlib._Hash, value: Any) -> None:
    """Adds a value to a digest, with its type and length so that neighbouring values cannot run together."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, (list, tuple)):
        digest.update(f"list{len(value)}:".encode())
        for item in value:
            feed(digest, item)
    elif isinstance(value, dict):
        digest.update(f"dict{len(value)}:".encode())
        for key in sorted(value, key=str):
            feed(digest, str(key))
            feed(digest, value[key])
    else:
        kind, data = _encode(value)
        digest.update(f"{kind}{len(data)}:".encode() + data)


def _encode(value: Any) -> tuple[str, bytes]:
    if value is None or isinstance(value, (bool, int, float)):
        return type(value).__name__, repr(value).encode()
    if isinstance(value, (str, os.PathLike)):
        return "str", os.fspath(value).encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray)):
        return "bytes", bytes(value)
    if hasattr(value, "mode") and hasattr(value, "tobytes"):
        return "image", image_bytes(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        array = np.ascontiguousarray(value)
        return "array", f"{array.dtype}{array.shape}".encode() + array.tobytes()
    raise TypeError(f"a value of type {type(value).__name__} cannot be hashed; drop its column with `without_columns`.")
