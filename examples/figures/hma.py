# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Figure 2 of HMA from docs/results/hma/coloured.json: accuracy on grey digits, for each network and size, over how
often the colours of the two training domains mislead.

    python examples/figures/hma.py docs/results/hma/coloured.json
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

NAMES = {"backbone": "backbone", "param": "PARAM", "hma": "HMA", "hma, independent": "HMA, independent"}
COLOURS = ("#4D4D4D", "#E69F00", "#0072B2", "#56B4E9")


def panels(rows: list[dict], test: str) -> dict[tuple[str, int], dict[str, dict[tuple[float, float], list[float]]]]:
    """(network, size) -> method -> (p1, p2) -> a score for each seed."""
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        setting, _, kind = row["target"].partition(" ")
        if kind == test:
            size, *flips = setting.split("/")
            found[row["backbone"], int(size)][row["method"]][tuple(map(float, flips))].append(row["value"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="JSON with the rows")
    parser.add_argument("--test", default="grey", choices=["grey", "reversed"], help="default: %(default)s")
    parser.add_argument("--output", type=Path, help="default: figure2_TEST.png beside the file")
    options = parser.parse_args()
    from matplotlib.figure import Figure

    drawn = panels(json.loads(options.file.read_text(encoding="utf-8"))["rows"], options.test)
    if not drawn:
        parser.error(f"`{options.file}` has no row of a `{options.test}` test.")
    figure = Figure(figsize=(4.2 * len(drawn) / 2 + 0.4, 6.4), layout="constrained")
    grid = figure.subplots(2, -(-len(drawn) // 2), squeeze=False, sharey="row")
    for axes, ((network, size), methods) in zip(grid.flat, sorted(drawn.items(), reverse=True), strict=False):
        for (name, label), colour in zip(NAMES.items(), COLOURS, strict=True):
            cells = sorted(methods.get(name, {}).items())
            if cells:
                places, means = range(len(cells)), [mean(scores) for _, scores in cells]
                spread = [stdev(scores) if len(scores) > 1 else 0.0 for _, scores in cells]
                axes.errorbar(places, means, spread, color=colour, marker="o", capsize=2.5, label=label)
                axes.set_xticks(places, [f"{p1:g}, {p2:g}" for (p1, p2), _ in cells], fontsize=8)
        axes.set_title(f"{network.upper()}, {size} × {size}", fontsize=10.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, color="#E3E3E3")
    figure.supxlabel("rows whose colour is not that of their label, of either domain", fontsize=10)
    figure.supylabel(f"accuracy on {options.test} colours" if options.test == "reversed" else "accuracy on grey digits")
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    path = options.output or options.file.with_name(f"figure2_{options.test}.png")
    figure.savefig(path, dpi=130)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
