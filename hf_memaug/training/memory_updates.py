# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What every `Trainer` does for models whose memory is written in training."""

from transformers import TrainerCallback


class UpdateMemory(TrainerCallback):
    """Among the default callbacks of `Trainer`: after each optimizer step, a model that has `update_memory` hears."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        # A step may have been broken off, for a smaller batch.
        for module in () if model is None else model.modules():
            if hasattr(type(module), "forget_waiting"):
                module.forget_waiting()

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        for module in () if model is None else model.modules():
            # The outermost one: under adapters or wrappers it is not `model` itself.
            if hasattr(type(module), "update_memory"):
                module.update_memory()
                return
