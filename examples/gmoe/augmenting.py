# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What DomainBed does to images in training, to many of them at once."""

import math

import torch
from torch.nn import functional as F

from hf_memaug.data.augmentation import CROP_RATIO, CROP_SCALE, GREY_RATE, JITTER

GREY = (0.299, 0.587, 0.114)  # luma


def normalised(images: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    return (images.float() / 255 - mean) / std


def augmented(images: torch.Tensor) -> torch.Tensor:
    """
    What `hf_memaug.data.augmentation.augment_image` does, to all images `(rows, 3, height, width)` of 0 to 1 at once,
    on the device; colours always in one order, and hues turned in YIQ.
    """
    images = _cropped(images)
    images = _jittered(images)
    grey = _grey(images)
    return torch.where(_chance(images) < GREY_RATE, grey, images)


def _chance(images: torch.Tensor) -> torch.Tensor:
    return torch.rand(len(images), 1, 1, 1, device=images.device)


def _cropped(images: torch.Tensor) -> torch.Tensor:
    rows, device = len(images), images.device
    area = torch.empty(rows, device=device).uniform_(*CROP_SCALE)
    ratio = torch.empty(rows, device=device).uniform_(*(math.log(one) for one in CROP_RATIO)).exp()
    # Half the width and height of the crop, where the image reaches from -1 to 1.
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    x, y = ((2 * torch.rand(rows, device=device) - 1) * (1 - size) for size in (width, height))
    flip = torch.where(torch.rand(rows, device=device) < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(x)
    moves = torch.stack([torch.stack([width * flip, zero, x], dim=-1), torch.stack([zero, height, y], dim=-1)], dim=1)
    grid = F.affine_grid(moves, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _grey(images: torch.Tensor) -> torch.Tensor:
    return _mixed(images, GREY).expand_as(images)


def _mixed(images: torch.Tensor, shares: tuple[float, ...]) -> torch.Tensor:
    """One channel of three. By numbers, not by a tensor of them: a CUDA graph cannot fetch one."""
    return sum(share * one for share, one in zip(shares, images.split(1, dim=1), strict=True))


def _jittered(images: torch.Tensor) -> torch.Tensor:
    """Brightness, contrast, saturation and hue."""
    factors = [1 + JITTER * (2 * _chance(images) - 1) for _ in range(3)]
    images = (images * factors[0]).clamp(0, 1)
    mean = _grey(images).mean(dim=(1, 2, 3), keepdim=True)
    images = torch.lerp(mean.expand_as(images), images, factors[1]).clamp(0, 1)
    images = torch.lerp(_grey(images), images, factors[2]).clamp(0, 1)
    # A turn of the hue, as a rotation of the colours about grey, in YIQ.
    angle = 2 * torch.pi * JITTER * (2 * _chance(images) - 1)
    luma, i, q = (_mixed(images, shares) for shares in (GREY, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)))
    turned = torch.cat([luma, i * angle.cos() - q * angle.sin(), i * angle.sin() + q * angle.cos()], dim=1)
    to_rgb = ((1.0, 0.956, 0.621), (1.0, -0.272, -0.647), (1.0, -1.106, 1.703))
    return torch.cat([_mixed(turned, shares) for shares in to_rgb], dim=1).clamp(0, 1)
