# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a misspelt name was most likely meant to be. Every error that suggests one asks here."""

import difflib
from collections.abc import Iterable, Sequence


def nearest(name: object, allowed: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The entry of `allowed` that is nearest to `name`, or None where nothing is near."""
    # Case is the commonest slip, and difflib counts every wrong-case letter as a miss.
    by_lower = {str(choice).lower(): str(choice) for choice in reversed(list(allowed))}
    near = difflib.get_close_matches(str(name).lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def of_these(value: object, choices: Sequence[object]) -> str:
    """Ends an error about a value that is none of `choices`: the nearest of them, where one is near, and all."""
    # A number is not nearer to one than to another by its digits.
    near = nearest(value, map(str, choices)) if isinstance(value, str) else None
    hint = "".join(f"Did you mean {choice!r}? " for choice in choices if str(choice) == near)
    *others, last = map(repr, choices)
    return f"{hint}Choose {', '.join(others)}{' or ' if others else ''}{last}."
