# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
The exact hyper-gradient of MIL. `theta_g'` was made by steps on the task loss (Eq. 8), which reads the memory as well:
the inner steps are repeated here with a graph, so that autograd differentiates the domain loss (Eq. 9) through them.
"""

from collections.abc import Callable
from contextlib import contextmanager

import torch

Tensors = dict[str, torch.Tensor]
# One step of encoder and head: the optimizer's settings (`lr`, `weight_decay`, `betas`, `eps`) by name of the
# parameter, and the inputs of its forward passes, each with the random states before it. `L_t` is their mean loss.
InnerStep = tuple[dict[str, dict], list[tuple[Tensors, tuple]]]


def unroll(
    task_loss: Callable[[Tensors, Tensors], torch.Tensor],
    steps: list[InnerStep],
    parameters: Tensors,
    states: dict[str, Tensors],
    max_grad_norm: float,
    mean_over_processes: Callable[[Tensors], Tensors],
) -> Tensors:
    """
    Returns `theta_g'` as a function of the memory.

    `task_loss` is `L_t` of parameters and the inputs of one forward pass. `parameters` and `states` are encoder and
    head before the first step, and the optimizer's state of each. `mean_over_processes` can be differentiated.
    """
    parameters = {name: value.requires_grad_() for name, value in parameters.items()}
    for groups, batches in steps:
        losses = []
        for inputs, random_state in batches:
            device = next(iter(parameters.values())).device
            with replayed(random_state, device):
                losses.append(task_loss(parameters, inputs))
        loss = torch.stack(losses).mean()
        found = torch.autograd.grad(loss, list(parameters.values()), create_graph=True, allow_unused=True)
        gradients = {name: value for name, value in zip(parameters, found, strict=True) if value is not None}
        gradients = mean_over_processes(gradients)
        if max_grad_norm > 0:
            norm = torch.stack([value.norm() for value in gradients.values()]).norm()
            scale = (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
            gradients = {name: value * scale for name, value in gradients.items()}
        for name, gradient in gradients.items():
            parameters[name], states[name] = _updated(parameters[name], gradient, states[name], groups[name])
    return parameters


def _updated(
    parameter: torch.Tensor, gradient: torch.Tensor, state: Tensors, group: dict
) -> tuple[torch.Tensor, Tensors]:
    """A step of AdamW, or of SGD where `group` has no `betas`."""
    rate, decay = group["lr"], group["weight_decay"]
    if "betas" not in group:
        return parameter - rate * (gradient + decay * parameter), state
    (beta1, beta2), step = group["betas"], state.get("step", 0.0) + 1
    first = beta1 * state.get("exp_avg", 0.0) + (1 - beta1) * gradient
    second = beta2 * state.get("exp_avg_sq", 0.0) + (1 - beta2) * gradient.square()
    # A root at zero has no slope: where there has never been a gradient, the denominator is `eps` alone.
    root = torch.where(second > 0, second, 1.0).sqrt() * (second > 0)
    change = first / (1 - beta1**step) / (root / (1 - beta2**step) ** 0.5 + group["eps"])
    return (1 - rate * decay) * parameter - rate * change, {"step": step, "exp_avg": first, "exp_avg_sq": second}


def optimizer_groups(optimizer: torch.optim.Optimizer, parameters: Tensors) -> dict[str, dict]:
    """The settings of each named parameter. Refuses optimizers whose step is not known here."""
    unknown = [name for group in optimizer.param_groups for name in ("amsgrad", "momentum") if group.get(name)]
    if unknown or not isinstance(optimizer, (torch.optim.AdamW, torch.optim.SGD)):
        found = f"`{unknown[0]}`" if unknown else f"`{type(optimizer).__name__}`"
        raise ValueError(
            f'`hypergradient="exact"` differentiates through plain AdamW and SGD, not {found}. Set '
            '`optim="adamw_torch"` without `optim_args`, or `hypergradient="first_order"`.'
        )
    group_of = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    names = ("lr", "weight_decay", "betas", "eps")
    groups = {name: group_of[id(parameter)] for name, parameter in parameters.items()}
    return {name: {key: group[key] for key in names if key in group} for name, group in groups.items()}


def optimizer_states(optimizer: torch.optim.Optimizer, parameters: Tensors) -> dict[str, Tensors]:
    """A copy of the state of each named parameter; empty before the first step."""
    names = ("step", "exp_avg", "exp_avg_sq")
    states = {name: optimizer.state.get(parameter, {}) for name, parameter in parameters.items()}
    return {name: {key: state[key].clone() for key in names if key in state} for name, state in states.items()}


def random_states(device: torch.device) -> tuple:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


@contextmanager
def replayed(states: tuple, device: torch.device):
    """The random numbers that a forward pass drew before."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.set_rng_state(states[0])
        if states[1] is not None:
            torch.cuda.set_rng_state(states[1], device)
        yield
