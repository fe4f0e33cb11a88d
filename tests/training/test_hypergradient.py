# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The gradient of the domain loss by the memory, through the encoder's update."""

import copy

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from training.episodes import make_trainer

SETTINGS = {
    "sgd": {"optim": "sgd", "weight_decay": 0.01, "learning_rate": 0.5},
    "adamw": {"optim": "adamw_torch", "weight_decay": 0.01, "learning_rate": 1e-2},
    "adamw, clipped": {"optim": "adamw_torch", "weight_decay": 0.01, "max_grad_norm": 0.05},
    "two inner steps, sgd": {"optim": "sgd", "inner_steps": 2, "learning_rate": 0.5},
    "two inner steps, adamw": {"optim": "adamw_torch", "inner_steps": 2, "max_grad_norm": 0.05},
    "two batches to a step": {"optim": "adamw_torch", "rows": 4, "accumulation": 2},
}


class Caught(Exception):
    pass


def run_until_outer_step(trainer, number: int):
    """
    Runs meta-training up to an outer step, and returns the meta-trainer as it is just before it, with a copy of the
    weights and of the optimizer before the inner steps that lead to it.
    """
    meta = trainer._meta_trainer()
    seen, before = [], []
    outer_step = meta.outer_step
    inner = meta.training_step

    def remember(model, inputs, *args, **kwargs):
        if meta.state.global_step == number * meta.args.inner_steps and not before:
            optimizer = getattr(meta.optimizer, "optimizer", meta.optimizer)
            before.append((copy.deepcopy(meta.model.state_dict()), copy.deepcopy(optimizer.state_dict())))
            before.append([group["lr"] for group in optimizer.param_groups])
        return inner(model, inputs, *args, **kwargs)

    def stop():
        if len(seen) == number:
            raise Caught
        seen.append(number)
        outer_step()

    meta.training_step, meta.outer_step = remember, stop
    with pytest.raises(Caught):
        meta.train()
    return meta, *before


def domain_loss_after(meta, before, batches, replays, learning_rates, memory) -> float:
    """
    Algorithm 2, lines 6 to 9, in plain steps: the optimizer of torch on the task loss with this memory, from the
    weights as they were, then Eq. 4. Nothing of the code under test but the model.
    """
    weights, optimizer_state = before
    model = copy.deepcopy(meta.model)
    model.load_state_dict(weights)
    named = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in memory.items():
            named[name].copy_(value)
    learners = [parameter for name, parameter in named.items() if name not in memory]
    live = getattr(meta.optimizer, "optimizer", meta.optimizer)
    groups, ids = [], {id(p): name for name, p in meta.model.named_parameters()}
    for group in live.param_groups:
        groups.append({"params": [named[ids[id(p)]] for p in group["params"]], "weight_decay": group["weight_decay"]})
    optimizer = type(live)(groups, lr=0.0)
    optimizer.load_state_dict(copy.deepcopy(optimizer_state))
    for step, rates in zip(replays, learning_rates, strict=True):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        optimizer.zero_grad()
        model.train()
        for inputs, states in step:
            torch.set_rng_state(states[0])
            inputs = {name: value for name, value in inputs.items() if name != "domain_ids"}
            (model(**inputs).loss / len(step)).backward()
        if meta.args.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(learners, meta.args.max_grad_norm)
        optimizer.step()
    model.eval()
    target = meta.episodes.meta_target(meta.state.global_step)
    losses = []
    for batch in batches:
        with torch.no_grad():
            logits = meta.discriminators(model.base_model(**batch).augmented_features, target)
            is_target = torch.zeros_like(logits)
            is_target[meta.source_rows :] = 1
            losses.append(F.binary_cross_entropy_with_logits(logits, is_target))
    return torch.stack(losses).mean().item()


def gradients_at_outer_step(setting: dict, tmp_path):
    """(exact, first-order, function of the memory that finite differences can be taken of, memory)."""
    setting = {"episodes": 2, "episode_steps": 3, "lr_scheduler_type": "linear", **setting}
    trainer = make_trainer(tmp_path, dtype=torch.float64, hypergradient="exact", **setting)
    meta, before, _ = run_until_outer_step(trainer, 2)
    replays = [batches for _, batches in meta._inner_steps]
    # One rate for all parameters: that of the step.
    rates = [[next(iter(groups.values()))["lr"]] * 2 for groups, _ in meta._inner_steps]
    memory = {name: value.detach().clone() for name, value in meta.memory.items()}
    batches = list(meta._outer_batches)

    def function(memory):
        return domain_loss_after(meta, before, batches, replays, rates, memory)

    found: dict[str, torch.Tensor] = {}
    meta.outer_optimizer.step = lambda: found.update({name: p.grad.clone() for name, p in meta.memory.items()})
    target = meta.episodes.meta_target(meta.state.global_step)
    parts = [meta.discriminator_gradients(batch, target)[0] for batch in batches]
    first_order = {name: sum(part[name] for part in parts) / len(parts) for name in memory}
    with sdpa_kernel(SDPBackend.MATH):
        type(meta).outer_step(meta)
    return found, first_order, function, memory


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_exact_is_what_finite_differences_give(setting, tmp_path):
    exact, first_order, function, memory = gradients_at_outer_step(dict(setting), tmp_path)
    generator = torch.Generator().manual_seed(0)
    for name in memory:
        # Along random directions of each of the memory's tensors: every entry takes part.
        direction = torch.randn(memory[name].shape, generator=generator, dtype=torch.float64)
        direction /= direction.norm()
        width = 1e-5 * max(1.0, memory[name].norm().item())
        moved = [{**memory, name: memory[name] + sign * width * direction} for sign in (1, -1, 0.5, -0.5)]
        values = [function(entry) for entry in moved]
        wide, narrow = (values[0] - values[1]) / (2 * width), (values[2] - values[3]) / width
        numeric = (4 * narrow - wide) / 3  # Richardson: the error of the width falls out
        analytic = (exact[name] * direction).sum().item()
        scale = max(abs(analytic), 1e-2 * exact[name].norm().item())
        assert abs(numeric - analytic) < 1e-4 * scale, (name, numeric, analytic)
    # The second-order term is no rounding error, or the test above would show nothing.
    gap = max((exact[name] - first_order[name]).norm() / exact[name].norm() for name in memory)
    assert gap > 1e-3, gap


def test_other_optimizers_are_refused_by_name(tmp_path):
    trainer = make_trainer(tmp_path, hypergradient="exact", optim="adagrad")
    with pytest.raises(ValueError, match='`hypergradient="exact"` differentiates through plain AdamW and SGD, not'):
        trainer.meta_train()
    trainer = make_trainer(tmp_path, hypergradient="exact", optim="sgd", optim_args="momentum=0.9")
    with pytest.raises(ValueError, match="not `momentum`"):
        trainer.meta_train()
