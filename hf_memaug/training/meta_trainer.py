# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""MIL's meta-training (Jia and Zhang, 2023, Algorithm 2): episodes that teach the memory to bridge domains."""

from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed.nn.functional as differentiable
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader
from transformers import TrainerCallback, get_scheduler
from transformers.trainer_utils import TrainOutput

from hf_memaug.data.sampling import EpisodeSampler
from hf_memaug.kernels.cuda_graphs import GraphedFunction
from hf_memaug.layers.discriminator import DomainDiscriminators
from hf_memaug.layers.kv_memory import slot_entropy
from hf_memaug.training import hypergradient
from hf_memaug.training.arguments import BilevelTrainingArguments
from hf_memaug.training.callbacks import RunGuard
from hf_memaug.training.collation import domains_of
from hf_memaug.training.domain_trainer import DomainTrainer
from hf_memaug.training.forward_pass import learners
from hf_memaug.training.hypergradient import InnerStep, Tensors


class MetaTrainer(DomainTrainer):
    """
    One step of `Trainer` is one inner step (Eq. 8): encoder and head learn the task on the meta-source rows, by the
    optimizer, schedule, clipping, accumulation and processes of `Trainer`. After every `inner_steps` of them follows an
    outer step (Eq. 9): on the features that the updated encoder now gives, the discriminator of the meta-target learns
    to tell it from the meta-source domains, and the memory to make that hard.

    [`BilevelTrainer`] runs it; by itself it leaves a model whose memory is `theta_m*`.
    """

    args: BilevelTrainingArguments
    method_name = "mil"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        check_memory_is_last(self.model)
        args = self.args
        self.exact = args.hypergradient == "exact"
        self.encoder = self.model.base_model
        self.source_rows = args.train_batch_size
        self.target_rows = args.meta_target_batch_size or args.train_batch_size
        # The task loss must not teach the memory (line 6 to 8), and its gradients need not be computed.
        self.model.freeze_memory()
        self.memory = memory_of(self.model)
        with self.seeded():
            self.discriminators = DomainDiscriminators(
                self.domains, self.model.config.hidden_size, args.discriminator_hidden_size
            )
        # float64 models are for checks of the arithmetic; all others have discriminators in float32.
        self.discriminators.to(args.device, torch.promote_types(self.model.dtype, torch.float32))
        self.outer_optimizer = torch.optim.AdamW(
            [
                {"params": list(self.memory.values()), "lr": args.memory_learning_rate, "maximize": True},
                {"params": list(self.discriminators.parameters()), "lr": args.discriminator_learning_rate},
            ],
            betas=(args.adam_beta1, args.adam_beta2),
            eps=args.adam_epsilon,
            weight_decay=0.0,
        )
        self.outer_scheduler = get_scheduler(
            args.lr_scheduler_type,
            self.outer_optimizer,
            num_warmup_steps=args.get_warmup_steps(args.meta_steps) // args.inner_steps,
            num_training_steps=args.meta_steps // args.inner_steps,
            scheduler_specific_kwargs=args.lr_scheduler_kwargs,
        )
        self._outer_batches: list[dict] = []
        # One for all targets: they share the memory of their graphs.
        self._graphed_gradients = GraphedFunction(lambda batch: self.discriminator_gradients(batch, self.meta_target))
        # For the exact hyper-gradient: what the inner steps since the last outer step began with, and did.
        self._before: tuple[Tensors, dict] | None = None
        self._inner_steps: list[InnerStep] = []
        self._inner_batches: list[tuple] = []
        self.add_callback(_OuterSteps(self))

    # Rows

    def get_train_dataloader(self) -> DataLoader:
        args = self.args
        self.episodes = EpisodeSampler(
            domains_of(self.train_dataset, "train_dataset"),
            episodes=args.episodes,
            episode_steps=args.episode_steps,
            inner_steps=args.inner_steps,
            source_rows=self.source_rows,
            target_rows=self.target_rows,
            batches_per_step=args.gradient_accumulation_steps * args.world_size,
            seed=self.data_seed,
        )
        return self.train_loader(self.train_dataset, self.episodes, self.source_rows + self.target_rows)

    # Inner step

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs) -> TrainOutput:  # type: ignore[override]
        # Fused attention cannot be differentiated twice.
        with sdpa_kernel(SDPBackend.MATH) if self.exact else nullcontext():
            return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    @property
    def is_outer_step(self) -> bool:
        return (self.state.global_step + 1) % self.args.inner_steps == 0

    def training_step(self, model, inputs, num_items_in_batch=None):
        inputs = self._prepare_inputs(inputs)
        if self.is_outer_step:
            self._outer_batches.append({n: inputs[n] for n in inputs if n not in ("labels", "domain_ids")})
        count = self.source_rows
        source = {n: value[:count] if isinstance(value, torch.Tensor) else value for n, value in inputs.items()}
        if self.exact:
            self._remember_batch({name: value for name, value in source.items() if name != "domain_ids"})
        loss = super().training_step(model, source, num_items_in_batch)
        # `Trainer` has divided it by the accumulation steps.
        self.log_mean("task_loss", loss * self.current_gradient_accumulation_steps)
        return loss

    # Outer step

    @property
    def meta_target(self) -> str:
        return self.episodes.meta_target(self.state.global_step)

    def outer_step(self) -> None:
        """Eq. 9, lines 9 to 11: the discriminator lowers the domain loss, the memory raises it."""
        target = self.meta_target
        gradients: Tensors = {}
        with self._memory_learns():
            updated = self._updated_parameters() if self.exact else None
            for batch in self._outer_batches:
                if self.args.cuda_graphs:
                    found, seen = self._graphed_gradients(batch, key=target)
                else:
                    found, seen = self.discriminator_gradients(batch, target, updated)
                for name, gradient in found.items():
                    share = gradient / len(self._outer_batches)
                    gradients[name] = gradients[name] + share if name in gradients else share
                for name, value in seen.items():
                    self.log_mean(name, value)
        gradients = self.mean_over_processes(gradients)
        players = self._learners_of_outer_step(target)
        for name, parameter in players.items():
            parameter.grad = gradients[name]
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, RunGuard):
                # Before it is in the memory, and in the next checkpoint.
                callback.check([gradients[name] for name in players], self.args, self.state)
        self.outer_optimizer.step()
        self.outer_scheduler.step()
        for parameter in players.values():
            parameter.grad = None
        self._outer_batches.clear()

    def _learners_of_outer_step(self, target: str) -> dict[str, torch.nn.Parameter]:
        """The memory and the meta-target's discriminator, by name."""
        adversary = self.discriminators.discriminators[self.domains.index(target)]
        return {**self.memory, **{f"discriminator {name}": value for name, value in adversary.named_parameters()}}

    def discriminator_gradients(self, batch: dict, target: str, updated: Tensors | None = None) -> tuple[Tensors, dict]:
        """
        Eq. 4 on one batch, whose first `source_rows` rows come from the meta-source domains: its gradients by memory
        and discriminator, and what to log. `updated` are encoder and head as a function of the memory, for the exact
        hyper-gradient; without it they are taken as given.
        """
        was_training = self.model.training
        # The features as they will be classified, without the noise of dropout.
        self.model.eval()
        # The memory is the last thing that the features meet: only the exact gradient needs a graph of the encoder.
        # `Trainer`'s mixed precision sits in the whole model's forward, which is not what is called here.
        with torch.set_grad_enabled(updated is not None), self.accelerator.autocast():
            if updated is None:
                features = self.encoder(**batch).features
            else:
                prefix = f"{self.model.base_model_prefix}."
                of_encoder = {n.removeprefix(prefix): value for n, value in updated.items() if n.startswith(prefix)}
                features = functional_call(self.encoder, of_encoder, kwargs=batch).features
        self.model.train(was_training)
        players = self._learners_of_outer_step(target)
        with self._memory_learns():
            augmented, _, weights = self.encoder.augment(features)
            logits = self.discriminators(augmented, target)
            is_target = torch.zeros_like(logits)
            is_target[self.source_rows :] = 1.0
            # The mean: as a sum, the steps would depend on the size of the batch.
            loss = F.binary_cross_entropy_with_logits(logits, is_target)
            gradients = torch.autograd.grad(loss, list(players.values()), retain_graph=updated is not None)
        weights = weights.detach()
        used = torch.zeros(weights.shape[-1], device=weights.device)
        seen = {
            f"domain_loss_{target}": loss.detach(),
            f"discriminator_accuracy_{target}": ((logits.detach() > 0) == (is_target > 0)).float().mean(),
            # 1 for even attention to all slots.
            "slot_entropy": slot_entropy(weights).mean(),
            "slots_used": used.index_fill(0, weights.argmax(dim=-1).flatten(), 1.0).sum(),
        }
        return dict(zip(players, gradients, strict=True)), seen

    @contextmanager
    def _memory_learns(self):
        self.model.freeze_memory(False)
        try:
            yield
        finally:
            self.model.freeze_memory()

    # The exact hyper-gradient

    def _remember_batch(self, inputs: dict) -> None:
        live: Any = learners(self.model)
        optimizer: Any = getattr(self.optimizer, "optimizer", self.optimizer)
        if self._before is None:
            copies = {name: value.detach().clone() for name, value in live.items()}
            self._before = copies, hypergradient.optimizer_states(optimizer, live)
        self._inner_batches.append((inputs, hypergradient.random_states(self.args.device)))
        if self.accelerator.sync_gradients:
            self._inner_steps.append((hypergradient.optimizer_groups(optimizer, live), self._inner_batches))
            self._inner_batches = []

    def _updated_parameters(self) -> Tensors:
        """`theta_g'` as a function of the memory, by the inner steps since the last outer step."""

        def task_loss(parameters: Tensors, inputs: dict) -> torch.Tensor:
            with self.compute_loss_context_manager(), self.accelerator.autocast():
                outputs = functional_call(self.model, {**parameters, **self.memory}, kwargs=inputs)
                return self.task_loss(outputs, inputs)

        def mean(tensors: Tensors) -> Tensors:
            processes = self.args.world_size
            if processes == 1:
                return tensors
            return {name: differentiable.all_reduce(value) / processes for name, value in tensors.items()}

        assert self._before is not None, "an outer step follows inner steps"
        (parameters, states), steps = self._before, self._inner_steps
        self._before, self._inner_steps = None, []
        self.model.train()
        return hypergradient.unroll(task_loss, steps, parameters, states, self.args.max_grad_norm, mean)

    # Checkpoints

    def method_state(self) -> dict:
        return {
            **super().method_state(),
            "outer_optimizer": self.outer_optimizer.state_dict(),
            "outer_scheduler": self.outer_scheduler.state_dict(),
            "discriminators": self.discriminators.state_dict(),
        }

    def load_method_state(self, state: dict) -> None:
        super().load_method_state(state)
        self.outer_optimizer.load_state_dict(state["outer_optimizer"])
        self.outer_scheduler.load_state_dict(state["outer_scheduler"])
        self.discriminators.load_state_dict(state["discriminators"])


def memory_of(model) -> dict[str, torch.nn.Parameter]:
    is_memory = {id(parameter) for parameter in model.memory_parameters()}
    return {name: value for name, value in model.named_parameters() if id(value) in is_memory}


def check_memory_is_last(model) -> None:
    """Refuses models whose memory is not the last thing that their features meet, or never meets them."""
    if hasattr(model, "peft_config"):
        raise TypeError(
            "`model` has adapters of PEFT, through which the two levels of MIL are not trained. Give the model without "
            "them; `DomainTrainer` trains one that has them."
        )
    if not hasattr(getattr(model, "base_model", None), "augment"):
        raise TypeError(
            f"`model` is a `{type(model).__name__}`, whose features meet no key-value memory last. Use "
            "`RobertaWithKVMemoryForSequenceClassification.from_backbone(...)`, its prompted form, or BERT's."
        )
    if not model.config.reads_memory:
        raise ValueError("`model` has `memory_weight=0`: its memory is not read, and learns nothing. Give it a weight.")


class _OuterSteps(TrainerCallback):
    """Line 9: the outer step comes when the optimizer has made `theta_g'`."""

    def __init__(self, trainer: MetaTrainer):
        self.trainer, self.save_is_due = trainer, False

    def on_optimizer_step(self, args, state, control, **kwargs):
        if self.trainer.is_outer_step:
            self.trainer.outer_step()

    def on_step_end(self, args, state, control, **kwargs):
        # Between the inner steps that lead to one outer step there is nothing to resume from.
        self.save_is_due |= control.should_save
        control.should_save = self.save_is_due and state.global_step % args.inner_steps == 0
        self.save_is_due &= not control.should_save
        return control
