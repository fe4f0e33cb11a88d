# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Images as DomainBed varies them in training (Gulrajani and Lopez-Paz, 2021), on PIL alone."""

import math
import random

# The part of the image's area that a crop keeps, and its width over its height.
CROP_SCALE = (0.7, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)
JITTER = 0.3
GREY_RATE = 0.1
# The column that says by which numbers a row is augmented.
SEED_COLUMN = "augmentation_seed"


def augment_image(image, size: tuple[int, int] | None, generator: random.Random):
    """
    A random crop of 70 to 100 % of the image, flipped left to right every other time, with brightness, contrast,
    saturation and hue changed by up to 0.3 in a random order, and grey one time in ten.

    Args:
        image (`PIL.Image.Image`): an RGB image.
        size (`tuple[int, int]`, *optional*): height and width of the result. By default those of `image`.
        generator (`random.Random`): where the random numbers come from.
    """
    from PIL import Image, ImageEnhance, ImageOps

    height, width = (image.height, image.width) if size is None else size
    # Cropped first: a resize of the box alone would look at the pixels around it.
    image = image.crop(_crop_box(image.width, image.height, generator))
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    if generator.random() < 0.5:
        image = ImageOps.mirror(image)
    for enhancer in generator.sample((ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color, None), 4):
        change = generator.uniform(-JITTER, JITTER)
        image = enhancer(image).enhance(1 + change) if enhancer is not None else _turned_hue(image, change)
    return image.convert("L").convert("RGB") if generator.random() < GREY_RATE else image


def _crop_box(width: int, height: int, generator: random.Random) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = width * height * generator.uniform(*CROP_SCALE)
        ratio = math.exp(generator.uniform(math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1])))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = generator.randint(0, width - across), generator.randint(0, height - down)
            return left, top, left + across, top + down
    # Long and narrow: the middle, with the nearest ratio that is allowed.
    across, down = min(width, round(height * CROP_RATIO[1])), min(height, round(width / CROP_RATIO[0]))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def _turned_hue(image, change: float):
    """`change` is a part of the whole circle of hues."""
    hues = [(level + int(change * 255)) % 256 for level in range(256)]
    return image.convert("HSV").point([*hues, *range(256), *range(256)]).convert("RGB")
