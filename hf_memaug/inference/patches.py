# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Pictures of the expert of each image patch."""

from typing import Any

import numpy as np

# The palette of Okabe and Ito, for colour-blind readers. The two colours that are hardest to tell apart on bright
# patches come last.
EXPERT_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#1A1A1A", "#D55E00", "#56B4E9")
# How much of a patch is the expert's colour. The rest is the image in grey, whose own colours would change it.
TINT, DARKEST, BRIGHTEST = 0.7, 0.15, 0.85


def image_as_seen(processor, image: Any) -> np.ndarray:
    """What a model is given of an image, resized and cropped, `(height, width, 3)` between 0 and 1."""
    pixels = processor(images=image, return_tensors="np", do_rescale=True, rescale_factor=1 / 255, do_normalize=False)
    return np.asarray(pixels["pixel_values"][0]).transpose(1, 2, 0).clip(0, 1)


def tinted(image: np.ndarray, experts: np.ndarray) -> np.ndarray:
    """
    The image in grey, each patch mixed with the colour of its expert.

    Args:
        image: `(height, width, 3)` between 0 and 1.
        experts: `(patch rows, patch columns)`, the number of the expert of each patch.
    """
    palette = np.array([[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in EXPERT_COLOURS])
    height, width = (side // count for side, count in zip(image.shape, experts.shape, strict=False))
    colours = palette[experts % len(palette)].repeat(height, axis=0).repeat(width, axis=1)
    rows, columns = colours.shape[:2]
    # Luminance of Rec. 601.
    grey = (image @ [0.299, 0.587, 0.114])[:rows, :columns, None]
    result = image.copy()
    result[:rows, :columns] = (1 - TINT) * (DARKEST + (BRIGHTEST - DARKEST) * grey) + TINT * colours
    return result
