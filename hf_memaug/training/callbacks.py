# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What `DomainTrainer` does between the steps of `Trainer`."""

from transformers import TrainerCallback

from hf_memaug.training.selection import refuse_unseen_domains


class AlgorithmCallback(TrainerCallback):
    """
    An algorithm's parameters lie outside the model: what is done to a model's gradients is done to theirs here. It
    also hears what has happened to the model.
    """

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
        self.trainer.algorithm.after_step(self.trainer.model, is_last=state.global_step + 1 >= state.max_steps)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        # Not when somebody scores a domain after training.
        if self.trainer.is_in_train:
            if self.trainer.algorithm.chooses_by_evaluation:
                refuse_unseen_domains(self.trainer.domains, self.trainer.evaluated_domains)
            self.trainer.algorithm.after_evaluation(metrics)

    def on_train_end(self, args, state, control, **kwargs):
        self.trainer.algorithm.after_training(self.trainer.model)


class EpochOrder(TrainerCallback):
    """
    Tells the sampler the epoch. Within several processes that resume inside an epoch, accelerate (1.15) does not: it
    skips batches through a sampler that passes the epoch on to nobody.
    """

    def __init__(self, trainer):
        self.trainer = trainer

    def on_epoch_begin(self, args, state, control, **kwargs):
        if hasattr(self.trainer.train_sampler, "set_epoch"):
            self.trainer.train_sampler.set_epoch(int(state.epoch or 0))
