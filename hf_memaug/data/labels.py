# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""From labels as people write them (names, ids, "1.0") to ids from 0 to n-1 with names."""

from collections.abc import Mapping, Sequence
from typing import Any

from hf_memaug.messages import did_you_mean, listed, some_rows

# The names under which `Trainer` and `datasets` expect the class of a row.
LABEL_COLUMNS = ("label", "labels", "label_ids")


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: `None`, NaN, or an empty string."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and value != value)


def as_id(value: Any) -> int | None:
    """The integer that a value stands for (1, True, 1.0, "1", "1.0"), else `None`."""
    if isinstance(value, str) and not value.strip().lstrip("+-")[:1].isdigit():
        return None
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    return int(number) if number.is_integer() else None


def labels_of(rows: Sequence[Mapping[str, Any]]) -> list[int] | None:
    """The classes of a collator's rows; None if the rows have none."""
    name = next((name for name in LABEL_COLUMNS if name in rows[0]), None)
    if name is None:
        return None
    found: list = [as_id(row[name]) for row in rows]
    if None in found:
        raise ValueError(f"`{name}` is {rows[found.index(None)][name]!r}, which is no class. Give integers.")
    return found


def how_named(wanted: str, row: Mapping[str, Any]) -> str:
    """How to fix a row without the column that a collator needs."""
    if set(row) <= {*LABEL_COLUMNS, "domain"}:
        return f"`Trainer` drops `{wanted}`, which no model takes by that name: set `remove_unused_columns=False`."
    return f"Name that column '{wanted}'."


def resolve_labels(
    parts: Sequence[tuple[str, list, list[str] | None]], labels: Sequence[str] | None
) -> tuple[list[list[int]], list[str]]:
    """
    The ids of the labels of each piece of data, and the names of the ids. A piece is its origin, its raw labels and, if
    it has them, the names of its ids. `labels` are the wanted names.
    """
    names = [str(name) for name in labels] if labels is not None else _common_names(parts)
    if names is None:
        names = _names_of_values([value for _, values, _ in parts for value in values])
        return [_ids(origin, values, names, names, are_names=True) for origin, values, _ in parts], names
    if len(set(names)) != len(names) or not names:
        raise ValueError(f"`labels` must name at least one label and none twice, but is [{listed(names)}].")
    # In a piece with names of its own, numbers are ids. All other pieces are read in the same way.
    plain = _are_names({value for _, values, own in parts if not own for value in values}, names)
    found = []
    for origin, values, own in parts:
        are_names = _are_names({value for value in values if isinstance(value, str)}, own) if own else plain
        found.append(_ids(origin, values, own or names, names, are_names))
    return found, names


def _common_names(parts: Sequence[tuple[str, list, list[str] | None]]) -> list[str] | None:
    """The names that the pieces bring, which must be the same ones."""
    with_names = [(origin, own) for origin, _, own in parts if own]
    for origin, own in with_names[1:]:
        if own != with_names[0][1]:
            raise ValueError(
                f"`labels`: {with_names[0][0]} names its labels {listed(with_names[0][1])}, but {origin} names them "
                f"{listed(own)}. Give `labels` in the order you want; rows are matched by name."
            )
    return list(with_names[0][1]) if with_names else None


def _names_of_values(values: list) -> list[str]:
    """The names of labels that come without any: ids from 0, or names in sorted order."""
    ids = {value: as_id(value) for value in set(values)}
    wrong = next((value for value in values if not isinstance(value, str) and ids[value] is None), None)
    if wrong is not None:
        raise ValueError(f"`label` holds {wrong!r}, which is neither a name nor an integer. Only classes are read.")
    named = [value for value in values if ids[value] is None]
    fraction = next((value for value in named if _is_number(value)), None)
    if fraction is not None:
        raise ValueError(
            f"`label` holds {fraction!r}, a number that is no integer, as in ratings. Only classes are read: round the "
            "numbers, or give `labels`, the names of the classes."
        )
    if named and any(not isinstance(value, str) for value in values):
        raise ValueError(
            f"`label` mixes ids with names such as {named[0]!r}. Write all labels in one way, or give `labels`."
        )
    if named:
        return sorted(ids)
    numbers = sorted({number for number in ids.values() if number is not None})
    if numbers != list(range(len(numbers))):
        raise ValueError(
            f"`label` holds the ids {listed(numbers)}, which do not run from 0 to {len(numbers) - 1} without a gap. "
            "Give `labels`, the names of all ids in their order, or write the labels as names."
        )
    return [str(number) for number in numbers]


def _is_number(value: str) -> bool:
    try:
        return value.strip().lstrip("+-.")[:1].isdigit() and float(value) == float(value)
    except ValueError:
        return False


def _as_name(value: Any, names: list[str]) -> Any:
    """The name that a value is, also as a number: "3" for 3 and 3.0."""
    number = as_id(value)
    return str(number) if value not in names and number is not None else value


def _are_names(values: set, names: list[str]) -> bool:
    """Whether numbers are names, such as stars from 1 to 5, and not ids."""
    numbers = {value: as_id(value) for value in values if as_id(value) is not None}
    found = [_as_name(value, names) in names for value in numbers]
    return any(found) and (all(found) or not set(numbers.values()) <= set(range(len(names))))


def _ids(origin: str, values: list, own: list[str], names: list[str], are_names: bool) -> list[int]:
    """The ids of `values` among `names`; `own` are the names of the ids in `values`."""
    if set(own) <= set(names):
        target = {name: names.index(name) for name in own}
    elif len(own) == len(names) and not set(own) & set(names):
        # Other words for the same ids, say "neg" and "pos" for "negative" and "positive".
        target = {name: label for label, name in enumerate(own)}
    else:
        raise ValueError(
            f"`labels` is [{listed(names)}], but {origin} names its labels {listed(own)}. Give all of these names, or "
            "as many new ones in the same order."
        )
    known: dict[Any, int] = {}
    for value in set(values):
        number = as_id(value)
        if number is not None and not are_names:
            name = own[number] if 0 <= number < len(own) else None
        else:
            name = _as_name(value, own)
        if name in target:
            known[value] = target[name]
        elif name in names:
            known[value] = names.index(name)
    unknown = [row for row, value in enumerate(values) if value not in known]
    if unknown:
        value = values[unknown[0]]
        raise ValueError(
            f"`label` holds {value!r} in {origin}, which is unknown: {some_rows(unknown)} of it and the like. "
            f"{did_you_mean(value, names)} Fix the rows, or add the label to `labels`."
        )
    return [known[value] for value in values]
