# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Masked language modelling that computes logits for masked tokens only."""

from typing import cast

from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler
from transformers import Trainer

from hf_memaug.data.sampling import SeededRows, SeededRowsSampler, SeededStream
from hf_memaug.modeling.modeling_utils import positions_of
from hf_memaug.training.base_trainer import BaseTrainer


def fitting_length(length: int, tokenizer, model: nn.Module) -> int:
    """`length`, or as many tokens as the tokenizer makes and the model has places for."""
    return min([length, tokenizer.model_max_length, *positions_of(model)])


class MaskedLMTrainer(BaseTrainer):
    """
    [`Trainer`] for masked language models. In training, the head computes logits only for the masked tokens, about one
    in seven, which saves most of the memory of a small encoder. The loss of a step is the mean over all its masked
    tokens, in all batches and processes. Evaluation is `Trainer`'s. Random masks depend on the seed, the epoch and the
    position of a row, so that a resumed run ends with the same weights. A stream without a length, such as
    `PackedTexts`, restarts at its end, until `max_steps`.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # `Trainer` then counts the masked tokens of a step and does not scale the loss.
        self.model_accepts_loss_kwargs = True
        self._head = _masked_lm_head(self.model)
        self._draws_masks = getattr(self.data_collator, "seed", 0) is None

    def get_train_dataloader(self) -> DataLoader:
        dataset = self.train_dataset
        if not self._draws_masks or (isinstance(dataset, IterableDataset) and hasattr(dataset, "__len__")):
            return super().get_train_dataloader()
        if isinstance(dataset, IterableDataset):
            return self.train_loader(SeededStream(dataset, self.data_seed), None, self._train_batch_size)
        sampler = SeededRowsSampler(cast(Sampler, self._get_train_sampler(dataset)), self.data_seed)
        return self.train_loader(SeededRows(dataset), sampler, self._train_batch_size)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if not model.training or return_outputs or "labels" not in inputs:
            return super().compute_loss(model, inputs, return_outputs)
        chosen = (inputs["labels"] != -100).nonzero(as_tuple=True)
        if self.args.n_gpu > 1:
            # `DataParallel`: each device has its own part of the batch.
            loss = super().compute_loss(model, inputs)
        else:
            hook = self._head.register_forward_pre_hook(lambda head, given: (given[0][chosen], *given[1:]))
            try:
                loss = super().compute_loss(model, {**inputs, "labels": inputs["labels"][chosen]})
            finally:
                hook.remove()
            if not len(chosen[0]):
                # The mean over no tokens is NaN.
                return loss.nan_to_num()
        return loss if num_items_in_batch is None else loss * share_of_step(self, len(chosen[0]), num_items_in_batch)


def share_of_step(trainer: Trainer, count, in_step):
    """The factor that turns the mean over `count` tokens of a batch into its share of the mean of a step."""
    if trainer.args.n_gpu > 1:
        # `DataParallel` counts the tokens of one device.
        return 1 / trainer.current_gradient_accumulation_steps
    # Gradients are averaged over the processes, and the tokens were counted on all of them or on this one.
    processes = trainer.accelerator.num_processes if trainer.args.average_tokens_across_devices else 1
    return processes * count / in_step


def _masked_lm_head(model: nn.Module) -> nn.Module:
    heads = [module for path, module in model.named_modules() if path.split(".")[-1] in ("lm_head", "cls")]
    if not heads:
        raise ValueError(
            f"`model` is a {type(model).__name__} without a masked-LM head (`lm_head` or `cls`). Load it with "
            "`AutoModelForMaskedLM`, or use `Trainer`."
        )
    return heads[0]
