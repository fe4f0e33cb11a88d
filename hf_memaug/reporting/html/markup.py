# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""HTML that is escaped unless it was made here: a text out of a run can never become markup."""

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

_VOID = ("br", "img", "input", "meta")


class Html(str):
    """Markup, as `tag` makes it; any other text is escaped where it is put into a tag."""

    __slots__ = ()


class Section(NamedTuple):
    """
    Args:
        key: its anchor.
        title: its heading, and its name in the navigation.
        body: what it shows; None where the run has nothing to show.
        missing: in that case, the sentence that says why; None where nobody would look for it.
        data: what the page's script draws.
    """

    key: str
    title: str
    body: Html | None = None
    missing: str | None = None
    data: Any = None


class Cell(NamedTuple):
    """A cell of a table: what it shows, and what it is sorted by (None comes last)."""

    content: Any
    order: Any = None
    name: str = ""
    tip: str | None = None


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """
    An element. `class_` and `for_` lose their last underscore, other underscores are hyphens. An attribute that is None
    or False is left out, one that is True stands without a value.
    """
    parts = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(key)
        elif value is not None and value is not False:
            parts.append(f'{key}="{escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Html(opening if name in _VOID else f"{opening}{joined(children)}</{name}>")


def joined(children: Iterable[Any]) -> Html:
    found = []
    for child in children:
        if isinstance(child, Html):
            found.append(child)
        elif isinstance(child, (list, tuple)):
            found.append(joined(child))
        elif child is not None:
            found.append(escape(str(child)))
    return Html("".join(found))


def paragraph(*children: Any, class_: str | None = None) -> Html:
    return tag("p", *children, class_=class_)


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    caption: str,
    sortable: bool = True,
    fixed: Sequence[str] = (),
) -> Html:
    """
    A table that scrolls in a box of its own. The first cell of a row is its heading. A `Cell` of a number is set to
    the right and sorted as one.

    Args:
        caption: what it is.
        sortable: whether a click on a heading sorts by that column.
        fixed: the headings that do not.
    """
    cells = [[cell if isinstance(cell, Cell) else Cell(cell, str(cell)) for cell in row] for row in rows]
    numeric = [
        bool(cells) and all(row[place].order is None or _is_number(row[place].order) for row in cells)
        for place in range(len(headers))
    ]
    head = []
    for place, header in enumerate(headers):
        content = tag("button", header, type="button") if sortable and header not in fixed else header
        head.append(tag("th", content, scope="col", class_="number" if numeric[place] else None))
    body = [
        tag("tr", [_cell(cell, place, numeric[place], sortable) for place, cell in enumerate(row)]) for row in cells
    ]
    inside = [tag("thead", tag("tr", head)), tag("tbody", body)]
    return in_box(tag("table", inside, class_="sortable" if sortable else None, aria_label=caption), caption)


def in_box(wide: Html, caption: str) -> Html:
    """What may be wider than a phone, in a box that scrolls, below a caption that does not."""
    # Those who use the keyboard must be able to scroll the box.
    box = tag("div", wide, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return tag("div", tag("p", caption, class_="caption"), box)


def _cell(cell: Cell, place: int, numeric: bool, sortable: bool) -> Html:
    classes = " ".join(filter(None, ["number" if numeric else "", cell.name])) or None
    order = None if cell.order is None or not sortable else cell.order
    scope = {"scope": "row"} if place == 0 else {}
    return tag("td" if place else "th", cell.content, class_=classes, data_order=order, data_tip=cell.tip, **scope)


def details(summary: str, *children: Any, open_: bool = False) -> Html:
    return tag("details", tag("summary", summary), children, open=open_)


def code(text: str) -> Html:
    """A block of text with a button that copies it."""
    button = tag("button", "Copy", type="button", class_="copy")
    return tag("div", button, tag("pre", tag("code", text), tabindex="0"), class_="code")


def facts(pairs: Iterable[tuple[str, Any]]) -> Html:
    """A list of names and what is known of them; those that are not known are left out."""
    known = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in known], class_="facts")


def json_script(name: str, value: Any) -> Html:
    """Data for the page's script. No text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return tag("script", Html(text), type="application/json", id=name)


def number(value: Any, digits: int = 1, sign: bool = False) -> str:
    """With a real minus; a dash for what is not known."""
    if not _is_number(value) or not math.isfinite(value):
        return "–"
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def mean_and_std(mean: float | None, std: float | None, digits: int = 1) -> Html:
    if std is None:
        return tag("span", number(mean, digits))
    return tag("span", number(mean, digits), tag("span", f" ± {number(std, digits)}", class_="std"))


def duration(seconds: float | None) -> str:
    if not _is_number(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def bytes_text(count: float | None) -> str:
    if not _is_number(count):
        return "–"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def count_text(count: float | None) -> str:
    if not _is_number(count):
        return "–"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if count >= size:
            return f"{count / (1e3 if unit == 'k' else size):.1f} {unit}"
    return f"{count:,.0f}"


def p_text(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def words(names: Sequence[str], last: str = "and") -> str:
    names = [str(name) for name in names]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}" if names else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
