# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The parts of a report's sections, which the template lays out, and how numbers are written in them."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hf_memaug.evaluation.statistics import summarise

# The blocks of a section, or why there are none, which the end of the report lists.
Content = list[Any] | str


class Note(NamedTuple):
    """A paragraph; `style` is "lead", "note", "warning" or "good"."""

    text: str
    style: str = "note"


class Cell(NamedTuple):
    """
    A cell of a table.

    Args:
        text: the main text.
        order: the value to sort by; None comes last.
        small: text behind it in a quieter style, such as a standard deviation.
        mark: a superscript, such as the stars of a test.
        tip: what hovering over the cell shows.
        style: CSS classes.
        heat: background strength, from 0 to 1.
    """

    text: str
    order: Any = None
    small: str = ""
    mark: str = ""
    tip: str = ""
    style: str = ""
    heat: float | None = None


class Table(NamedTuple):
    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]

    def numeric(self, column: int) -> bool:
        """Whether the column holds numbers, which are aligned right and sorted by value."""
        cells = [row[column] for row in self.rows]
        return bool(cells) and all(isinstance(cell, Cell) and not isinstance(cell.order, str) for cell in cells)


class Chart(NamedTuple):
    """`svg` is markup; `label` describes it to screen readers."""

    svg: Any
    label: str


class Facts(NamedTuple):
    pairs: Sequence[tuple[str, str]]


class Code(NamedTuple):
    text: str


class Details(NamedTuple):
    """Blocks that are folded until the reader opens them."""

    summary: str
    blocks: Sequence[Any]
    is_open: bool = False


def facts(pairs: Iterable[tuple[str, Any]]) -> Facts:
    """The pairs whose value is known."""
    return Facts([(name, str(value)) for name, value in pairs if value not in (None, "", [], {})])


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def number(value: Any, digits: int = 1, sign: bool = False) -> str:
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−") if is_number(value) else "–"


def mean_cell(values: Sequence[float], **fields) -> Cell:
    """Mean ± standard deviation."""
    if not values:
        return Cell("–")
    found = summarise(values)
    small = "" if found.std is None else f" ± {number(found.std)}"
    return Cell(number(found.mean), found.mean, small, **fields)


def scaled(value: float | None, units: Sequence[tuple[float, str]]) -> str:
    """The number in the first unit that it reaches; `units` go from large to small."""
    if not is_number(value):
        return "–"
    size, unit = next((one for one in units if value >= one[0]), units[-1])
    return f"{value / size:.1f} {unit}"


def duration(seconds: float | None) -> str:
    return scaled(seconds, [(3600, "h"), (60, "min"), (1, "s")])


def byte_count(count: float | None) -> str:
    return scaled(count, [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")])


def count(value: float | None) -> str:
    return scaled(value, [(1e9, "G"), (1e6, "M")]) if is_number(value) and value >= 1e6 else integer(value)


def integer(value: float | None) -> str:
    return f"{value:,.0f}" if is_number(value) else "–"


def listed(names: Sequence[str], last: str = "and") -> str:
    names = [str(name) for name in names]
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if len(names) > 1 else "".join(names)
