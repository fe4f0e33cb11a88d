# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""`BestInMemory` restores the weights of the best evaluation."""

import pytest
import torch

from hf_memaug.training.callbacks import BestInMemory
from training.domain_runs import DOMAINS, domain_trainer, rows


def test_the_run_ends_with_the_weights_of_its_best_evaluation(tmp_path):
    # The best score comes twice, and not at the end.
    scores = [0.2, 0.5, 0.7, 0.3, 0.7, 0.6, 0.1, 0.4]
    snapshots = []

    def scripted(prediction):
        state = trainer.model.state_dict()
        snapshots.append({name: value.clone() for name, value in state.items()})
        return {"f1": scores[trainer.state.global_step - 1]}

    best = BestInMemory()
    trainer = domain_trainer(
        "kv",
        tmp_path,
        evaluate=rows(9),
        eval_strategy="steps",
        eval_steps=1,
        compute_metrics=scripted,
        callbacks=[best],
    )
    trainer.train()
    assert (best.best_score, best.best_step) == (pytest.approx(0.7), 3)
    at_step = snapshots[:: len(DOMAINS)]
    assert len(at_step) == len(scores)
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, at_step[2][name]), name
    assert any(not torch.equal(value, at_step[2][name]) for name, value in at_step[4].items())


def test_a_score_that_never_came_is_named(tmp_path):
    trainer = domain_trainer(
        "kv", tmp_path, evaluate=rows(9), eval_strategy="epoch", callbacks=[BestInMemory("eval_macro")]
    )
    with pytest.raises(KeyError, match="`metric` is 'eval_macro', and no evaluation gave it"):
        trainer.train()


def test_an_unseen_domain_chooses_nothing(tmp_path):
    seen, unseen = rows(9), rows(9, domains=("elsewhere",))
    best = BestInMemory()
    trainer = domain_trainer("kv", tmp_path, evaluate=unseen, eval_strategy="epoch", callbacks=[best])
    with pytest.raises(ValueError, match="rows of elsewhere, missing from `train_dataset`"):
        trainer.train()
    trainer = domain_trainer("kv", tmp_path, evaluate=seen, eval_strategy="epoch", callbacks=[best := BestInMemory()])
    trainer.train()
    score, weights = best.best_score, {n: v.clone() for n, v in trainer.model.state_dict().items()}
    trainer.evaluate(unseen)
    trainer.predict(unseen)
    assert best.best_score == score
    assert all(torch.equal(value, weights[name]) for name, value in trainer.model.state_dict().items())
