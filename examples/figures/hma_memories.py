# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Figures 3 to 6 of HMA. Of a checkpoint with labelled rows: t-SNE of the synthetic slots and of the rows, what the rows
of a batch read of each other and of the slots, and what the rows of each class read of each class in the real memory.

    python examples/figures/hma_memories.py CHECKPOINT DATA --output pictures

Of a file of results whose rows have `synthetic_slots` and `real_memory_size`: the score by the sizes of the memories.

    python examples/figures/hma_memories.py FILE.json --output memory_sizes.png
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from charts import plot_bars, plot_curve

from hf_memaug import load_domains
from hf_memaug.inference import load_predictor
from hf_memaug.reporting import plots


def memory_sizes(file: Path, path: Path) -> None:
    curves: dict = defaultdict(lambda: defaultdict(list))
    for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
        if "synthetic_slots" in row:
            name = f"real memory of {row['real_memory_size']:,}" if row["real_memory_size"] else "no real memory"
            curves[name][row["synthetic_slots"]].append(row["value"])
    metric = row["metric"]
    print(plot_curve(curves, path, "synthetic slots of each class", metric, log_x=True))


def memories(checkpoint: str, options: argparse.Namespace) -> None:
    predictor = load_predictor(checkpoint)
    model, head = predictor.model, predictor.model.head
    names = {"text": options.smiles or "text", "label": options.label, "domain": options.domain or None}
    data = load_domains(options.data, split=options.split, **names)
    column = next(name for name in ("image", "text", "graph") if name in data.column_names)
    order = np.argsort(data.labels, kind="stable")
    kept = [
        row for label in np.unique(data.labels) for row in order[np.array(data.labels)[order] == label][: options.rows]
    ]
    inputs, labels = [data[int(row)][column] for row in kept], np.array(data.labels)[kept]
    names = predictor.labels
    _, ((batch, outputs),) = predictor.watch(inputs, batch_size=len(inputs), output_memory_weights=True)
    reads = {read.title: read for read in model.memory_reads(batch, outputs)}
    attention = outputs.memory_weights.float().mean(dim=1).cpu().numpy()
    with torch.no_grad():
        features = model.features(**batch).float()
        rows, _ = head.memory.after_real_memory(head.memory.aggregate(features))
    points, slot_labels = rows[:, : features.shape[1]].cpu().numpy(), np.zeros(0, dtype=int)

    if "Synthetic memory" in reads:
        slots = head.memory.synthetic_slots.detach().cpu().numpy()
        slot_labels = np.repeat(np.arange(len(slots)), slots.shape[1])
        points = np.concatenate([points, slots.reshape(len(slot_labels), -1)])
    embedded, everyone = plots.t_sne(points), np.concatenate([labels, slot_labels])
    figure, (axes,) = plots.new_figure(5.5, 5, ["rows and, with an edge, synthetic slots"], grid=False)
    is_slot = np.arange(len(everyone)) >= len(labels)
    for label, name in enumerate(names):
        style = {"color": plots.COLOURS[label % 7], "marker": plots.MARKERS[label % 5]}
        axes.scatter(*embedded[(everyone == label) & ~is_slot].T, s=12, alpha=0.5, linewidth=0, label=name, **style)
        axes.scatter(*embedded[(everyone == label) & is_slot].T, s=44, edgecolor="black", **style)
    axes.set(xticks=(), yticks=(), box_aspect=1)
    print(plots.save(figure, options.output / "memory_slots.png", axes.get_legend_handles_labels()[0]))

    between = attention[:, -len(slot_labels) - len(labels) :]
    figure, (axes,) = plots.new_figure(8, 5, ["what is read: synthetic slots, then rows, by class"], grid=False)
    image = axes.imshow(between, cmap="inferno", aspect="auto", interpolation="nearest")
    starts = np.concatenate(
        [np.unique(slot_labels, return_index=True)[1], len(slot_labels) + np.unique(labels, return_index=True)[1]]
    )
    axes.vlines(starts[1:] - 0.5, -0.5, len(labels) - 0.5, color="white", linewidth=0.5)
    axes.set(xlabel="slot or row that is read", ylabel="row that reads")
    figure.colorbar(image, ax=axes, label="attention, mean over heads")
    print(plots.save(figure, options.output / "datapoint_attention.png"))

    if "Real memory" in reads:
        by_class = reads["Real memory"].by_owner()
        shares = {
            f"rows of {name}": {
                owner: float(share[torch.from_numpy(labels == label)].mean()) for owner, share in by_class.items()
            }
            for label, name in enumerate(names)
            if (labels == label).any()
        }
        print(plot_bars(shares, options.output / "real_memory.png", "class of the slot", "share of the attention"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a checkpoint of HMA, or a JSON file of results")
    parser.add_argument("data", nargs="?", help="labelled rows that `load_domains` reads")
    parser.add_argument("--output", type=Path, default=Path("pictures"), help="default: %(default)s")
    parser.add_argument("--rows", type=int, default=10, help="rows of each class (default: %(default)s)")
    parser.add_argument("--split", help="the split to read, where the data has several")
    parser.add_argument("--smiles", metavar="COLUMN", help="column with molecules")
    parser.add_argument("--label", default="label", help="column with the class (default: %(default)s)")
    parser.add_argument("--domain", default="domain", help='column with the domain, "" for none')
    options = parser.parse_args()
    if options.source.endswith(".json"):
        memory_sizes(Path(options.source), options.output)
    else:
        memories(options.source, options)


if __name__ == "__main__":
    main()
