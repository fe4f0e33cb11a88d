# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Figures 8 to 14 of GMoE from a checkpoint and a folder of images, `domain/class/*.jpg`:

    python examples/figures/gmoe.py CHECKPOINT FOLDER --vit VIT_CHECKPOINT --output pictures

`experts.png`: of each class, an image of each domain with its patches in the colours of their experts.
`experts_by_class.png`: the share of each expert in the patches of each class. `attention.png`: what the class token
attends to in the last layer, the mean over heads.
"""

import argparse
from pathlib import Path

import numpy as np

from hf_memaug import load_domains
from hf_memaug.data import decode_image
from hf_memaug.inference import load_predictor
from hf_memaug.inference.patches import EXPERT_COLOURS, image_as_seen, tinted
from hf_memaug.reporting import plots


def strongest_experts(predictor, images: list) -> np.ndarray:
    """The strongest expert of each patch in the last layer with experts, `(images, patch rows, patch columns)`."""
    reads = [predictor.model.memory_reads(*one)[-1] for one in predictor.watch(images, output_memory_weights=True)[1]]
    return np.concatenate([read.patches.argmax(dim=-1).cpu().numpy() for read in reads])


def attention(predictor, images: list) -> np.ndarray:
    """The attention of the class token to each patch, `(images, patch rows, patch columns)`."""
    found, patch = [], predictor.model.config.patch_size
    predictor.model.set_attn_implementation("eager")
    for inputs, outputs in predictor.watch(images, output_attentions=True)[1]:
        rows, columns = (size // patch for size in inputs["pixel_values"].shape[-2:])
        weights = outputs.attentions[-1][:, :, 0, -rows * columns :].float().mean(dim=1)
        found.append(weights.unflatten(1, (rows, columns)).cpu().numpy())
    return np.concatenate(found)


def grid(rows: list[list], titles: list[str], names: list[str], path: Path, **style) -> None:
    figure, axes = plots.new_figure(1.5 * len(titles) + 1, 1.6 * len(rows), titles * len(rows), len(titles), grid=False)
    for place, (axis, image) in enumerate(zip(axes, (one for row in rows for one in row), strict=True)):
        if image is not None:
            axis.imshow(image, **style)
        axis.set(xticks=(), yticks=(), title=titles[place] if place < len(titles) else "")
        if place % len(titles) == 0:
            axis.set_ylabel(names[place // len(titles)])
    print(plots.save(figure, path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="a GMoE")
    parser.add_argument("folder", help="images in domain/class/*.jpg")
    parser.add_argument("--vit", help="a ViT or DeiT, whose attention is shown beside the GMoE's")
    parser.add_argument("--classes", nargs="+", help="classes to show (default: the first six)")
    parser.add_argument("--output", type=Path, default=Path("pictures"), help="default: %(default)s")
    options = parser.parse_args()
    predictor, data = load_predictor(options.checkpoint), load_domains(options.folder)
    classes = options.classes or data.label_names[:6]
    images, domains = [decode_image(image) for image in data["image"]], data["domain"]
    names = np.array([data.label_names[label] for label in data.labels])
    experts = strongest_experts(predictor, images)

    rows, chosen = [], []
    for name in classes:
        first = {domains[row]: int(row) for row in reversed(np.flatnonzero(names == name))}
        seen = {domain: image_as_seen(predictor.processor, images[row]) for domain, row in first.items()}
        drawn = [
            (seen[domain], tinted(seen[domain], experts[row]))
            if (row := first.get(domain)) is not None
            else (None, None)
            for domain in data.domains
        ]
        rows.append([one for pair in drawn for one in pair])
        chosen += list(first.values())[:1]
    grid(rows, [title for name in data.domains for title in (name, "experts")], classes, options.output / "experts.png")

    count = predictor.model.config.num_experts
    shares = np.stack([np.bincount(experts[names == name].ravel(), minlength=count) for name in classes]).astype(float)
    shares /= shares.sum(axis=1, keepdims=True)
    figure, (axes,) = plots.new_figure(6, 0.4 * len(classes) + 1.2, ["experts of the last layer"], grid=False)
    for expert in range(count):
        style = {"color": EXPERT_COLOURS[expert % len(EXPERT_COLOURS)], "label": f"expert {expert}"}
        axes.barh(classes, 100 * shares[:, expert], left=100 * shares[:, :expert].sum(axis=1), **style)
    axes.set(xlabel="% of patches", xlim=(0, 100))
    print(plots.save(figure, options.output / "experts_by_class.png", axes.get_legend_handles_labels()[0]))

    models = {"GMoE": predictor} | ({"ViT": load_predictor(options.vit)} if options.vit else {})
    few = [images[row] for row in chosen]
    maps = {name: attention(one, few) for name, one in models.items()}
    rows = [
        [image_as_seen(predictor.processor, few[place]), *(one[place] for one in maps.values())]
        for place in range(len(few))
    ]
    grid(rows, ["image", *maps], classes[: len(few)], options.output / "attention.png", cmap="inferno")


if __name__ == "__main__":
    main()
