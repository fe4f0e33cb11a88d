# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The arguments of the trainers. Each class documents its own fields; all others are those of `TrainingArguments`."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import TrainingArguments

from hf_memaug.messages import did_you_mean
from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.algorithms.base import Limits
from hf_memaug.training.continual import STRATEGIES


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class DomainTrainingArguments(TrainingArguments):
    """Arguments of [`DomainTrainer`], beside those of `TrainingArguments`."""

    algorithm: str = _option(
        "erm",
        "What is minimised: erm, irm, vrex, group_dro, mixup, dann (invariance learning without a memory), "
        "coral (Deep CORAL), mmd, mldg, fish, fishr or swad.",
    )
    algorithm_kwargs: dict[str, Any] | str | None = _option(
        None, "Options of the algorithm, as JSON, such as '{\"alpha\": 0.2}' of mixup."
    )
    penalty_weight: float | None = _option(None, "Weight of the algorithm's penalty (default: the algorithm's own).")
    penalty_anneal_steps: int = _option(0, "Optimizer steps before the penalty sets in.")
    memory_learning_rate: float | None = _option(None, "Learning rate of the memory (default: learning_rate).")
    discriminator_learning_rate: float = _option(1e-3, "Learning rate of the domain discriminators.")
    discriminator_hidden_size: int = _option(256, "Width of a discriminator's hidden layer; 0 makes it linear.")
    balanced_batches: bool = _option(
        True, "Whether every batch holds the domains in equal shares; else `train_sampling_strategy` orders rows."
    )
    augment_images: bool = _option(
        False, "Whether to vary images in training as DomainBed does, by crops, flips and colours."
    )
    guard_rows: int = _option(
        0,
        "How many rows of the source domains protect them when rows are written to a writable memory. "
        "`save_model` stores their features, not the rows.",
    )
    class_weights: list[float] | str | None = _option(
        None,
        "How much the rows of each class count in the loss: balanced (all classes alike), or a number for "
        "each class, such as 1,2.5. They are scaled to a mean of 1 over the training rows.",
    )
    early_stopping_patience: int | None = _option(
        None, "Evaluations in a row without a better score after which the training stops (default: never)."
    )
    weight_averaging: float | None = _option(
        None,
        "End with the mean of the weights of all steps from this share of the steps on, such as 0.4. "
        "Choose a constant learning rate with it.",
    )
    weight_averaging_decay: float = _option(
        1.0, "Below 1, `weight_averaging` takes a moving mean: each step keeps this share of it, such as 0.999."
    )
    rdrop_weight: float = _option(
        0.0,
        "R-Drop's alpha: each batch is read twice, with other dropout, and the two answers should agree. "
        "Costs a second pass.",
    )
    embedding_perturbation: float = _option(
        0.0,
        "Each batch is read again with its embeddings moved by this length, each row's to where its loss rises most "
        "(FGM). Costs a second pass.",
    )
    cuda_graphs: bool = _option(
        False,
        "Whether to record forward and backward pass as CUDA graphs, one for each multiple of 32 tokens. "
        "Pays for small encoders. Needs one GPU, no accumulation and no fp16.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.algorithm == "mil":
            raise ValueError('`algorithm="mil"` is a trainer of its own: use `BilevelTrainer`, without `algorithm`.')
        _one_of("`algorithm`", self.algorithm, ALGORITHMS)
        sizes = ("penalty_weight", "penalty_anneal_steps", "discriminator_hidden_size", "guard_rows")
        sizes += ("rdrop_weight", "embedding_perturbation")
        for name in ("learning_rate", "memory_learning_rate", "discriminator_learning_rate", *sizes):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"`{name}` is {value}; it must be 0 or more.")
        if self.max_steps < 1 and self.max_steps != -1:
            raise ValueError(f"`max_steps` is {self.max_steps}; it must be 1 or more, or left out.")
        algorithm = ALGORITHMS[self.algorithm]
        if not algorithm.default_penalty_weight and (self.penalty_weight or self.penalty_anneal_steps):
            raise ValueError(
                f'`algorithm="{self.algorithm}"` has no penalty: leave `penalty_weight` and `penalty_anneal_steps` out.'
            )
        self.algorithm_kwargs = parsed_options("algorithm", self.algorithm, self.algorithm_kwargs, algorithm.options)
        check_option_values("algorithm_kwargs", self.algorithm_kwargs or {}, algorithm)
        if algorithm.one_domain_a_step and (not self.balanced_batches or self.auto_find_batch_size):
            raise ValueError(
                f'`algorithm="{self.algorithm}"` trains on one domain a step: leave `balanced_batches` and '
                "`auto_find_batch_size` out."
            )
        if algorithm.compares_rows and self.per_device_train_batch_size == 1:
            raise ValueError(
                f'`algorithm="{self.algorithm}"` compares the rows of a batch: `per_device_train_batch_size` must be 2 '
                "or more."
            )
        if self.balanced_batches and self.train_sampling_strategy != "random":
            raise ValueError(
                f'`train_sampling_strategy="{self.train_sampling_strategy}"` orders the rows, and so does '
                "`balanced_batches`: set `balanced_batches=False`, or leave the strategy out."
            )
        algorithm.check(self)
        self._check_averaging()
        patience = self.early_stopping_patience
        if patience is not None and (patience < 1 or not self.load_best_model_at_end):
            raise ValueError(f"`early_stopping_patience` is {patience}: use 1 or more, and `load_best_model_at_end`.")
        if self.cuda_graphs:
            self._check_cuda_graphs()
        if self.fp16 and self.device.type == "cpu":
            raise ValueError("`fp16=True` needs a GPU, and there is a CPU. Leave it out.")

    def _check_averaging(self):
        if not 0 <= (self.weight_averaging or 0) < 1:
            raise ValueError(f"`weight_averaging` is {self.weight_averaging}; it must be 0 or more, and below 1.")
        if not 0 <= self.weight_averaging_decay <= 1:
            raise ValueError(f"`weight_averaging_decay` is {self.weight_averaging_decay}; it must be between 0 and 1.")
        if self.weight_averaging is not None:
            chooses = ALGORITHMS[self.algorithm].chooses_by_evaluation
            _refuse(
                "`weight_averaging`",
                {
                    f'`algorithm="{self.algorithm}"` chooses the weights': chooses,
                    "`load_best_model_at_end` is set": self.load_best_model_at_end,
                    "`fsdp` or `deepspeed` divides the weights": bool(self.fsdp) or self.deepspeed is not None,
                },
            )
        elif self.weight_averaging_decay != 1:
            raise ValueError("`weight_averaging_decay` needs `weight_averaging`, the share of steps to begin at.")

    def _check_cuda_graphs(self):
        does_more = not ALGORITHMS[self.algorithm].can_be_graphed
        _refuse(
            "`cuda_graphs=True`",
            {
                "`rdrop_weight` or `embedding_perturbation` is set": self.rdrop_weight or self.embedding_perturbation,
                f'`algorithm="{self.algorithm}"` does other things at each step': does_more,
                "there is no CUDA device": self.device.type != "cuda",
                "`gradient_accumulation_steps` is not 1": self.gradient_accumulation_steps != 1,
                "there are several processes": self.world_size > 1,
                "`fp16` is set (`bf16` can be)": self.fp16,
                "`gradient_checkpointing` is set": self.gradient_checkpointing,
            },
        )


@dataclass
class BilevelTrainingArguments(DomainTrainingArguments):
    """
    Arguments of [`BilevelTrainer`]. Those of `TrainingArguments` hold for both phases, but for `num_train_epochs`,
    `max_steps`, evaluation and selection, which are the meta-test's. The fields below set the length of meta-training.
    """

    memory_learning_rate: float = _option(1e-4, "Learning rate of the memory.")
    episodes: int = _option(30, "How many times a meta-target domain is drawn.")
    episode_steps: int = _option(20, "T, the steps of the memory in an episode.")
    inner_steps: int = _option(1, "L, the steps of encoder and head before each step of the memory.")
    hypergradient: str = _option(
        "first_order",
        "first_order: take the updated encoder as given; exact: differentiate through its update (slower).",
    )
    meta_target_batch_size: int | None = _option(
        None, "Rows of the meta-target beside each batch (default: per_device_train_batch_size)."
    )

    def __post_init__(self):
        if self.hypergradient == "exact" and self.fp16:
            raise ValueError('`hypergradient="exact"` does not support `fp16`, whose gradients are scaled. Use `bf16`.')
        super().__post_init__()
        _one_of("`hypergradient`", self.hypergradient, ("first_order", "exact"))
        for name in ("episodes", "episode_steps", "inner_steps", "meta_target_batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` is {value}; it must be 1 or more.")
        if self.algorithm != "erm":
            raise ValueError(f'`BilevelTrainer` requires `algorithm="erm"`, not "{self.algorithm}". Leave it out.')
        fixed = dict.fromkeys(("ignore_data_skip", "auto_find_batch_size"), "an episode has a fixed order of rows")
        exact = dict.fromkeys(("gradient_checkpointing", "cuda_graphs"), '`hypergradient="exact"` differentiates twice')
        for name, reason in (fixed | exact if self.hypergradient == "exact" else fixed).items():
            if getattr(self, name):
                raise ValueError(f"`{name}` is not supported: {reason}. Leave it out.")
        for name in ("class_weights", "weight_averaging", "rdrop_weight", "embedding_perturbation"):
            if getattr(self, name):
                raise ValueError(f"`{name}` is not supported by `BilevelTrainer`. Leave it out.")

    @property
    def meta_steps(self) -> int:
        """Optimizer steps of the meta-training."""
        return self.episodes * self.episode_steps * self.inner_steps


@dataclass
class ContinualTrainingArguments(DomainTrainingArguments):
    """
    Arguments of [`ContinualTrainer`]. Those of `TrainingArguments` hold for each domain anew: `num_train_epochs` passes
    over each, with a schedule and an optimizer of its own.
    """

    strategy: str = _option(
        "f",
        "How each domain is learned: f (fine-tuning), f+m (the memory grows), f+v (the vocabulary grows), "
        "f+m+v, f+h (the hidden state grows), f+h+v, ewc, progressive, replay, lwf or write (later domains are "
        "written to a memory); or a reference: in_domain, multi_task.",
    )
    strategy_kwargs: dict[str, Any] | str | None = _option(
        None, "Options of the strategy, as JSON, such as '{\"slots\": 500}' of f+m."
    )
    domains: list[str] | None = _option(None, "The domains in the order of their training (default: as in the data).")
    matrix_metric: str = _option("accuracy", "Which of the scores the matrix R holds.")
    max_length: int | None = _option(None, "The longest text in tokens, where the trainer tokenizes.")

    def __post_init__(self):
        super().__post_init__()
        _one_of("`strategy`", self.strategy, STRATEGIES)
        strategy = STRATEGIES[self.strategy]
        self.strategy_kwargs = parsed_options("strategy", self.strategy, self.strategy_kwargs, strategy.options)
        check_option_values("strategy_kwargs", self.strategy_kwargs or {}, strategy)
        for name, given, reason in (
            ("algorithm", self.algorithm != "erm", "`strategy` sets the loss"),
            ("guard_rows", self.guard_rows, '`strategy="write"` has them in `strategy_kwargs`'),
            ("cuda_graphs", self.cuda_graphs, "models grow"),
            ("class_weights", self.class_weights is not None, "`strategy` sets the loss"),
        ):
            if given:
                raise ValueError(f"`{name}` is not supported by `ContinualTrainer`: {reason}. Leave it out.")


def checked_arguments(args: Any, kind: type) -> Any:
    """The arguments of a trainer that takes those of `kind`."""
    if args is not None and not isinstance(args, kind):
        raise TypeError(f"`args` is a `{type(args).__name__}`. Give a `{kind.__name__}`.")
    return kind(output_dir="trainer_output") if args is None else args


def parsed_options(what: str, name: str, given, options: dict) -> dict | None:
    """`algorithm_kwargs` or `strategy_kwargs`, also from JSON; every name in it must be one of the options."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except json.JSONDecodeError as error:
            raise ValueError(f"`{what}_kwargs` is not JSON: {error}. Write it as '{{\"name\": 1.0}}'.") from None
    if given is not None and not isinstance(given, dict):
        raise ValueError(f'`{what}_kwargs` is {given!r}. Name the options in it: {{"name": 1.0}}.')
    for option in given or {}:
        if not options:
            raise ValueError(f'`{what}="{name}"` has no options: leave `{what}_kwargs` out.')
        _one_of(f"`{what}_kwargs`", option, options)
    return given


def check_option_values(argument: str, given: Mapping[str, Any], method) -> None:
    """Checks the values of an algorithm's or a strategy's options by their defaults and by `method.limits`."""
    for name, value in given.items():
        what, default, limits = f"`{argument}`: `{name}`", method.options[name], method.limits.get(name)
        if isinstance(limits, tuple):
            _one_of(what, value, limits)
        elif isinstance(default, tuple):
            if not isinstance(value, (list, tuple)) or not value:
                raise ValueError(f"{what} is {value!r}; it must be a list of numbers, such as {list(default)}.")
            for one in value:
                _check_number(what, one, default[0], Limits())
        elif value != default and (limits is not None or isinstance(default, (int, float))):
            _check_number(what, value, default, limits or Limits())


def _check_number(what: str, value, default, limits: Limits) -> None:
    whole = limits.whole or isinstance(default, int)
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not is_number or not limits.hold(value):
        example = "" if default is None else f", such as {default}"
        raise ValueError(
            f"{what} is {value!r}; it must be {'a whole number' if whole else 'a number'}, {limits}{example}."
        )


def _refuse(argument: str, reasons: dict[str, Any]) -> None:
    reason = next((reason for reason, holds in reasons.items() if holds), None)
    if reason:
        raise ValueError(f"{argument} is not supported: {reason}. Leave it out, or change that.")


def _one_of(what: str, value, allowed) -> None:
    if value not in allowed:
        raise ValueError(f"{what} is {value!r}. {did_you_mean(value, allowed, 'Choose ')}")
