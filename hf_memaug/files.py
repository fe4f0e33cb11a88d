# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Files that are there in whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: str | os.PathLike, text: str) -> None:
    """Writes a file, and the folders it lies in, in one step: a kill leaves the old content or the new."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
