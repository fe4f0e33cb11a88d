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

SHOTS = (8, 32, 128, 512, "all")
NAMES = {"write": "write", "write+general": "write, with a general encoder", "finetune": "fine-tune everything"}
Key = tuple[str, int | str]


def changes(rows: list[dict], field: str = "value", noise: float | None = None) -> dict[Key, dict[int, float]]:
    """
    For each method and number of rows, the change over ERM of each seed, as the mean over the targets.

    Args:
        rows: of one set and backbone. A row belongs to the classifier of its `run`.
        noise: the share of wrong labels.
    """
    targets = {row["target"] for row in rows}
    erm = {(row["target"], row["seed"], row["run"]): row[field] for row in rows if row["method"] == "erm"}
    found: dict[Key, dict[int, dict[str, float]]] = {}
    for row in rows:
        if row["method"] != "erm" and row.get("noise") == noise:
            by_seed = found.setdefault((row["method"], row["shots"]), {})
            change = row[field] - erm[row["target"], row["seed"], row["run"]]
            by_seed.setdefault(row["seed"], {})[row["target"]] = change
    return {
        key: {seed: statistics.mean(of.values()) for seed, of in by_seed.items() if set(of) == targets}
        for key, by_seed in found.items()
    }


def sets_of(rows: list[dict]) -> dict[str, list[dict]]:
    names = dict.fromkeys((row["data"], row["backbone"]) for row in rows)
    return {
        f"{data}, {backbone}": [row for row in rows if (row["data"], row["backbone"]) == (data, backbone)]
        for data, backbone in names
    }


def cell(values: dict[int, float]) -> str:
    if len(values) < 2:
        return ""
    return f"{statistics.mean(values.values()):+.1f} ± {statistics.stdev(values.values()):.1f}".replace("-", "−")


def gap(ours: dict[int, float], theirs: dict[int, float]) -> str:
    """The difference over the seeds that both have, with a paired test."""
    seeds = sorted(set(ours) & set(theirs))
    test = paired_t_test([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])
    p_value = f"p = {test.p_value:.3f}" if test.p_value >= 0.001 else "p < 0.001"
    mean = statistics.mean(ours[seed] - theirs[seed] for seed in seeds)
    return f"{mean:+.1f} ({p_value})".replace("-", "−")


def table(rows: list[dict]) -> str:
    lines, compared = [], {}
    for name, part in sets_of(rows).items():
        target, sources = (changes(part, field) for field in ("value", "sources"))
        erm = [row for row in part if row["method"] == "erm"]
        scores = [statistics.mean(row[field] for row in erm) for field in ("value", "sources")]
        lines += [f"**{name}** (ERM: {scores[0]:.1f} on the new domain, {scores[1]:.1f} on the old ones)", ""]
        lines += [f"| | {' | '.join(f'{shots} rows' for shots in SHOTS)} | seeds | old domains, 128 / 512 rows |"]
        lines += ["|---|" + "---|" * (len(SHOTS) + 2)]
        for method in dict.fromkeys(method for method, _ in target):
            cells = [cell(target.get((method, shots), {})) for shots in SHOTS]
            old = [cell(sources.get((method, shots), {})) for shots in (128, 512)]
            counts = [len(target.get((method, shots), {})) for shots, one in zip(SHOTS, cells, strict=True) if one]
            if counts:
                seeds = f"{min(counts)}–{max(counts)}" if min(counts) < max(counts) else counts[0]
                lines.append(f"| {method} | {' | '.join(cells)} | {seeds} | {' / '.join(filter(None, old))} |")
        pairs = {shots: (target.get(("write", shots)), target.get(("finetune", shots))) for shots in SHOTS}
        compared[name] = {shots: (ours, theirs) for shots, (ours, theirs) in pairs.items() if ours and theirs}
        found = [f"{shots} rows {gap(*both)}" for shots, both in compared[name].items()]
        lines += ["", f"write − finetune: {'; '.join(found)}.", ""]
    # One backbone for each set, the first.
    firsts = {name.split(",")[0]: both for name, both in reversed(compared.items())}
    lines.append(f"Mean over {', '.join(sorted(firsts))}, write − finetune:")
    for shots in SHOTS:
        sides = [[of[shots][side] for of in firsts.values() if shots in of] for side in (0, 1)]
        if len(sides[0]) == len(firsts):
            seeds = set.intersection(*(set(of) for of in (*sides[0], *sides[1])))
            means = [{seed: statistics.mean(of[seed] for of in side) for seed in seeds} for side in sides]
            lines.append(f"- {shots} rows: {gap(*means)}, {len(seeds)} seeds")
    return "\n".join([*lines, "", *noise_table(rows)])


def noise_table(rows: list[dict]) -> list[str]:
    """What wrong labels cost, and how many of them `audit` finds."""
    lines = [
        "| wrong labels | set | write | finetune | precision of audit | recall | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for share in sorted({row["noise"] for row in rows if "noise" in row}):
        for name, part in sets_of(rows).items():
            found = {key[0]: values for key, values in changes(part, noise=share).items()}
            audits = [row for row in part if row.get("noise") == share and "precision" in row]
            if len(found.get("finetune", ())) > 1:
                cells = [cell(found[method]) for method in ("write", "finetune")]
                cells += [f"{statistics.mean(row[side] for row in audits):.0f} %" for side in ("precision", "recall")]
                lines.append(f"| {100 * share:.0f} % | {name} | {' | '.join(cells)} | {len(found['finetune'])} |")
    return lines


def draw(rows: list[dict], file: Path) -> None:
    import matplotlib.pyplot as plt

    firsts: dict[str, tuple] = {}
    for name, part in sets_of(rows).items():
        # One backbone for each set, the first.
        firsts.setdefault(name.split(",")[0], (name, part))
    sets, shots = dict(firsts.values()), SHOTS[:4]
    figure, axes = plt.subplots(2, len(sets), figsize=(3.4 * len(sets), 6), sharex=True, squeeze=False)
    for column, (name, part) in zip(axes.T, sets.items(), strict=True):
        for axis, field in zip(column, ("value", "sources"), strict=True):
            found = changes(part, field)
            for colour, (method, label) in enumerate(NAMES.items()):
                values = {one: found[method, one] for one in shots if len(found.get((method, one), ())) > 1}
                means = [statistics.mean(of.values()) for of in values.values()]
                spread = [statistics.stdev(of.values()) for of in values.values()]
                if values:
                    axis.errorbar(
                        list(values), means, yerr=spread, marker="o", capsize=3, color=f"C{colour}", label=label
                    )
            axis.axhline(0, color="grey", linewidth=0.8)
            axis.set_xscale("log")
            axis.set_xticks(shots, [str(one) for one in shots])
            axis.minorticks_off()
        column[0].set_title(name)
        column[1].set_xlabel("labelled rows of the new domain")
    axes[0, 0].set_ylabel("new domain: points over ERM")
    axes[1, 0].set_ylabel("old domains: points over ERM")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="lower center", ncols=len(NAMES), frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
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
