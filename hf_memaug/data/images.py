# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Images of any kind that a dataset holds, decoded when a batch needs them."""

import io
import os
import random
from functools import cached_property
from typing import Any

import numpy as np
import torch

from hf_memaug.data.augmentation import SEED_COLUMN, augment_image
from hf_memaug.data.broken_rows import check_column
from hf_memaug.data.labels import how_named, labels_of
from hf_memaug.messages import listed


def decode_image(image: Any):
    """
    An RGB `PIL.Image.Image` of a path, the bytes of a file, a dict with `bytes` or `path` (as `datasets` stores an
    image), or a PIL image. A file is turned as its EXIF tag says, as `pipeline` does it.
    """
    if isinstance(image, dict) and ("bytes" in image or "path" in image):
        image = image["bytes"] if image.get("bytes") is not None else image.get("path")
    if isinstance(image, (str, os.PathLike, bytes, bytearray)):
        return _decoded_file(image)
    if hasattr(image, "mode") and hasattr(image, "convert"):
        return _as_rgb(image)
    raise TypeError(
        f"`image` is a {type(image).__name__}; it must be a path, bytes, a dict with 'bytes' or 'path', or a PIL image."
    )


def _decoded_file(file):
    from PIL import Image, ImageOps, UnidentifiedImageError

    source = io.BytesIO(file) if isinstance(file, (bytes, bytearray)) else file
    try:
        with Image.open(source) as image:
            return _as_rgb(ImageOps.exif_transpose(image))
    except FileNotFoundError:
        raise ValueError(f"`image`: there is no file {os.fspath(file)!r}.") from None
    except Exception as error:  # Pillow's readers raise whatever they come upon in a broken file.
        name = f"{len(file)} bytes" if isinstance(file, (bytes, bytearray)) else repr(os.fspath(file))
        # Pillow names the buffer that it read, which says nothing to anybody.
        is_unknown = isinstance(error, UnidentifiedImageError)
        reason = "no image format that is known" if is_unknown else str(error).rstrip(".")
        raise ValueError(f"`image` cannot be decoded ({name}): {reason or type(error).__name__}.") from error


def _as_rgb(image):
    from PIL import Image

    if image.mode.startswith("I;16"):
        # Pillow would cut off all above 255, and leave a white image.
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def check_images(dataset, broken: str = "refuse"):
    """
    Decodes every image once, before training.

    Args:
        dataset (`DomainDataset` or `datasets.Dataset`): rows with `image`.
        broken (`str`, *optional*, defaults to `"refuse"`): as in `check_graphs`.
    """
    return check_column(dataset, "image", decode_image, broken, "images cannot be decoded")


class ImageCollator:
    """
    Makes `pixel_values` and `labels` of rows with `image`: what the image processor makes of the same images in RGB.

    Args:
        image_processor (`BaseImageProcessor`): resizes and normalises, such as
            `AutoImageProcessor.from_pretrained(...)` of the backbone.

    Rows with an `augmentation_seed` are augmented by it: the training rows of `DomainTrainer` with
    `augment_images=True`.
    """

    def __init__(self, image_processor):
        if not makes_pixel_values(image_processor):
            raise ValueError(
                f"`image_processor` is a {type(image_processor).__name__}, which makes no `pixel_values`. Give the one "
                "of the backbone: `AutoImageProcessor.from_pretrained(...)`."
            )
        self.image_processor = image_processor

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        images = [self._decoded(row) for row in rows]
        options = {}
        if SEED_COLUMN in rows[0]:
            generators = [random.Random(row[SEED_COLUMN]) for row in rows]
            images = list(map(augment_image, images, [self._output_size] * len(rows), generators))
            # They have their size already; a processor that cuts off the border would cut once more.
            options = {"do_resize": False, "do_center_crop": False}
        try:
            batch = dict(self.image_processor(images=images, return_tensors="pt", **options))
        except ValueError as error:
            if len({image.size for image in images}) < 2:
                raise
            raise ValueError(
                "`image_processor` does not bring images of different sizes to one. Give it a `size` with `height` and "
                "`width`, or `do_center_crop=True`."
            ) from error
        labels = labels_of(rows)
        if labels is not None:
            batch["labels"] = torch.tensor(labels)
        return batch

    def _decoded(self, row: dict):
        if "image" not in row:
            raise ValueError(f"a row has no `image`, but {listed(row)}. {how_named('image', row)}")
        try:
            return decode_image(row["image"])
        except (TypeError, ValueError) as error:
            where = f" in the domain {row['domain']!r}" if "domain" in row else ""
            raise ValueError(
                f"{error} It is a row{where}. `check_images(dataset)` finds all such rows before training, and leaves "
                'them out with `broken="skip"`.'
            ) from error

    @cached_property
    def _output_size(self) -> tuple[int, int] | None:
        """Height and width that the processor gives a square image; `None` where it leaves images as they are."""
        if not getattr(self.image_processor, "do_resize", True):
            return None
        square = np.zeros((256, 256, 3), dtype=np.uint8)
        return tuple(self.image_processor(images=[square], return_tensors="pt")["pixel_values"].shape[-2:])


def makes_pixel_values(processing_class: Any) -> bool:
    """Whether this is an image processor."""
    return "pixel_values" in (getattr(processing_class, "model_input_names", None) or ())
