# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What `DomainTrainer` asks of an algorithm, and the plainest one."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from torch import nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from hf_memaug.training.forward_pass import ForwardPass


@dataclass
class DomainBatch:
    """
    A batch after the forward pass.

    Args:
        task_loss: the model's own loss, the mean over the batch.
        logits, labels: `(rows, labels)` and `(rows,)`. Of questions the logits are `(rows, 2, tokens)`, of where an
            answer begins and where it ends, and labels there are none.
        features: `(rows, width)`, what the head reads; `None` unless the algorithm has `needs_features`.
        domain_ids: `(rows,)`, which domain each row comes from.
        step: how many optimizer steps were made before this one.
        head_inputs: `(rows, width)`, what the head's last layer reads; `None` unless the algorithm has
            `needs_head_inputs`.
        label_smoothing: that of `task_loss`.
    """

    task_loss: torch.Tensor
    # Tensors, as far as the algorithm asks for them.
    logits: Any
    labels: Any
    features: Any
    domain_ids: torch.Tensor
    step: int = 0
    head_inputs: Any = None
    label_smoothing: float = 0.0

    def shares(self, domains: int) -> tuple[torch.Tensor, torch.Tensor]:
        """
        `(domains, rows)`, each domain's row averaging over its own rows, and how many rows each domain has. A domain
        that is not in the batch has zeros. Nothing here waits for the device, and no shape depends on the rows.
        """
        members = (self.domain_ids == torch.arange(domains, device=self.domain_ids.device).unsqueeze(-1)).float()
        counts = members.sum(dim=-1)
        return members / counts.clamp(min=1).unsqueeze(-1), counts

    def row_losses(self, labels: torch.Tensor | None = None) -> torch.Tensor:
        """The cross-entropy of each row, by its own label or another."""
        if self.labels is None or self.labels.ndim != 1 or self.labels.is_floating_point():
            numbers = self.labels is not None and self.labels.is_floating_point()
            have = "no labels" if self.labels is None else "numbers for labels" if numbers else "a label for each token"
            raise ValueError(
                f"The algorithm looks at the loss of each row, and the rows have {have}. Choose one "
                'that looks at the loss of the batch alone, such as "erm" or "swad".'
            )
        labels = self.labels if labels is None else labels
        return F.cross_entropy(self.logits.float(), labels, reduction="none", label_smoothing=self.label_smoothing)

    def rest_of_loss(self) -> torch.Tensor:
        """What the model adds to the mean cross-entropy by itself, such as what keeps its experts busy."""
        return self.task_loss - self.row_losses().mean()


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


# The model's inputs, and other weights to run it with, to the batch after the forward pass.
Forward: TypeAlias = "ForwardPass"


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
    def check_domains(cls, arguments, domains: list[str]) -> None:
        """Refuses domains to train on that give the algorithm nothing to do."""
        if len(domains) == 1 and cls.compares_domains:
            raise ValueError(
                f'`train_dataset` has the one domain {domains}; `algorithm="{arguments.algorithm}"` compares several. '
                'Use `algorithm="erm"`.'
            )

    @classmethod
    def check_model(cls, model: nn.Module) -> None:
        """Refuses a model with which the algorithm would not do what it says."""

    def train_loss(self, forward: Forward, inputs: dict[str, torch.Tensor], domain_ids: torch.Tensor) -> torch.Tensor:
        return self.loss(forward(inputs, domain_ids))

    def loss(self, batch: DomainBatch) -> torch.Tensor:
        if self.penalty_weight == 0 or batch.step < self.anneal_steps:
            return batch.task_loss
        return batch.task_loss + self.penalty_weight * self.penalty(batch)

    def penalty(self, batch: DomainBatch) -> torch.Tensor:
        return batch.task_loss.new_zeros(())

    def before_step(self, model: nn.Module) -> None:
        """Before the forward pass of each optimizer step."""

    def after_step(self, model: nn.Module, is_last: bool) -> None:
        """After each optimizer step."""

    def after_evaluation(self, metrics: dict[str, float]) -> None:
        """`metrics` are those of domains that are trained on."""

    def after_training(self, model: nn.Module) -> None:
        """The last thing that happens to the weights."""
