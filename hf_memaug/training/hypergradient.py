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
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch.autograd import forward_ad

from hf_memaug.kernels.cuda_graphs import GraphedFunction
from hf_memaug.kernels.fused_tangents import FusedTangents

Tensors = dict[str, torch.Tensor]
# Beside the inputs of a forward pass, whose names have no blanks.
_PARAMETERS, _DIRECTION, _MEMORY = "the parameters", "the direction", "memory "


@dataclass
class InnerStep:
    """
    One step of encoder and head, as it was before the optimizer made it.

    Args:
        parameters: `phi` before the step, by name.
        gradients: the gradient of `L_t` that was used, before clipping.
        states: the optimizer's state before the step, by name of the parameter (`exp_avg`, `exp_avg_sq`, `step`).
        groups: the optimizer's settings, by name of the parameter (`lr`, `weight_decay`, `betas`, `eps`).
        replays: the inputs of its forward passes, each with the random states that it began with, for the same dropout.
            `L_t` is the mean of their losses.
    """

    parameters: Tensors
    gradients: Tensors
    states: dict[str, dict]
    groups: dict[str, dict]
    replays: list[tuple[Tensors, tuple]]


def second_order_term(
    steps: list[InnerStep],
    memory: Tensors,
    adjoint: Tensors,
    max_grad_norm: float,
    second_derivatives: "SecondDerivatives",
    mean_over_processes: Callable[[Tensors], Tensors] = lambda tensors: tensors,
) -> Tensors:
    """
    Args:
        steps: the inner steps, the first one first.
        memory: `theta_m`, by name.
        adjoint: `d L_d / d phi` after the last step.
        max_grad_norm: what the gradients were clipped to; 0 for no clipping.
        second_derivatives: of the task loss.
        mean_over_processes: averages what each process found on its own rows.
    """
    total = {name: torch.zeros_like(value) for name, value in memory.items()}
    adjoint_first: Tensors = {}
    adjoint_second: Tensors = {}
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        # Before the first step, nothing had read the memory.
        by_parameters = number > 0
        adjoint, direction, adjoint_first, adjoint_second = _update_adjoint(
            step, adjoint, adjoint_first, adjoint_second, max_grad_norm, by_parameters
        )
        products = mean_over_processes(second_derivatives(step, memory, direction, by_parameters))
        for name in memory:
            total[name] += products[name]
        if by_parameters:
            adjoint = {name: value + products[name] for name, value in adjoint.items()}
    return total


class SecondDerivatives:
    """
    Args:
        task_loss: `L_t` as a function of `phi`, `theta_m` and the inputs of one forward pass.
        graphed: whether to record them as CUDA graphs, one for each shape of the inputs.
    """

    def __init__(self, task_loss: Callable[[Tensors, Tensors, Tensors], torch.Tensor], graphed: bool = False):
        self.task_loss, self.graphed = task_loss, graphed
        self._recorded: dict[bool, GraphedFunction] = {}

    def __call__(self, step: InnerStep, memory: Tensors, direction: Tensors, by_parameters: bool) -> Tensors:
        """`d/d(theta_m)`, and `d/d(phi)` if asked for, of the product of `direction` and `L_t`'s gradient by `phi`."""
        shapes = {name: value.shape for name, value in step.parameters.items()}
        names = tuple(shapes)
        # Laid end to end, as one parameter with one tangent: its parts are views, which cost no launch.
        same = {_PARAMETERS: _flat(step.parameters, names), _DIRECTION: _flat(direction, names)}
        same |= {_MEMORY + name: value for name, value in memory.items()}
        along = partial(self._along, shapes=shapes, by_parameters=by_parameters)
        if self.graphed:
            along = self._recorded.setdefault(by_parameters, GraphedFunction(along))
        total: list[torch.Tensor] = []
        for inputs, states in step.replays:
            with replayed(states, same[_PARAMETERS].device):
                found = along({**same, **inputs})
            shares = [one / len(step.replays) for one in found]
            total = [one + share for one, share in zip(total, shares, strict=True)] if total else shares
        products = dict(zip(memory, total, strict=False))
        return {**products, **_unflat({names: total[-1]}, shapes)} if by_parameters else products

    def _along(self, inputs: Tensors, shapes: dict[str, torch.Size], by_parameters: bool) -> list[torch.Tensor]:
        """Of one forward pass: along the direction, the gradient changes at the rate of its tangent."""
        inputs = dict(inputs)
        parameters, direction = inputs.pop(_PARAMETERS), inputs.pop(_DIRECTION)
        memory = {name: inputs.pop(name) for name in list(inputs) if name.startswith(_MEMORY)}
        with forward_ad.dual_level(), torch.enable_grad():
            memory = {name.removeprefix(_MEMORY): one.detach().requires_grad_() for name, one in memory.items()}
            parameters = parameters.detach().requires_grad_(by_parameters)
            dual = forward_ad.make_dual(parameters, direction)
            by = [*memory.values(), *([parameters] if by_parameters else [])]
            # The backward pass is made of operations that can be differentiated again: the fused ones of a GPU, such as
            # dropout's, have no tangents.
            with FusedTangents():
                loss = self.task_loss(_unflat({tuple(shapes): dual}, shapes), memory, inputs)
            gradients = torch.autograd.grad(loss, by, create_graph=True)
            tangents = [forward_ad.unpack_dual(gradient).tangent for gradient in gradients]
            return [torch.zeros_like(one) if t is None else t.detach() for one, t in zip(by, tangents, strict=True)]


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


def _update_adjoint(
    step: InnerStep,
    adjoint: Tensors,
    adjoint_first: Tensors,
    adjoint_second: Tensors,
    max_grad_norm: float,
    by_state: bool,
) -> tuple[Tensors, Tensors, Tensors, Tensors]:
    """
    Backwards through clipping and the optimizer: adjoints of its parameters, of the gradients, and of its two moments.
    Without `by_state`, of the gradients alone.

    Both work on each number by itself, but for the norm. Parameters with the same settings are therefore laid end to
    end: a model's few hundred tensors would keep a GPU waiting for as many launches of each operation.
    """
    shapes = {name: value.shape for name, value in step.parameters.items()}
    gradients = {names: _flat(step.gradients, names) for names in _alike(step)}
    scale, norm = 1.0, None
    if max_grad_norm > 0:
        norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
        scale = (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
    by_parameter, by_gradient, by_first, by_second = {}, {}, {}, {}
    for names, gradient in gradients.items():
        group, state = step.groups[names[0]], step.states[names[0]]
        rate, decay = group["lr"], group["weight_decay"]
        change = _flat(adjoint, names, shapes)
        if "exp_avg" not in state:
            # phi' = phi - rate (gradient + decay phi)
            by_gradient[names] = -rate * change
            if by_state:
                by_parameter[names] = (1 - rate * decay) * change
            continue
        (beta1, beta2), clipped = group["betas"], gradient * scale
        bias1, bias2 = 1 - beta1 ** (state["step"] + 1), 1 - beta2 ** (state["step"] + 1)
        first = _flat({name: step.states[name]["exp_avg"] for name in names}, names)
        second = _flat({name: step.states[name]["exp_avg_sq"] for name in names}, names)
        first, second = beta1 * first + (1 - beta1) * clipped, beta2 * second + (1 - beta2) * clipped.square()
        root = second.sqrt()
        bottom = root / bias2**0.5 + group["eps"]
        # phi' = (1 - rate decay) phi - rate / bias1 * first / bottom
        of_first = _flat(adjoint_first, names, shapes) - rate / bias1 * change / bottom
        of_root = rate / bias1 * change * first / bottom.square() / bias2**0.5
        # A root at zero has no slope: where there has never been a gradient, the denominator is `eps` alone.
        of_second = _flat(adjoint_second, names, shapes) + torch.where(second > 0, of_root / (2 * root), 0.0)
        by_gradient[names] = (1 - beta1) * of_first + 2 * (1 - beta2) * clipped * of_second
        if by_state:
            by_parameter[names] = (1 - rate * decay) * change
            by_first[names], by_second[names] = beta1 * of_first, beta2 * of_second
    if norm is not None:
        along = sum((by_gradient[names] * gradient).sum() for names, gradient in gradients.items())
        # Only where the norm was too large does the scale depend on it.
        slope = torch.where(norm + 1e-6 > max_grad_norm, -max_grad_norm / (norm + 1e-6).square() / norm, 0.0)
        by_gradient = {n: scale * value + slope * along * gradients[n] for n, value in by_gradient.items()}
    return tuple(_unflat(values, shapes) for values in (by_parameter, by_gradient, by_first, by_second))


def _alike(step: InnerStep) -> list[tuple[str, ...]]:
    """The parameters' names, those with the same settings and count of steps together."""
    found: dict[tuple, list[str]] = {}
    for name, group in step.groups.items():
        settings = (group["lr"], group["weight_decay"], tuple(group.get("betas", ())), group.get("eps"))
        found.setdefault((*settings, step.states[name].get("step")), []).append(name)
    return [tuple(names) for names in found.values()]


def _flat(tensors: Tensors, names: tuple[str, ...], shapes: dict | None = None) -> torch.Tensor | float:
    """The named tensors end to end; 0 if there are none at all."""
    if not any(name in tensors for name in names):
        return 0.0
    example = next(tensors[name] for name in names if name in tensors)
    parts = [tensors[name] if name in tensors else example.new_zeros(shapes[name]) for name in names]
    return torch.cat([part.flatten() for part in parts])


def _unflat(values: dict[tuple[str, ...], torch.Tensor], shapes: dict) -> Tensors:
    tensors = {}
    for names, value in values.items():
        for name, part in zip(names, value.split([shapes[name].numel() for name in names]), strict=True):
            tensors[name] = part.view(shapes[name])
    return tensors


def copied(tensors: Tensors, times: torch.Tensor | None = None) -> Tensors:
    """Copies of tensors of one type, `times` so large if that is given, made in one go."""
    names = tuple(tensors)
    whole = _flat(tensors, names).detach()
    return _unflat(
        {names: whole if times is None else whole * times}, {name: value.shape for name, value in tensors.items()}
    )


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
    groups = {}
    for name, parameter in parameters.items():
        groups[name] = {key: value for key, value in group_of[id(parameter)].items() if key != "params"}
        groups[name]["lr"] = float(groups[name]["lr"])
    states: dict[str, dict] = {name: {} for name in parameters}
    if isinstance(optimizer, torch.optim.AdamW):
        counted = {name: optimizer.state[p]["step"] for name, p in parameters.items() if p in optimizer.state}
        # All in one go: each by itself would wait for the device.
        counts = torch.stack(list(counted.values())).tolist() if counted else []
        known = dict(zip(counted, counts, strict=True))
        for moment in ("exp_avg", "exp_avg_sq"):
            found = {
                n: optimizer.state[p][moment] if n in known else torch.zeros_like(p) for n, p in parameters.items()
            }
            for name, value in copied(found).items():
                states[name] |= {moment: value, "step": known.get(name, 0.0)}
    return states, groups
