# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeping the best weights, and by which rows they may be chosen."""

from collections.abc import Collection, Sequence

import torch
from transformers import EarlyStoppingCallback, SchedulerType, TrainerCallback
from transformers.trainer_utils import SaveStrategy

from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.collation import domains_of


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


def check_selection(args, trained: Sequence[str], eval_dataset, callbacks: Sequence) -> None:
    """Refuses rows of other domains than those that are trained on where something would choose by them."""
    algorithm = ALGORITHMS[args.algorithm]
    if algorithm.chooses_by_evaluation and any(isinstance(callback, BestInMemory) for callback in callbacks):
        raise ValueError(f'`algorithm="{args.algorithm}"` chooses its weights itself: leave `BestInMemory` out.')
    chooses = {
        "`load_best_model_at_end`": args.load_best_model_at_end,
        f'`algorithm="{args.algorithm}"`': algorithm.chooses_by_evaluation,
        '`save_strategy="best"`': args.save_strategy == SaveStrategy.BEST,
        '`lr_scheduler_type="reduce_lr_on_plateau"`': args.lr_scheduler_type == SchedulerType.REDUCE_ON_PLATEAU,
        "`EarlyStoppingCallback`": any(
            callback is EarlyStoppingCallback or isinstance(callback, EarlyStoppingCallback) for callback in callbacks
        ),
    }
    reason = next((name for name, holds in chooses.items() if holds), None)
    if reason is None or eval_dataset is None:
        return
    for dataset in eval_dataset.values() if isinstance(eval_dataset, dict) else [eval_dataset]:
        unseen = sorted(set(domains_of(dataset, "eval_dataset")) - set(trained))
        if unseen:
            raise ValueError(
                f"`eval_dataset` has rows of {', '.join(unseen)}, which `train_dataset` has not, and {reason} would "
                "choose by them: the scores there would no longer be those of an unseen domain. Leave them out, and "
                "score them after training with `trainer.predict`."
            )
