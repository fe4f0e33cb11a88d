# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What `ContinualTrainer` asks of a strategy, the plainest one, and the two references of the paper's tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hf_memaug.data import DomainDataset
from hf_memaug.training.algorithms.base import ERM, Limits
from hf_memaug.training.forward_pass import DomainBatch, ForwardPass


class FineTuning:
    """
    `F` of the paper: all parameters are trained on each domain in turn, with nothing against forgetting.

    A strategy that changes the model before a domain has a `grow` or a `begin`; one that trains on other rows has
    `training_rows`; one that minimises something else has a `loss`; one that takes in a domain without training has a
    `write`; and one that remembers something of a domain has an `end`, and names what it remembers in `stored`: this
    state lies beside the weights of each stage.
    """

    # Verbs that the model must have.
    needs: ClassVar[tuple[str, ...]] = ()
    # Whether it trains models that answer questions.
    supports_questions: ClassVar[bool] = True
    # Whether it writes rows to a writable memory, which do not fit any more when the classifier is trained.
    writes: ClassVar[bool] = False
    # What `strategy_kwargs` may say, and what holds without.
    options: ClassVar[dict[str, Any]] = {}
    # As in an algorithm.
    limits: ClassVar[dict[str, Limits | tuple[str, ...]]] = {}
    # How the matrix is read: "sequence", "diagonal" (each row is a run of its own) or "last_row".
    kind: ClassVar[str] = "sequence"
    # Whether every domain is begun with the weights that the run began with.
    restarts: ClassVar[bool] = False
    # Whether it needs what it stored of earlier domains to train on the next one.
    needs_state: ClassVar[bool] = False
    # The attributes that are its `state`.
    stored: ClassVar[tuple[str, ...]] = ()
    # Where that lies; a name that begins with "_" is not pushed to the hub.
    state_file: ClassVar[str] = "strategy.pt"
    # False leaves the order of the rows to `train_sampling_strategy`; None leaves it to `balanced_batches`.
    balanced_batches: ClassVar[bool | None] = None

    if TYPE_CHECKING:
        # Options are attributes.
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, arguments):
        self.name = arguments.strategy
        for name, value in {**self.options, **(arguments.strategy_kwargs or {})}.items():
            setattr(self, name, value)

    def check_model(self, model: Any, processing_class, rows: DomainDataset) -> None:
        """Raises an error for a model that lacks a verb, and for rows that the strategy cannot train on."""
        if "start_positions" in rows.column_names and not self.supports_questions:
            raise ValueError(
                f'`strategy="{self.name}"` does not support questions. Choose another strategy, such as "ewc".'
            )
        is_writable = getattr(model.config, "model_type", None) == "writable_memory"
        if is_writable and model.config.memory_rows and not self.writes:
            raise ValueError(
                f'`strategy="{self.name}"` trains the classifier, and the rows in the memory of `model` would not fit '
                'any more. Use `strategy="write"`, or erase them first.'
            )
        for verb in self.needs:
            if not hasattr(model, verb):
                raise ValueError(
                    f'`strategy="{self.name}"` calls `model.{verb}(...)`, which `{type(model).__name__}` does not '
                    'have. Choose a model that grows, such as `MemoryRNNForSequenceClassification`, or `strategy="f"`.'
                )

    def stages(self, domains: Sequence[str]) -> list[tuple[str, ...]]:
        """The domains of each stage."""
        return [(name,) for name in domains]

    def grow(self, model: Any, rows: DomainDataset, processing_class) -> dict[str, Any]:
        """Before every domain but the first. Returns what has grown, for the record."""
        return {}

    def begin(self, model: Any, number: int) -> Any:
        """Before the training of every stage, after growth; again in a run that resumes. Returns the model to train."""
        return model

    def write(self, trainer, number: int, rows: DomainDataset) -> Any:
        """
        Takes in the rows of a stage without training. `trainer` is the `ContinualTrainer`. Returns the model; `None`
        where it is to be trained.
        """
        return None

    def training_rows(self, rows: DomainDataset) -> DomainDataset:
        """The rows of a stage, before they are tokenized."""
        return rows

    def loss(self, batch: DomainBatch, inputs: dict[str, torch.Tensor], model: Any) -> torch.Tensor:
        return batch.task_loss

    def end(self, trainer, rows: DomainDataset, raw_rows: DomainDataset, seed: int) -> None:
        """
        After the training of a stage. `rows` are those of its domains, as the model takes them; `raw_rows` the same
        as they were given.
        """

    def rebuild(self, model: Any, folder: str) -> Any:
        """The model that a stage has left in `folder`; `None` where its weights fit into `model`."""
        return None

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.stored}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in self.stored:
            setattr(self, name, state[name])


class InDomain(FineTuning):
    """A reference: each domain is trained alone, from the weights that the run began with. ACC is R's diagonal."""

    kind = "diagonal"
    restarts = True


class MultiTask(FineTuning):
    """A reference: all domains are trained at once, in equal shares (`balanced_batches`). R has one row."""

    kind = "last_row"

    def stages(self, domains: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(domains)]


class StageLoss(ERM):
    """What a strategy minimises, as the algorithm of the trainer of a stage."""

    strategy: FineTuning

    def train_loss(self, forward: ForwardPass, inputs: dict, domain_ids: torch.Tensor) -> torch.Tensor:
        return self.strategy.loss(forward(inputs, domain_ids), inputs, forward.model)
