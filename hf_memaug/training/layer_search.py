# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Choosing the layers that read the memory of G-MAP (section 4.3 of the paper) within a budget."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class LayerTrial:
    """One training: the layers, its share of `max_steps`, and its score on dev rows."""

    memory_layers: list[int]
    share: float
    score: float


@dataclass
class LayerSearch:
    """
    Args:
        memory_layers: the best layers.
        score: their score in the longest training.
        trials: all trainings, in order.
        cost: the steps of all trials, in full trainings.
    """

    memory_layers: list[int]
    score: float
    trials: list[LayerTrial] = field(default_factory=list)
    cost: float = 0.0


def candidate_layers(strategy: str, depth: int) -> list[list[int]]:
    """
    The choices of the paper: one layer (`"single"`, `"gated"`), two layers half the depth apart (`"chunk_gated"`), or
    all layers from some layer on (`"multiple"`).
    """
    if strategy in ("single", "gated"):
        return [[layer] for layer in range(1, depth + 1)]
    if strategy == "chunk_gated":
        half = depth // 2
        found = [[layer, layer + half] for layer in range(1, depth - half + 1)]
        # Of an odd depth the default layers are one further apart.
        return sorted([*found, [half, depth]]) if depth % 2 else found
    if strategy == "multiple":
        return [list(range(first, depth + 1)) for first in range(1, depth + 1)]
    raise ValueError(f'`strategy` is {strategy!r}. Use "single", "multiple", "gated" or "chunk_gated".')


def search_memory_layers(
    make_trainer: Callable[[list[int]], object],
    candidates: Sequence[Sequence[int]],
    *,
    budget: float = 3.0,
    metric: str = "eval_f1",
    greater_is_better: bool = True,
) -> LayerSearch:
    """
    Successive halving: trains all candidates for a share of the steps, then the better half for twice as long, and so
    on. The score is that of the trainer's `eval_dataset`: use dev rows, never test rows.

    Args:
        make_trainer: returns a new `Trainer` with `max_steps` for the given layers.
        candidates: such as `candidate_layers(strategy, depth)`.
        budget: the cost of the whole search, in full trainings.
        metric: a key of `trainer.evaluate()`.
        greater_is_better: whether a larger value is better.
    """
    left = [list(layers) for layers in candidates]
    rounds = max(1, math.ceil(math.log2(len(left))))
    # Half as many trainings in each round, twice as long. None is longer than a full one.
    counts = [math.ceil(len(left) / 2**turn) for turn in range(rounds)]
    share = min(1.0, budget / sum(count * 2**turn for turn, count in enumerate(counts)))
    search = LayerSearch([], -math.inf)
    for _ in range(rounds):
        trials = [_trial(make_trainer(layers), layers, share, metric) for layers in left]
        search.trials += trials
        search.cost += sum(trial.share for trial in trials)
        # A training that diverged is the worst.
        sign = 1 if greater_is_better else -1
        trials.sort(key=lambda trial: math.inf if math.isnan(trial.score) else -sign * trial.score)
        left = [trial.memory_layers for trial in trials[: math.ceil(len(trials) / 2)]]
        search.memory_layers, search.score = trials[0].memory_layers, trials[0].score
        if share == 1.0:
            # A second full training would show the same.
            break
        share = min(1.0, 2 * share)
    return search


def _trial(trainer, layers: list[int], share: float, metric: str) -> LayerTrial:
    whole = trainer.args.max_steps
    steps = math.floor(share * whole + 1e-6)
    if steps <= 0:
        raise ValueError(f"`max_steps` ({whole}) is too small for a trial. Set it, or raise `budget`.")
    trainer.args.max_steps = steps
    trainer.train()
    metrics = trainer.evaluate()
    if metric not in metrics:
        raise ValueError(f"`metric` is {metric!r}, which the trainer does not measure. Use one of {sorted(metrics)}.")
    return LayerTrial(layers, steps / whole, float(metrics[metric]))
