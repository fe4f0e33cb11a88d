# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Hyper-parameters of a run: draw 0 is the defaults, the others are random, from the ranges of DomainBed (Gulrajani and
Lopez-Paz, 2021) where it has them.
"""

import random
from collections.abc import Callable
from typing import Any

from hf_memaug.evaluation.checks import check_name
from hf_memaug.training.algorithms import ALGORITHMS

# The ranges of steps are for runs of this length, and shrink and grow with it.
DOMAINBED_STEPS = 5000

Draw = Callable[[random.Random], Any]


def _power(low: float, high: float, base: float = 10) -> Draw:
    return lambda rng: base ** rng.uniform(low, high)


def _between(low: float, high: float) -> Draw:
    return lambda rng: rng.uniform(low, high)


def _one_of(*values: Any) -> Draw:
    return lambda rng: rng.choice(values)


# Drawn numbers that are whole. Steps are scaled by the length of the run.
WHOLE = ("batch_size", "discriminator_hidden_size", "penalty_anneal_steps")

# name: (default, how it is drawn). `batch_size` is rows of each domain.
COMMON: dict[str, tuple[Any, Draw]] = {
    "learning_rate": (5e-5, _power(-5, -3.5)),
    "weight_decay": (0.0, _power(-6, -2)),
    "dropout": (0.0, _one_of(0.0, 0.1, 0.5)),
    "batch_size": (32, _power(3, 5.5, base=2)),
}
# What an algorithm adds. The defaults are those of its class.
OWN: dict[str, dict[str, Draw]] = {
    "irm": {"penalty_weight": _power(-1, 5), "penalty_anneal_steps": _power(0, 4)},
    "vrex": {"penalty_weight": _power(-1, 5), "penalty_anneal_steps": _power(0, 4)},
    "fishr": {"penalty_weight": _power(1, 4), "penalty_anneal_steps": _between(0, 5000), "decay": _between(0.9, 0.99)},
    "coral": {"penalty_weight": _power(-1, 1)},
    "mmd": {"penalty_weight": _power(-1, 1)},
    "mldg": {"penalty_weight": _power(-1, 1)},
    "dann": {
        "penalty_weight": _power(-2, 2),
        "discriminator_learning_rate": _power(-4.5, -2.5),
        "discriminator_hidden_size": _power(6, 10, base=2),
    },
    "group_dro": {"rate": _power(-3, -1)},
    "mixup": {"alpha": _power(-1, 1)},
    "fish": {"meta_rate": _one_of(0.05, 0.1, 0.5)},
}


def draw(algorithm: str, hparams_seed: int, trial_seed: int, steps: int = DOMAINBED_STEPS) -> dict[str, Any]:
    """
    The hyper-parameters of a draw in a trial. Each is drawn by itself, so that a range that is added or taken away
    changes no other.
    """
    check_name("algorithm", algorithm, ALGORITHMS)
    if hparams_seed == 0:
        return {name: default for name, (default, _) in COMMON.items()}
    ranges = {**{name: how for name, (_, how) in COMMON.items()}, **OWN.get(algorithm, {})}
    # A string seed goes through SHA-512, so that it gives the same stream in every process.
    drawn = {name: how(random.Random(f"{name}/{hparams_seed}/{trial_seed}")) for name, how in ranges.items()}
    if "penalty_anneal_steps" in drawn:
        drawn["penalty_anneal_steps"] *= steps / DOMAINBED_STEPS
    return {name: int(value) if name in WHOLE else value for name, value in drawn.items()}


def known_names(algorithm: str) -> set[str]:
    """What may be set by hand for runs of an algorithm."""
    penalty = ("penalty_weight", "penalty_anneal_steps") if ALGORITHMS[algorithm].default_penalty_weight else ()
    return {*COMMON, *OWN.get(algorithm, {}), *ALGORITHMS[algorithm].options, *penalty}
