# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from hf_memaug.training.recordable_attention import RECORDABLE

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}


class HostCopies(TorchDispatchMode):
    """Numbers that come from the host as tensors: what a recording of a CUDA graph refuses."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.lift_fresh.default:
            self.found.append(args)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [(BertConfig, BertModel), (RobertaConfig, RobertaModel)], ids=["bert", "roberta"])
@pytest.mark.parametrize("lengths", [(5, 3), (5, 5)], ids=["padded", "full"])
def test_it_is_the_eager_attention(kind, lengths):
    config, model = kind
    torch.manual_seed(0)
    model = model(config(**SIZES)).double().train()
    batch = {"input_ids": torch.randint(3, 50, (2, 5)), "attention_mask": torch.zeros(2, 5, dtype=torch.long)}
    for row, length in enumerate(lengths):
        batch["attention_mask"][row, :length] = 1
    states, gradients = [], []
    for attention in ("eager", RECORDABLE):
        model.set_attn_implementation(attention)
        torch.manual_seed(1)  # of dropout, which is drawn in the same order
        found = model(**batch).last_hidden_state
        states.append(found)
        gradients.append(torch.autograd.grad(found.square().sum(), model.get_input_embeddings().weight)[0])
    torch.testing.assert_close(*states, rtol=0, atol=0)
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_nothing_comes_from_the_host():
    model = BertModel(BertConfig(**SIZES)).eval()
    model.set_attn_implementation(RECORDABLE)
    batch = {"input_ids": torch.randint(3, 50, (2, 5)), "attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])}
    with HostCopies() as copies, torch.no_grad():
        torch.tensor(0.0)
        assert len(copies.found) == 1, "a copy is seen"
        model(**batch)
    assert len(copies.found) == 1
