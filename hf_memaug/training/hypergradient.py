# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""
The gradient of the domain loss by the memory (MIL, Eq. 9), through the encoder's update (Eq. 8).

`theta_g'` was made by steps on the task loss, which reads the memory as well, so that the total derivative is

    d L_d / d theta_m  =  the first-order term, with `theta_g'` held fixed
                       +  (d theta_g' / d theta_m)^T  d L_d / d theta_g'      (the second-order term)

The second is computed here backwards through the `L` inner steps. With `phi` for encoder and head, one step is
`phi' = update(phi, gradient of L_t by phi)`. Its adjoint needs the product of a direction with second derivatives of
`L_t`; as these are symmetric, one forward-mode derivative along the direction gives it, without a graph of the encoder:
the memory is the last thing that the features meet.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.autograd import forward_ad

Tensors = dict[str, torch.Tensor]


@dataclass
class InnerStep:
    """
    One step of encoder and head, as it was before the optimizer made it.

    Args:
        parameters: `phi` before the step, by name.
        gradients: the gradient of `L_t` that was used, before clipping.
        states: the optimizer's state before the step, by name of the parameter (`exp_avg`, `exp_avg_sq`, `step`).
        groups: the optimizer's settings, by name of the parameter (`lr`, `weight_decay`, `betas`, `eps`).
        task_loss: `L_t` as a function of `phi` and `theta_m`, with the dropout of the step.
    """

    parameters: Tensors
    gradients: Tensors
    states: dict[str, dict]
    groups: dict[str, dict]
    task_loss: Callable[[Tensors, Tensors], torch.Tensor]


def second_order_term(
    steps: list[InnerStep],
    memory: Tensors,
    adjoint: Tensors,
    max_grad_norm: float,
    mean_over_processes: Callable[[Tensors], Tensors] = lambda tensors: tensors,
) -> Tensors:
    """
    Args:
        steps: the inner steps, the first one first.
        memory: `theta_m`, by name.
        adjoint: `d L_d / d phi` after the last step.
        max_grad_norm: what the gradients were clipped to; 0 for no clipping.
        mean_over_processes: averages what each process found on its own rows.
    """
    total = {name: torch.zeros_like(value) for name, value in memory.items()}
    adjoint_first: Tensors = {}
    adjoint_second: Tensors = {}
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        adjoint, direction, adjoint_first, adjoint_second = _update_adjoint(
            step, adjoint, adjoint_first, adjoint_second, max_grad_norm
        )
        by_parameters = number > 0
        products = mean_over_processes(_second_derivatives(step, memory, direction, by_parameters))
        for name in memory:
            total[name] += products[name]
        if by_parameters:
            adjoint = {name: value + products[name] for name, value in adjoint.items()}
    return total


def _second_derivatives(step: InnerStep, memory: Tensors, direction: Tensors, by_parameters: bool) -> Tensors:
    """`d/d(theta_m)`, and `d/d(phi)` if asked for, of the product of `direction` and the gradient of `L_t` by `phi`."""
    with forward_ad.dual_level(), torch.enable_grad():
        memory = {name: value.detach().requires_grad_() for name, value in memory.items()}
        parameters = {name: value.detach().requires_grad_(by_parameters) for name, value in step.parameters.items()}
        duals = {name: forward_ad.make_dual(value, direction[name]) for name, value in parameters.items()}
        by = {**memory, **(parameters if by_parameters else {})}
        # Along the direction, the gradient changes at the rate of its tangent.
        gradients = torch.autograd.grad(step.task_loss(duals, memory), list(by.values()))
        tangents = {name: forward_ad.unpack_dual(value).tangent for name, value in zip(by, gradients, strict=True)}
        return {name: torch.zeros_like(by[name]) if t is None else t.detach() for name, t in tangents.items()}


def _update_adjoint(
    step: InnerStep, adjoint: Tensors, adjoint_first: Tensors, adjoint_second: Tensors, max_grad_norm: float
) -> tuple[Tensors, Tensors, Tensors, Tensors]:
    """Backwards through the optimizer: adjoints of its parameters, of the gradients, and of its two moments."""
    names = list(step.parameters)
    leaves = {
        (kind, name): value.detach().clone().requires_grad_()
        for kind, values in (("parameter", step.parameters), ("gradient", step.gradients), *_moments(step))
        for name, value in values.items()
    }
    outputs, adjoints = [], []
    for name, (parameter, first, second) in _updated(step, leaves, max_grad_norm).items():
        for value, known in ((parameter, adjoint), (first, adjoint_first), (second, adjoint_second)):
            if value is not None and name in known:
                outputs.append(value)
                adjoints.append(known[name])
    found = torch.autograd.grad(outputs, list(leaves.values()), adjoints, allow_unused=True)
    found = {
        key: torch.zeros_like(leaf) if value is None else value
        for (key, leaf), value in zip(leaves.items(), found, strict=True)
    }

    def of(kind: str) -> Tensors:
        return {name: found[kind, name] for name in names if (kind, name) in found}

    return of("parameter"), of("gradient"), of("first"), of("second")


def _moments(step: InnerStep):
    if not any("exp_avg" in state for state in step.states.values()):
        return ()
    return (
        ("first", {name: state["exp_avg"] for name, state in step.states.items()}),
        ("second", {name: state["exp_avg_sq"] for name, state in step.states.items()}),
    )


def _updated(step: InnerStep, leaves, max_grad_norm: float) -> dict[str, tuple]:
    """What AdamW or SGD makes of parameters and moments, in operations that can be differentiated."""
    gradients = {name: leaves["gradient", name] for name in step.parameters}
    if max_grad_norm > 0:
        norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
        scale = (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        gradients = {name: gradient * scale for name, gradient in gradients.items()}
    updated = {}
    for name, gradient in gradients.items():
        parameter, group = leaves["parameter", name], step.groups[name]
        if ("first", name) not in leaves:
            gradient = gradient + group["weight_decay"] * parameter
            updated[name] = (parameter - group["lr"] * gradient, None, None)
            continue
        beta1, beta2 = group["betas"]
        # In float32, `1 - beta2**count` would lose half of its digits in the first steps.
        count = step.states[name]["step"].double() + 1
        first = beta1 * leaves["first", name] + (1 - beta1) * gradient
        second = beta2 * leaves["second", name] + (1 - beta2) * gradient.square()
        # A root at zero has no slope: where there has never been a gradient, the denominator is `eps` alone.
        seen = second > 0
        root = torch.where(seen, torch.where(seen, second, 1.0).sqrt(), 0.0) / (1 - beta2**count) ** 0.5
        change = first / (1 - beta1**count) / (root + group["eps"])
        decayed = parameter * (1 - group["lr"] * group["weight_decay"])
        updated[name] = (decayed - group["lr"] * change, first, second)
    return updated


def optimizer_states(optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]):
    """The state and the settings of each named parameter, copied. Refuses optimizers whose step is not known here."""
    if not isinstance(optimizer, (torch.optim.AdamW, torch.optim.SGD)):
        raise ValueError(
            f'`hypergradient="exact"` differentiates through AdamW and SGD, not `{type(optimizer).__name__}`. Set '
            '`optim="adamw_torch"`, or `hypergradient="first_order"`.'
        )
    group_of = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    for group in optimizer.param_groups:
        if group.get("amsgrad") or group.get("momentum") or group.get("nesterov"):
            raise ValueError(
                '`hypergradient="exact"` knows no `amsgrad` and no `momentum`. Leave them out of `optim_args`.'
            )
    states, groups = {}, {}
    for name, parameter in parameters.items():
        group = group_of[id(parameter)]
        groups[name] = {key: value for key, value in group.items() if key != "params"}
        groups[name]["lr"] = float(group["lr"])
        state = optimizer.state.get(parameter, {})
        if isinstance(optimizer, torch.optim.AdamW):
            zeros = torch.zeros_like(parameter)
            states[name] = {
                "exp_avg": state.get("exp_avg", zeros).detach().clone(),
                "exp_avg_sq": state.get("exp_avg_sq", zeros).detach().clone(),
                # A tensor, which the optimizer counts up in place.
                "step": torch.as_tensor(state.get("step", 0.0)).clone(),
            }
        else:
            states[name] = {}
    return states, groups
