# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG. Colours are classes of the style sheet (`s0` to `s6`), so that they follow light and dark.

All are panels of one width, which is that of a phone: letters keep their size, and wide screens show several abreast.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hf_memaug.reporting.html.markup import Html, joined, number, tag

WIDTH, COLOURS = 340, 7
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 8, 34
# By which series of one colour, or of colours that are alike in print, are told apart.
_MARKERS = ("circle", "square", "triangle", "diamond", "cross")


class Series(NamedTuple):
    """
    Args:
        name: what its line is called when pointed at.
        place: its number among the series of the page, which sets its colour.
        points: x and y.
        quiet: whether it stands behind the others, as one run of several.
        dotted: whether its line is broken.
    """

    name: str
    place: int
    points: Sequence[tuple[float, float]]
    quiet: bool = False
    dotted: bool = False


class Interval(NamedTuple):
    """A mean with the ends of its interval, where it has one, and the values behind it."""

    name: str
    place: int
    mean: float
    low: float | None
    high: float | None
    values: Sequence[float]
    text: str
    tip: str


def panel(title: str, height: float, *children: Html, label: str | None = None) -> Html:
    """A chart under its title; `label` says to those who cannot see it what it shows."""
    drawn = tag(
        "svg", children, viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=label or title, class_="chart"
    )
    return tag("figure", tag("figcaption", title), drawn, class_="panel")


def panels(charts: Sequence[Html]) -> Html:
    return tag("div", charts, class_="panels")


def legend(names: Sequence[str]) -> Html:
    """Markers and names, in the order of their numbers."""
    entries = []
    for place, name in enumerate(names):
        drawn = tag("svg", marker(7, 7, place, 5), viewBox="0 0 14 14", class_="key", aria_hidden="true")
        entries.append(tag("li", drawn, name))
    return tag("ul", entries, class_="legend")


def colour(place: int) -> str:
    return f"s{place % COLOURS}"


def marker(x: float, y: float, place: int, size: float, **attributes) -> Html:
    shape, at = _MARKERS[(place + place // COLOURS) % len(_MARKERS)], {"class_": f"{colour(place)} mark", **attributes}
    if shape == "circle":
        return tag("circle", cx=_at(x), cy=_at(y), r=_at(size), **at)
    corners = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "triangle": ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
        "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
        "cross": (
            *((-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4)),
            *((0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4)),
        ),
    }[shape]
    points = " ".join(f"{_at(x + size * dx)},{_at(y + size * dy)}" for dx, dy in corners)
    return tag("polygon", points=points, **at)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between the two."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    step = 10 ** math.floor(math.log10(span / most))
    step = next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def short(value: float) -> str:
    """A number for an axis."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    return f"{value:g}".replace("-", "−")


def interval_chart(title: str, intervals: Sequence[Interval], low: float, high: float) -> Html:
    """For each entry its name, a dot at its mean and a line along its interval; small dots are single values."""
    row, left, right = 40, 8, WIDTH - 8
    height = row * len(intervals) + 30

    def x_of(value: float) -> float:
        return left + (right - left) * (value - low) / ((high - low) or 1)

    parts = [_grid(ticks(low, high, 5), x_of, 4, height - 22)]
    for place, one in enumerate(intervals):
        top = row * place + 6
        y = top + 24
        parts.append(tag("text", _cut(one.name, 30), x=left, y=top + 10, class_="name"))
        parts.append(tag("text", one.text, x=right, y=top + 10, class_="value"))
        inside = [tag("rect", x=0, y=top + 12, width=WIDTH, height=24, class_="target")]
        if one.low is not None and one.high is not None:
            ends = (max(x_of(one.low), 0), min(x_of(one.high), WIDTH))
            inside.append(
                tag("line", x1=_at(ends[0]), x2=_at(ends[1]), y1=y, y2=y, class_=f"{colour(one.place)} whisker")
            )
        inside += [tag("circle", cx=_at(x_of(value)), cy=y + 8, r=1.8, class_="seed") for value in one.values]
        inside.append(marker(x_of(one.mean), y, one.place, 5))
        parts.append(tag("g", inside, data_tip=one.tip))
    described = "; ".join(f"{one.name} {one.text}" for one in intervals)
    return panel(title, height, *parts, label=f"{title}: {described}")


def bar_chart(title: str, bars: Sequence[Interval], high: float) -> Html:
    """Horizontal bars from 0, with a line for the spread."""
    row, left, right = 40, 8, WIDTH - 8
    height = row * len(bars) + 30

    def x_of(value: float) -> float:
        return left + (right - left) * min(max(value / (high or 1), 0), 1)

    parts = [_grid(ticks(0, high, 5), x_of, 4, height - 22)]
    for place, one in enumerate(bars):
        top = row * place + 6
        parts.append(tag("text", _cut(one.name, 30), x=left, y=top + 10, class_="name"))
        parts.append(tag("text", one.text, x=right, y=top + 10, class_="value"))
        width = _at(x_of(one.mean) - left)
        inside = [tag("rect", x=left, y=top + 16, width=width, height=13, rx=2, class_=f"{colour(one.place)} bar")]
        if one.low is not None and one.high is not None:
            ends = {"x1": _at(x_of(one.low)), "x2": _at(x_of(one.high))}
            inside.append(tag("line", y1=top + 22.5, y2=top + 22.5, class_="spread", **ends))
        parts.append(tag("g", inside, data_tip=one.tip))
    described = "; ".join(f"{one.name} {one.text}" for one in bars)
    return panel(title, height, *parts, label=f"{title}: {described}")


def line_chart(
    title: str, series: Sequence[Series], xlabel: str, *, names: Sequence[str] | None = None, marked: bool = False
) -> Html:
    """
    Args:
        names: what stands below the x axis, where x counts things: 0 is the first.
        marked: whether points have markers.
    """
    height, bottom, right = 230, 230 - _BOTTOM, WIDTH - _RIGHT
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    x_low, x_high = (-0.15, len(names) - 0.85) if names else (min(xs), max(xs))
    y_low, y_high = _widened(min(ys), max(ys))

    def x_of(value: float) -> float:
        return _LEFT + (right - _LEFT) * (value - x_low) / ((x_high - x_low) or 1)

    def y_of(value: float) -> float:
        return bottom - (bottom - _TOP) * (value - y_low) / ((y_high - y_low) or 1)

    parts = []
    for value in ticks(y_low, y_high):
        parts.append(tag("line", x1=_LEFT, x2=right, y1=_at(y_of(value)), y2=_at(y_of(value)), class_="grid"))
        parts.append(tag("text", short(value), x=_LEFT - 5, y=_at(y_of(value) + 4), class_="tick end"))
    if names:
        room = max(4, int((right - _LEFT) / len(names) / 6.5))
        below = [(place, _cut(name, room), name) for place, name in enumerate(names)]
    else:
        below = [(value, short(value), None) for value in ticks(x_low, x_high)]
    for value, text, tip in below:
        parts.append(tag("text", text, x=_at(x_of(value)), y=bottom + 15, class_="tick middle", data_tip=tip))
    parts.append(tag("text", xlabel, x=(_LEFT + right) / 2, y=height - 3, class_="axis middle"))
    for one in sorted(series, key=lambda one: not one.quiet):
        path = "M" + "L".join(f"{_at(x_of(x))} {_at(y_of(y))}" for x, y in one.points)
        look = " ".join(filter(None, [colour(one.place), "line", one.quiet and "quiet", one.dotted and "dotted"]))
        last = one.points[-1]
        tip = f"{one.name}: {short(float(f'{last[1]:.4g}'))}" + (f" at {xlabel} {short(last[0])}" if not names else "")
        parts.append(tag("path", d=path, class_=look, data_tip=tip))
        # A line of one point has no length.
        if marked or len(one.points) == 1:
            parts += [
                marker(x_of(x), y_of(y), one.place, 4, data_tip=f"{one.name}: {number(y, 2)}") for x, y in one.points
            ]
    described = "; ".join(f"{one.name} ends at {one.points[-1][1]:.4g}" for one in series if not one.quiet)
    return panel(title, height, *parts, label=f"{title}: {described}")


def strip_chart(
    title: str, rows: Mapping[str, Sequence[float]], names: Sequence[str], *, top: float | None = None
) -> Html:
    """For each row a strip of cells, the stronger the larger; `top` is the strongest, by default the largest of all."""
    top = top or max((value for row in rows.values() for value in row), default=0) or 1
    height, left, wide = 44 * len(rows) + 6, 2, (WIDTH - 4) / max(len(names), 1)
    gap = 1 if wide > 6 else 0.4 if wide > 3 else 0
    parts = []
    for place, (row, values) in enumerate(rows.items()):
        y = 44 * place + 4
        parts.append(tag("text", _cut(row, 44), x=left, y=y + 10, class_="name"))
        for index, value in enumerate(values):
            strength = f"--v:{min(max(value / top, 0), 1):.3f}"
            tip = f"{names[index]}, {row}: {100 * value:.1f} %"
            at = {"x": _at(left + wide * index), "y": y + 16, "width": _at(wide - gap), "height": 18}
            parts.append(tag("rect", **at, class_="heat", style=strength, data_tip=tip))
    return panel(title, height, *parts, label=f"{title}: {len(rows)} rows of {len(names)} cells")


def stack_chart(title: str, rows: Mapping[str, Sequence[float]], names: Sequence[str]) -> Html:
    """For each row one bar, divided into its parts."""
    height, left, width = 42 * len(rows) + 4, 2, WIDTH - 4
    parts = []
    for place, (row, values) in enumerate(rows.items()):
        y, x, total = 42 * place + 4, float(left), sum(values) or 1
        parts.append(tag("text", _cut(row, 44), x=left, y=y + 10, class_="name"))
        for index, value in enumerate(values):
            part = width * value / total
            tip = f"{names[index]}, {row}: {100 * value / total:.1f} %"
            at = {"x": _at(x), "y": y + 16, "width": _at(part), "height": 18}
            inside = [tag("rect", **at, class_=f"{colour(index)} stack")]
            label = str(names[index]).rsplit(" ", 1)[-1]
            # Colours come again after seven: a part that has room says its number.
            if part > 7 * len(label) + 4:
                inside.append(tag("text", label, x=_at(x + part / 2), y=y + 29, class_="inside middle"))
            parts.append(tag("g", inside, data_tip=tip))
            x += part
    described = f"{title}: shares of {len(names)} parts in {', '.join(rows)}"
    return panel(title, height, *parts, label=described)


def _grid(values: Sequence[float], x_of, top: float, bottom: float) -> Html:
    found = []
    for value in values:
        x = _at(x_of(value))
        found.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        where = "end" if x_of(value) > WIDTH - 20 else "start" if x_of(value) < 16 else "middle"
        found.append(tag("text", short(value), x=x, y=bottom + 15, class_=f"tick {where}"))
    return joined(found)


def _widened(low: float, high: float) -> tuple[float, float]:
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    # A loss that cannot be below 0 should not seem to be.
    return (max(low - room, 0.0) if low >= 0 else low - room), high + room


def _at(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _cut(text: str, most: int) -> str:
    text = str(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
