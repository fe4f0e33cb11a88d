# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The training on one domain: a `DomainTrainer` that minimises what a strategy says."""

from typing import Any

import torch

from hf_memaug.training.domain_trainer import DomainTrainer
from hf_memaug.training.forward_pass import ForwardPass

OptimizerState = dict[str, dict[str, Any]]


class StageTrainer(DomainTrainer):
    """
    Args:
        strategy (`FineTuning`): what is minimised.
        optimizer_state (`dict`, *optional*): moments by the names of parameters, to begin with.

    All other arguments are those of [`DomainTrainer`].
    """

    # Penalties are means over a batch, or of no batch at all: `Trainer` must divide them by the accumulation steps.
    loss_is_scaled_for_ga: bool | None = False
    writes_card_after_training = False

    def __init__(self, *args, strategy, optimizer_state: OptimizerState | None = None, **kwargs):
        self.strategy = strategy
        self._optimizer_state = optimizer_state
        super().__init__(*args, **kwargs)

    def _train_loss(self, forward: ForwardPass, inputs: dict, domain_ids: torch.Tensor) -> torch.Tensor:
        return self.strategy.loss(forward(inputs, domain_ids), inputs, forward.model)

    def create_optimizer(self, model=None):
        created = self.optimizer is None
        optimizer = super().create_optimizer(model)
        if created and self._optimizer_state:
            adopt_state(optimizer, self.model, self._optimizer_state, self.strategy.appends_rows)
            self._optimizer_state = None
        return optimizer

    def one_row(self, row: dict) -> dict[str, torch.Tensor]:
        """A row as the model's inputs, in a batch of its own."""
        inputs = self._prepare_inputs(self.data_collator([row]))
        inputs.pop("domain_ids", None)
        return inputs


def named_state(optimizer, model) -> OptimizerState:
    """An optimizer's state by the names of the parameters, which outlive the parameters themselves."""
    optimizer = getattr(optimizer, "optimizer", optimizer)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]: {
            key: value.detach().cpu().clone() if torch.is_tensor(value) else value for key, value in state.items()
        }
        for parameter, state in optimizer.state.items()
        if id(parameter) in names
    }


def adopt_state(optimizer, model, stored: OptimizerState, appends_rows: bool) -> None:
    """
    Gives each parameter the state that one of its name had. Where slots or words were added, along whichever axis, the
    old ones keep theirs and the new ones begin with zeros; a parameter of another shape begins with none.
    """
    for name, parameter in model.named_parameters():
        values = {key: value for key, value in stored.get(name, {}).items() if getattr(value, "ndim", 0)}
        if not parameter.requires_grad or name not in stored:
            continue
        shapes = {value.shape for value in values.values()}
        same = shapes <= {parameter.shape}
        longer = appends_rows and all(_has_grown(shape, parameter.shape) for shape in shapes)
        if not same and not longer:
            continue
        state = {}
        for key, value in stored[name].items():
            if not torch.is_tensor(value):
                state[key] = value
                continue
            if value.ndim and not same:
                padded = torch.zeros(parameter.shape, dtype=value.dtype)
                padded[tuple(map(slice, value.shape))] = value
                value = padded
            # The count of steps stays where the optimizer looks for it, on the CPU.
            state[key] = value.to(parameter.device) if value.ndim else value.clone()
        optimizer.state[parameter] = state


def _has_grown(old: torch.Size, new: torch.Size) -> bool:
    """Along one axis, and no other."""
    return (
        len(old) == len(new) and sum(a != b for a, b in zip(old, new, strict=True)) == 1 and old.numel() < new.numel()
    )
