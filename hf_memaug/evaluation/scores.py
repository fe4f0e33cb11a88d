# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The scores of the papers as plain functions on sequences, arrays or tensors."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from hf_memaug.evaluation.checks import as_numpy, check_name

METRICS = {"accuracy": "Accuracy", "macro_f1": "MacroF1", "micro_f1": "MicroF1", "a_distance": "ADistance"}


def accuracy(predictions: Any, references: Any) -> float:
    """Share of examples whose prediction is the reference, in [0, 1]."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(as_numpy(references), as_numpy(predictions)))


def macro_f1(predictions: Any, references: Any, *, labels: Sequence | None = None) -> float:
    """Unweighted mean over labels of F1 = 2 TP / (2 TP + FP + FN), in [0, 1]; an F1 of 0 / 0 counts as 0.

    By default the labels are averaged that occur in `references` or in `predictions`, as in scikit-learn. With
    `labels`, exactly these are: an absent one adds a 0 to the mean. Scores of several domains are comparable only when
    the same labels are averaged: give `labels=range(n)` then.
    """
    return _f1("macro", predictions, references, labels)


def micro_f1(predictions: Any, references: Any, *, labels: Sequence | None = None) -> float:
    """F1 = 2 ΣTP / (2 ΣTP + ΣFP + ΣFN), the sums over labels, in [0, 1]; 0 / 0 counts as 0.

    Over all labels this equals the accuracy. It differs when `labels` leaves one out, such as a "no relation" class.
    """
    return _f1("micro", predictions, references, labels)


def matthews_correlation(predictions: Any, references: Any) -> float:
    """Matthews correlation coefficient, in [-1, 1], of two labels or more (R_K of Gorodkin, 2004); 0 / 0 is 0."""
    from sklearn.metrics import matthews_corrcoef

    predictions, references = as_numpy(predictions), as_numpy(references)
    # scikit-learn warns of a single label.
    if len(np.union1d(predictions, references)) == 1:
        return 0.0
    return float(matthews_corrcoef(references, predictions))


def auroc(scores: Any, references: Any) -> float:
    """Area under the ROC curve, in [0, 1]: how often an example of label 1 scores above one of label 0, ties by half.

    Args:
        scores: a number for each example, higher where label 1 is more likely.
        references: true labels, 0 or 1; both must occur.
    """
    from sklearn.metrics import roc_auc_score

    references = as_numpy(references)
    if set(references.tolist()) != {0, 1}:
        raise ValueError(
            f"`references` holds the labels {sorted(set(references.tolist()))}: it must hold 0 and 1, and no other."
        )
    return float(roc_auc_score(references, as_numpy(scores)))


def class_scores(logits: np.ndarray, references: np.ndarray) -> dict[str, float]:
    """`accuracy`, `f1` (macro-F1), `mcc`, and with two labels that both occur `auroc`; of logits `(rows, labels)`."""
    predicted, num_labels = logits.argmax(axis=-1), logits.shape[-1]
    found = {
        "accuracy": accuracy(predicted, references),
        # Over all labels, also where one is missing from a small domain.
        "f1": macro_f1(predicted, references, labels=range(num_labels)),
        "mcc": matthews_correlation(predicted, references),
    }
    if num_labels == 2 and len(np.unique(references)) == 2 and np.isfinite(logits).all():
        found["auroc"] = auroc(logits[:, 1] - logits[:, 0], references)
    return found


def r2(predictions: Any, references: Any) -> float:
    """Coefficient of determination of numbers, 1 at best; 0 where all references are equal."""
    predictions, references = as_numpy(predictions), as_numpy(references)
    total = np.square(references - references.mean()).sum()
    return float(1 - np.square(references - predictions).sum() / total) if total else 0.0


def pearson(predictions: Any, references: Any) -> float:
    """Pearson's correlation of numbers, in [-1, 1]; 0 where one side is constant."""
    first, second = (as_numpy(one).astype(float) for one in (predictions, references))
    return float(np.corrcoef(first, second)[0, 1]) if first.std() and second.std() else 0.0


def a_distance(source_features: Any, target_features: Any, *, seed: int = 0) -> float:
    """Proxy A-distance 2 (1 - 2ε) between two sets of feature vectors, clamped to [0, 2].

    ε is the error of a linear classifier (logistic regression on standardised features) that tells source from target,
    on the half of the examples that is held out (Ben-David et al., "Analysis of representations for domain adaptation",
    NeurIPS 2006). The larger domain is subsampled to the size of the smaller, so that ε is 0.5 when the domains cannot
    be told apart.

    Args:
        source_features, target_features: arrays of shape (examples, features).
        seed: seed of the subsampling and of the split.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    source, target = as_numpy(source_features), as_numpy(target_features)
    generator = np.random.default_rng(seed)
    size = min(len(source), len(target))
    held_out = round(size / 2)
    domains = [generator.permutation(features)[:size] for features in (source, target)]
    test = np.concatenate([features[:held_out] for features in domains])
    train = np.concatenate([features[held_out:] for features in domains])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    with warnings.catch_warnings():
        # Any linear separator gives a valid proxy, also one that has not converged.
        warnings.simplefilter("ignore")
        classifier.fit(train, np.repeat([0, 1], size - held_out))
    error = float(np.mean(classifier.predict(test) != np.repeat([0, 1], held_out)))
    return float(np.clip(2.0 * (1.0 - 2.0 * error), 0.0, 2.0))


def _f1(average: str, predictions: Any, references: Any, labels: Sequence | None) -> float:
    from sklearn.metrics import f1_score

    averaged = None if labels is None else as_numpy(labels).tolist()
    predictions, references = as_numpy(predictions), as_numpy(references)
    return float(f1_score(references, predictions, labels=averaged, average=average, zero_division=0))


def load_metric(name: str, **load_options: Any) -> Any:
    """A score as an `evaluate` module. Needs no network. To combine several, use `evaluate.combine`.

    Args:
        name: one of `METRICS`.
        load_options: go to `evaluate.EvaluationModule`: `num_process`, `process_id`, `cache_dir`, ...
    """
    check_name("name", name, METRICS)
    from hf_memaug.evaluation import evaluate_modules

    return getattr(evaluate_modules, METRICS[name])(**load_options)
