# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Nothing here needs a network or a GPU."""

import os
import sys

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
    from families import save_backbone

    return {kind: save_backbone(kind, tmp_path_factory.mktemp(kind)) for kind in ("roberta", "bert", "vit")}


@pytest.fixture
def here(monkeypatch, request):
    """The modules of the example in a test's `EXAMPLES`; what they set for their process does not outlive the test."""
    import transformers

    examples = request.module.EXAMPLES
    for folder in (examples.parent, examples):
        monkeypatch.syspath_prepend(str(folder))
    before, verbosity = set(sys.modules), transformers.logging.get_verbosity()
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        if str(examples) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


class _AtOnce:
    """A pool whose jobs are done in this process, which has what a test has put in its place."""

    def __init__(self, processes):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def apply_async(self, work, arguments):
        result = work(*arguments)
        return type("Result", (), {"ready": lambda self: True, "get": lambda self: result})()


@pytest.fixture
def at_once(here, monkeypatch):
    """The jobs of an example's tables in this process."""
    import run_lines

    monkeypatch.setattr(run_lines.multiprocessing, "get_context", lambda kind: type("Context", (), {"Pool": _AtOnce}))
