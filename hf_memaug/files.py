# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Files that are there in whole or not at all, and disks without room for them."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Bytes: a disk with less is full.
LEAST_ROOM = 2**20
# What torch says of a file that it could not write, whatever the reason.
NOT_WRITTEN = ("unexpected pos", "PytorchStreamWriter failed")
# A disk, or one's share of it.
FULL = (errno.ENOSPC, errno.EDQUOT)


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


def has_room(folder: str | os.PathLike) -> bool:
    return shutil.disk_usage(folder).free >= LEAST_ROOM


def told_plainly(error: BaseException, folder: str | os.PathLike) -> BaseException:
    """
    An `OSError` that says that the disk of `folder` is full, where that is what happened: torch, safetensors and shutil
    have errors of their own for it. Any other error as it is.
    """
    said = str(error)
    is_full = "No space left on device" in said or (any(w in said for w in NOT_WRITTEN) and not has_room(folder))
    return no_room(folder) if is_full and getattr(error, "errno", None) is None else error


def no_room(folder: str | os.PathLike) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk is full."""
    return isinstance(error, OSError) and error.errno in FULL


def full_disk(error: OSError, folder: str | os.PathLike | None = None) -> str:
    """What a command says of such an error, with the mend; where the error names no file, it names the folder."""
    where = f" ({error.filename or folder})" if error.filename or folder else ""
    return f"Error: the disk is full{where}. Make room, and give the same command again."


def differing(settings: Mapping[str, Any], before: Mapping[str, Any]) -> str | None:
    """The first setting that is another than before."""
    return next((name for name in {**settings, **before} if settings.get(name) != before.get(name)), None)


def alike(value: Any, before: Any) -> bool:
    """Whether a setting, or several of them by name, gives what it gave before."""
    several = isinstance(value, Mapping) and isinstance(before, Mapping)
    return differing(value, before) is None if several else value == before


def file_name(*parts: str) -> str:
    """The parts joined by hyphens. A hash is added where a file system, or a reader, might confuse two names."""
    readable = "-".join(parts)
    plain = re.sub(r"[^\w.+%-]+", "_", readable).lstrip(".")[:80]
    if plain != readable or (len(parts) > 1 and any("-" in part for part in parts)):
        plain += "-" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
    return plain
