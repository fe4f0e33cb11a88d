# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Suggestions for misspelt names."""

import difflib
from collections.abc import Iterable, Sequence


def nearest(name: object, allowed: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The closest match of `name` in `allowed`, if there is one."""
    # difflib counts a letter of the wrong case as a miss.
    by_lower = {str(choice).lower(): str(choice) for choice in reversed(list(allowed))}
    near = difflib.get_close_matches(str(name).lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def of_these(value: object, choices: Sequence[object]) -> str:
    """The end of an error about a value that is not in `choices`: the closest match, and all choices."""
    # Numbers are not compared by their digits.
    near = nearest(value, map(str, choices)) if isinstance(value, str) else None
    hint = "".join(f"Did you mean {choice!r}? " for choice in choices if str(choice) == near)
    *others, last = map(repr, choices)
    return f"{hint}Choose {', '.join(others)}{' or ' if others else ''}{last}."
