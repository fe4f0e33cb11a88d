# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Nothing here needs a network or a GPU."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from browser import browser, open_page  # noqa: F401 (fixtures)

torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


def pytest_runtest_teardown():
    # On a CPU without bf16, torch gives up oneDNN for the whole process at the first product in bf16, and all that is
    # computed from then on differs in its last bits from what a fresh process computes.
    if not torch.backends.mkldnn.enabled:
        torch.backends.mkldnn.enabled = True


@pytest.fixture(scope="session")
def backbones(tmp_path_factory) -> dict[str, str]:
    """Plain checkpoints, one of each kind that a family is built on."""
    from tiny_backbones import save_backbone

    return {kind: save_backbone(kind, tmp_path_factory.mktemp(kind)) for kind in ("roberta", "bert", "vit")}
