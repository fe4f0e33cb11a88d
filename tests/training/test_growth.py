# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimizers keep their state when a model grows."""

import copy

import pytest
import torch
from families import memory_rnn_config

from hf_memaug import MemoryRNNForSequenceClassification
from hf_memaug.training import grow_optimizer


def train(model, optimizer, steps=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        ids = torch.randint(4, 99, (4, 6), generator=generator)
        optimizer.zero_grad()
        model(ids, labels=ids[:, 0] % 3).loss.backward()
        optimizer.step()


def make(**kwargs):
    torch.manual_seed(0)
    return MemoryRNNForSequenceClassification(memory_rnn_config(**kwargs))


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_moments_are_kept_and_new_ones_start_at_zero(kind):
    model = make()
    settings = {"lr": 1e-2, **({"momentum": 0.9} if kind == "SGD" else {})}
    groups = [
        {"params": list(model.memory_parameters()), "lr": 1e-3},
        {"params": [p for n, p in model.named_parameters() if "slot_" not in n]},
    ]
    optimizer = getattr(torch.optim, kind)(groups, **settings)
    train(model, optimizer)
    states = {n: {k: copy.deepcopy(v) for k, v in optimizer.state[p].items()} for n, p in model.named_parameters()}
    all_grown = {}
    for verb, number in (("grow_memory", 5), ("grow_hidden", 3)):
        grown = getattr(model, verb)(number)
        grow_optimizer(optimizer, grown)
        for entry in grown:
            all_grown.setdefault(entry.name, []).append(entry)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-2]
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters()}
    assert set(optimizer.state) == set(model.parameters())
    for name, parameter in model.named_parameters():
        for key, old in states[name].items():
            new = optimizer.state[parameter][key]
            if not torch.is_tensor(old) or old.dim() == 0:
                assert new == old
                continue
            place = torch.ones_like(old)
            for entry in all_grown.get(name, ()):
                place = entry.carry(place, torch.zeros_like(entry.new))
            place = place.bool()
            assert torch.equal(new[place], old.flatten()) and old.abs().max() > 0
            assert new[~place].abs().sum() == 0
    kept = optimizer.state[model.rnn.layer.memory.slot_keys]
    before = copy.deepcopy(kept)
    train(model, optimizer, steps=1)
    assert any(torch.is_tensor(v) and not torch.equal(v, before[k]) for k, v in kept.items()), "it goes on"


def test_a_stranger_is_refused():
    model, other = make(), make()
    optimizer = torch.optim.Adam(other.parameters())
    grown = model.grow_memory(2)
    with pytest.raises(ValueError, match="`optimizer` holds nothing of what grew"):
        grow_optimizer(optimizer, grown)


def test_moments_of_another_shape_are_refused_before_anything_changes():
    model = make()
    optimizer = torch.optim.Adafactor(model.parameters())
    train(model, optimizer, steps=1)
    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    with pytest.raises(ValueError, match="`Adafactor` remembers `row_var` of .*Make a new optimizer"):
        grow_optimizer(optimizer, model.grow_memory(2))
    assert [id(parameter) for group in optimizer.param_groups for parameter in group["params"]] == held
