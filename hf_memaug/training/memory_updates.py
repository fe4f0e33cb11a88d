# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes memories during training."""

from transformers import TrainerCallback

# The key under which an evaluation's log entry names the inference mode of a model that has several.
INFERENCE_MODE = "eval_inference"


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
        modules = [] if model is None else list(model.modules())
        # The outermost one: PEFT and other wrappers hide the method.
        self.writer = next((module for module in modules if hasattr(type(module), "update_memory")), None)
        self.with_pending_rows = [] if model is None else modules_with_pending_rows(model)

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

    def on_train_end(self, args, state, control, **kwargs):
        self.writer, self.with_pending_rows = None, []
