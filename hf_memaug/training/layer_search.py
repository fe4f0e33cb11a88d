# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Which layers should read the memory of G-MAP: the paper tries them all (section 4.3), this tries them on a budget."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class LayerTrial:
    """One short or full training: the layers, the share of the steps that it took, and its score on dev rows."""

    memory_layers: list[int]
    share: float
    score: float


@dataclass
class LayerSearch:
    """
    Args:
        memory_layers: the best, for the configuration's field of that name.
        score: their score in the longest training.
        trials: all that was tried, in order.
        cost: of the steps that were taken, in full trainings.
    """

    memory_layers: list[int]
    score: float
    trials: list[LayerTrial] = field(default_factory=list)
    cost: float = 0.0


def candidate_layers(strategy: str, depth: int) -> list[list[int]]:
    """
    What a strategy can choose from, as the paper does: one layer; two layers half the depth apart, and the default
    ones; or, where each layer reads its own, the upper layers from some layer on.
    """
    if strategy in ("single", "gated"):
        return [[layer] for layer in range(1, depth + 1)]
    if strategy == "chunk_gated":
        half = depth // 2
        if half == 0:
            raise ValueError(f'`depth` is {depth}, and "chunk_gated" reads in two layers. Choose another `strategy`.')
        found = [[layer, layer + half] for layer in range(1, depth - half + 1)]
        # Of an odd depth the default layers are one further apart.
        return sorted([*found, [half, depth]]) if depth % 2 else found
    if strategy == "multiple":
        return [list(range(first, depth + 1)) for first in range(1, depth + 1)]
    raise ValueError(f'`strategy` is {strategy!r}: choose "single", "multiple", "gated" or "chunk_gated".')


def search_memory_layers(
    make_trainer: Callable[[list[int]], object],
    candidates: Sequence[Sequence[int]],
    *,
    budget: float = 3.0,
    metric: str = "eval_f1",
    greater_is_better: bool = True,
) -> LayerSearch:
    """
    Successive halving: all candidates are trained for a small share of the steps, the better half of them for twice as
    long, and so on. What they are scored on is the trainers' `eval_dataset`: give them dev rows, never test rows.

    Args:
        make_trainer: layers to a fresh `Trainer` with its `max_steps`, which a trial is given a share of.
        candidates: such as `candidate_layers(strategy, depth)`.
        budget: what the search may cost, in full trainings.
        metric: of `trainer.evaluate()`.
        greater_is_better: whether a larger value is the better one.
    """
    left = [list(layers) for layers in candidates]
    if not left or not 0 < budget < math.inf:
        raise ValueError("`candidates` must hold some layers, and `budget` must be above 0, such as 3.0 trainings.")
    rounds = max(1, math.ceil(math.log2(len(left))))
    # Half as many trainings in each round, twice as long. None is longer than a full one.
    counts = [math.ceil(len(left) / 2**turn) for turn in range(rounds)]
    share = min(1.0, budget / sum(count * 2**turn for turn, count in enumerate(counts)))
    search = LayerSearch([], -math.inf)
    for _ in range(rounds):
        scored = []
        for layers in left:
            trial = _trial(make_trainer(layers), layers, share, metric)
            search.trials.append(trial)
            search.cost += trial.share
            # A training that diverged is the worst.
            worth = trial.score if greater_is_better else -trial.score
            scored.append((-math.inf if math.isnan(worth) else worth, layers))
        scored.sort(key=lambda one: -one[0])
        left = [layers for _, layers in scored[: math.ceil(len(scored) / 2)]]
        if share == 1.0:
            # Trained in full: once more would show the same.
            break
        share = min(1.0, 2 * share)
    search.memory_layers = left[0]
    search.score = next(t.score for t in reversed(search.trials) if t.memory_layers == left[0])
    return search


def _trial(trainer, layers: list[int], share: float, metric: str) -> LayerTrial:
    found = getattr(getattr(getattr(trainer, "model", None), "config", None), "augmented_layers", layers)
    if found != layers:
        raise ValueError(f"`make_trainer` was given {layers}, and its model reads in {found}. Set `memory_layers`.")
    whole = trainer.args.max_steps
    steps = math.floor(share * whole + 1e-6)
    if steps <= 0:
        raise ValueError(
            f"A trial takes a share of `max_steps` ({whole}), here less than one step. Set it, or raise `budget`."
        )
    trainer.args.max_steps = steps
    trainer.train()
    metrics = trainer.evaluate()
    if metric not in metrics:
        raise ValueError(f"`metric` is {metric!r}, which the trainer does not measure. There is: {sorted(metrics)}.")
    return LayerTrial(layers, steps / whole, float(metrics[metric]))
