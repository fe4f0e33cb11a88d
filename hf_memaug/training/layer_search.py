# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Which layers should read the memory of G-MAP: the paper tries them all (section 4.3), this tries them on a budget."""

import copy
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
    if not left:
        raise ValueError("`candidates` is empty: use `candidate_layers(strategy, depth)`.")
    rounds = max(1, math.ceil(math.log2(len(left)))) if len(left) > 1 else 1
    if not 0 < budget < math.inf:
        raise ValueError(f"`budget` is {budget}: give the search some share of a training, such as 3.0 of them.")
    # Half as many trainings in each round, twice as long. None is longer than a full one.
    counts = [len(left)]
    while len(counts) < rounds:
        counts.append(math.ceil(counts[-1] / 2))
    least = sum(count * 2**turn for turn, count in enumerate(counts))
    share = min(1.0, budget / least)
    search = LayerSearch([], -math.inf)
    for _ in range(rounds):
        scored = []
        for layers in left:
            trainer = make_trainer(layers)
            _check_layers(trainer, layers, [] if search.trials else left)
            taken = _give_steps(trainer, share, budget, least)
            score = _score(trainer, metric)
            search.trials.append(LayerTrial(layers, taken, score))
            search.cost += taken
            # A training that came to nothing is the worst.
            worth = -math.inf if math.isnan(score) else score if greater_is_better else -score
            scored.append((worth, layers))
        scored.sort(key=lambda one: -one[0])
        if scored[0][0] == -math.inf:
            raise ValueError(
                f"`metric` {metric!r} is no number after any of the {len(scored)} trainings: they came to nothing. "
                "Lower the learning rate, or look at the data."
            )
        left = [layers for _, layers in scored[: max(1, math.ceil(len(scored) / 2))]]
        if share == 1.0:
            # Trained in full: once more would show the same.
            break
        share = min(1.0, 2 * share)
    search.memory_layers = left[0]
    search.score = next(t.score for t in reversed(search.trials) if t.memory_layers == left[0])
    return search


def _check_layers(trainer, layers: list[int], candidates: list[list[int]]) -> None:
    """The model reads in the layers that it was to, and its encoder has those of all `candidates`."""
    config = getattr(getattr(trainer, "model", None), "config", None)
    if not hasattr(config, "augmented_layers"):
        return
    if config.augmented_layers != layers:
        raise ValueError(
            f"`make_trainer` was given the layers {layers}, and its model reads in {config.augmented_layers}. Give "
            "them to the model as `memory_layers`."
        )
    for one in candidates:
        tried = copy.deepcopy(config)
        tried.memory_layers = one
        tried.check_encoders()


def _give_steps(trainer, share: float, budget: float, least: int) -> float:
    """Sets the steps of a trial, whole ones; returns the share of all that they are."""
    if trainer.args.max_steps <= 0:
        raise ValueError(
            "`make_trainer` gives a trainer without `max_steps`, of which a trial takes its share. Set it."
        )
    whole = trainer.args.max_steps
    steps = math.floor(share * whole + 1e-6)
    if steps == 0:
        raise ValueError(
            f"`budget` is {budget}, which leaves less than a step of the {whole} to each candidate. Give at least "
            f"{math.ceil(100 * least / whole) / 100:g}, or fewer `candidates`."
        )
    trainer.args.max_steps = steps
    return steps / whole


def _score(trainer, metric: str) -> float:
    trainer.train()
    metrics = trainer.evaluate()
    if metric not in metrics:
        raise ValueError(f"`metric` is {metric!r}, which the trainer does not measure. There is: {sorted(metrics)}.")
    return float(metrics[metric])
