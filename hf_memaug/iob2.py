# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""IOB2 tags of named entities: B-TYPE begins an entity, I-TYPE continues it, O is outside."""

from collections.abc import Sequence

Entity = tuple[str, int, int]


def entities(tags: Sequence[str], strict: bool = False) -> list[Entity]:
    """
    The entities of a sequence of IOB2 tags, as (type, first, one past the last).

    Args:
        strict: refuse tags that are not IOB2. Otherwise, as CoNLL's own script has it, an `I-` that continues nothing
            begins an entity: a model may say so.
    """
    found: list[Entity] = []
    begin, kind = 0, None
    for place, tag in enumerate([*tags, "O"]):
        if not isinstance(tag, str):
            raise ValueError(f"the tag {tag!r} at place {place} is no name: a tag is O, B-TYPE or I-TYPE.")
        prefix, _, name = tag.partition("-")
        if tag != "O" and (prefix not in ("B", "I") or not name):
            raise ValueError(f"the tag {tag!r} at place {place} is not IOB2: a tag is O, B-TYPE or I-TYPE.")
        if strict and prefix == "I" and name != kind:
            before = tags[place - 1] if place else "the start"
            raise ValueError(f"the tag {tag!r} at place {place} follows {before!r}: in IOB2 an entity begins with B-.")
        continues = prefix == "I" and name == kind
        if kind is not None and not continues:
            found.append((kind, begin, place))
            kind = None
        if tag != "O" and not continues:
            begin, kind = place, name
    return found
