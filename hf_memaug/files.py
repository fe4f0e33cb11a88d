# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Atomic files, templates, and errors of full disks."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

# With fewer bytes left, a disk counts as full.
MIN_FREE_BYTES = 2**20
# Error numbers of a full disk or a used-up quota.
FULL = (errno.ENOSPC, errno.EDQUOT)
# torch raises these errors for a file that it could not write, whatever the reason.
_WRITE_ERRORS = ("unexpected pos", "PytorchStreamWriter failed")


def write_atomically(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes a file in one step, so that it holds the old or the new content. Creates missing folders."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json_lines(path: str | os.PathLike, **types: type) -> tuple[list[dict], list[int]]:
    """
    The objects in a file of JSON lines, and the numbers of lines that are broken or lack a field of these types. A
    missing file is empty.
    """
    found, broken = [], []
    text = Path(path).read_text(encoding="utf-8", errors="replace") if Path(path).is_file() else ""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                row = dict(json.loads(line))
                if not all(isinstance(row.get(name), kind) for name, kind in types.items()):
                    raise TypeError
                found.append(row)
            except (ValueError, TypeError, RecursionError):
                broken.append(number)
    return found, broken


def readable_error(error: BaseException, folder: str | os.PathLike) -> BaseException:
    """Returns an `OSError` where torch, safetensors or shutil failed because the disk of `folder` is full."""
    message = str(error)
    is_full = "No space left on device" in message
    if any(one in message for one in _WRITE_ERRORS):
        is_full = is_full or shutil.disk_usage(folder).free < MIN_FREE_BYTES
    if is_full and getattr(error, "errno", None) is None:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    return error


def is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FULL


def disk_full_message(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    return f"Error: the disk is full{where}. Free some space and rerun the same command."


def differing(settings: Mapping[str, Any], before: Mapping[str, Any]) -> str | None:
    """The first setting whose value changed."""
    return next((name for name in {**settings, **before} if settings.get(name) != before.get(name)), None)


def file_name(*parts: str) -> str:
    """Joins the parts by hyphens. Adds a hash where two names could be confused."""
    readable = "-".join(parts)
    plain = re.sub(r"[^\w.+%-]+", "_", readable).lstrip(".")[:80]
    if plain != readable or (len(parts) > 1 and any("-" in part for part in parts)):
        plain += "-" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
    return plain


def without_folders(text: str) -> str:
    """A text with the names of absolute paths alone, for reports and cards."""
    return re.sub(r"(?<![\w./~])~?/(?:[^\s/'\"]+/)+(?=[^\s/])", "", text)


def markdown_text(text: Any) -> Markup:
    """A text for Markdown in which tags, links and `|` are shown as they are. Markdown of our own is a `Markup`."""
    if isinstance(text, Markup):
        return text
    text = re.sub(r"&(?=#?\w+;)", "&amp;", " ".join(str(text).split()))
    return Markup(re.sub(r"([\\`*\[\]|])", r"\\\1", re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)))


def render(package: str, file: str, is_html: bool = False, **values: Any) -> str:
    """The Jinja template `file` of a package, filled in. HTML escapes all values, Markdown those with `| text`."""
    from jinja2 import Environment

    environment = Environment(autoescape=is_html, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters["text"] = lambda value: str(markdown_text(value))
    return environment.from_string((files(package) / file).read_text(encoding="utf-8")).render(**values)
