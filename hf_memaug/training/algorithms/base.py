# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What `DomainTrainer` asks of an algorithm, and the plainest one."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from hf_memaug.training.forward_pass import DomainBatch, ForwardPass


@dataclass(frozen=True)
class Limits:
    """The values of a numeric option: `least` or more, or more than `above`, and below `below`."""

    least: float = 0
    above: float | None = None
    below: float = math.inf
    whole: bool = False

    def hold(self, value: float) -> bool:
        return (value >= self.least if self.above is None else value > self.above) and value < self.below

    def __str__(self) -> str:
        lower = f"{self.least} or more" if self.above is None else f"more than {self.above}"
        return lower if self.below == math.inf else f"{lower} and below {self.below}"


class ERM(nn.Module):
    """
    Empirical risk minimisation: the task loss alone, over batches with equal shares of the domains.

    An algorithm that adds a penalty has a `penalty`; one that weighs the rows otherwise has a `loss`; one that needs
    other forward passes has a `train_loss`; and one that changes weights has a `before_step`, an `after_step`, an
    `after_evaluation` or an `after_training`. What it learns are parameters, and what it remembers are buffers or an
    extra state: all of it is in the checkpoint.
    """

    needs_features: ClassVar[bool] = False
    needs_head_inputs: ClassVar[bool] = False
    # 0 where there is no penalty; of a class that has one, 1 unless it says otherwise.
    default_penalty_weight: ClassVar[float] = 0.0
    # What `algorithm_kwargs` may say, and what holds without.
    options: ClassVar[dict[str, Any]] = {}
    # Of options, the numbers (by default 0 or more) or a tuple of the words that are allowed.
    limits: ClassVar[dict[str, Limits | tuple[str, ...]]] = {}
    # Whether it looks at the label of each row, which must then have one.
    reads_labels: ClassVar[bool] = False
    # Whether one domain alone gives it nothing to do.
    compares_domains: ClassVar[bool] = False
    # Whether one row in a batch does.
    compares_rows: ClassVar[bool] = False
    # Whether it chooses among weights by scores on dev rows.
    chooses_by_evaluation: ClassVar[bool] = False
    # Whether all rows of an optimizer step come from one domain.
    one_domain_a_step: ClassVar[bool] = False
    # Whether a training step can be a CUDA graph: it does the same at every step, and all of it on the device.
    can_be_graphed: ClassVar[bool] = True

    if TYPE_CHECKING:
        # Options and buffers are attributes.
        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "penalty" in vars(cls) and not cls.default_penalty_weight:
            cls.default_penalty_weight = 1.0  # else it would be there and add nothing

    def __init__(self, arguments, domains: list[str], feature_size: int | None):
        super().__init__()
        given = arguments.penalty_weight
        self.penalty_weight = self.default_penalty_weight if given is None else given
        self.anneal_steps = arguments.penalty_anneal_steps
        self.domains = domains
        for name, value in {**self.options, **(arguments.algorithm_kwargs or {})}.items():
            setattr(self, name, value)

    @classmethod
    def check(cls, arguments) -> None:
        """Refuses arguments with which the algorithm would not be what it is called."""

    @classmethod
    def check_run(cls, arguments, domains: list[str], model: nn.Module) -> None:
        """Refuses domains and models with which the algorithm would not do what it says."""
        if len(domains) == 1 and cls.compares_domains:
            raise ValueError(
                f'`train_dataset` has the one domain {domains}; `algorithm="{arguments.algorithm}"` compares several. '
                'Use `algorithm="erm"`.'
            )

    def train_loss(self, forward: ForwardPass, inputs: dict, domain_ids: torch.Tensor) -> torch.Tensor:
        return self.loss(forward(inputs, domain_ids))

    def loss(self, batch: DomainBatch) -> torch.Tensor:
        if self.penalty_weight == 0 or batch.step < self.anneal_steps:
            return batch.task_loss
        return batch.task_loss + self.penalty_weight * self.penalty(batch)

    def before_step(self, model: nn.Module) -> None:
        """Before the forward pass of each optimizer step."""

    def after_step(self, model: nn.Module, is_last: bool) -> None:
        """After each optimizer step."""

    def after_evaluation(self, metrics: dict[str, float]) -> None:
        """`metrics` are those of domains that are trained on."""

    def after_training(self, model: nn.Module) -> None:
        """The last thing that happens to the weights."""
