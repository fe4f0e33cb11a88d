# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from hf_memaug.evaluation import a_distance, accuracy, auroc, macro_f1, matthews_correlation, micro_f1


def test_by_hand():
    # class 0: TP 1, FP 1, FN 1 -> 1/2; class 1: TP 1, FP 1, FN 0 -> 2/3; class 2: TP 0, FP 0, FN 1 -> 0.
    predictions, references = [0, 0, 1, 1], [0, 2, 1, 0]
    assert accuracy(predictions, references) == 0.5
    assert macro_f1(predictions, references) == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)
    assert micro_f1(predictions, references) == pytest.approx(0.5)
    # classes 1 and 2 only: TP 1, FP 1, FN 1.
    assert micro_f1(predictions, references, labels=[1, 2]) == pytest.approx(0.5)
    assert macro_f1(predictions, references, labels=[1, 2]) == pytest.approx(1 / 3)
    assert all(type(score(predictions, references)) is float for score in (accuracy, macro_f1, micro_f1))


def test_absent_class_counts_only_when_asked():
    assert macro_f1([0, 1], [0, 1]) == 1.0
    assert macro_f1([0, 1], [0, 1], labels=range(4)) == 0.5
    assert micro_f1([0, 1], [0, 1], labels=range(4)) == 1.0


def test_accepts_tensors_and_names():
    assert accuracy(torch.tensor([0, 1, 1]), torch.tensor([0.0, 1.0, 0.0])) == pytest.approx(2 / 3)
    assert macro_f1(["pos", "neg"], ["pos", "pos"], labels=["pos"]) == pytest.approx(2 / 3)
    features = torch.randn(20, 3, requires_grad=True)
    assert a_distance(features.to(torch.bfloat16), features.detach() + 50) == 2.0


@pytest.mark.filterwarnings("error")
class TestADistance:
    def features(self, n_source=400, n_target=400, shift=0.0, width=4):
        rng = np.random.default_rng(1)
        return rng.normal(size=(n_source, width)), rng.normal(size=(n_target, width)) + shift

    def test_separable_is_two(self):
        assert a_distance(*self.features(shift=20.0)) == 2.0

    def test_same_distribution_is_near_zero(self):
        # The error of 400 fair coin tosses has a standard deviation of 0.025, the distance one of 0.1.
        assert a_distance(*self.features()) < 0.3

    def test_known_overlap(self):
        # Two unit Gaussians 2 apart: the best linear error is Φ(-1) = 0.1587, the distance 2 (1 - 2 · 0.1587) = 1.365.
        source, target = self.features(n_source=4000, n_target=4000, width=1)
        assert a_distance(source, target + 2.0) == pytest.approx(1.365, abs=0.1)

    def test_imbalance_is_no_signal(self):
        # Unbalanced, always answering "source" would err on 5 % only and pass for a distance of 1.8.
        assert a_distance(*self.features(n_source=4000, n_target=200)) < 0.5

    def test_seed(self):
        source, target = self.features(n_source=60, n_target=40, shift=0.5)
        values = [a_distance(source, target, seed=seed) for seed in (0, 0, 1, 2, 3, 4)]
        assert values[0] == values[1]
        assert len(set(values)) > 1

    def test_constant_feature(self):
        assert a_distance(np.ones((10, 2)), np.ones((10, 2))) == 0.0


def test_matthews_correlation_by_hand():
    # TP 2, TN 1, FP 1, FN 0: (2 * 1 - 1 * 0) / sqrt(3 * 2 * 2 * 1)
    assert matthews_correlation([1, 1, 1, 0], [1, 1, 0, 0]) == pytest.approx(2 / 12**0.5)
    assert matthews_correlation([1, 0], [1, 0]) == pytest.approx(1)
    assert matthews_correlation([0, 1], [1, 0]) == pytest.approx(-1)
    assert matthews_correlation([1, 1, 1], [1, 1, 0]) == 0.0
    assert matthews_correlation(torch.tensor([0, 1]), torch.tensor([0, 1])) == pytest.approx(1)


def test_auroc_takes_logits_of_any_kind():
    logits = torch.tensor([[2.0, -1.0], [0.0, 3.0], [1.0, 1.5]], dtype=torch.bfloat16, requires_grad=True)
    assert auroc(logits[:, 1] - logits[:, 0], torch.tensor([0, 1, 1])) == 1.0
    assert auroc([0.5, 0.5], [0, 1]) == 0.5 and type(auroc([0.5, 0.5], [0, 1])) is float


@pytest.mark.parametrize("references", [[1, 1], [0, 2]])
def test_auroc_needs_both_classes(references):
    with pytest.raises(ValueError, match="it must hold 0 and 1, and no other"):
        auroc([0.1, 0.2], references)
