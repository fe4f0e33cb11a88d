# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""MIL's meta-training (Jia and Zhang, 2023, Algorithm 2): episodes that teach the memory to bridge domains."""

from contextlib import contextmanager

import torch
from torch.func import functional_call
from torch.nn import functional as F
from transformers import TrainerCallback, get_scheduler

from hf_memaug.data.sampling import EpisodeSampler
from hf_memaug.kernels.cuda_graphs import GraphedFunction
from hf_memaug.layers.discriminator import DomainDiscriminators
from hf_memaug.layers.kv_memory import slot_entropy
from hf_memaug.training.collation import domains_of
from hf_memaug.training.domain_trainer import DomainTrainer
from hf_memaug.training.guard import RunGuard
from hf_memaug.training.hypergradient import (
    InnerStep,
    SecondDerivatives,
    copied,
    optimizer_states,
    random_states,
    second_order_term,
)
from hf_memaug.training.recordable_attention import RECORDABLE

_NOT_FOR_ENCODERS = ("labels", "domain_ids")


class MetaTrainer(DomainTrainer):
    """
    One step of `Trainer` is one inner step (Eq. 8): encoder and head learn the task on the meta-source rows, by the
    optimizer, schedule, clipping, accumulation and processes of `Trainer`. After every `inner_steps` of them follows an
    outer step (Eq. 9): on the features that the updated encoder now gives, the discriminator of the meta-target learns
    to tell it from the meta-source domains, and the memory to make that hard.

    [`BilevelTrainer`] runs it; by itself it leaves a model whose memory is `theta_m*`.
    """

    method_name = "mil"
    writes_card_after_training = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        check_memory_is_last(self.model)
        self.encoder = self.model.base_model
        # The task loss must not teach the memory (line 6 to 8), and its gradients need not be computed.
        self.model.freeze_memory()
        is_memory = {id(parameter) for parameter in self.model.memory_parameters()}
        self.memory = {name: value for name, value in self.model.named_parameters() if id(value) in is_memory}
        with self.seeded():
            self.discriminators = DomainDiscriminators(
                self.domains, self.model.config.hidden_size, self.args.discriminator_hidden_size
            ).to(self.args.device)
        # float64 models are for checks of the arithmetic; everything else plays in float32.
        if self.model.dtype == torch.float64:
            self.discriminators.double()
        self.outer_optimizer = torch.optim.AdamW(
            [
                {"params": list(self.memory.values()), "lr": self.args.memory_learning_rate, "maximize": True},
                {"params": list(self.discriminators.parameters()), "lr": self.args.discriminator_learning_rate},
            ],
            betas=(self.args.adam_beta1, self.args.adam_beta2),
            eps=self.args.adam_epsilon,
            weight_decay=0.0,
        )
        self.outer_scheduler = get_scheduler(
            self.args.lr_scheduler_type,
            self.outer_optimizer,
            num_warmup_steps=self.args.get_warmup_steps(self.args.meta_steps) // self.args.inner_steps,
            num_training_steps=self.args.meta_steps // self.args.inner_steps,
            scheduler_specific_kwargs=self.args.lr_scheduler_kwargs,
        )
        self.slots_ever_used: torch.Tensor | None = None
        self._batches: list[dict] = []
        self._inner_steps: list[InnerStep] = []
        self._replays: list[tuple] = []
        self._second_derivatives = SecondDerivatives(self._replayed_loss, graphed=self.args.cuda_graphs)
        # One for all targets, of which one plays at a time: they share the memory of their graphs.
        self._graphed_play = GraphedFunction(lambda batch: self.play(batch, self.meta_target))
        self._attention = self.model.config._attn_implementation
        self.add_callback(_OuterSteps(self))

    # Rows

    @property
    def source_rows(self) -> int:
        return self._train_batch_size

    @property
    def target_rows(self) -> int:
        return self.args.meta_target_batch_size or self._train_batch_size

    def _get_train_sampler(self, train_dataset=None):
        args = self.args
        self.episodes = EpisodeSampler(
            domains_of(self.train_dataset if train_dataset is None else train_dataset, "train_dataset"),
            episodes=args.episodes,
            episode_steps=args.episode_steps,
            inner_steps=args.inner_steps,
            source_rows=self.source_rows,
            target_rows=self.target_rows,
            batches_per_step=args.gradient_accumulation_steps * args.world_size,
            seed=args.seed if args.data_seed is None else args.data_seed,
        )
        return self.episodes

    def get_train_dataloader(self):
        return self._get_dataloader(
            dataset=self.train_dataset,
            description="Meta-training",
            batch_size=self.source_rows + self.target_rows,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    # Inner step

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs):
        if self.args.hypergradient == "exact":
            # Fused attention has no forward-mode derivative.
            self.model.set_attn_implementation(RECORDABLE)
        try:
            return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)
        finally:
            self.model.set_attn_implementation(self._attention)

    @property
    def is_outer_step(self) -> bool:
        return (self.state.global_step + 1) % self.args.inner_steps == 0

    def training_step(self, model, inputs, num_items_in_batch=None):
        inputs = self._prepare_inputs(inputs)
        if self.is_outer_step:
            self._batches.append({name: value for name, value in inputs.items() if name not in _NOT_FOR_ENCODERS})
        source = {
            name: value[: self.source_rows] if isinstance(value, torch.Tensor) else value
            for name, value in inputs.items()
        }
        exact = self.args.hypergradient == "exact"
        if exact:
            inputs = {name: value for name, value in source.items() if name != "domain_ids"}
            self._replays.append((inputs, random_states(self.args.device)))
        loss = super().training_step(model, source, num_items_in_batch)
        if exact and self.accelerator.sync_gradients:
            self._inner_steps.append(self._remember_step())
        # `Trainer` has divided it by the accumulation steps.
        self.log_mean("task_loss", loss * self.current_gradient_accumulation_steps)
        return loss

    # Outer step

    @property
    def meta_target(self) -> str:
        return self.episodes.meta_target(self.state.global_step)

    def outer_step(self) -> None:
        """Eq. 9, lines 9 to 11: the discriminator lowers the domain loss, the memory raises it."""
        target, graphed = self.meta_target, self.args.cuda_graphs
        gradients: dict[str, torch.Tensor] = {}
        for batch in self._batches:
            found, seen = self._graphed_play(batch, key=target) if graphed else self.play(batch, target)
            for name, gradient in found.items():
                share = gradient / len(self._batches) if len(self._batches) > 1 else gradient
                gradients[name] = gradients[name] + share if name in gradients else share
            self.log_mean(f"domain_loss_{target}", seen["domain_loss"])
            self.log_mean(f"discriminator_accuracy_{target}", seen["accuracy"])
            self.log_mean("slot_entropy", seen["slot_entropy"])
            used = seen["slots_used"]
            self.slots_ever_used = used.clone() if self.slots_ever_used is None else self.slots_ever_used | used
        gradients = self.mean_over_processes(gradients)
        players = self._players(target)
        for name, parameter in players.items():
            parameter.grad = gradients[name]
        if self._inner_steps:
            adjoint = {name: gradients[name] for name in self._inner_steps[-1].parameters}
            for name, term in self._second_order_term(adjoint).items():
                self.memory[name].grad += term
        guard = next((one for one in self.callback_handler.callbacks if isinstance(one, RunGuard)), None)
        if guard is not None:
            # Before it is in the memory, and in the next checkpoint.
            guard.check([parameter.grad for parameter in players.values()], self.args, self.state)
        self.outer_optimizer.step()
        self.outer_scheduler.step()
        for parameter in players.values():
            parameter.grad = None
        self._batches.clear()
        self._inner_steps.clear()

    def _players(self, target: str) -> dict[str, torch.nn.Parameter]:
        """The memory and the meta-target's discriminator, by name."""
        adversary = self.discriminators.discriminators[self.domains.index(target)]
        return {**self.memory, **{f"discriminator {name}": value for name, value in adversary.named_parameters()}}

    def play(self, batch: dict, target: str) -> tuple[dict, dict]:
        """
        Eq. 4 on one batch, whose first `source_rows` rows come from the meta-source domains.

        Returns its gradients by the players (and by encoder and head, for the exact hyper-gradient), and what to log.
        """
        by = self._players(target)
        exact = self.args.hypergradient == "exact"
        if exact:
            live = dict(self.model.named_parameters())
            by |= {name: live[name] for name in self._inner_steps[-1].parameters}
        was_training = self.model.training
        # The features as they will be classified, without the noise of dropout. Nothing is differentiated twice here.
        self.model.eval()
        if exact:
            self.model.set_attn_implementation(self._attention)
        # The memory is the last thing that the features meet: only the exact gradient needs a graph of the encoder.
        # `Trainer`'s mixed precision sits in the whole model's forward, which is not what is called here.
        with torch.set_grad_enabled(exact), self.accelerator.autocast():
            features = self.encoder(**batch).features
        if exact:
            self.model.set_attn_implementation(RECORDABLE)
        self.model.train(was_training)
        with self._memory_learns():
            augmented, _, weights = self.encoder.augment(features)
            logits = self.discriminators(augmented, target)
            is_target = torch.zeros_like(logits)
            is_target[self.source_rows :] = 1.0
            # The mean: as a sum, the steps would depend on the size of the batch.
            loss = F.binary_cross_entropy_with_logits(logits, is_target)
            gradients = torch.autograd.grad(loss, list(by.values()), allow_unused=True, materialize_grads=True)
        weights = weights.detach()
        used = torch.zeros(weights.shape[-1], dtype=torch.bool, device=weights.device)
        seen = {
            "domain_loss": loss.detach(),
            "accuracy": ((logits.detach() > 0) == (is_target > 0)).float().mean(),
            # 1 for even attention to all slots.
            "slot_entropy": slot_entropy(weights).mean(),
            "slots_used": used.index_fill(0, weights.argmax(dim=-1).flatten(), True),
        }
        return dict(zip(by, gradients, strict=True)), seen

    @contextmanager
    def _memory_learns(self):
        self.model.freeze_memory(False)
        try:
            yield
        finally:
            self.model.freeze_memory()

    # The exact hyper-gradient

    def _remember_step(self) -> InnerStep:
        live = {name: p for name, p in self.model.named_parameters() if p.requires_grad and p.grad is not None}
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        states, groups = optimizer_states(optimizer, live)
        replays, self._replays = self._replays, []
        limit, clipped = self.args.max_grad_norm, None
        if self.args.cuda_graphs and limit:
            # The graph has clipped them already.
            clipped = ((self._grad_norm + 1e-6) / limit).clamp(min=1.0)
        return InnerStep(
            parameters=copied(live),
            gradients=copied({name: parameter.grad for name, parameter in live.items()}, times=clipped),
            states=states,
            groups=groups,
            replays=replays,
        )

    def _replayed_loss(self, parameters: dict, memory: dict, inputs: dict) -> torch.Tensor:
        with self.compute_loss_context_manager():
            outputs = functional_call(self.model, {**parameters, **memory}, kwargs=inputs)
            return self._task_loss(outputs, inputs)

    def _second_order_term(self, adjoint: dict) -> dict:
        memory = {name: parameter.detach() for name, parameter in self.memory.items()}
        self.model.train()
        given = (self.args.max_grad_norm, self._second_derivatives, self.mean_over_processes)
        return second_order_term(self._inner_steps, memory, adjoint, *given)

    # Logs

    def log(self, logs: dict, *args, **kwargs) -> None:
        # Each process has drawn rows of the same meta-targets, so all have the same names of means.
        if self._sums and "loss" in logs and self.slots_ever_used is not None:
            used = self.mean_over_processes({"used": self.slots_ever_used.float()})["used"]
            logs["slots_used"] = int((used > 0).sum())
        super().log(logs, *args, **kwargs)

    # Checkpoints

    def method_state(self) -> dict:
        return {
            **super().method_state(),
            "outer_optimizer": self.outer_optimizer.state_dict(),
            "outer_scheduler": self.outer_scheduler.state_dict(),
            "discriminators": self.discriminators.state_dict(),
            "slots_ever_used": self.slots_ever_used,
        }

    def load_method_state(self, state: dict) -> None:
        super().load_method_state(state)
        self.outer_optimizer.load_state_dict(state["outer_optimizer"])
        self.outer_scheduler.load_state_dict(state["outer_scheduler"])
        self.discriminators.load_state_dict(state["discriminators"])
        self.slots_ever_used = state["slots_ever_used"]


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
        self.trainer = trainer

    def on_optimizer_step(self, args, state, control, **kwargs):
        if self.trainer.is_outer_step:
            self.trainer.outer_step()

    def on_step_end(self, args, state, control, **kwargs):
        # Between the inner steps that lead to one outer step there is nothing to resume from.
        control.should_save = control.should_save and state.global_step % args.inner_steps == 0
        return control
