# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Models on top of each other compute what each computes by itself, in the same precision."""

from pathlib import Path

import pytest
import torch
from families import SENTENCES
from torch import nn
from torch.func import functional_call, vmap

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def models(backbones, monkeypatch):
    """Two classifiers of different weights."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from hf_memaug import BertWithKVMemoryForSequenceClassification

    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = BertWithKVMemoryForSequenceClassification.from_backbone(backbones["bert"], num_labels=2)
        for value in model.parameters():
            value.data += 0.2 * torch.randn_like(value)
        made.append(model.eval())
    return made


def inputs_of(backbones, models: int, kind: str = "bert") -> dict:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(backbones[kind])
    texts = [SENTENCES[number : number + 3] for number in range(models)]
    parts = [tokenizer(rows, padding="max_length", max_length=16, truncation=True) for rows in texts]
    return {name: torch.tensor([part[name] for part in parts]) for name in ("input_ids", "attention_mask")}


def dtypes_of(model: nn.Module, call) -> tuple:
    """What the call returns, and the dtype of what every part of the model returned in it."""
    seen: dict = {}

    def watch(name):
        def hook(module, inputs, found):
            seen.setdefault(name, found.dtype)

        return hook

    watched = [
        (name, part) for name, part in model.named_modules() if isinstance(part, (nn.Linear, nn.LayerNorm, nn.Dropout))
    ]
    handles = [part.register_forward_hook(watch(name)) for name, part in watched]
    outputs = call()
    for handle in handles:
        handle.remove()
    return outputs, seen


def run_stacked(models, inputs, tokens: int | None = None):
    """The stacked parameters, their logits, and the dtypes of all parts; packed to so many tokens, if given."""
    from stacking import Packing, fold, stacked_parameters

    parameters = {name: value.requires_grad_() for name, value in stacked_parameters(models).items()}
    fold(models[0])
    packing = Packing(models[0].base_model.encoder)
    mask = inputs["attention_mask"].bool()[:, :, None, None, :]
    batch = {"input_ids": inputs["input_ids"], "attention_mask": mask.expand(-1, -1, 1, mask.shape[-1], -1)}

    def one(parameters, batch):
        return functional_call(models[0], parameters, kwargs=batch).logits

    with packing.to(tokens):
        return parameters, *dtypes_of(models[0], lambda: vmap(one, randomness="different")(parameters, batch))


# Of the two batches' 48 positions, one has 30 tokens and the other 28.
TOKENS = pytest.mark.parametrize("tokens", [None, 30, 40], ids=["padded", "packed", "packed with room"])


@TOKENS
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "autocast"])
def test_a_stack_has_the_values_and_the_precision_of_its_models(models, backbones, half, tokens):
    inputs = inputs_of(backbones, 2)
    assert inputs["attention_mask"].sum(dim=(1, 2)).tolist() == [30, 28]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        alone = []
        for number, model in enumerate(models):
            own = {name: value[number] for name, value in inputs.items()}
            alone.append(dtypes_of(model, lambda model=model, own=own: model(**own).logits))
        _, logits, dtypes = run_stacked(models, inputs, tokens)
    assert len(dtypes) > 10 and dtypes == alone[0][1]
    assert (torch.bfloat16 in dtypes.values()) is half, "products in half precision, where autocast is on"
    tolerance = {"rtol": 0.05, "atol": 0.05} if half else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(logits, torch.stack([found for found, _ in alone]), **tolerance)
    assert (logits[0] - logits[1]).abs().max() > 0.1, "two models, not one"


@TOKENS
def test_gradients_are_those_of_each_model(models, backbones, tokens):
    inputs = inputs_of(backbones, 2)
    expected = []
    for number, model in enumerate(models):
        model(**{name: value[number] for name, value in inputs.items()}).logits.square().sum().backward()
        expected.append({name: value.grad for name, value in model.named_parameters()})
    parameters, logits, _ = run_stacked(models, inputs, tokens)
    logits.square().sum().backward()
    for name, value in parameters.items():
        for number in range(2):
            wanted = expected[number][name]
            if wanted is None:
                assert value.grad is None, name
                continue
            error = (value.grad[number] - wanted).abs().max()
            assert error <= 1e-3 * wanted.abs().max() + 1e-6, f"{name}: {error}"


def test_places_of_packed_rows(models):
    """Three rows of 2, 3 and 1 tokens, in a row of 8: two of its places are left for padding."""
    from stacking import Packing

    packing = Packing(models[0].base_model.encoder)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]]).bool()
    with packing.to(8):
        index, place, bounds = packing.places(mask)
    assert index.tolist() == [0, 1, 4, 5, 6, 8, 2, 3]
    assert place[mask.flatten()].tolist() == [0, 1, 2, 3, 4, 5]
    assert bounds.tolist() == [0, 2, 5, 6, 8, 8]
    # More places than positions are not filled.
    with packing.to(64):
        index, place, bounds = packing.places(mask)
    assert sorted(index.tolist()) == list(range(12)) and index[place].tolist() == list(range(12))
    assert bounds.tolist() == [0, 2, 5, 6, 10, 12, 12]


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_packed_attention_is_its_plain_twin(models, dropout):
    """By the kernel for rows of different lengths, an empty one among them; gradients as well."""
    from stacking import packed_attention

    bounds = torch.tensor([[0, 5, 70, 70, 96], [0, 60, 64, 80, 96]], dtype=torch.int32)
    parts = [torch.randn(2, 3, 96, 32, dtype=torch.bfloat16) for _ in range(3)]
    found = []
    for device, dtype in (("cuda", torch.bfloat16), ("cpu", torch.float32)):
        own = [part.to(device, dtype, copy=True).requires_grad_() for part in parts]
        outputs = packed_attention(*own, bounds.to(device), dropout if device == "cuda" else 0.0, None, 65)
        outputs.square().sum().backward()
        found.append([value.float().cpu() for value in (outputs.detach(), *(part.grad for part in own))])
    for mine, wanted in zip(*found, strict=True):
        if dropout:
            assert mine.isfinite().all() and not torch.allclose(mine, wanted, rtol=0.05, atol=0.05)
        else:
            torch.testing.assert_close(mine, wanted, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("kind", ["Roberta", "Bert"])
def test_label_words_have_the_precision_of_one_model(kind, backbones, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import hf_memaug
    from hf_memaug.modeling.modeling_kv_memory import KVMemoryEncoderMixin

    # What it says of rows without a mask would look at each model's values.
    monkeypatch.setattr(KVMemoryEncoderMixin, "_mask_positions", lambda self, ids, _: (ids * 0).argmax(dim=-1))
    prompt = {"template": "{text} it was {mask}", "verbalizer": {"no": "bad", "yes": "good"}}
    family = getattr(hf_memaug, f"{kind}WithKVMemoryForPromptClassification")
    models = [family.from_backbone(backbones[kind.lower()], **prompt).eval() for _ in range(2)]
    inputs = inputs_of(backbones, 2, kind.lower())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        alone = [
            model(**{name: value[number] for name, value in inputs.items()}).logits
            for number, model in enumerate(models)
        ]
        _, logits, _ = run_stacked(models, inputs)
    assert logits.dtype == alone[0].dtype == torch.bfloat16
    torch.testing.assert_close(logits, torch.stack(alone), rtol=0.05, atol=0.05)


def test_dropout_differs_between_models(models, backbones):
    from stacking import StackedDropout

    layer = StackedDropout(0.5)
    dropped = vmap(layer, randomness="different")(torch.ones(2, 200))
    assert not torch.equal(dropped[0], dropped[1]) and set(dropped.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(vmap(layer.eval())(torch.ones(2, 200)), torch.ones(2, 200))
