# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Nothing here needs a network or a GPU."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


@pytest.fixture(scope="session")
def backbones(tmp_path_factory) -> dict[str, str]:
    """Plain checkpoints, one of each kind that a family is built on."""
    from families import save_backbone

    return {kind: save_backbone(kind, tmp_path_factory.mktemp(kind)) for kind in ("roberta", "bert", "vit")}
