# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What docs/continual.md says of strategies and figures is so."""

import re
from pathlib import Path

from hf_memaug.evaluation import DEFINITIONS
from hf_memaug.training import STRATEGIES

GUIDE = (Path(__file__).parents[1] / "docs" / "continual.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table whose first heading this is."""
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", GUIDE, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def test_every_strategy_and_option_is_in_the_table():
    said = {}
    for names, _, options in rows_of("`strategy`"):
        for name in re.findall(r'`"(.+?)"`', names):
            said[name] = options
    assert set(said) == set(STRATEGIES)
    for name, options in said.items():
        if "of both" in options:
            continue
        found = dict(re.findall(r'`(\w+)` (?:λ )?"?([\w.]+)"?', options))
        assert set(found) == set(STRATEGIES[name].options), name
        for option, value in STRATEGIES[name].options.items():
            assert found[option] == (f"{value:g}" if isinstance(value, float) else str(value)), option


def test_every_figure_is_defined():
    assert [re.findall(r"`(\w+)`", cells[0])[0] for cells in rows_of("figure")] == list(DEFINITIONS)
