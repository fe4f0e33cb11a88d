# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""
Checkpoints of released versions load and give the outputs that they gave then.

A fixture holds a checkpoint's `config.json`, the names and shapes of its tensors, and the outputs for one batch. The
floating point weights are drawn again from the tensors' names, which keeps the fixtures small.
"""

import json
import zlib
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_file

import hf_memaug  # noqa: F401  (registers the families)

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("*/*.json"))


def weights(tensors: dict) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in tensors.items():
        if "values" in tensor:
            found[name] = torch.tensor(tensor["values"], dtype=getattr(torch, tensor["dtype"]))
        else:
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            found[name] = 0.3 * torch.randn(tensor["shape"], generator=generator)
    return found


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_released_checkpoint_gives_its_outputs(fixture, tmp_path):
    stored = json.loads(fixture.read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(stored["config"]), encoding="utf-8")
    save_file(weights(stored["tensors"]), tmp_path / "model.safetensors", metadata={"format": "pt"})
    model, info = getattr(transformers, stored["auto_class"]).from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == fixture.stem
    assert not info["missing_keys"] and not info["unexpected_keys"]
    inputs = {name: torch.tensor(value) for name, value in stored["inputs"].items()}
    with torch.no_grad():
        logits = model.eval()(**inputs).logits
    torch.testing.assert_close(logits, torch.tensor(stored["logits"]), rtol=1e-5, atol=1e-5)
