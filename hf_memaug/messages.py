# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Wording shared by the errors of this package."""

import difflib
from collections.abc import Iterable, Sequence


def nearest(name: object, allowed: Iterable[object], cutoff: float = 0.5) -> str | None:
    """The closest match of `name` in `allowed`, if there is one."""
    # difflib counts a letter of the wrong case as a miss.
    by_lower = {str(choice).lower(): str(choice) for choice in reversed(list(allowed))}
    near = difflib.get_close_matches(str(name).lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def did_you_mean(name: object, choices: Iterable[object], lead: str = "There are: ") -> str:
    """Says which choices there are, after the closest match of `name`; ends an error about an unknown name."""
    choices = list(choices)
    if not choices:
        return "There are none."
    # Numbers are not compared by their digits.
    near = nearest(name, choices) if isinstance(name, str) else None
    hint = f"Did you mean {near!r}? " if near else ""
    return f"{hint}{lead}{listed(choices)}."


def listed(names: Iterable[object], limit: int = 20) -> str:
    """Names in quotes, cut off after `limit`."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def some_rows(rows: Sequence[int], limit: int = 5) -> str:
    """`3 rows (0, 7, 9)`: how many rows, and the numbers of the first few, counted from 0."""
    shown = ", ".join(str(row) for row in rows[:limit])
    more = ", ..." if len(rows) > limit else ""
    return f"{len(rows)} row{'s' if len(rows) != 1 else ''} ({shown}{more})"


def table(header: Sequence[object], rows: Sequence[Sequence[object]], left: int = 1) -> str:
    """A plain-text table: the first `left` columns left-aligned, the others right-aligned."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    padded = ([*map(str.ljust, row[:left], widths), *map(str.rjust, row[left:], widths[left:])] for row in cells)
    return "\n".join("  ".join(row).rstrip() for row in padded)
