# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
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
    from hf_memaug.training import continual_trainer

    calls = []
    begin = continual_trainer.trainer_of_phase

    def noted(*args, train_dataset, eval_dataset, **kwargs):
        calls.append((set(train_dataset["domain"]), set(eval_dataset["domain"]) if eval_dataset else set()))
        return begin(*args, train_dataset=train_dataset, eval_dataset=eval_dataset, **kwargs)

    monkeypatch.setattr(continual_trainer, "trainer_of_phase", noted)
    return calls
