# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The forward pass of a training step, with what an algorithm wants to see of it."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from hf_memaug.data.spans import IGNORED
from hf_memaug.modeling.modeling_utils import pool_tokens, reads_last_token, timm_width


@dataclass
class DomainBatch:
    """
    A batch after the forward pass.

    Args:
        task_loss: the model's own loss, the mean over the batch.
        logits, labels: `(rows, labels)` and `(rows,)`. Of questions the logits are `(rows, 2, tokens)`, of where an
            answer begins and where it ends, and labels there are none.
        features: `(rows, width)`, what the head reads; `None` unless the algorithm has `needs_features`.
        domain_ids: `(rows,)`, which domain each row comes from.
        step: how many optimizer steps were made before this one.
        head_inputs: `(rows, width)`, what the head's last layer reads; `None` unless the algorithm has
            `needs_head_inputs`.
        label_smoothing, class_weights: those of `task_loss`.
    """

    task_loss: torch.Tensor
    # Tensors, as far as the algorithm asks for them.
    logits: Any
    labels: Any
    features: Any
    domain_ids: torch.Tensor
    step: int = 0
    head_inputs: Any = None
    label_smoothing: float = 0.0
    class_weights: Any = None

    def shares(self, domains: int) -> tuple[torch.Tensor, torch.Tensor]:
        """
        `(domains, rows)`, each domain's row averaging over its own rows, and how many rows each domain has. A domain
        that is not in the batch has zeros. Nothing here waits for the device, and no shape depends on the rows.
        """
        members = (self.domain_ids == torch.arange(domains, device=self.domain_ids.device).unsqueeze(-1)).float()
        counts = members.sum(dim=-1)
        return members / counts.clamp(min=1).unsqueeze(-1), counts

    def row_losses(self, labels: torch.Tensor | None = None) -> torch.Tensor:
        """The cross-entropy of each row, by its own label or another."""
        if self.labels is None or self.labels.ndim != 1 or self.labels.is_floating_point():
            numbers = self.labels is not None and self.labels.is_floating_point()
            have = "no labels" if self.labels is None else "numbers for labels" if numbers else "a label for each token"
            raise ValueError(
                f"The algorithm looks at the loss of each row, and the rows have {have}. Choose one "
                'that looks at the loss of the batch alone, such as "erm" or "swad".'
            )
        labels = self.labels if labels is None else labels
        losses = F.cross_entropy(self.logits.float(), labels, reduction="none", label_smoothing=self.label_smoothing)
        return losses if self.class_weights is None else losses * self.class_weights[labels]

    def rest_of_loss(self) -> torch.Tensor:
        """What the model adds to the mean cross-entropy by itself, such as what keeps its experts busy."""
        return self.task_loss - self.row_losses().mean()


class ForwardPass:
    """Runs a model, as `Trainer` hands it to `compute_loss`, for the algorithm of a `DomainTrainer`."""

    # Of the first call: by the model's own weights.
    task_loss: torch.Tensor | None = None

    def __init__(self, trainer, model: nn.Module):
        self.trainer, self.wrapped = trainer, model
        self.model = trainer.accelerator.unwrap_model(model)
        self.step = trainer.state.global_step

    def __call__(self, inputs: dict, domain_ids: torch.Tensor, weights: dict | None = None) -> DomainBatch:
        """With `weights`, as if these were the model's parameters of the same names."""
        args = self.trainer.args
        with ExitStack() as stack:
            embeddings = stack.enter_context(watched_embeddings(self.model)) if args.embedding_perturbation else []
            batch = self.once(inputs, domain_ids, weights)
        if args.embedding_perturbation:
            # FGM (Miyato et al., 2017): r = ε g / |g|.
            gradients = torch.autograd.grad(batch.task_loss, embeddings, retain_graph=True)
            moves = [F.normalize(one.flatten(1), dim=1).view_as(one) for one in gradients]
            with watched_embeddings(self.model, [args.embedding_perturbation * one for one in moves]):
                batch.task_loss = (batch.task_loss + self.once(inputs, domain_ids, weights).task_loss) / 2
        if args.rdrop_weight:
            again = self.once(inputs, domain_ids, weights)
            # Half of R-Drop's Eq. 4, so that the task loss keeps its size.
            batch.task_loss = (batch.task_loss + again.task_loss + args.rdrop_weight * disagreement(batch, again)) / 2
        return batch

    def once(self, inputs: dict, domain_ids: torch.Tensor, weights: dict | None = None) -> DomainBatch:
        with ExitStack() as stack:
            algorithm = self.trainer.algorithm
            features = stack.enter_context(watched_features(self.model)) if algorithm.needs_features else []
            head_inputs: list[torch.Tensor] = []
            if algorithm.needs_head_inputs:
                heads = find_heads(self.model, f'algorithm="{self.trainer.args.algorithm}"')
                head_inputs = stack.enter_context(watched_inputs(heads))
            if weights is None:
                outputs = self.wrapped(**inputs)
            else:
                outputs = functional_call(self.model, weights, kwargs=inputs)
        if features and len(features[0]) != len(domain_ids):
            raise ValueError(
                f'`algorithm="{self.trainer.args.algorithm}"` needs one feature of each row, but '
                f"`{type(self.model).__name__}` has {len(features[0])} for {len(domain_ids)} rows (pairs of texts have "
                'two). Choose an algorithm that reads the loss alone, such as "erm" or "vrex".'
            )
        batch = DomainBatch(
            task_loss=self.trainer.task_loss(outputs, inputs),
            logits=logits_of(outputs, 1),
            # Questions have none.
            labels=inputs.get("labels"),
            features=features[0] if features else None,
            domain_ids=domain_ids,
            step=self.step,
            head_inputs=head_inputs[-1] if head_inputs else None,
            label_smoothing=self.trainer.args.label_smoothing_factor,
        )
        if self.trainer.class_weights is not None:
            # Not divided by the weights of the batch, so that accumulated batches add up to one large batch.
            rest, batch.class_weights = batch.rest_of_loss(), self.trainer.class_weights
            batch.task_loss = batch.row_losses().mean() + rest
        if self.task_loss is None:
            self.task_loss = batch.task_loss.detach()
        return batch

    def averaged(self, gradient: torch.Tensor) -> torch.Tensor:
        """A gradient's mean over the processes."""
        return self.trainer.accelerator.reduce(gradient, reduction="mean")


def disagreement(batch: DomainBatch, again: DomainBatch) -> torch.Tensor:
    """R-Drop (Liang et al., 2021, Eq. 2): the mean of the two KL divergences between two answers to a batch."""
    labels = batch.labels
    if labels is None or labels.is_floating_point() or batch.logits.shape[:-1] != labels.shape:
        raise ValueError("`rdrop_weight` needs a class for each row or token. Leave it out.")
    first, second = (one.logits[labels != IGNORED].float().log_softmax(dim=-1) for one in (batch, again))
    return ((first.exp() - second.exp()) * (first - second)).sum(dim=-1).mean() / 2


def embeddings_of(model: Any) -> Any:
    """What turns tokens or patches into vectors, or None."""
    try:
        return model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None


@contextmanager
def watched_embeddings(model: Any, moves: Sequence[torch.Tensor] = ()):
    """A list of the embeddings that a forward pass of `model` computes; they are moved by `moves`."""
    found: list[torch.Tensor] = []

    def hook(module, inputs, output):
        # Swin's come with the size of the image.
        first, *rest = output if isinstance(output, tuple) else (output,)
        # Those of a frozen encoder have no graph of their own.
        found.append(first if first.requires_grad else first.detach().requires_grad_())
        kept = first + moves[len(found) - 1] if moves else found[-1]
        return (kept, *rest) if isinstance(output, tuple) else kept

    handle = embeddings_of(model).register_forward_hook(hook)
    try:
        yield found
    finally:
        handle.remove()


def learners(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def linear_heads(model: Any) -> list[nn.Linear]:
    """The layers that could give a classifier's logits, in their order."""
    labels = model.config.num_labels
    return [one for one in model.modules() if isinstance(one, nn.Linear) and one.out_features == labels]


def find_heads(model: Any, needed_by: str) -> list[nn.Linear]:
    heads = linear_heads(model)
    if not heads:
        raise ValueError(
            f"`{needed_by}` needs a linear layer with {model.config.num_labels} outputs, which "
            f"`{type(model).__name__}` does not have. Choose another, or another model."
        )
    return heads


@contextmanager
def watched_inputs(layers: Iterable[nn.Module]):
    """A list to which each call of one of the layers adds what it reads."""
    found: list[torch.Tensor] = []
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for layer in layers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def watched_features(model: Any):
    """A list to which each forward pass of `model` adds the features that its head reads."""
    features: list[torch.Tensor] = []
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    encoder = model.base_model
    if hasattr(encoder, "get_classifier"):
        # A network of timm, which has its head in it.
        head = encoder.get_classifier()
        hook = head.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].flatten(1)))
    elif reads_last_token(model):

        def add_last(encoder, given, named, outputs):
            states = outputs[0] if isinstance(outputs, tuple) else outputs.last_hidden_state
            # Ours is handed it second, transformers' by name.
            mask = named.get("attention_mask", given[1] if hasattr(encoder, "general_states") else None)
            features.append(pool_tokens(states, "last", mask))

        hook = encoder.register_forward_hook(add_last, with_kwargs=True)
    else:
        hook = encoder.register_forward_hook(lambda *call: features.append(pooled_features(call[-1])))
    try:
        yield features
    finally:
        hook.remove()


def logits_of(outputs, place: int) -> Any:
    """
    A model's logits, which in a plain tuple are at `place`. Of questions `(rows, 2, tokens)`: those of where an answer
    begins, and of where it ends.
    """
    if not isinstance(outputs, dict):
        return outputs[place]
    if "start_logits" in outputs:
        return torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=1)
    return outputs.get("logits")


def pooled_features(outputs) -> torch.Tensor:
    """What a head reads off an encoder's outputs: augmented features, or the pooler's, or the first position's."""
    for name in ("augmented_features", "pooler_output"):
        if getattr(outputs, name, None) is not None:
            return getattr(outputs, name).flatten(1)
    return (outputs[0] if isinstance(outputs, tuple) else outputs.last_hidden_state)[:, 0]


def feature_size(model: nn.Module) -> int | None:
    """How wide `pooled_features` are, as far as the configuration says."""
    config = model.config
    # Features that are wider than states: with a label beside them, or of two directions.
    for name in ("augmented_size", "feature_size", "hidden_size"):
        if getattr(config, name, None) is not None:
            return getattr(config, name)
    # Convolutional networks widen from stage to stage; a network of timm says it itself.
    sizes = getattr(config, "hidden_sizes", None)
    return sizes[-1] if sizes else timm_width(model)
