# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The better half goes on for twice as long, within the budget."""

from types import SimpleNamespace

import pytest
import torch
import transformers
from families import gmap_config

from hf_memaug import GMAPForSequenceClassification
from hf_memaug.training import candidate_layers, search_memory_layers


def test_candidates_are_the_papers():
    assert candidate_layers("gated", 3) == candidate_layers("single", 3) == [[1], [2], [3]]
    assert candidate_layers("chunk_gated", 12) == [[i, i + 6] for i in range(1, 7)]
    assert candidate_layers("chunk_gated", 5) == [[1, 3], [2, 4], [2, 5], [3, 5]]
    assert candidate_layers("multiple", 3) == [[1, 2, 3], [2, 3], [3]]
    with pytest.raises(ValueError, match="`strategy` is 'both'"):
        candidate_layers("both", 3)


class Pretended:
    """A trainer whose score grows with the layer, and whose steps are counted."""

    def __init__(self, layers, steps, log, sign=1):
        self.args, self.layers, self.log, self.sign = SimpleNamespace(max_steps=steps), layers, log, sign

    def train(self):
        self.log.append((self.layers[0], self.args.max_steps))

    def evaluate(self):
        return {"eval_f1": self.sign * self.layers[0] / 10, "eval_loss": 1.0}


def test_the_better_half_goes_on_for_twice_as_long():
    log = []
    found = search_memory_layers(lambda layers: Pretended(layers, 800, log), candidate_layers("gated", 8), budget=3.0)
    assert found.memory_layers == [8] and found.score == 0.8
    # Three rounds of one full training each: 8 x 1/8, 4 x 1/4, 2 x 1/2.
    assert found.cost == pytest.approx(3.0)
    assert [steps for _, steps in log] == [100] * 8 + [200] * 4 + [400] * 2
    assert {layer for layer, steps in log if steps == 400} == {7, 8}
    assert len(found.trials) == 14 and found.trials[-1].share == pytest.approx(0.5)


def test_on_a_real_trainer(tmp_path):
    ids = torch.randint(11, 99, (24, 9), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": one, "attention_mask": torch.ones_like(one), "labels": one[1] % 3} for one in ids]

    def make_trainer(layers):
        torch.manual_seed(0)
        model = GMAPForSequenceClassification(gmap_config("gmap", strategy="gated", memory_layers=layers))
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=8, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True
        )
        return transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)

    found = search_memory_layers(
        make_trainer, candidate_layers("gated", 4), budget=2, metric="eval_loss", greater_is_better=False
    )
    assert found.memory_layers in candidate_layers("gated", 4) and len(found.trials) == 6
    best = min(trial.score for trial in found.trials if trial.share == 0.5)
    assert found.score == best


@pytest.mark.parametrize("count", [2, 5, 12])
def test_the_budget_is_kept(count):
    log = []
    found = search_memory_layers(
        lambda layers: Pretended(layers, 10**6, log), candidate_layers("gated", count), budget=1.5
    )
    assert 1.4999 < found.cost <= 1.5 and found.memory_layers == [count]
    assert found.cost == pytest.approx(sum(steps for _, steps in log) / 10**6)


def test_a_training_that_came_to_nothing_does_not_win():
    class Broken(Pretended):
        def evaluate(self):
            return {"eval_f1": float("nan") if self.layers == [1] else 0.1}

    for better in (True, False):
        found = search_memory_layers(lambda layers: Broken(layers, 8, []), [[1], [2], [3]], greater_is_better=better)
        assert found.memory_layers != [1]
    with pytest.raises(ValueError, match=r"`metric` is 'eval_em'.*\['eval_f1'\]"):
        search_memory_layers(lambda layers: Broken(layers, 8, []), [[1]], metric="eval_em")
