# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What a misspelt name was most likely meant to be. Every error that suggests one asks here."""

import difflib
from collections.abc import Iterable


def nearest(name: object, allowed: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The entry of `allowed` that is nearest to `name`, or None where nothing is near."""
    # Case is the commonest slip, and difflib counts every wrong-case letter as a miss.
    by_lower = {str(choice).lower(): str(choice) for choice in reversed(list(allowed))}
    near = difflib.get_close_matches(str(name).lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None
