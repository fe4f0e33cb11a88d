# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
Pictures of what a GMoE does with images (Li et al., 2023, Figures 8 to 14), as PNG files:

    python -m hf_memaug.reporting.expert_pictures CHECKPOINT FOLDER --output PICTURES

Images are shown as the model is given them, which is after its processor has resized and cropped them.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.images import check_images
from hf_memaug.data.loading import load_domains
from hf_memaug.evaluation.checks import check_name, check_same_length
from hf_memaug.reporting import plots
from hf_memaug.reporting.expert_maps import (
    ExpertCounts,
    as_seen,
    attention_maps,
    check_layer,
    count_experts,
    first_experts,
    gmoe_of,
    image_dataset,
    patch_size,
)
from hf_memaug.reporting.expert_panels import (
    HEAT,
    draw_grid,
    expert_legend,
    expert_style,
    heated,
    image_figure,
    wrapped,
)

MOST_ROWS, MOST_CLASSES = 100, 20
# Of the height of a picture: matplotlib draws no more than 65,536 pixels, of which an inch has 150.
MOST_INCHES = 430


def draw_experts(
    model,
    processor,
    images: Any,
    path: str | Path,
    layer: int | None = None,
    titles: Sequence[str] | None = None,
    numbers: bool = False,
    batch_size: int = 32,
) -> Path:
    """Each image beside itself with its patches in the colour of the expert that says most of them (Figures 8 and 9).

    Args:
        model: a GMoE, with or without head or adapters. It is left as it was.
        processor: the image processor of its checkpoint.
        images: a `DomainDataset` with images, whose rows are titled with domain and class; or a list of PIL images,
            files, encoded bytes or uint8 arrays.
        path: the PNG file to write, in a folder that is made if need be.
        layer: a layer with experts, by its number from 0. By default all of them, one column for each.
        titles: the title of each row, in place of domain and class.
        numbers: whether to write the expert's number on each patch. With more experts than colours it always is.
        batch_size: images at a time.
    """
    path = Path(path)
    gmoe = gmoe_of(model)
    layers = _layers(gmoe, layer)
    images, titles = _titled(images, titles)
    maps = first_experts(model, processor, images, layers, batch_size)
    cells = []
    for image, experts in zip(images, maps, strict=True):
        seen = as_seen(processor, image)
        cells.append([(seen, None), *((seen, of_layer) for of_layer in experts)])
    return draw_grid(gmoe, cells, titles, ["image", *map(_layer_title, layers)], path, numbers)


def draw_experts_across_domains(
    model,
    processor,
    dataset: Any,
    path: str | Path,
    layer: int | None = None,
    classes: Sequence[str] | None = None,
    numbers: bool = False,
    batch_size: int = 32,
) -> Path:
    """For each class, one image of every domain side by side, each with its patches in the colours of their experts
    (Figures 10 to 13). Where a class has files of one name in all domains, as in CUB-DG, they are taken for one image.

    Args:
        dataset: a `DomainDataset` with images and labels, or anything that `load_domains` makes one of.
        layer: a layer with experts, by its number from 0. By default the last of them, as in the paper.
        classes: the classes to show. By default all.
        model, processor, path, numbers, batch_size: as in `draw_experts`.
    """
    path = Path(path)
    gmoe = gmoe_of(model)
    layer = _layers(gmoe, layer)[-1]
    dataset = image_dataset(dataset)
    for name in classes or ():
        check_name("classes", name, dataset.label_names)
    classes = list(dict.fromkeys(classes or dataset.label_names))
    _check_rows("classes", len(classes), "name those to show")
    chosen = [_one_of_each_domain(dataset, dataset.label_names.index(name)) for name in classes]
    rows = [row for of_class in chosen for row in of_class if row is not None]
    if not rows:
        raise ValueError(f"`classes` are {classes}, of which `dataset` has no image: name others.")
    images = dataset.select(rows)["image"]
    maps = first_experts(model, processor, images, [layer], batch_size)
    drawn = {row: (as_seen(processor, image), one[0]) for row, image, one in zip(rows, images, maps, strict=True)}
    cells = [[cell for row in of_class for cell in _plain_and_tinted(drawn.get(row))] for of_class in chosen]
    headings = [heading for domain in dataset.domains for heading in (domain, _layer_title(layer))]
    return draw_grid(gmoe, cells, classes, headings, path, numbers)


def class_expert_histogram(
    model,
    processor,
    dataset: Any,
    path: str | Path,
    layer: int | None = None,
    batch_size: int = 32,
    progress: bool = True,
) -> tuple[Path, ExpertCounts]:
    """How often each expert is chosen for the patches of each class, over all domains and in each, as stacked bars.

    A patch counts for each of its k experts: the numbers of a class add up to k times its patches. The class token is
    left out, and so is DeiT's second. Bars show shares, because some classes have more images than others; the counts
    are returned.

    Args:
        dataset: a `DomainDataset` with images and labels, or anything that `load_domains` makes one of.
        layer: a layer with experts, by its number from 0. By default all of them, one row of bars for each.
        progress: whether to show a bar while counting.
        model, processor, path, batch_size: as in `draw_experts`.
    """
    path = Path(path)
    layers = _layers(gmoe_of(model), layer)
    dataset = image_dataset(dataset)
    numbers = {name: sum(of_domain[name] for of_domain in dataset.counts().values()) for name in dataset.label_names}
    names = [plots.plain(f"{wrapped(name, 24)} ({number})") for name, number in numbers.items()]
    # In inches: a bar with its gap, which is as high as the longest name.
    pitch = max(0.24, 0.14 * max(name.count("\n") + 1 for name in names))
    height = (pitch * len(names) + 0.75) * len(layers) + 0.8
    if height > MOST_INCHES:
        mend = "pass `layer`, or fewer classes" if len(layers) > 1 else "pass fewer classes"
        raise ValueError(f"`dataset` has {len(names)} classes, more than a picture has room for: {mend}.")
    found = count_experts(model, processor, dataset, layers, batch_size, progress)

    # All domains first; beside a single one they would be the same bars again.
    columns = {"all domains": found.counts.sum(axis=1)} if len(found.domains) > 1 else {}
    columns |= {domain: found.counts[:, place] for place, domain in enumerate(found.domains)}
    titles = [wrapped(f"{name}, {_layer_title(one)}", 24) for one in layers for name in columns]
    figure, panels = plots.new_figure(1.8 * len(columns) + 1.4, height, titles, len(columns), grid=False)
    for place, axes in enumerate(panels):
        row, column = divmod(place, len(columns))
        _draw_shares(axes, list(columns.values())[column][row])
        if column == 0:
            axes.set_yticks(range(len(names)), names, fontsize=8)
            axes.set_ylabel("class (images)", fontsize=8)
        if row == len(layers) - 1:
            axes.set_xlabel("% of choices", fontsize=8)
    expert_legend(figure, found.counts.shape[-1])
    return plots.save(figure, path, []), found


def _draw_shares(axes, counts: np.ndarray) -> None:
    """A bar for each class, the first on top."""
    totals, places = counts.sum(axis=-1), range(len(counts))
    shares = 100 * counts / np.maximum(totals, 1)[:, None]
    starts = np.cumsum(shares, axis=-1) - shares
    for expert in range(shares.shape[-1]):
        axes.barh(places, shares[:, expert], 0.82, starts[:, expert], **expert_style(expert))
    for missing in np.flatnonzero(totals == 0):
        axes.text(2, missing, "no image", va="center", fontsize=7, color=plots.GREY)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.title.set_fontsize(9)
    axes.set(xlim=(0, 100), ylim=(len(counts) - 0.5, -0.5), xticks=(0, 50, 100), yticks=())
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)


def draw_attention(
    models: Mapping[str, Any],
    processor: Any,
    images: Any,
    path: str | Path,
    titles: Sequence[str] | None = None,
    batch_size: int = 32,
) -> Path:
    """What the class token attends to in the last layer, the mean over heads, as a heat map over images (Figure 14).

    The colours of a row go from no attention to the most that any of the models pays to a patch there.

    Args:
        models: name -> a ViT, DeiT or GMoE, such as `{"ViT": vit, "GMoE": gmoe}`. They are left as they were.
        processor: the image processor of all models, or name -> that of each.
        images, titles, path, batch_size: as in `draw_experts`.
    """
    path = Path(path)
    processors = processor if isinstance(processor, Mapping) else dict.fromkeys(models, processor)
    for name in models:
        if name not in processors:
            raise ValueError(f"`processor` has none for {name!r}: name one for each model, or pass one for all models.")
    images, titles = _titled(images, titles)
    maps = {
        name: attention_maps(model, processors[name], images, batch_size, f"models[{name!r}]")
        for name, model in models.items()
    }
    seen = {name: [as_seen(processors[name], image) for image in images] for name in models}
    headings, first = ["image", *models], next(iter(models))
    figure, panels = image_figure(len(images), headings, titles, seen[first][0].shape[:2])
    for row in range(len(images)):
        most = max(of_model[row].max() for of_model in maps.values())
        axes = panels[row * len(headings) : (row + 1) * len(headings)]
        axes[0].imshow(seen[first][row], interpolation="nearest")
        for place, (name, model) in enumerate(models.items(), start=1):
            heat = heated(seen[name][row], maps[name][row] / most, patch_size(model))
            axes[place].imshow(heat, interpolation="nearest")

    from matplotlib.cm import ScalarMappable

    # As thick and as far away in a picture of many rows as in one of a single row.
    height = figure.get_figheight()
    bar = figure.colorbar(
        ScalarMappable(cmap=HEAT), ax=panels, location="bottom", fraction=0.11 / height, pad=0.05 / height, aspect=25
    )
    bar.set_ticks([0, 1], labels=["no attention", "most in the row"])
    for label, side in zip(bar.ax.get_xticklabels(), ("left", "right"), strict=True):
        label.set(ha=side, fontsize=8)
    bar.ax.tick_params(length=0)
    return plots.save(figure, path, [])


def _layer_title(layer: int) -> str:
    return f"layer {layer}"


def _layers(gmoe, layer: int | None) -> list[int]:
    if layer is None:
        return list(gmoe.config.expert_layers)
    check_layer(gmoe, layer)
    return [layer]


def _titled(images: Any, titles: Sequence[str] | None) -> tuple[list, list[str]]:
    if isinstance(images, DomainDataset):
        if "image" not in images.column_names:
            raise ValueError("`images` is a `DomainDataset` without a column 'image': pass rows with images.")
        labels, names, domains = images.labels, images.label_names, images["domain"]
        found = [f"{domain}\n{names[labels[row]]}" if labels else domain for row, domain in enumerate(domains)]
        titles, images = found if titles is None else titles, images["image"]
    elif isinstance(images, (str, bytes)) or not isinstance(images, Sequence):
        raise ValueError(f"`images` is a {type(images).__name__}: pass a list, of one image where there is one.")
    images, titles = list(images), [""] * len(images) if titles is None else [str(title) for title in titles]
    if not images:
        raise ValueError("`images` is empty: pass at least one image.")
    check_same_length(images=images, titles=titles)
    _check_rows("images", len(images), "choose some of them")
    return images, titles


def _check_rows(argument: str, rows: int, mend: str) -> None:
    if rows > MOST_ROWS:
        raise ValueError(f"`{argument}` are {rows}, and a picture has room for {MOST_ROWS} rows: {mend}.")


def _plain_and_tinted(drawn: tuple | None) -> list:
    return [None, None] if drawn is None else [(drawn[0], None), drawn]


def _one_of_each_domain(dataset: DomainDataset, label: int) -> list[int | None]:
    """For each domain the number of a row of the class; None where there is none."""
    rows: dict[str, list[int]] = {domain: [] for domain in dataset.domains}
    for row, (domain, found) in enumerate(zip(dataset["domain"], dataset.labels, strict=True)):
        if found == label:
            rows[domain].append(row)
    images = dataset["image"]
    for row in next(filter(None, rows.values()), ()):
        alike = [_of_one_name(images, row, of_domain) for of_domain in rows.values()]
        if all(found is not None for found, of_domain in zip(alike, rows.values(), strict=True) if of_domain):
            return alike
    return [of_domain[0] if of_domain else None for of_domain in rows.values()]


def _of_one_name(images: list, wanted: int, rows: list[int]) -> int | None:
    """The first of `rows` whose file is called as that of the row `wanted`."""
    names = {row: Path(images[row]).stem for row in (wanted, *rows) if isinstance(images[row], (str, Path))}
    return next((row for row in rows if wanted in names and names.get(row) == names[wanted]), None)


# The one call


def write_pictures(
    checkpoint: str | Path,
    folder: Any,
    output: str | Path,
    vit: str | Path | None = None,
    images_per_domain: int = 4,
    layer: int | None = None,
    classes: Sequence[str] | None = None,
    numbers: bool = False,
    split: str | None = None,
    batch_size: int = 32,
    broken: str = "refuse",
    report: Callable[[Path], None] | None = None,
) -> list[Path]:
    """All pictures of a checkpoint; gives the files written. The models are read in float32.

    Args:
        checkpoint: a GMoE with its image processor, as a folder or a repository of the hub.
        folder: images in `domain/class/*.jpg`, or anything else with images that `load_domains` reads.
        output: the folder to write to, which is made if need be.
        vit: a plain ViT or DeiT with its image processor, whose attention is shown beside the GMoE's.
        images_per_domain: how many images of each domain are shown on their own, taken from its classes in turn.
        layer: a layer with experts, by its number from 0. By default all; across domains, the last.
        classes: the classes to show across domains. By default the first 20.
        numbers: whether to write the expert's number on each patch.
        split: the split to read, where `folder` has several.
        batch_size: images at a time.
        broken: "refuse" stops at images that cannot be decoded, "skip" leaves them out and names them.
        report: called with each file as soon as it is written; a large folder takes its time to be counted.
    """
    from hf_memaug.configuration.configuration_vit_gmoe import PLAIN_TYPES

    output, written = Path(output), []
    if images_per_domain < 1:
        raise ValueError(f"`images_per_domain` is {images_per_domain}: pass at least 1.")
    dataset = check_images(image_dataset(load_domains(folder, split=split), "folder"), broken)
    for name in classes or ():
        check_name("classes", name, dataset.label_names)
    few = dataset.select(_first_of_each_class(dataset, images_per_domain))
    _check_rows("images_per_domain", len(few), f"pass at most {MOST_ROWS // len(dataset.domains)}")
    gmoe, processor = _load("checkpoint", checkpoint, ("vit_gmoe",))
    _layers(gmoe, layer)
    models, processors = {"GMoE": gmoe}, {"GMoE": processor}
    if vit is not None:
        plain, plain_processor = _load("vit", vit, PLAIN_TYPES)
        models, processors = {"ViT": plain, **models}, {"ViT": plain_processor, **processors}

    if classes is None:
        counts = dataset.counts().values()
        classes = [name for name in dataset.label_names if any(of_domain[name] for of_domain in counts)][:MOST_CLASSES]

    def add(path: Path) -> None:
        written.append(path)
        if report is not None:
            report(path)

    shared = {"batch_size": batch_size, "layer": layer}
    add(draw_experts(gmoe, processor, few, output / "experts.png", numbers=numbers, **shared))
    across = {"path": output / "experts_across_domains.png", "classes": classes, "numbers": numbers}
    add(draw_experts_across_domains(gmoe, processor, dataset, **across, **shared))
    add(draw_attention(models, processors, few, output / "attention.png", batch_size=batch_size))
    add(class_expert_histogram(gmoe, processor, dataset, output / "experts_by_class.png", **shared)[0])
    return written


def _first_of_each_class(dataset: DomainDataset, count: int) -> list[int]:
    """Up to `count` rows of each domain: the first of every class, then the second, and so on."""
    chosen = []
    for domain in dataset.domains:
        turns: dict[int, int] = {}
        ranked = []
        for row, (found, label) in enumerate(zip(dataset["domain"], dataset.labels, strict=True)):
            if found == domain:
                ranked.append((turns.setdefault(label, 0), label, row))
                turns[label] += 1
        chosen += [row for _, _, row in sorted(ranked)[:count]]
    return chosen


def _load(argument: str, name_or_path: str | Path, types: Sequence[str]):
    import torch
    from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification

    found = AutoConfig.from_pretrained(name_or_path).model_type
    if found not in types:
        hint = " `from_vit` makes one of a ViT." if "vit_gmoe" in types else ""
        raise ValueError(f"`{argument}` is a `{found}`: pass a checkpoint of a {' or '.join(types)}.{hint}")
    try:
        processor = AutoImageProcessor.from_pretrained(name_or_path)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"`{argument}`: {str(name_or_path)!r} has no image processor that can be read. Save the one it was trained "
            "with there: `processor.save_pretrained(...)`."
        ) from error
    # What a half writes off as equal may change a choice.
    model = AutoModelForImageClassification.from_pretrained(name_or_path, dtype=torch.float32)
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), processor


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m hf_memaug.reporting.expert_pictures",
        description="Draws what a GMoE does with images: the expert of each patch (experts.png), the same for each "
        "class across domains (experts_across_domains.png), how often each expert is chosen for each class "
        "(experts_by_class.png), and what the class token looks at (attention.png).",
    )
    parser.add_argument("checkpoint", help="a GMoE with its image processor: a folder, or a repository of the hub")
    parser.add_argument("folder", help="images in domain/class/*.jpg")
    parser.add_argument("--output", type=Path, default=Path("pictures"), help="folder to write to (default: pictures)")
    parser.add_argument("--vit", help="a plain ViT or DeiT, whose attention is drawn beside the GMoE's")
    parser.add_argument(
        "--images-per-domain", type=int, default=4, help="images of each domain in experts.png and attention.png (4)"
    )
    parser.add_argument(
        "--layer", type=int, help="a layer with experts, from 0 (default: all; across domains the last)"
    )
    parser.add_argument(
        "--classes", nargs="+", help=f"classes to show across domains (default: the first {MOST_CLASSES})"
    )
    parser.add_argument("--numbers", action="store_true", help="write the expert's number on each patch")
    parser.add_argument("--split", help="the split to read, where the folder has several")
    parser.add_argument("--batch-size", type=int, default=32, help="images at a time (default: 32)")
    parser.add_argument(
        "--broken", choices=["refuse", "skip"], default="refuse", help="images that cannot be decoded (refuse)"
    )
    try:
        write_pictures(**vars(parser.parse_args(arguments)), report=lambda path: print(path, flush=True))
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error).replace('`broken="skip"`', "`--broken skip`"))


if __name__ == "__main__":
    main()
