# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeping the best weights."""

from collections.abc import Collection

import torch
from transformers import TrainerCallback


class BestInMemory(TrainerCallback):
    """
    Keeps the weights of the best evaluation in memory, and puts them back when training ends: what
    `load_best_model_at_end` does, without writing a checkpoint at each evaluation. For many short runs; a run that must
    survive a kill needs the checkpoints.

    Args:
        metric (`str`, *optional*, defaults to `"eval_f1"`):
            The score to maximise. Of several evaluations with the same score, the first is kept.
    """

    def __init__(self, metric: str = "eval_f1"):
        self.metric = metric
        self.best_score: float | None = None
        self.best_step: int | None = None
        self._weights: dict[str, torch.Tensor] = {}
        self._trains = False

    def on_train_begin(self, args, state, control, **kwargs):
        self._trains = True
        self.best_score, self.best_step, self._weights = None, None, {}

    def on_evaluate(self, args, state, control, model=None, metrics=None, **kwargs):
        # Evaluations after training, and of other data in between, choose nothing.
        if not self._trains or self.metric not in metrics:
            return
        self._check_domains(kwargs.get("train_dataloader"), kwargs.get("eval_dataloader"))
        if self.best_score is None or metrics[self.metric] > self.best_score:
            self.best_score, self.best_step = metrics[self.metric], state.global_step
            self._weights = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def on_train_end(self, args, state, control, model=None, **kwargs):
        self._trains = False
        if self.best_score is None:
            raise KeyError(
                f"`metric` is {self.metric!r}, and no evaluation gave it. Name a score that is logged, and set "
                "`eval_strategy` and `eval_dataset`."
            )
        model.load_state_dict(self._weights)
        self._weights = {}

    def _check_domains(self, train_dataloader, eval_dataloader) -> None:
        refuse_unseen_domains(*(_domains(loader) for loader in (train_dataloader, eval_dataloader)))


def refuse_unseen_domains(trained: Collection[str], seen: Collection[str]) -> None:
    """Weights must not be chosen by a domain that none of them was trained on."""
    unseen = sorted(set(seen) - set(trained))
    if trained and unseen:
        raise ValueError(
            f"`eval_dataset` has rows of {', '.join(unseen)}, which `train_dataset` has not: the best weights would be "
            "chosen by a domain that is meant to be unseen. Leave them out."
        )


def _domains(loader) -> set[str]:
    dataset = getattr(loader, "dataset", None)
    return set(dataset["domain"]) if "domain" in (getattr(dataset, "column_names", None) or ()) else set()
