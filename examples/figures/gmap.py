# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Figures 1, 4, 5 and 6 of G-MAP, as PNG beside their raw JSON, from the files in docs/results/gmap.

    python examples/figures/gmap.py --backbone minilm

Figure 1: the masked-LM loss on each corpus, of the general encoder and of the domains'. Figure 5: of a domain's, with
and without the memory of the general encoder. Figures 4 and 6: scores by the layers that read the memory.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path


def figure1(encoders: dict, path: Path) -> None:
    from charts import plot_bars

    bars = {name: encoders[name]["after"] for name in encoders if name == "general" or name.startswith("dapt-")}
    plot_bars(bars, path, "text", "masked-LM loss")


def figure5(encoders: dict, path: Path) -> None:
    from charts import plot_bars

    pairs = [name.removeprefix("gmap-") for name in encoders if name.startswith("gmap-")]
    names = [f"{kind}-{of}" for of in pairs for kind in ("further", "gmap")]
    bars = {name: encoders[name]["after"] for name in names if name in encoders}
    plot_bars(bars, path, "text", "masked-LM loss")


def by_layer(rows: list[dict], path: Path) -> None:
    """A curve for each method and set; where two layers read, by the higher of them."""
    from charts import plot_curve

    curves: dict = defaultdict(lambda: defaultdict(list))
    for row in rows:
        method, _, layers = row["method"].partition(" @ ")
        if row["metric"] == "f1":
            curves[f"{method}, {row['target']}"][int(layers.split(",")[-1])].append(row["value"])
    plot_curve(curves, path, "layer that reads the memory", "F1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", required=True, help="its name, such as minilm")
    parser.add_argument("--results", type=Path, default="docs/results/gmap", help="default: %(default)s")
    options = parser.parse_args()
    losses = options.results / f"pretraining_{options.backbone}.json"
    made = []
    if losses.is_file():
        encoders = json.loads(losses.read_text(encoding="utf-8"))["encoders"]
        for number, draw in ((1, figure1), (5, figure5)):
            if number == 1 or any(name.startswith("gmap-") for name in encoders):
                made.append(options.results / f"figure{number}_{options.backbone}.png")
                draw(encoders, made[-1])
    for number in (4, 6):
        file = options.results / f"figure{number}.json"
        if file.is_file():
            rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
            rows = [row for row in rows if row["backbone"] == options.backbone]
            if rows:
                made.append(options.results / f"figure{number}_{options.backbone}.png")
                by_layer(rows, made[-1])
    print("\n".join(f"wrote {path}" for path in made) or f"nothing to draw in {options.results}")


if __name__ == "__main__":
    main()
