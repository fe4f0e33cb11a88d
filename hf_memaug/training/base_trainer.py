# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What our trainers add to `Trainer`: memory updates, model cards, exact resuming, and means in the logs."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch.utils.data import DataLoader, Sampler
from transformers import PreTrainedModel, Trainer
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import TrainOutput, seed_worker

from hf_memaug.hub.provenance import record_run
from hf_memaug.training.callbacks import EpochOrder, MemoryUpdateCallback
from hf_memaug.training.model_cards import ModelCardCallback, facts_from_trainer, is_family, write_card
from hf_memaug.training.resuming import last_complete_checkpoint

# In a checkpoint, beside the files of `Trainer`.
METHOD_STATE = "method_state.pt"


class BaseTrainer(Trainer):
    """
    [`Trainer`] that updates memories after each step, writes the library's model card, and resumes to the same final
    weights. A subclass that remembers more than model, optimizer and scheduler returns it from `method_state` and takes
    it back in `load_method_state`. `log_mean` adds to the logs.
    """

    # `Trainer` types them as what they may be before `__init__`.
    model: Any
    args: Any
    train_dataset: Any
    eval_dataset: Any

    def __init__(self, *args, callbacks=None, **kwargs):
        self._logged: dict[str, list[torch.Tensor]] = {}
        # The order of the training rows, where it is our own.
        self.train_sampler: Sampler | None = None
        given = [one for one in callbacks or () if not isinstance(one, (MemoryUpdateCallback, ModelCardCallback))]
        own = [ModelCardCallback(self), EpochOrder(self)]
        super().__init__(*args, callbacks=[MemoryUpdateCallback(), *given, *own], **kwargs)

    @property
    def output_folder(self) -> Path:
        return Path(self.args.output_dir)

    # Rows

    @property
    def data_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def train_loader(self, dataset, sampler: Sampler | None, batch_size: int) -> DataLoader:
        """Training rows in the order of `sampler`."""
        self.train_sampler, args = sampler, self.args
        more = {} if sampler is None else {"sampler": sampler, "drop_last": args.dataloader_drop_last}
        return self.ordered_loader(dataset, batch_size, persistent_workers=args.dataloader_persistent_workers, **more)

    def ordered_loader(self, dataset, batch_size: int, **kwargs) -> DataLoader:
        """Rows in their order, or that of a `sampler`, by the data-loader settings of `args`."""
        args = self.args
        loader = DataLoader(
            dataset,
            batch_size=batch_size,
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            prefetch_factor=args.dataloader_prefetch_factor,
            multiprocessing_context=args.dataloader_multiprocessing_context,
            in_order=args.dataloader_in_order,
            worker_init_fn=partial(seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index),
            **kwargs,
        )
        return self.accelerator.prepare(loader)

    # Resuming

    def method_state(self) -> dict[str, Any]:
        """Tensors, numbers and strings that a checkpoint needs beside the files of `Trainer`."""
        return {}

    def load_method_state(self, state: dict[str, Any]) -> None:
        """Takes back what `method_state` returned."""

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs) -> TrainOutput:  # type: ignore[override]
        """As in `Trainer`; `resume_from_checkpoint=True` skips incomplete checkpoints."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_complete_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(
                    f"`resume_from_checkpoint=True`, but `output_dir` ({self.args.output_dir}) has no complete "
                    "checkpoint. Leave it out to start from the beginning."
                )
        if resume_from_checkpoint:
            file = os.path.join(resume_from_checkpoint, METHOD_STATE)
            if os.path.isfile(file):
                self.load_method_state(torch.load(file, map_location=self.args.device.type, weights_only=True))
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        folder: str = self.args.output_dir if output_dir is None else output_dir
        plain = (DistributedType.NO, DistributedType.MULTI_GPU, DistributedType.MULTI_CPU)
        if not isinstance(self.model, PreTrainedModel) or self.accelerator.distributed_type not in plain:
            super().save_model(output_dir, _internal_call)
        else:
            if self.args.should_save:
                # `Trainer` (5.22) saves ViT and others under the parameter names of their first release, which it
                # does not find again when it resumes.
                self.model.save_pretrained(folder, save_original_format=False)
                if self.processing_class is not None:
                    self.processing_class.save_pretrained(folder)
                torch.save(self.args, os.path.join(folder, TRAINING_ARGS_NAME))
            if self.args.push_to_hub and not _internal_call:
                self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)
        # Into checkpoints, not into models that the user saves.
        state = self.method_state() if _internal_call else {}
        if state and self.args.should_save:
            torch.save(state, os.path.join(folder, METHOD_STATE))

    @property
    def is_over(self) -> bool:
        """Whether no step follows, also after resuming."""
        return self.state.global_step >= self.state.max_steps

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        # `Trainer` (5.22) takes one step too many from a checkpoint of the last step if no epoch ends there.
        if self.is_over:
            self.control.should_training_stop = True
            return [], None
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    # Model card

    def create_model_card(self, **kwargs) -> None:  # type: ignore[override]
        """
        As in `Trainer`, with arguments by name. For models of this library the card holds the facts of the run, so
        `tasks` and `dataset_args` are not needed.
        """
        model = self.accelerator.unwrap_model(self.model)
        if not is_family(model):
            super().create_model_card(**kwargs)
        elif self.is_world_process_zero():
            facts_from_trainer(self)
            dataset, tags = kwargs.get("dataset"), kwargs.get("tags")
            if dataset is not None:
                record_run(model, data=dataset if isinstance(dataset, str) else ", ".join(dataset))
            write_card(
                model,
                self.args,
                self.hub_model_id or kwargs.get("model_name"),
                language=kwargs.get("language"),
                license=kwargs.get("license"),
                tags=[tags] if isinstance(tags, str) else tags,
                base_model=kwargs.get("finetuned_from"),
                datasets=kwargs.get("dataset_tags"),
            )
            if not hasattr(model, "peft_config"):
                # The weights were saved before the facts were known.
                model.config.save_pretrained(self.args.output_dir)

    # Logs

    def log_mean(self, name: str, value: torch.Tensor) -> None:
        """
        Logs the mean of `value`, over the steps since the last log and over all processes, beside `loss`. Does not wait
        for the device. All processes must log the same names.
        """
        # A copy, as the next replay of a CUDA graph writes to the same memory.
        self._logged.setdefault(name, []).append(value.detach().clone())

    def log(self, logs: dict[str, float], *args, **kwargs) -> None:
        if "loss" in logs:
            means = {name: torch.stack(values).mean() for name, values in self._logged.items()}
            logs.update({name: float(value) for name, value in self.mean_over_processes(means).items()})
            self._logged.clear()
        super().log(logs, *args, **kwargs)

    def mean_over_processes(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if self.args.world_size == 1:
            return tensors
        return {name: self.accelerator.reduce(value, reduction="mean") for name, value in tensors.items()}
