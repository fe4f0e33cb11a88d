# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""G-MAP's frozen encoder, its heads, and how two encoders become a pair."""

import pytest
import torch
import transformers
from families import gmap_config
from modeling.gmap_models import make_inputs, make_model
from tiny_backbones import SENTENCES, save_backbone

import hf_memaug

HEADS = ["SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"]
every_kind = pytest.mark.parametrize("kind", ["roberta", "bert"])


class TestFrozen:
    def test_no_graph_no_gradient_no_dropout(self):
        model = make_model("GMAPForSequenceClassification", hidden_dropout_prob=0.5).train()
        assert model.gmap.domain.training and not model.gmap.general.training
        states = model.gmap.general_states(**make_inputs())
        assert all(state.grad_fn is None and not state.requires_grad for state in states)
        again = model.gmap.general_states(**make_inputs())
        assert all(torch.equal(a, b) for a, b in zip(states, again, strict=True)), "dropout in a frozen encoder"
        model(**make_inputs(), labels=torch.tensor([0, 1, 2])).loss.backward()
        assert all(p.grad is None and not p.requires_grad for p in model.gmap.general.parameters())

    def test_no_place_in_the_optimizer(self, tmp_path):
        model = make_model("GMAPForSequenceClassification")
        arguments = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
        optimizer = transformers.Trainer(model, arguments).create_optimizer()
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        assert held == {id(p) for n, p in model.named_parameters() if ".general." not in n}

    def test_it_stays_frozen_in_a_checkpoint(self, tmp_path):
        make_model("GMAPForSequenceClassification").save_pretrained(tmp_path)
        again = hf_memaug.GMAPForSequenceClassification.from_pretrained(tmp_path).train()
        assert not any(p.requires_grad for p in again.gmap.general.parameters()) and not again.gmap.general.training
        assert all(p.requires_grad for p in again.gmap.domain.parameters())

    def test_it_can_learn_too(self, tmp_path):
        model = make_model("GMAPForSequenceClassification", freeze_general=False).train()
        model(**make_inputs(), labels=torch.tensor([0, 1, 2])).loss.backward()
        assert all(p.grad is not None for p in model.gmap.general.parameters())
        assert model.gmap.general.training
        model.gmap.freeze_general()
        assert model.config.freeze_general and not model.gmap.general.training
        assert model.gmap.general_states(**make_inputs())[-1].grad_fn is None


def test_known_states_spare_the_general_encoder(monkeypatch):
    model, inputs = make_model(), make_inputs()
    states = torch.stack(model.general_states(**inputs), dim=1)
    expected = model(**inputs).last_hidden_state
    monkeypatch.setattr(model.general.encoder.layer[0], "forward", None)
    assert torch.equal(model(**inputs, general_hidden_states=states).last_hidden_state, expected)


@pytest.mark.parametrize("autocast", [True, False])
def test_a_general_encoder_in_half_precision_is_read_too(autocast):
    model, inputs = make_model().float(), make_inputs()
    expected = model(**inputs).last_hidden_state
    model.general.to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        assert model.general_states(**inputs)[-1].dtype == torch.bfloat16
        hidden = model(**inputs).last_hidden_state
    assert hidden.dtype == torch.float32
    assert (hidden - expected).norm() / expected.norm() < 0.05


def test_states_are_those_of_the_layers_that_are_read():
    model, inputs = make_model(strategy="multiple", memory_layers=[1, 2]), make_inputs()
    states = model.general_states(**inputs)
    expected = model.general(**inputs, output_hidden_states=True).hidden_states[1:3]
    assert len(states) == 2 and all(map(torch.equal, states, expected))


@pytest.mark.parametrize("layers", [1, 2])
def test_the_head_has_one_or_two_layers(layers):
    model = make_model("GMAPForSequenceClassification", classifier_layers=layers)
    output = model(**make_inputs(), output_hidden_states=True)
    features = output.hidden_states[-1][:, 0]
    head = model.classifier
    expected = head(features) if layers == 1 else head.out_proj(torch.tanh(head.dense(features)))
    torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-12)


class TestFromGeneralAndDomain:
    @pytest.fixture(scope="class")
    def pair(self, tmp_path_factory):
        """A general checkpoint, and one that was trained on from it."""
        found = {}
        for kind in ("roberta", "bert"):
            general = save_backbone(kind, tmp_path_factory.mktemp(kind))
            domain = tmp_path_factory.mktemp(f"{kind}-domain")
            model = transformers.AutoModelForMaskedLM.from_pretrained(general)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
            model.save_pretrained(domain)
            transformers.AutoTokenizer.from_pretrained(general).save_pretrained(domain)
            found[kind] = (general, str(domain))
        return found

    @every_kind
    @pytest.mark.parametrize("head", HEADS)
    def test_the_weights_are_those_of_the_two(self, kind, head, pair, tmp_path):
        general, domain = pair[kind]
        model = getattr(hf_memaug, f"GMAPFor{head}").from_general_and_domain(general, domain, memory_layers=[1, 2])
        assert not model.training and model.config.memory_layers == [1, 2]
        for name, place in (("general", general), ("domain", domain)):
            theirs = transformers.AutoModel.from_pretrained(place).state_dict()
            for key, value in getattr(model.gmap, name).state_dict().items():
                assert torch.equal(value, theirs[key]), (name, key)
        model.save_pretrained(tmp_path)
        again = type(model).from_pretrained(tmp_path)
        inputs = make_inputs()
        assert torch.equal(again(**inputs)[0], model(**inputs)[0])

    @every_kind
    def test_a_masked_lm_keeps_the_domains_head(self, kind, pair):
        general, domain = pair[kind]
        model = hf_memaug.GMAPForMaskedLM.from_general_and_domain(general, domain, memory_layers=[1, 2])
        plain = transformers.AutoModelForMaskedLM.from_pretrained(domain).eval()
        inputs = make_inputs()
        logits = model(**inputs, memory_mask=torch.zeros_like(inputs["input_ids"])).logits
        torch.testing.assert_close(logits, plain(**inputs).logits, rtol=0, atol=1e-5)
        assert model.lm_head.decoder.weight is model.gmap.domain.embeddings.word_embeddings.weight

    def test_models_may_be_given_instead_of_names(self, pair):
        general, domain = (transformers.AutoModel.from_pretrained(place) for place in pair["bert"])
        model = hf_memaug.GMAPForSequenceClassification.from_general_and_domain(
            general, domain, memory_layers=[1, 2], num_labels=4
        )
        assert model.classifier.out_features == 4
        assert torch.equal(
            model.gmap.general.embeddings.word_embeddings.weight, general.embeddings.word_embeddings.weight
        )

    def test_a_plain_checkpoint_is_refused_with_the_way_to_go(self, pair):
        with pytest.raises(ValueError, match="`from_general_and_domain` pairs two such encoders"):
            hf_memaug.GMAPModel.from_pretrained(pair["bert"][0])

    def test_pipelines(self, pair, tmp_path):
        general, domain = pair["roberta"]
        tokenizer = transformers.AutoTokenizer.from_pretrained(domain)
        for head, task, text in (
            ("SequenceClassification", "text-classification", SENTENCES[0]),
            ("TokenClassification", "token-classification", SENTENCES[0]),
            ("MaskedLM", "fill-mask", f"a good {tokenizer.mask_token}"),
        ):
            model = getattr(hf_memaug, f"GMAPFor{head}").from_general_and_domain(general, domain, memory_layers=[1, 2])
            model.save_pretrained(tmp_path / head)
            tokenizer.save_pretrained(tmp_path / head)
            assert transformers.pipeline(task, model=str(tmp_path / head))(text)


def test_new_tokens_are_new_in_both_encoders():
    model = make_model("GMAPForMaskedLM")
    model.resize_token_embeddings(104)
    assert model.gmap.general.embeddings.word_embeddings.num_embeddings == 104
    assert model.config.vocab_size == model.config.general.vocab_size == 104
    assert not any(p.requires_grad for p in model.gmap.general.parameters())
    inputs = make_inputs()
    inputs["input_ids"][0, 1] = 103
    assert model(**inputs).logits.shape == (3, 9, 104)


def test_each_encoder_keeps_its_own_heads(tmp_path):
    config = gmap_config("gmap")
    config.general.num_attention_heads = 2
    torch.manual_seed(0)
    model = hf_memaug.GMAPModel(config).eval()
    model.save_pretrained(tmp_path)
    again = hf_memaug.GMAPModel.from_pretrained(tmp_path)
    assert (again.config.general.num_attention_heads, again.config.domain.num_attention_heads) == (2, 4)
    assert torch.equal(again(**make_inputs()).last_hidden_state, model(**make_inputs()).last_hidden_state)


@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize(
    "shape", [(3, 3, 9, 32), (3, 5, 9, 32), (3, 4, 7, 32), (2, 4, 9, 32), (3, 4, 9, 16), (3, 9, 32)]
)
def test_states_of_another_shape_are_refused(shape, embedded):
    model, inputs = make_model(), make_inputs()
    if embedded:
        inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    with pytest.raises(ValueError, match=r"must be \(3, 4, 9, 32\).*as `general_states` returns them"):
        model(**inputs, general_hidden_states=torch.zeros(shape))


def test_how_a_pair_is_made(tmp_path):
    general = save_backbone("bert", tmp_path)
    make = hf_memaug.GMAPForMaskedLM.from_general_and_domain
    assert make(general, general, attn_implementation="eager").config._attn_implementation == "eager"
    with pytest.raises(TypeError, match="takes no `device_map`"):
        make(general, general, device_map="auto")
    # A head of its own stays so.
    domain = transformers.AutoModelForMaskedLM.from_pretrained(general, tie_word_embeddings=False)
    with torch.no_grad():
        domain.cls.predictions.decoder.weight += 1.0
    model = make(transformers.AutoModel.from_pretrained(general), domain)
    assert torch.equal(
        model.gmap.domain.embeddings.word_embeddings.weight, domain.bert.embeddings.word_embeddings.weight
    )
    assert torch.equal(model.lm_head.decoder.weight, domain.cls.predictions.decoder.weight)


def test_a_pair_changes_nothing_in_the_encoders_it_is_made_of(backbones):
    encoders = [transformers.AutoModel.from_pretrained(backbones["roberta"]) for _ in range(2)]
    before = [one.config.to_dict() for one in encoders]
    model = hf_memaug.GMAPModel.from_general_and_domain(*encoders)
    model.set_attn_implementation("eager")
    model.config.hidden_dropout_prob = 0.4
    model.resize_token_embeddings(model.config.vocab_size + 3)
    assert [one.config.to_dict() for one in encoders] == before
    assert {one.config._attn_implementation for one in encoders} == {"sdpa"}
