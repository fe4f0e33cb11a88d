# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What happens between the steps of `Trainer`: updates of memories, checks, and the algorithm's own steps."""

import copy
import os

import torch
from transformers import EarlyStoppingCallback, PrinterCallback, ProgressCallback, TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS
from transformers.utils import logging

from hf_memaug.data.general_cache import cached_parts
from hf_memaug.training import checks
from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.algorithms.weights import MeanWeights
from hf_memaug.training.model_cards import INFERENCE_MODE, ModelCardCallback
from hf_memaug.training.resuming import last_complete_checkpoint

logger = logging.get_logger(__name__)

# fp16 finds the scale of its loss by overflowing.
FP16_PATIENCE = 20


def modules_with_pending_rows(model) -> list:
    """The modules that collect rows during an optimizer step, to be written to a memory after it."""
    return [module for module in model.modules() if hasattr(type(module), "set_pending")]


class MemoryUpdateCallback(TrainerCallback):
    """
    Calls `model.update_memory()` after each optimizer step, for models that write a memory during training (HMA).

    The trainers of this library add it themselves. For the plain `Trainer`:

    ```python
    trainer = Trainer(model, args, callbacks=[MemoryUpdateCallback()], ...)
    ```
    """

    def __init__(self):
        self.writer, self.with_pending_rows = None, []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        # The outermost one: PEFT and other wrappers hide the method.
        self.writer = next((module for module in model.modules() if hasattr(type(module), "update_memory")), None)
        self.with_pending_rows = modules_with_pending_rows(model)

    def on_step_begin(self, args, state, control, **kwargs):
        # A step that ran out of memory is repeated with a smaller batch: drop what it had collected.
        for module in self.with_pending_rows:
            module.set_pending([])

    def on_optimizer_step(self, args, state, control, **kwargs):
        if self.writer is not None:
            self.writer.update_memory()

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        # The mode may have changed by the time the card is written.
        inference = getattr(getattr(model, "config", None), "inference_mode", None)
        if inference is not None and state.log_history:
            state.log_history[-1][INFERENCE_MODE] = inference


class NonFiniteGradientError(RuntimeError):
    """The loss or a gradient became NaN or infinite."""


class RunGuard(TrainerCallback):
    """
    For any `Trainer`: `Trainer(..., callbacks=[RunGuard()])`.

    Before the first step it checks that `output_dir` can be written, that the model has a logit for every label, that
    no text of a `DomainDataset` is longer than the model's positions or has tokens beyond its vocabulary, and that
    cached states of a general encoder are of the model's (rows to score: at their first batch). A model without label
    names takes those of the rows. At each step it checks the gradient before the optimizer uses it, so that a NaN loss
    ends the run with the weights, and the last checkpoint, as they were. Under fp16, 20 steps in a row may overflow.
    """

    def __init__(self):
        self.non_finite_steps = 0
        self._compared: set[str] = set()

    def on_train_begin(self, args, state, control, model=None, train_dataloader=None, processing_class=None, **kwargs):
        if args.should_save and not (os.path.isdir(args.output_dir) and os.access(args.output_dir, os.W_OK)):
            raise PermissionError(f"`output_dir` ({args.output_dir}) is not writable. Choose another folder.")
        rows = getattr(train_dataloader, "dataset", None)
        algorithm = ALGORITHMS.get(getattr(args, "algorithm", None))
        every_row = args.algorithm if algorithm is not None and algorithm.reads_labels else None
        checks.check_labels(rows, getattr(model.config, "num_labels", None), every_row)
        checks.share_label_names(model, rows)
        if checks.is_known(getattr(train_dataloader, "collate_fn", None)):
            checks.check_texts(model, rows)
        checks.check_frozen_encoders(model)
        checks.check_padding_side(model, processing_class)
        checks.check_batches(train_dataloader)
        self._compared.clear()
        self._check_cached(model, rows)

    def on_prediction_step(self, args, state, control, model=None, eval_dataloader=None, **kwargs):
        # In another precision the weights differ.
        if not (args.fp16_full_eval or args.bf16_full_eval):
            self._check_cached(model, getattr(eval_dataloader, "dataset", None))

    def _check_cached(self, model: torch.nn.Module, rows) -> None:
        """Refuses states of a general encoder (G-MAP) that another than the model's has computed."""
        for part in cached_parts(rows):
            # Once for each folder: the encoder is frozen, and reading all its weights takes a second.
            if str(part.folder) not in self._compared:
                part.check_model(model)
                self._compared.add(str(part.folder))

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.check([parameter.grad for parameter in model.parameters() if parameter.grad is not None], args, state)

    def check(self, gradients: list[torch.Tensor], args, state) -> None:
        """Raises `NonFiniteGradientError` if one of the gradients is not finite."""
        # One number for all of them: one pass over the memory and one wait for the device.
        if not gradients or torch.isfinite(torch.nn.utils.get_total_norm(gradients)):
            self.non_finite_steps = 0
            return
        self.non_finite_steps += 1
        if self.non_finite_steps <= (FP16_PATIENCE if args.fp16 else 0):
            return
        last = last_complete_checkpoint(args.output_dir)
        kept = f"The last good checkpoint is `{last}`." if last else "No checkpoint had been saved yet."
        raise NonFiniteGradientError(
            f"The loss or a gradient is NaN or infinite at step {state.global_step + 1}. Training stops before the "
            f"optimizer uses it. {kept} Lower `learning_rate` ({args.learning_rate}), set `max_grad_norm` "
            f"({args.max_grad_norm}), or use `bf16` instead of `fp16`; then `resume_from_checkpoint`."
        )


class AlgorithmCallback(TrainerCallback):
    """Calls the algorithm's methods, and does to its gradients what is done to those of the model."""

    def __init__(self, trainer):
        self.trainer = trainer

    def on_step_begin(self, args, state, control, **kwargs):
        self.trainer.algorithm.before_step(self.trainer.model)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        for parameter in self.trainer.algorithm.parameters():
            if parameter.grad is not None and args.world_size > 1:
                parameter.grad = self.trainer.accelerator.reduce(parameter.grad, reduction="mean")

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.trainer.algorithm.zero_grad()
        step = state.global_step + 1
        self.trainer.algorithm.after_step(self.trainer.model, is_last=step >= state.max_steps)
        if args.weight_averaging is not None:
            begin = args.weight_averaging * state.max_steps
            if step == 1 or step <= begin:
                # Of an earlier run, or of one with fewer steps.
                self.trainer.mean_weights = MeanWeights()
            if step > begin:
                self.trainer.mean_weights.add_model(self.trainer.model, args.weight_averaging_decay)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        trainer, algorithm = self.trainer, self.trainer.algorithm
        # Not when somebody scores a domain after training.
        if trainer.is_in_train:
            if algorithm.chooses_by_evaluation:
                reason = f'`algorithm="{args.algorithm}"`'
                checks.refuse_unseen_domains(trainer.domains, trainer.scored_domains(), reason)
            algorithm.after_evaluation(metrics)

    def on_train_end(self, args, state, control, **kwargs):
        trainer = self.trainer
        trainer.algorithm.after_training(trainer.model)
        if trainer.mean_weights.count:
            trainer.model.load_state_dict(trainer.mean_weights.values)
            recompute_norms(trainer)
        elif args.weight_averaging is not None:
            logger.warning(
                f"The training ended at step {state.global_step}, before `weight_averaging` began. The weights are "
                "those of the last step."
            )


@torch.no_grad()
def recompute_norms(trainer) -> None:
    """Statistics of batch norms over the training rows, for weights that no step has had."""
    trainer.model.train()
    # Of what a model keeps in evaluation mode, such as a frozen part, they stay.
    norms = [one for one in trainer.model.modules() if getattr(one, "track_running_stats", False) and one.training]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    for batch in trainer.get_train_dataloader() if norms else ():
        inputs = trainer._prepare_inputs(batch)
        rows = len(inputs.pop("domain_ids"))
        # A norm refuses one row, which the last batch may have.
        if rows > 1:
            trainer.model(**inputs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        for statistics in (norm.running_mean, norm.running_var):
            statistics.copy_(trainer.accelerator.reduce(statistics, reduction="mean"))
    for memory in modules_with_pending_rows(trainer.model):
        memory.set_pending([])


def trainer_of_phase(kind: type, whole, args, without: tuple[type, ...] = (), **kwargs):
    """The trainer of one phase or stage of `whole`, with the user's callbacks. Others, each trainer adds itself."""
    args.remove_unused_columns, args.push_to_hub = whole.removes_columns, False
    own = (*DEFAULT_CALLBACKS, RunGuard, ProgressCallback, PrinterCallback, AlgorithmCallback, EpochOrder, *without)
    callbacks = whole.callback_handler.callbacks
    # The count of one stage must not end the next.
    given = [copy.copy(one) if isinstance(one, EarlyStoppingCallback) else one for one in callbacks]
    phase = kind(
        model=whole.model,
        args=args,
        processing_class=whole.processing_class,
        callbacks=[one for one in given if not isinstance(one, own)],
        **whole.given_to_phases,
        **kwargs,
    )
    # The trainer of the whole run writes the card.
    phase.remove_callback(ModelCardCallback)
    if not any(isinstance(one, PrinterCallback) for one in callbacks):
        phase.remove_callback(PrinterCallback)
    return phase


class EpochOrder(TrainerCallback):
    """Tells the sampler the epoch. accelerate (1.15) does not when several processes resume within an epoch."""

    def __init__(self, trainer):
        self.trainer = trainer

    def on_epoch_begin(self, args, state, control, **kwargs):
        if hasattr(self.trainer.train_sampler, "set_epoch"):
            self.trainer.train_sampler.set_epoch(int(state.epoch or 0))
