# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""HMA's momentum encoder where FSDP2 or DeepSpeed spread the parameters over processes."""

import sys
from pathlib import Path

import pytest
import torch
from families import CASES, leave_together

from training.processes import run_in_two_processes

CLASSES = {case.tiny.kinds[case.name]: case for case in CASES if case.model_type == "hma"}


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    values = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    whole = {name: getattr(value, "full_tensor", lambda value=value: value)() for name, value in values.items()}
    return {name: value.detach().clone() for name, value in whole.items() if value.is_floating_point()}


def trained(kind: str, rank: int | None = None) -> dict[str, torch.Tensor]:
    """The momentum encoder after three steps with the rows of one of two processes, or of both."""
    case = CLASSES[kind]
    model = case.model(momentum=0.5, augmentation="rma")
    model.head.memory.queue.clear()
    if rank is not None:
        from torch.distributed.fsdp import fully_shard

        for encoder in (model.backbone, model.momentum_backbone):
            for layer in encoder.encoder.layer if kind == "bert" else encoder.layers:
                fully_shard(layer)
        fully_shard(model)
    model.train()
    optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=0.1)
    for step in range(3):
        parts = [case.inputs(rows=4, seed=2 * step + one, labels=True) for one in range(2)]
        inputs = {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if rank is None else parts[rank]
        before = weights(model.momentum_backbone)
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.update_memory()
        leading, following = weights(model.backbone), weights(model.momentum_backbone)
        for name, value in following.items():
            torch.testing.assert_close(value, (before[name] + leading[name]) / 2)
        assert any(not torch.equal(value, before[name]) for name, value in following.items())
    return weights(model.momentum_backbone)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "graph_network"])
def test_the_momentum_encoder_follows_under_fsdp2(kind, tmp_path):
    run_in_two_processes("test_hma_sharded.py", tmp_path, kind)
    if kind == "bert":  # batch norm reads the rows of its own process
        sharded = torch.load(tmp_path / "weights.pt")
        for name, value in trained(kind).items():
            torch.testing.assert_close(
                sharded[name], value, rtol=1e-4, atol=1e-6, msg=lambda said, name=name: name + said
            )


def test_zero_3_is_refused():
    model = CLASSES["bert"].model().train()
    model.backbone.encoder.layer[0].output.dense.weight.ds_id = 0
    with pytest.raises(ValueError, match='`momentum_encoder="copy"` does not support DeepSpeed ZeRO-3.*"none"'):
        model(**CLASSES["bert"].inputs(labels=True))


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    found = trained(sys.argv[2], torch.distributed.get_rank())
    if torch.distributed.get_rank() == 0:
        torch.save(found, Path(sys.argv[1]) / "weights.pt")
    leave_together()
