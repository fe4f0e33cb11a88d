# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Algorithms that minimise the task loss and choose their weights from those on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from hf_memaug.layers.real_memory import RealMemory
from hf_memaug.training.algorithms.base import ERM, Limits
from hf_memaug.training.forward_pass import learners

State = Mapping[str, torch.Tensor]


class Fish(ERM):
    """
    Fish (Shi et al., 2022, Algorithm 1): one step on each domain, in a random order, and then from where that began a
    part of the way to where it led, `w + e (w' - w)`: by that the domains' gradients come to agree. `meta_rate` is
    `e`.
    """

    compares_domains = True
    options = {"meta_rate": 0.5}
    one_domain_a_step = True

    def __init__(self, arguments, domains: list[str], feature_size: int | None):
        super().__init__(arguments, domains, feature_size)
        self.start: State = {}
        self.steps = 0

    def before_step(self, model: nn.Module) -> None:
        if not self.start:
            self.start = _copied(learners(model))

    @torch.no_grad()
    def after_step(self, model: nn.Module, is_last: bool) -> None:
        self.steps += 1
        if self.steps < len(self.domains) and not is_last:
            return
        now = learners(model)
        names = [name for name in now if name in self.start]
        values: list[torch.Tensor] = [now[name] for name in names]
        start = [self.start[name] for name in names]
        torch._foreach_copy_(values, torch._foreach_lerp(start, values, self.meta_rate))
        self.start, self.steps = {}, 0

    def get_extra_state(self) -> dict:
        return {"start": self.start, "steps": self.steps}

    def set_extra_state(self, state: dict) -> None:
        self.start, self.steps = state["start"], state["steps"]


class SWAD(ERM):
    """
    Stochastic weight averaging, densely (Cha et al., 2021, Algorithm 1): the mean of the weights of all steps from
    where the validation loss is lowest to where it rises. Losses are those of the evaluations during training.

    Options: `start_patience` (`N_s`), evaluations in which the loss does not fall below the first; `end_patience`
    (`N_e`), evaluations in which it stays above the tolerance; `tolerance` (`r`), times the mean loss of the first
    `N_s`. A run in which the loss falls to the end keeps the mean of the weights since the last evaluation.
    """

    chooses_by_evaluation = True
    options = {"start_patience": 3, "end_patience": 6, "tolerance": 1.3}
    limits = dict.fromkeys(options, Limits(least=1))

    def __init__(self, arguments, domains: list[str], feature_size: int | None):
        super().__init__(arguments, domains, feature_size)
        # The mean weights since the last evaluation, those of the last evaluations, and those from `t_s` on.
        self.segment, self.average = MeanWeights(), MeanWeights()
        self.waiting: list[tuple[float, MeanWeights]] = []
        self.limit: float | None = None
        self.is_over = False

    @classmethod
    def check(cls, arguments) -> None:
        if arguments.eval_strategy == "no":
            raise ValueError(
                '`algorithm="swad"` chooses the weights to average by the loss on dev rows of the source domains: set '
                '`eval_strategy="steps"` and `eval_steps`.'
            )
        if arguments.load_best_model_at_end:
            raise ValueError('`algorithm="swad"` ends with its own weights: leave `load_best_model_at_end` out.')

    def after_step(self, model: nn.Module, is_last: bool) -> None:
        if not self.is_over:
            self.segment.add_model(model)

    def after_evaluation(self, metrics: dict[str, float]) -> None:
        if "eval_loss" not in metrics:
            raise ValueError('`algorithm="swad"` found no `eval_loss`: give `eval_dataset` as one dataset.')
        if self.is_over or not self.segment.count:
            return
        loss = metrics["eval_loss"]
        self.waiting.append((loss, self.segment))
        self.segment = MeanWeights()
        losses = [loss for loss, _ in self.waiting]
        if self.limit is None:
            first = losses[-self.start_patience :]
            if len(first) == self.start_patience and first[0] == min(first):
                self.limit = self.tolerance * sum(first) / len(first)
            # What comes before `t_s` is not averaged.
            kept = self.start_patience - (self.limit is None)
            self.waiting = self.waiting[-kept:] if kept else []
            return
        self._settle(len(self.waiting) - self.end_patience)
        if len(losses) >= self.end_patience and min(losses[-self.end_patience :]) > self.limit:
            self.is_over = True
            # Those of the rise are not averaged.
            self.waiting.clear()

    def _settle(self, count: int) -> None:
        for _ in range(count):
            self.average.join(self.waiting.pop(0)[1])

    def after_training(self, model: nn.Module) -> None:
        if self.limit is not None:
            self._settle(len(self.waiting))
            self.average.join(self.segment)
            model.load_state_dict(self.average.values)
        elif self.segment.count or self.waiting:
            model.load_state_dict((self.segment if self.segment.count else self.waiting[-1][1]).values)

    def get_extra_state(self) -> dict:
        return {
            "segment": vars(self.segment),
            "waiting": [(loss, vars(segment)) for loss, segment in self.waiting],
            "average": vars(self.average),
            "limit": self.limit,
            "is_over": self.is_over,
        }

    def set_extra_state(self, state: dict) -> None:
        self.segment, self.average = MeanWeights(**state["segment"]), MeanWeights(**state["average"])
        self.waiting = [(loss, MeanWeights(**segment)) for loss, segment in state["waiting"]]
        self.limit, self.is_over = state["limit"], state["is_over"]


@dataclass
class MeanWeights:
    """A mean of weights, and what has none as it was last: whole numbers, and the `records`, by their names."""

    values: State = field(default_factory=dict)
    count: int = 0
    records: tuple[str, ...] = ()

    def add_model(self, model: nn.Module, decay: float = 1.0) -> None:
        self.add(model.state_dict(), records=_records(model), decay=decay)

    @torch.no_grad()
    def add(self, values: State, count: int = 1, records: tuple[str, ...] = (), decay: float = 1.0) -> None:
        """
        `values` count as much as `count` of what the mean is over. With a `decay` below 1, they count `1 - decay` of
        the whole at least, which makes the mean a moving one.
        """
        if not count:
            return
        self.count += count
        self.records = records
        if not self.values:
            self.values = _copied(values)
            return
        # Whole numbers: how many batches a norm has seen, for one.
        numbers = [name for name, mine in self.values.items() if mine.is_floating_point() and name not in records]
        mine, given = ([of[name] for name in numbers] for of in (self.values, values))
        torch._foreach_lerp_(mine, given, max(count / self.count, 1 - decay))
        for name in self.values.keys() - set(numbers):
            self.values[name].copy_(values[name])

    def join(self, other: "MeanWeights") -> None:
        self.add(other.values, other.count, other.records)


def _records(model: nn.Module) -> tuple[str, ...]:
    """Rows that a real memory holds: the mean of two is none that training has seen."""
    queues = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, RealMemory))
    return tuple(name for name, _ in model.named_buffers() if name.startswith(queues))


def _copied(values: State) -> State:
    return {name: value.detach().clone() for name, value in values.items()}
