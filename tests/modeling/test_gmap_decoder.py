# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""GPT-2 as general and as domain model: what comes later stays hidden, in the memory too."""

import pytest
import torch
import transformers

import hf_memaug

SIZES = {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 80, "vocab_size": 99, "initializer_range": 0.2}
SIZES |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SIZES |= {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
both_kernels = pytest.mark.parametrize("implementation", ["eager", "sdpa"])


def make_model(name="GMAPModel", **kwargs):
    torch.manual_seed(0)
    encoders = {part: {"model_type": "gpt2", **SIZES} for part in ("general", "domain")}
    return getattr(hf_memaug, name)(hf_memaug.GMAPConfig(**encoders, num_labels=3, **kwargs)).double().eval()


def make_inputs(padded=True) -> dict:
    ids = torch.randint(11, 99, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if padded:
        mask[0, -3:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@both_kernels
@pytest.mark.parametrize("strategy", ["single", "multiple", "gated", "chunk_gated"])
def test_with_the_memory_masked_it_is_plain_gpt2(strategy, implementation):
    model, inputs = make_model(strategy=strategy), make_inputs()
    model.set_attn_implementation(implementation)
    plain = transformers.GPT2Model(model.config.domain).double().eval()
    plain.load_state_dict(model.domain.state_dict())
    expected = plain(**inputs).last_hidden_state
    hidden = model(**inputs, memory_mask=torch.zeros_like(inputs["input_ids"])).last_hidden_state
    kept = inputs["attention_mask"].bool()
    torch.testing.assert_close(hidden[kept], expected[kept], rtol=0, atol=1e-12)
    assert (model(**inputs).last_hidden_state - expected)[kept].abs().max() > 1e-3, "the memory is not read"


@both_kernels
@pytest.mark.parametrize("padded", [True, False])
def test_what_comes_later_stays_hidden(implementation, padded):
    model, inputs = make_model(), make_inputs(padded)
    model.set_attn_implementation(implementation)
    before = model(**inputs).last_hidden_state
    inputs["input_ids"][1, 6] = 12
    after = model(**inputs).last_hidden_state
    torch.testing.assert_close(after[1, :6], before[1, :6], rtol=0, atol=1e-12)
    assert (after[1, 6:] - before[1, 6:]).abs().max() > 1e-3
    # Nor in the memory alone.
    states = torch.stack(model.general_states(**inputs), dim=1)
    changed = states.clone()
    # Not by the same in every place: the layer's norm would take that out again.
    changed[:, :, 6] += torch.linspace(-1.0, 2.0, 32)
    found = [model(**inputs, general_hidden_states=one).last_hidden_state for one in (states, changed)]
    torch.testing.assert_close(found[0][:, :6], found[1][:, :6], rtol=0, atol=1e-12)
    assert (found[0][1, 6:] - found[1][1, 6:]).abs().max() > 1e-3


def test_both_kernels_agree():
    model, found = make_model(), []
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        found.append(model(**make_inputs()).last_hidden_state)
    torch.testing.assert_close(*(one[make_inputs()["attention_mask"].bool()] for one in found), rtol=0, atol=1e-12)


def test_a_sequence_is_classified_by_its_last_token():
    model, inputs = make_model("GMAPForSequenceClassification"), make_inputs()
    output = model(**inputs, output_hidden_states=True)
    hidden = model.gmap(**inputs).last_hidden_state
    last = torch.stack([hidden[0, 5], hidden[1, 8], hidden[2, 8]])
    torch.testing.assert_close(output.logits, model.classifier(last), rtol=0, atol=1e-12)
    padded = {"input_ids": torch.cat([inputs["input_ids"], torch.ones(3, 2, dtype=torch.long)], dim=1)}
    padded["attention_mask"] = torch.cat([inputs["attention_mask"], torch.zeros(3, 2, dtype=torch.long)], dim=1)
    torch.testing.assert_close(model(**padded).logits, output.logits, rtol=0, atol=1e-12)


def test_it_trains_and_comes_back(tmp_path):
    gradients = []
    for checkpointing in (False, True):
        model = make_model("GMAPForSequenceClassification").train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(**make_inputs(), labels=torch.tensor([0, 1, 2])).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad})
    assert all(gradient is not None for gradient in gradients[0].values())
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)
    assert not any(p.requires_grad for p in model.gmap.general.parameters())
    model.eval().save_pretrained(tmp_path)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float64)
    assert torch.equal(again(**make_inputs()).logits, model(**make_inputs()).logits)


@pytest.mark.parametrize("padded", [True, False])
def test_the_memory_is_the_hidden_states_of_transformers(padded):
    model, inputs = make_model(), make_inputs(padded)
    with torch.no_grad():
        model.general.ln_f.weight += torch.randn(32)
    expected = model.general(**inputs, output_hidden_states=True)
    states, kept = model.general_states(**inputs), inputs["attention_mask"].bool()
    assert len(states) == 4
    for state, theirs in zip(states, expected.hidden_states[1:], strict=True):
        torch.testing.assert_close(state[kept], theirs[kept], rtol=0, atol=1e-12)
    torch.testing.assert_close(states[-1][kept], expected.last_hidden_state[kept], rtol=0, atol=1e-12)
    lower = make_model(strategy="multiple", memory_layers=[1, 2])
    theirs = lower.general(**inputs, output_hidden_states=True).hidden_states[1:3]
    for state, expected in zip(lower.general_states(**inputs), theirs, strict=True):
        torch.testing.assert_close(state[kept], expected[kept], rtol=0, atol=1e-12)


def test_two_checkpoints_are_paired(tmp_path):
    for seed, name in enumerate(("general", "domain")):
        torch.manual_seed(seed)
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES)).save_pretrained(tmp_path / name)
    general, domain = (str(tmp_path / name) for name in ("general", "domain"))
    model = hf_memaug.GMAPForTokenClassification.from_general_and_domain(general, domain, num_labels=5)
    for name, place in (("general", general), ("domain", domain)):
        theirs = transformers.GPT2Model.from_pretrained(place).state_dict()
        assert all(torch.equal(value, theirs[key]) for key, value in getattr(model.gmap, name).state_dict().items())
    assert model(**make_inputs()).logits.shape == (3, 9, 5)


def test_what_a_decoder_cannot_do_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is a `gpt2`, which has no masked-LM head"):
        make_model("GMAPForMaskedLM")
    plain = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES))
    plain.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is a `gpt2`, which has no masked-LM head.*roberta, bert"):
        hf_memaug.GMAPForMaskedLM.from_general_and_domain(str(tmp_path), str(tmp_path))
    with pytest.raises(ValueError, match='`fusion="gate_attention"` is not supported for `gpt2`. Use memory_attention'):
        make_model(fusion="gate_attention")


def test_what_would_show_the_future_is_refused():
    encoders = {"general": {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 4, "vocab_size": 99}}
    encoders["general"] |= {"num_attention_heads": 4, "intermediate_size": 48}
    encoders["domain"] = {"model_type": "gpt2", **SIZES}
    with pytest.raises(ValueError, match="Pair two encoders of one kind"):
        hf_memaug.GMAPModel(hf_memaug.GMAPConfig(**encoders))
    model = make_model()
    with pytest.raises(ValueError, match="`past_key_values` .prefix tuning. is not supported"):
        model(**make_inputs(), past_key_values=transformers.DynamicCache(config=model.config.domain))
    model.domain.config._attn_implementation = "flash_attention_2"
    attention = model.domain.h[1].attn
    with pytest.raises(ValueError, match="Flash attention is not supported"):
        attention(torch.zeros(1, 3, 32).double(), memory=torch.zeros(1, 3, 32).double())


def test_padding_is_found_without_a_mask():
    model, inputs = make_model("GMAPForTokenClassification"), make_inputs()
    classifier = make_model("GMAPForSequenceClassification")
    inputs["input_ids"][0, -3:] = 1
    # Right padding comes after the last token, which does not see it.
    assert torch.equal(classifier(input_ids=inputs["input_ids"]).logits, classifier(**inputs).logits) or torch.allclose(
        classifier(input_ids=inputs["input_ids"]).logits, classifier(**inputs).logits, atol=1e-12
    )
    assert model(input_ids=inputs["input_ids"]).logits.shape == (3, 9, 3)
