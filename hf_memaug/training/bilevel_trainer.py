# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`BilevelTrainer`: MIL in one call. Learns a memory across the source domains, then a classifier that reads it."""

import copy
import gc
import json
import math
import os
import shutil
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from transformers import EarlyStoppingCallback
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, TrainOutput, set_seed

from hf_memaug.files import write_atomically
from hf_memaug.training.arguments import BilevelTrainingArguments, checked_arguments
from hf_memaug.training.callbacks import trainer_of_phase
from hf_memaug.training.checks import refuse_for_phases
from hf_memaug.training.domain_trainer import DomainTrainer
from hf_memaug.training.hypergradient import Tensors
from hf_memaug.training.meta_trainer import MetaTrainer, check_memory_is_last, memory_of
from hf_memaug.training.resuming import last_complete_checkpoint

META_TRAIN = "meta_train"
START = "start.safetensors"
MEMORY = "memory.safetensors"
LOG = "log.json"


class BilevelTrainer(DomainTrainer):
    """
    Trains a model with a key-value memory by memory-based invariance learning (Jia and Zhang, 2023).

    `train()` does both phases. `meta_train()` (Algorithm 2) learns the memory; it works in `output_dir/meta_train`, and
    leaves there `memory.safetensors` and `log.json`. `meta_test()` (Algorithm 3) restores encoder and head as they were
    before meta-training, and trains them with the learned memory frozen; its checkpoints are in `output_dir`. Each
    phase can also be called alone. `train(resume_from_checkpoint=True)` resumes the phase that was interrupted.

    Args:
        model (`PreTrainedModel`):
            A model with a key-value memory, fresh from `from_backbone(...)`.
        args (`BilevelTrainingArguments`):
            Arguments of `DomainTrainingArguments`, of the episodes and of the memory.

    All other arguments are those of [`DomainTrainer`].
    """

    args: BilevelTrainingArguments
    method_name = "mil"
    card_settings = (
        "episodes", "episode_steps", "inner_steps", "meta_steps", "hypergradient", "memory_learning_rate",
    )  # fmt: skip

    def __init__(self, model=None, args: BilevelTrainingArguments | None = None, **kwargs):
        args = checked_arguments(args, BilevelTrainingArguments)
        refuse_for_phases(kwargs, "the second phase begins with the memory of the first, and a fresh optimizer")
        self.given_to_phases = {name: kwargs.get(name) for name in ("data_collator", "optimizer_cls_and_kwargs")}
        super().__init__(model=model, args=args, **kwargs)
        check_memory_is_last(self.model)
        if self.train_dataset is not None and len(self.domains) < 2:
            raise ValueError(f"`train_dataset` has the domains {self.domains}; MIL needs two or more.")
        self.meta_log: list[dict] = []

    @property
    def meta_folder(self) -> Path:
        return self.output_folder / META_TRAIN

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs) -> TrainOutput:  # type: ignore[override]
        """
        Meta-training, then meta-test. `resume_from_checkpoint` is `True` or a checkpoint of either phase. Returns the
        meta-test's `TrainOutput`, or meta-training's if a callback stopped that early.
        """
        if self.train_dataset is None:
            raise ValueError("`train_dataset` is missing: give the rows of the source domains.")
        resume = resume_from_checkpoint or None
        if isinstance(resume, (str, os.PathLike)) and self.meta_folder.resolve() not in Path(resume).resolve().parents:
            return self.meta_test(resume, **kwargs)
        if resume is not True or not (self.meta_folder / MEMORY).is_file():
            output = self.meta_train(resume)
            if output.global_step < self.args.meta_steps:
                return output
        return self.meta_test(resume is True, **kwargs)

    def meta_train(self, resume_from_checkpoint: str | bool | None = None):
        """Algorithm 2. Learns the memory, and restores encoder and head."""
        resume = resume_from_checkpoint or None
        if resume is True:
            # `None` before the first checkpoint.
            resume = last_complete_checkpoint(self.meta_folder)
        start = self.meta_folder / START
        if resume is not None and not start.is_file():
            raise FileNotFoundError(
                f"`{start}`, which holds the initial encoder and head, is missing. Leave `resume_from_checkpoint` out."
            )
        if resume is None:
            # Files of an earlier run must not be resumed from.
            if self.is_world_process_zero():
                shutil.rmtree(self.meta_folder, ignore_errors=True)
            self._write(start, _tensors(self.model))
        self.accelerator.wait_for_everyone()
        trainer = self._meta_trainer()
        # A phase's random numbers depend on the seed alone, not on what ran before it in the process.
        set_seed(self.args.seed)
        output = trainer.train(resume_from_checkpoint=resume)
        self.meta_log = trainer.state.log_history
        if self.is_world_process_zero():
            (self.meta_folder / LOG).write_text(json.dumps(self.meta_log, indent=1))
        if output.global_step < self.args.meta_steps:
            warnings.warn(
                f"Meta-training was stopped after {output.global_step} of {self.args.meta_steps} steps, without a "
                "memory. Resume it with `train(resume_from_checkpoint=True)`.",
                stacklevel=2,
            )
        else:
            self._write(self.meta_folder / MEMORY, memory_of(self.model))
        self.accelerator.wait_for_everyone()
        for stored in filter(Path.is_file, (start, self.meta_folder / MEMORY)):
            self._read(stored)
        # The trainer is in a reference cycle with its optimizer states.
        del trainer
        gc.collect()
        return output

    def meta_test(self, resume_from_checkpoint: str | bool | None = None, **kwargs):
        """
        Algorithm 3: the initial encoder and head learn the task on all source domains; the memory of `meta_train` in
        `output_dir` stays as it is.

        Args:
            resume_from_checkpoint (`str` or `bool`, *optional*):
                A checkpoint of this phase; `True` finds the last one that was trained with this memory.
        """
        memory = self.meta_folder / MEMORY
        if not memory.is_file():
            raise FileNotFoundError(f"`{self.meta_folder}` has no learned memory. Call `meta_train()` first.")
        with safe_open(memory, "pt") as stored:
            learned_on = json.loads((stored.metadata() or {}).get("domains", "[]"))
        if learned_on and learned_on != self.domains:
            raise ValueError(
                f"The memory in `{self.meta_folder}` was learned on {learned_on}, but `train_dataset` has "
                f"{self.domains}. Use another `output_dir`, or call `train()` without `resume_from_checkpoint`."
            )
        self._read(self.meta_folder / START)
        self._read(memory)
        if not self.meta_log and (self.meta_folder / LOG).is_file():
            self.meta_log = json.loads((self.meta_folder / LOG).read_text())
        last = self._checkpoint_of(memory, resume_from_checkpoint)
        self.model.freeze_memory()
        self.optimizer = self.lr_scheduler = None
        set_seed(self.args.seed)
        return super().train(resume_from_checkpoint=last, **kwargs)

    def _checkpoint_of(self, memory: Path, resume: str | os.PathLike | bool | None) -> str | None:
        """The checkpoint of the meta-test to resume from. It must have been trained with this memory."""
        has_this_memory = partial(_has_memory, load_file(memory))
        if resume is True:
            return last_complete_checkpoint(self.output_folder, has_this_memory)
        if resume and not has_this_memory(resume):
            raise ValueError(
                f"`resume_from_checkpoint` ({os.fspath(resume)!r}) was trained with another memory than `{memory}`. "
                "Use a checkpoint of this run, or `True`."
            )
        return os.fspath(resume) if resume else None

    def _meta_trainer(self) -> MetaTrainer:
        args = copy.copy(self.args)
        args.output_dir = str(self.meta_folder)
        args.max_steps = args.meta_steps
        args.eval_strategy = IntervalStrategy.NO
        args.load_best_model_at_end, args.early_stopping_patience = False, None
        args.eval_on_start = False
        # Loggers are among the callbacks.
        args.report_to = []
        # There are no epochs here: an episode takes their place.
        episode = args.episode_steps * args.inner_steps
        if args.save_strategy in (SaveStrategy.EPOCH, SaveStrategy.BEST):
            args.save_strategy, args.save_steps = SaveStrategy.STEPS, episode
        if args.logging_strategy == IntervalStrategy.EPOCH:
            args.logging_strategy, args.logging_steps = IntervalStrategy.STEPS, episode
        if args.logging_steps < 1:
            # A share of all steps, as `Trainer` counts it.
            args.logging_steps = math.ceil(args.logging_steps * args.max_steps)
        args.logging_steps = min(args.logging_steps, episode)
        # There are no evaluations to choose by.
        return trainer_of_phase(
            MetaTrainer, self, args, without=(EarlyStoppingCallback,), train_dataset=self.train_dataset
        )

    def _write(self, path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
        if self.is_world_process_zero():
            tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
            write_atomically(path, save(tensors, metadata={"domains": json.dumps(self.domains)}))

    def _read(self, path: Path) -> None:
        tensors = load_file(path)
        own = _tensors(self.model)
        wrong = [name for name, value in tensors.items() if name not in own or own[name].shape != value.shape]
        if wrong:
            raise ValueError(
                f"`{path}` holds {wrong[0]} {tuple(tensors[wrong[0]].shape)}, which does not fit the model. Use the "
                "same backbone, labels and memory sizes."
            )
        with torch.no_grad():
            for name, value in tensors.items():
                own[name].copy_(value)


def _tensors(model) -> Tensors:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _has_memory(learned: dict[str, torch.Tensor], checkpoint: str | os.PathLike) -> bool:
    """Whether a checkpoint of the meta-test holds this memory, not that of an earlier run."""
    weights = Path(checkpoint) / "model.safetensors"
    if not weights.is_file():
        return True  # a sharded checkpoint
    with safe_open(weights, "pt") as stored:
        return all(name in stored.keys() and torch.equal(stored.get_tensor(name), learned[name]) for name in learned)
