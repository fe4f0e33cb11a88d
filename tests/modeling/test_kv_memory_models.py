# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Eq. 3, the three positions, prompting, and the plain backbone inside."""

import warnings

import pytest
import torch
import transformers
from families import KV_CASES as CASES
from families import MEMORY, Case, features_of
from tiny_backbones import SENTENCES, tiny_tokenizer

import hf_memaug
from hf_memaug import prompt_tokenizer
from hf_memaug.registry import FAMILIES

HEADS = [case for case in CASES if case.has_head]
every_class = pytest.mark.parametrize("case", CASES, ids=str)
every_head = pytest.mark.parametrize("case", HEADS, ids=str)
prompted = pytest.mark.parametrize("case", [c for c in CASES if c.name.endswith("PromptClassification")], ids=str)
encoders = pytest.mark.parametrize("case", [c for c in CASES if not c.has_head], ids=str)
PROMPT = {"template": "{text} it was {mask}", "verbalizer": {"no": "bad", "yes": ["good", "great"]}}


def from_backbone(case: Case, backbones, **kwargs):
    prompt = PROMPT if case.name.endswith("PromptClassification") else {}
    return case.model_class.from_backbone(backbones[case.backbone], **{**MEMORY, **prompt, **kwargs}).eval()


@every_class
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_equation_3(case: Case, weight):
    model = case.model(memory_weight=weight)
    output = model(**case.inputs())
    mixed = (1 - weight) * output.features + weight * output.memory_features
    torch.testing.assert_close(output.augmented_features, mixed, rtol=0, atol=1e-6)
    memory = next(module for module in model.modules() if isinstance(module, model.memory_modules))
    torch.testing.assert_close(output.memory_features, memory(output.features)[0], rtol=0, atol=0)


@pytest.mark.parametrize("pooling", ["cls", "mask", "mean"])
@encoders
def test_features_are_the_pooled_position(case: Case, pooling):
    model, inputs = case.model(memory_pooling=pooling), case.inputs()
    inputs["attention_mask"][1, -4:] = 0
    output = model(**inputs)
    hidden = output.last_hidden_state
    for row in range(3):
        kept = hidden[row, : 9 - 4 * (row == 1)]
        expected = {"cls": hidden[row, 0], "mask": hidden[row, 3], "mean": kept.mean(dim=0)}[pooling]
        torch.testing.assert_close(output.features[row], expected, rtol=0, atol=1e-6)


@encoders
def test_the_mask_is_found_in_embeddings_too(case: Case):
    model, inputs = case.model(memory_pooling="mask"), case.inputs()
    embeds = model.get_input_embeddings()(inputs["input_ids"])
    by_embeds = model(inputs_embeds=embeds, attention_mask=inputs["attention_mask"])
    torch.testing.assert_close(by_embeds.features, by_embeds.last_hidden_state[:, 3], rtol=0, atol=0)


@encoders
def test_a_mask_that_nothing_names_is_refused(case: Case):
    with pytest.raises(ValueError, match='`memory_pooling` is "mask", and nothing says which token.*"cls" or "mean"'):
        case.model(memory_pooling="mask", mask_token_id=None)


@encoders
def test_a_missing_mask_is_said(case: Case, monkeypatch):
    from hf_memaug.modeling import modeling_kv_memory

    said = []
    monkeypatch.setattr(modeling_kv_memory.logger, "warning_once", said.append)
    model, inputs = case.model(memory_pooling="mask"), case.inputs()
    model(**inputs)
    assert not said
    inputs["input_ids"][0, 3] = 30
    output = model(**inputs)
    assert "has no mask token" in said[0] and "prompt_tokenizer" in said[0]
    torch.testing.assert_close(output.features[0], output.last_hidden_state[0, 0])


@every_head
@pytest.mark.parametrize("kwargs", [{}, {"memory_query": "mlp"}], ids=["linear", "mlp"])
def test_weight_zero_is_the_plain_backbone_exactly(case: Case, backbones, kwargs, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(backbones[case.backbone])
    model = from_backbone(case, backbones, memory_weight=0.0, **kwargs)
    if case.name.endswith("SequenceClassification"):
        # The plain classifier, with the same head.
        plain_class = getattr(transformers, f"{case.backbone.capitalize()}ForSequenceClassification")
        plain = plain_class.from_pretrained(backbones[case.backbone], num_labels=2).eval()
        missing = plain.load_state_dict(model.state_dict(), strict=False)
        assert not missing.missing_keys and all("memory" in key for key in missing.unexpected_keys)
        inputs = tokenizer(SENTENCES, return_tensors="pt", padding=True)
        assert torch.equal(model(**inputs).logits, plain(**inputs).logits)
        labels = torch.arange(6) % 2
        assert torch.equal(model(**inputs, labels=labels).loss, plain(**inputs, labels=labels).loss)
    else:
        # The plain masked LM, read at the mask and at the label words.
        inputs = prompt_tokenizer(tokenizer, PROMPT["template"])(SENTENCES, return_tensors="pt", padding=True)
        plain = getattr(transformers, f"{case.backbone.capitalize()}ForMaskedLM")
        scores = plain.from_pretrained(backbones[case.backbone]).eval()(**inputs).logits
        at_mask = scores[inputs["input_ids"] == tokenizer.mask_token_id]
        no, yes = model.config.verbalizer_token_ids
        expected = torch.stack([at_mask[:, no].mean(-1), at_mask[:, yes].mean(-1)], dim=-1)
        torch.testing.assert_close(model(**inputs).logits, expected, rtol=0, atol=1e-6)


@encoders
def test_weight_zero_gives_the_plain_encoders_pooler(case: Case, backbones):
    model = from_backbone(case, backbones, memory_weight=0.0)
    plain = transformers.AutoModel.from_pretrained(backbones[case.backbone]).eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    inputs = case.inputs()
    ours, theirs = model(**inputs), plain(**inputs)
    assert torch.equal(ours.last_hidden_state, theirs.last_hidden_state)
    assert torch.equal(ours.pooler_output, theirs.pooler_output)


@every_class
def test_from_backbone_keeps_the_encoder_and_starts_the_memory(case: Case, backbones, tmp_path):
    torch.manual_seed(0)
    model = from_backbone(case, backbones)
    plain = transformers.AutoModel.from_pretrained(backbones[case.backbone], add_pooling_layer=False).state_dict()
    ours = model.base_model.state_dict()
    assert all(torch.equal(ours[name], value) for name, value in plain.items())
    memory = model.base_model.memory
    assert memory.slot_values.std().item() == pytest.approx(1.0, abs=0.15)
    assert memory.slot_keys.std().item() == pytest.approx(memory.slot_keys.shape[1] ** -0.5, rel=0.3)
    model.save_pretrained(tmp_path)
    inputs = case.inputs()
    assert torch.equal(features_of(case.model_class.from_pretrained(tmp_path)(**inputs)), features_of(model(**inputs)))


def test_a_fresh_memory_is_neither_negligible_nor_deafening():
    config = hf_memaug.RobertaWithKVMemoryConfig(num_hidden_layers=1, vocab_size=500)
    torch.manual_seed(0)
    output = hf_memaug.RobertaWithKVMemory(config).eval()(torch.randint(5, 500, (8, 12)))
    assert 0.03 < output.memory_features.norm() / output.features.norm() < 0.5


def test_fresh_keys_are_as_large_as_they_are_said_to_be():
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "vocab_size": 100, "hidden_size": 32, "num_attention_heads": 2}
    for said, std in ((None, 64**-0.5), (0.5, 0.5), (0, 0.0)):
        own = {"memory_key_size": 64, "memory_slots": 200, "memory_key_initializer_range": said}
        model = hf_memaug.RobertaWithKVMemory(hf_memaug.RobertaWithKVMemoryConfig(**sizes, **own))
        model.grow_memory(200)
        for slots in model.memory.slot_keys.split(200):
            assert slots.std().item() == pytest.approx(std, rel=0.02)


@every_class
def test_from_backbone_refuses_what_it_does_not_know(case: Case, backbones):
    other = next(kind for kind in backbones if kind != case.backbone)
    with pytest.raises(ValueError, match=f"built on a `{case.backbone}` encoder, and this checkpoint is a `{other}`"):
        from_backbone(case, {case.backbone: backbones[other]})
    with pytest.raises(TypeError, match="`memory_slot`.*`memory_slots`"):
        from_backbone(case, backbones, memory_slot=3)
    with pytest.raises(OSError):
        from_backbone(
            case,
            {case.backbone: "no/such-checkpoint"},
            **({"tokenizer": tiny_tokenizer("bert")} if "Prompt" in case.name else {}),
        )


class TestPrompting:
    @prompted
    def test_label_scores_are_the_mean_of_their_words(self, case: Case):
        model, inputs = case.model(), case.inputs()
        head = model.lm_head if case.backbone == "roberta" else model.cls
        output = model(**inputs)
        words = head(output.augmented_features)
        expected = torch.stack([words[:, [7]].mean(-1), words[:, [8, 9]].mean(-1), words[:, [10]].mean(-1)], dim=-1)
        torch.testing.assert_close(output.logits, expected)

    @prompted
    def test_the_vocabulary_is_scored_for_label_words_alone(self, case: Case):
        model, inputs = case.model(), case.inputs()
        model.get_output_embeddings().register_forward_hook(lambda *_: pytest.fail("all words were scored"))
        labels = torch.zeros(len(inputs["input_ids"]), dtype=torch.long)
        model(**inputs, labels=labels).loss.backward()
        (bias,) = [value.grad for name, value in model.named_parameters() if name.endswith(("lm_head.bias", "s.bias"))]
        assert sorted(bias.nonzero().flatten().tolist()) == [7, 8, 9, 10]

    @prompted
    def test_an_adapter_of_the_decoder_is_read(self, case: Case):
        peft = pytest.importorskip("peft")
        model, inputs = case.model(), case.inputs()
        plain = model(**inputs).logits
        lora = peft.LoraConfig(target_modules=r".*decoder", r=2, init_lora_weights=False)
        adapted = peft.get_peft_model(model, lora).eval()
        output = adapted(**inputs)
        assert (output.logits - plain).abs().max() > 1e-3
        head = model.lm_head if case.backbone == "roberta" else model.cls
        words = head(output.augmented_features)
        expected = torch.stack([words[:, [7]].mean(-1), words[:, [8, 9]].mean(-1), words[:, [10]].mean(-1)], dim=-1)
        torch.testing.assert_close(output.logits, expected)

    @prompted
    def test_template_and_verbalizer_travel_with_the_model(self, case: Case, backbones, tmp_path):
        from_backbone(case, backbones).save_pretrained(tmp_path)
        config = transformers.AutoConfig.from_pretrained(tmp_path)
        assert config.template == PROMPT["template"] and config.memory_pooling == "mask"
        assert config.verbalizer == {"no": ["bad"], "yes": ["good", "great"]}
        assert config.id2label == {0: "no", 1: "yes"}

    @prompted
    def test_labels_in_the_order_of_the_rows(self, case: Case, backbones, tmp_path):
        model = from_backbone(case, backbones, id2label={0: "yes", 1: "no"}, label2id={"yes": 0, "no": 1})
        plain = from_backbone(case, backbones)
        assert model.config.verbalizer_token_ids == plain.config.verbalizer_token_ids[::-1]
        model.save_pretrained(tmp_path)
        again = type(model).from_pretrained(tmp_path)
        assert list(again.config.verbalizer) == ["yes", "no"] and again.config.id2label == {0: "yes", 1: "no"}

    @prompted
    @pytest.mark.parametrize("missing", ["template", "verbalizer"])
    def test_both_are_needed(self, case: Case, backbones, missing):
        with pytest.raises(ValueError, match=f"`{missing}` is missing"):
            from_backbone(case, backbones, **{missing: None})

    @pytest.mark.parametrize("kind", ["roberta", "bert"])
    def test_the_tokenizer_asks_and_never_loses_the_question(self, kind, tmp_path):
        tokenizer = tiny_tokenizer(kind)
        asking = prompt_tokenizer(tokenizer, "{text} it was {mask}")
        ids = asking(" ".join(SENTENCES * 5), truncation=True, max_length=16)["input_ids"]
        assert len(ids) == 16 and ids[-2] == tokenizer.mask_token_id and ids.count(tokenizer.mask_token_id) == 1
        assert tokenizer.decode(ids[-4:-2]).split() == ["it", "was"]
        asking.save_pretrained(tmp_path)
        again = transformers.AutoTokenizer.from_pretrained(tmp_path)
        for texts in (("a good book",), ("a good book", "the phone is bad")):
            assert dict(again(*texts)) == dict(asking(*texts))
        assert tokenizer.mask_token_id not in tokenizer("a good book")["input_ids"], "the original was changed"

    def test_pairs_and_their_segments(self):
        asking = prompt_tokenizer(tiny_tokenizer("bert"), "{text} {mask} {text_pair}")
        encoded = asking("a good book", "it was fine")
        mask = encoded["input_ids"].index(asking.mask_token_id)
        assert encoded["token_type_ids"] == [0] * (mask + 1) + [1] * (len(encoded["input_ids"]) - mask - 1)
        assert set(asking("a good book")["token_type_ids"]) == {0}

    def test_a_text_inside_the_question_is_running_text(self):
        asking = prompt_tokenizer(tiny_tokenizer("roberta"), "{text} {mask} {text_pair}")
        assert asking.decode(asking("good book", "it was fine")["input_ids"][1:-1]) == " good book<mask> it was fine"

    @pytest.mark.parametrize("kind", ["roberta", "bert"])
    def test_a_head_that_begins_at_random_is_said(self, kind, backbones, tmp_path):
        case = next(one for one in CASES if "Prompt" in one.name and one.backbone == kind)
        transformers.AutoModel.from_pretrained(backbones[kind]).save_pretrained(tmp_path)
        asked = {**PROMPT, "tokenizer": tiny_tokenizer(kind), **MEMORY}
        with pytest.warns(UserWarning, match="has no masked-LM head.*--only-head"):
            case.model_class.from_backbone(tmp_path, **asked)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            _, info = case.model_class.from_backbone(backbones[kind], output_loading_info=True, **asked)
        assert any("memory" in name for name in info["missing_keys"])

    @pytest.mark.parametrize(("kind", "between"), [("roberta", "</s></s>"), ("bert", "[SEP]")])
    def test_a_second_text_without_a_place_follows_as_the_tokenizer_has_it(self, kind, between):
        tokenizer = tiny_tokenizer(kind)
        asking = prompt_tokenizer(tokenizer, "{text} it was {mask}")
        ids = asking("a good book", "the phone is bad")["input_ids"]
        plain = tokenizer("a good book", "the phone is bad")["input_ids"]
        assert ids[: len(plain) - 1] == plain[:-1] and between in tokenizer.decode(ids).replace(" ", "")
        assert ids[len(plain) - 1 :] == asking("a good book")["input_ids"][-4:]
        assert asking("a good book")["input_ids"].count(tokenizer.sep_token_id) == 1

    @pytest.mark.parametrize("kind", ["roberta", "bert"])
    def test_a_mask_in_the_text_is_not_the_question(self, kind, tmp_path):
        tokenizer = tiny_tokenizer(kind)
        prompt_tokenizer(tokenizer, "{text} it was {mask}").save_pretrained(tmp_path)
        ids = transformers.AutoTokenizer.from_pretrained(tmp_path)(f"a {tokenizer.mask_token} book")["input_ids"]
        assert ids.count(tokenizer.mask_token_id) == 1 and ids[-2] == tokenizer.mask_token_id

    def test_template_words_without_tokens_are_refused(self):
        with pytest.raises(ValueError, match="`template` holds 'Ωmega'"):
            prompt_tokenizer(tiny_tokenizer("bert"), "{text} Ωmega {mask}")

    def test_a_tokenizer_without_mask_is_refused(self, backbones):
        tokenizer = tiny_tokenizer("roberta")
        tokenizer.mask_token = None
        with pytest.raises(ValueError, match="`tokenizer` has no mask token"):
            prompt_tokenizer(tokenizer, PROMPT["template"])


@every_head
def test_pipeline(case: Case, backbones, tmp_path):
    model = from_backbone(case, backbones)
    tokenizer = transformers.AutoTokenizer.from_pretrained(backbones[case.backbone])
    if model.config.template:
        tokenizer = prompt_tokenizer(tokenizer, model.config.template)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    classify = transformers.pipeline("text-classification", model=str(tmp_path), device="cpu")
    assert type(classify.model) is case.model_class
    answers = classify(SENTENCES, top_k=None, batch_size=4)
    expected = model(**tokenizer(SENTENCES, return_tensors="pt", padding=True)).logits.softmax(-1)
    for answer, row in zip(answers, expected, strict=True):
        scores = {entry["label"]: entry["score"] for entry in answer}
        for index, label in model.config.id2label.items():
            assert scores[label] == pytest.approx(row[index].item(), abs=1e-5)


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification", "single_label_classification"])
@pytest.mark.parametrize("case", [c for c in HEADS if c.name.endswith("SequenceClassification")], ids=str)
def test_problem_types(case: Case, problem):
    labels = {
        "regression": torch.tensor([0.1, 0.5, 0.9]),
        "multi_label_classification": torch.eye(3),
        "single_label_classification": torch.tensor([0, 1, 2]),
    }[problem]
    model = case.model(num_labels=1 if problem == "regression" else 3, problem_type=problem)
    output = model(**case.inputs(), labels=labels)
    expected = {
        "regression": lambda: (output.logits.squeeze() - labels).square().mean(),
        "multi_label_classification": lambda: torch.nn.functional.softplus(output.logits * (1 - 2 * labels)).mean(),
        "single_label_classification": lambda: -output.logits.log_softmax(-1).diagonal().mean(),
    }[problem]()
    torch.testing.assert_close(output.loss, expected)


@encoders
def test_recorded_outputs_are_those_of_the_plain_encoder(case: Case, backbones):
    model = from_backbone(case, backbones, attn_implementation="eager")
    plain = transformers.AutoModel.from_pretrained(backbones[case.backbone], attn_implementation="eager").eval()
    inputs = case.inputs()
    for request in ({"output_hidden_states": True}, {"output_attentions": True}):
        ours, theirs = model(**inputs, **request), plain(**inputs, **request)
        name = next(iter(request)).removeprefix("output_")
        assert all(torch.equal(a, b) for a, b in zip(ours[name], theirs[name], strict=True))
    assert model(**inputs).hidden_states is None
    model.config.output_hidden_states = True
    assert len(model(**inputs).hidden_states) == 3


def test_public_names_and_registration():
    for name in hf_memaug.__all__:
        assert getattr(hf_memaug, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'RobertaWithMemory'"):
        hf_memaug.RobertaWithMemory  # noqa: B018
    for family in FAMILIES.values():
        assert set(family.model_names) < set(dir(hf_memaug))
