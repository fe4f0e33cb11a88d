# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
What a GMoE does with each patch of an image, as arrays: which experts it chose, and what its class token looks at.

The grid of patches is that of the pixels a model is given, not of its configuration: images of another size than it was
trained on have another grid. Tokens in front of the patches (the class token, and DeiT's second) are left out.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hf_memaug.data.domains import DomainDataset
from hf_memaug.data.images import decode_image
from hf_memaug.data.loading import load_domains
from hf_memaug.evaluation.checks import as_numpy

if TYPE_CHECKING:
    import torch


class ExpertCounts(NamedTuple):
    """
    How often each expert was chosen for a patch.

    Args:
        layers: the layers counted, by their number from 0.
        domains: the domains.
        classes: the classes.
        counts: of shape (layers, domains, classes, experts). Every patch has k experts, so that the numbers of a class
            in a domain add up to k times the patches of its images. The class token is left out, as is DeiT's second.
    """

    layers: list[int]
    domains: list[str]
    classes: list[str]
    counts: np.ndarray


def first_experts(
    model, processor, images: Sequence, layers: Sequence[int] | None = None, batch_size: int = 32
) -> list[np.ndarray]:
    """
    The expert that says most of each patch, for each image an array of shape (layers, patch rows, patch columns).

    Args:
        model: a GMoE with or without head. Its mode and everything else is left as it was.
        processor: the image processor of its checkpoint.
        images: what `decode_image` takes: PIL images, files, encoded bytes, or arrays.
        layers: the layers wanted, by their number from 0. By default all that have experts.
        batch_size: images at a time.
    """
    gmoe = gmoe_of(model)
    layers = list(gmoe.config.expert_layers if layers is None else layers)
    for layer in layers:
        check_layer(gmoe, layer)
    with _evaluating(gmoe):
        return [experts[..., 0] for experts in _chosen_experts(gmoe, processor, images, layers, batch_size)]


def count_experts(
    model, processor, dataset: Any, layers: Sequence[int] | None = None, batch_size: int = 32, progress: bool = True
) -> ExpertCounts:
    """
    How often each expert is chosen for the patches of each class, in each domain.

    Args:
        dataset: a `DomainDataset` with images and labels, or anything that `load_domains` makes one of.
        progress: whether to show a bar.
    """
    from tqdm.auto import tqdm

    gmoe = gmoe_of(model)
    layers = list(gmoe.config.expert_layers if layers is None else layers)
    for layer in layers:
        check_layer(gmoe, layer)
    dataset = image_dataset(dataset)
    shape = (len(layers), len(dataset.domains), dataset.num_labels, gmoe.config.num_experts)
    counts = np.zeros(shape, dtype=np.int64)
    places = [dataset.domains.index(domain) for domain in dataset["domain"]]
    with (
        _evaluating(gmoe),
        tqdm(total=len(dataset), desc="Counting experts", unit="image", disable=not progress) as bar,
    ):
        chosen = _chosen_experts(gmoe, processor, dataset["image"], layers, batch_size)
        for place, label, experts in zip(places, dataset.labels, chosen, strict=True):
            for index, of_layer in enumerate(experts):
                counts[index, place, label] += np.bincount(of_layer.ravel(), minlength=shape[-1])
            bar.update()
    return ExpertCounts(layers, dataset.domains, dataset.label_names, counts)


def attention_maps(model, processor, images: Sequence, batch_size: int = 32, name: str = "model") -> list[np.ndarray]:
    """
    What the class token attends to in the last layer, the mean over heads: for each image an array of shape
    (patch rows, patch columns). It adds up to less than 1 by what the class token attends to itself.

    Args:
        model: any ViT, DeiT or GMoE of transformers. Its attention is computed eagerly here, and left as it was.
        name: what errors call `model`.
    """
    model = _without_adapters(model)
    refusal = (
        f"`{name}` is a {type(model).__name__}, which has no attention of a class token over patches: pass a ViT, a "
        "DeiT or a GMoE."
    )
    if not hasattr(getattr(model, "config", None), "patch_size"):
        raise ValueError(refusal)
    maps = []
    with _evaluating(model, eager=True):
        for output, grid in _outputs(model, processor, images, batch_size, output_attentions=True):
            last, patches = output.attentions[-1], grid[0] * grid[1]
            # Swin's windows, and transformers that average over the patches.
            if last.ndim != 4 or last.shape[-2] != last.shape[-1] or last.shape[-1] <= patches:
                raise ValueError(refusal)
            maps += list(as_numpy(last[:, :, 0, -patches:].float().mean(dim=1)).reshape(-1, *grid))
    return maps


def as_seen(processor, image: Any) -> np.ndarray:
    """What a model is given of an image, resized and cropped, as (height, width, 3) between 0 and 1."""
    pixels = _pixels(processor, image, do_rescale=True, rescale_factor=1 / 255, do_normalize=False)
    return as_numpy(pixels).transpose(1, 2, 0).clip(0, 1)


def gmoe_of(model):
    """The GMoE itself, where it has adapters too."""
    inner = _without_adapters(model)
    # By its type rather than its class: a checkpoint that carries its code has a class of its own.
    if getattr(getattr(inner, "config", None), "model_type", None) != "vit_gmoe":
        raise ValueError(
            f"`model` is a {type(inner).__name__}, which has no experts: pass a `ViTGMoEForImageClassification`, such "
            "as `from_vit` makes of a ViT."
        )
    return inner


def check_layer(model, layer: int) -> None:
    layers = model.config.expert_layers
    if layer not in layers:
        raise ValueError(
            f"`layer` is {layer!r}, and the layers with experts are {', '.join(map(str, layers))}, counted from 0: "
            "choose one of these."
        )


def image_dataset(dataset: Any, name: str = "dataset") -> DomainDataset:
    """Rows with an image, a label and a domain; refuses others."""
    dataset = dataset if isinstance(dataset, DomainDataset) else load_domains(dataset)
    if "image" not in dataset.column_names:
        raise ValueError(
            f"`{name}` has the columns {', '.join(dataset.column_names)} and no images: pass rows with a column "
            "'image', or a folder `domain/class/*.jpg`."
        )
    if not len(dataset):
        raise ValueError(f"`{name}` is empty: pass at least one image.")
    if dataset.labels is None:
        raise ValueError(f"`{name}` has no labels: add a column 'label', or put the images into `domain/class/*.jpg`.")
    return dataset


def decoded(image: Any, name: str):
    """`decode_image`; `name` is what errors call the image."""
    try:
        return decode_image(image)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{str(error).replace('`image`', f'`{name}`', 1)} Replace it or leave it out.") from error


def patch_size(model) -> tuple[int, int]:
    """Height and width of a patch in pixels."""
    return _pair(_without_adapters(model).config.patch_size)


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _without_adapters(model):
    # PEFT puts adapters into the model itself; what it wraps around it answers otherwise.
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@contextmanager
def _evaluating(model, eager: bool = False):
    """Evaluation without gradients, and the mode of every module as it was before, whatever happens."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    implementation = model.config._attn_implementation
    try:
        model.eval()
        if eager:
            # The others never hold the weights in memory, and so cannot give them.
            model.set_attn_implementation("eager")
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        if eager:
            model.set_attn_implementation(implementation)


def _chosen_experts(gmoe, processor, images: Iterable, layers: Sequence[int], batch_size: int) -> Iterator[np.ndarray]:
    """For each image an array of shape (layers, patch rows, patch columns, k), the expert that says most first."""
    import torch

    wanted = [gmoe.config.expert_layers.index(layer) for layer in layers]
    for output, grid in _outputs(gmoe, processor, images, batch_size, output_router_logits=True):
        count, patches = len(output.logits if "logits" in output else output.last_hidden_state), grid[0] * grid[1]
        # Of the logits, not of the weights: beside a sure expert the weight of the next one is rounded to 0.
        chosen = [output.router_logits[index].topk(gmoe.config.num_experts_per_tok).indices for index in wanted]
        chosen = torch.stack([one.unflatten(0, (count, -1))[:, -patches:] for one in chosen], dim=1)
        yield from as_numpy(chosen.unflatten(2, grid))


def _outputs(model, processor, images: Iterable, batch_size: int, **wanted) -> Iterator[tuple[Any, tuple[int, int]]]:
    """What the model says of batches of images, in their order, and the grid of patches of each batch."""
    import torch

    if batch_size < 1:
        raise ValueError(f"`batch_size` is {batch_size}: pass at least 1.")
    patch, trained = patch_size(model), _pair(model.config.image_size)
    images = list(images)
    for start in range(0, len(images), batch_size):
        batch = enumerate(images[start : start + batch_size], start)
        pixels = [_pixels(processor, image, f"images[{row}]") for row, image in batch]
        # Some processors keep the shape of an image: neighbours of one shape go together.
        for size, same in groupby(pixels, key=lambda one: tuple(one.shape[-2:])):
            values = torch.stack(list(same)).to(device=model.device, dtype=model.dtype)
            # Asked for only where it is needed: models of images that are not square cannot do it.
            other = {"interpolate_pos_encoding": True} if size != trained else {}
            grid = (size[0] // patch[0], size[1] // patch[1])
            yield model(pixel_values=values, return_dict=True, **other, **wanted), grid


def _pixels(processor, image: Any, name: str = "image", **kwargs) -> "torch.Tensor":
    return processor(images=decoded(image, name), return_tensors="pt", **kwargs)["pixel_values"][0]
