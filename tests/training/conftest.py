# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What the tests of `ContinualTrainer` share."""

import gc

import pytest


@pytest.fixture(scope="session")
def light_collector():
    """The trainer collects after each stage, which takes long where so much else has been imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def seen(monkeypatch):
    """The domains that each stage is given rows of, to train and to select on."""
    from hf_memaug.training.continual.stage import StageTrainer

    calls = []
    begin = StageTrainer.__init__

    def noted(self, *args, train_dataset, eval_dataset, **kwargs):
        calls.append((set(train_dataset["domain"]), set(eval_dataset["domain"]) if eval_dataset else set()))
        begin(self, *args, train_dataset=train_dataset, eval_dataset=eval_dataset, **kwargs)

    monkeypatch.setattr(StageTrainer, "__init__", noted)
    return calls
