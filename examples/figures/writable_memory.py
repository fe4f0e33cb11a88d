# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The table and the picture of `write_or_finetune.py`: what labelled rows of a new domain change over ERM.

    python examples/figures/writable_memory.py docs/results/writable_memory/shots.json \\
        --output docs/results/writable_memory
"""

import argparse
import json
import statistics
from pathlib import Path

from hf_memaug.evaluation import paired_t_test

SHOTS = (8, 32, 128, 512)
NAMES = {"write": "write", "write+general": "write, with a general encoder", "finetune": "fine-tune everything"}


def changes(rows: list[dict], data: str, field: str = "value") -> dict[tuple[str, int], dict[int, float]]:
    """For each method and number of rows, the change over ERM of each seed, as the mean over the targets."""
    rows = [row for row in rows if row["data"] == data]
    targets = {row["target"] for row in rows}
    erm = {(row["target"], row["seed"]): row[field] for row in rows if row["method"] == "erm"}
    found: dict[tuple[str, int], dict[int, dict[str, float]]] = {}
    for row in rows:
        if row["method"] != "erm":
            by_seed = found.setdefault((row["method"], int(row["shots"])), {})
            by_seed.setdefault(row["seed"], {})[row["target"]] = row[field] - erm[row["target"], row["seed"]]
    return {
        key: {seed: statistics.mean(of.values()) for seed, of in by_seed.items() if set(of) == targets}
        for key, by_seed in found.items()
    }


def cell(values: dict[int, float]) -> str:
    if len(values) < 2:
        return ""
    return f"{statistics.mean(values.values()):+.1f} ± {statistics.stdev(values.values()):.1f}".replace("-", "−")


def table(rows: list[dict]) -> str:
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        target, sources = (changes(rows, data, field) for field in ("value", "sources"))
        erm = [row for row in rows if row["data"] == data and row["method"] == "erm"]
        scores = [statistics.mean(row[field] for row in erm) for field in ("value", "sources")]
        lines += [f"**{data}** (ERM: {scores[0]:.1f} on the new domain, {scores[1]:.1f} on the old ones)", ""]
        lines += [f"| | {' | '.join(f'{shots} rows' for shots in SHOTS)} | seeds | old domains, 128 / 512 rows |"]
        lines += ["|---|" + "---|" * (len(SHOTS) + 2)]
        for method in dict.fromkeys(method for method, _ in target):
            cells = [cell(target.get((method, shots), {})) for shots in SHOTS]
            old = [cell(sources.get((method, shots), {})) for shots in (128, 512)]
            seeds = max(len(of) for (name, _), of in target.items() if name == method)
            if any(cells):
                lines.append(f"| {method} | {' | '.join(cells)} | {seeds} | {' / '.join(filter(None, old))} |")
        lines.append("")
        for shots in SHOTS:
            ours, theirs = target["write", shots], target["finetune", shots]
            seeds = sorted(set(ours) & set(theirs))
            test = paired_t_test([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])
            gap = statistics.mean(ours[seed] - theirs[seed] for seed in seeds)
            p_value = f"p = {test.p_value:.3f}" if test.p_value >= 0.001 else "p < 0.001"
            lines.append(f"- {shots} rows, write − finetune: " + f"{gap:+.1f} ({p_value})".replace("-", "−"))
        lines.append("")
    return "\n".join(lines)


def draw(rows: list[dict], file: Path) -> None:
    import matplotlib.pyplot as plt

    sets = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = plt.subplots(2, len(sets), figsize=(5 * len(sets), 6), sharex=True, sharey="row", squeeze=False)
    for column, data in zip(axes.T, sets, strict=True):
        for axis, field in zip(column, ("value", "sources"), strict=True):
            found = changes(rows, data, field)
            for method, name in NAMES.items():
                values = [found[method, shots] for shots in SHOTS]
                means = [statistics.mean(of.values()) for of in values]
                spread = [statistics.stdev(of.values()) for of in values]
                axis.errorbar(SHOTS, means, yerr=spread, marker="o", capsize=3, label=name)
            axis.axhline(0, color="grey", linewidth=0.8)
            axis.set_xscale("log")
            axis.set_xticks(SHOTS, [str(shots) for shots in SHOTS])
            axis.minorticks_off()
        column[0].set_title(data)
        column[1].set_xlabel("labelled rows of the new domain")
    axes[0, 0].set_ylabel("new domain: points over ERM")
    axes[1, 0].set_ylabel("old domains: points over ERM")
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--output", type=Path, help="folder for shots.png")
    options = parser.parse_args()
    rows = json.loads(options.results.read_text(encoding="utf-8"))["rows"]
    print(table(rows))
    if options.output:
        draw(rows, options.output / "shots.png")


if __name__ == "__main__":
    main()
