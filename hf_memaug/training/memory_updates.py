# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What every `Trainer` does for models whose memory is written in training."""

from transformers import TrainerCallback

# In the log of an evaluation: how a model with two ways to read its rows read them.
HOW_READ = "eval_inference"


def where_rows_wait(model) -> list:
    """The modules that keep the rows of an optimizer step for a memory that is written after it."""
    return [module for module in model.modules() if hasattr(type(module), "let_wait")]


class UpdateMemory(TrainerCallback):
    """Among the default callbacks of `Trainer`: after each optimizer step, a model that has `update_memory` hears."""

    def __init__(self):
        self.writer, self.waiting = None, []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        # Once: most models have none, and are not to pay for the search at each step.
        modules = [] if model is None else list(model.modules())
        # The outermost one: under adapters or wrappers it is not `model` itself.
        self.writer = next((module for module in modules if hasattr(type(module), "update_memory")), None)
        self.waiting = [] if model is None else where_rows_wait(model)

    def on_step_begin(self, args, state, control, **kwargs):
        # A step may have been broken off, for a smaller batch.
        for module in self.waiting:
            module.let_wait([])

    def on_optimizer_step(self, args, state, control, **kwargs):
        if self.writer is not None:
            self.writer.update_memory()

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        # It may be set otherwise by the time a card is written.
        inference = getattr(getattr(model, "config", None), "how_read", None)
        if inference is not None and state.log_history:
            state.log_history[-1][HOW_READ] = inference

    def on_train_end(self, args, state, control, **kwargs):
        self.writer, self.waiting = None, []
