# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Tiny G-MAP models and their inputs."""

import torch
from families import gmap_config

import hf_memaug


def make_model(name: str = "GMAPModel", seed: int = 0, **kwargs):
    torch.manual_seed(seed)
    return getattr(hf_memaug, name)(gmap_config("gmap", **kwargs)).double().eval()


def make_inputs(padded: bool = True) -> dict:
    ids = torch.randint(11, 99, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if padded:
        mask[0, -3:] = 0
        mask[2, -1:] = 0
    return {"input_ids": ids, "attention_mask": mask}
