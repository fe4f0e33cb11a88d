# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""HMA's reader as one operation against the reader itself."""

import pytest
import torch
from launches import Launches

from hf_memaug.kernels.fused_reader import read_rows_fused
from hf_memaug.kernels.fused_slots import read_slots_fused
from hf_memaug.layers.datapoint_reader import DatapointReader

FUSED = {"read": read_slots_fused, "fused": read_rows_fused}


def reader(size: int = 24, heads: int = 3, dropout: float = 0.0, dtype=torch.float64) -> DatapointReader:
    torch.manual_seed(0)
    made = DatapointReader(size, heads, 4 * size, dropout).to(dtype)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def given(rows: int = 7, slots: int = 10, size: int = 24, dtype=torch.float64) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(count, size, dtype=dtype, requires_grad=True) for count in (rows, slots)]


def mask(slots: int, filled: int | None) -> torch.Tensor | None:
    return None if filled is None else torch.arange(slots) < filled


def weighed(rows: torch.Tensor) -> torch.Tensor:
    """A sum in which no entry is like another."""
    return (rows * torch.sin(torch.arange(rows.numel(), dtype=rows.dtype)).view_as(rows)).sum()


@pytest.mark.parametrize("between_rows", [False, True])
@pytest.mark.parametrize(("slots", "filled"), [(10, None), (10, 4), (10, 0), (1, 1)])
def test_rows_and_all_gradients_are_the_readers(slots, filled, between_rows):
    module, tensors, results = reader(), given(slots=slots), []
    for how in ({}, FUSED):
        rows, _ = module(*tensors, mask(slots, filled), between_rows, **how)
        results.append((rows, *torch.autograd.grad(weighed(rows), [*tensors, *module.parameters()])))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("between_rows", [False, True])
def test_derivatives_of_its_derivatives(between_rows):
    """As a penalty on gradients asks for them."""
    module, tensors, results = reader(), given(), []
    learned = [*tensors, *module.parameters()]
    for how in ({}, FUSED):
        rows, _ = module(*tensors, mask(10, 4), between_rows, **how)
        gradients = torch.autograd.grad(weighed(rows), learned, create_graph=True)
        penalty = sum(one.square().sum() for one in gradients)
        results.append(torch.autograd.grad(penalty, learned, materialize_grads=True))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("between_rows", [False, True])
def test_under_autocast_it_rounds_no_more_than_the_reader(between_rows):
    module, tensors = reader(dtype=torch.float32), given(dtype=torch.float32)
    results = []
    for how, low in (({}, False), ({}, True), (FUSED, True)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            rows, _ = module(*tensors, mask(10, 4), between_rows, **how)
        assert rows.dtype == torch.float32
        found = torch.autograd.grad(weighed(rows), [*tensors, *module.parameters()])
        assert all(one.dtype == torch.float32 for one in found)
        results.append((rows, *found))
    for exact, plain, fused in zip(*results, strict=True):
        assert (fused - exact).norm() <= 1.5 * (plain - exact).norm() + 1e-2 * exact.norm()


def test_what_does_not_learn_gets_no_gradient():
    module, (rows, slots) = reader(), given()
    module.requires_grad_(False)
    module.value_projection.requires_grad_(True)
    found, _ = module(rows, slots.detach(), **FUSED)
    weighed(found).backward()
    assert rows.grad is not None and slots.grad is None
    learned = {name for name, parameter in module.named_parameters() if parameter.grad is not None}
    assert learned == {"value_projection.weight", "value_projection.bias"}
    expected, _ = module(rows, slots.detach())
    (gradient,) = torch.autograd.grad(weighed(expected), [module.value_projection.weight])
    torch.testing.assert_close(module.value_projection.weight.grad, gradient, rtol=0, atol=1e-12)


class TestWhatItLeavesToTheReader:
    def left(self, module, rows=7, slots=10, between_rows=False, dtype=torch.float64) -> bool:
        return read_rows_fused(module, *given(rows, slots, dtype=dtype), None, between_rows) is None

    def test_a_reader_as_it_was_made_is_its_own(self):
        assert not self.left(reader()) and not self.left(reader(), slots=0, between_rows=True)

    def test_dropout_in_training(self):
        module = reader(dropout=0.1)
        assert self.left(module) and not self.left(module.eval())

    def test_nothing_to_read_and_nobody_to_read_it(self):
        assert self.left(reader(), slots=0) and self.left(reader(), rows=0)

    def test_weights_of_another_type(self):
        assert self.left(reader(dtype=torch.float32))

    @pytest.mark.parametrize("hook", ["register_forward_hook", "register_forward_pre_hook"])
    def test_hooks(self, hook):
        module = reader()
        getattr(module.up_projection, hook)(lambda *call: None)
        assert self.left(module)

    def test_adapters(self):
        from peft import LoraConfig, inject_adapter_in_model

        assert self.left(inject_adapter_in_model(LoraConfig(target_modules=["query_projection"]), reader()))

    def test_the_rows_are_the_same_then(self):
        module, tensors = reader(dropout=0.1), given()
        rows = []
        for how in ({}, FUSED):
            torch.manual_seed(2)
            rows.append(module(*tensors, **how)[0])
        torch.testing.assert_close(*rows, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("between_rows", "most"), [(False, 63), (True, 41)])
def test_a_read_launches_less_than_the_readers_own_operations(between_rows, most):
    """With autograd's nodes it took 104 and 67 (tests/layers/test_datapoint_reader.py)."""
    module, (rows, slots) = reader(dtype=torch.float32), given(dtype=torch.float32)
    with Launches() as launches:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            said, _ = module(rows, slots.detach(), between_rows=between_rows, **FUSED)
        torch.autograd.grad(said.sum(), [rows, *module.parameters()])
    assert len(launches.found) - len(["sum", "ones_like"]) <= most


@pytest.mark.gpu
@pytest.mark.parametrize("between_rows", [False, True])
@pytest.mark.parametrize(("slots", "filled"), [(2048, None), (2048, 700), (1001, 1000), (64, 0)])
@pytest.mark.parametrize("low", [False, True])
def test_on_a_gpu(slots, filled, between_rows, low):
    module = reader(832, 4, dtype=torch.float32).cuda()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.03)
    tensors = [one.detach().cuda().requires_grad_() for one in given(96, slots, 832, torch.float32)]
    mask_ = None if filled is None else torch.arange(slots, device="cuda") < filled
    results = []
    for how, rounds in (({}, False), ({"read": read_slots_fused}, low), (FUSED, low)):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=rounds):
            rows, _ = module(*tensors, mask_, between_rows, **how)
        results.append((rows, *torch.autograd.grad(rows.square().sum(), [*tensors, *module.parameters()])))
    for exact, plain, fused in zip(*results, strict=True):
        # Fused attention rounds what it read before its backward pass, which small gradients of queries and keys feel.
        # Made one operation, the reader may add nothing to that.
        rounding = (plain - exact).norm()
        assert (fused - exact).norm() <= 1.25 * rounding + 1e-4 * exact.norm()
