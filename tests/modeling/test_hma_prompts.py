# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Prompt tokens at the input or at every layer (PROMPT-P and PROMPT-A of HMA's Table 1), and what Table 2 freezes."""

import copy

import pytest
import torch
import transformers
from families import Case
from tiny_backbones import tiny_vit
from torch import nn

from hf_memaug import HMAConfig, HMAForImageClassification, HMAForSequenceClassification, HMAHead
from hf_memaug.layers.prompt_tokens import PromptTokens
from hf_memaug.registry import row_name

IMAGES, TEXT = (Case("hma", f"HMAFor{name}Classification") for name in ("Image", "Sequence"))
MEMORY = {"real_memory_size": 24, "synthetic_slots": 2, "label_embedding_size": 8, "num_labels": 3}
DEPTHS = ("input", "all")
VIT = {"num_hidden_layers": 3, "prompt_tokens": 4}


def prompts(model: nn.Module) -> dict[str, PromptTokens]:
    return {name: module for name, module in model.named_modules() if isinstance(module, PromptTokens)}


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [module.weight for module in prompts(model.backbone).values()]


@torch.no_grad()
def change(tokens: torch.Tensor, sign: int = 1) -> None:
    """Not all by the same, which a norm would take out again."""
    tokens += sign * torch.arange(tokens.shape[-1]) / 8


class TestTokens:
    @pytest.mark.parametrize("depth", DEPTHS)
    def test_an_image_is_what_the_layers_make_of_the_sequence_by_hand(self, depth):
        model, inputs = IMAGES.model(prompt_depth=depth, **VIT).double(), IMAGES.inputs()
        images = inputs["pixel_values"].double()
        vit, tokens = model.backbone, weights(model)
        # As `ViTEmbeddings` do, which has a hook now.
        patches = vit.embeddings.patch_embeddings(images)
        states = torch.cat([vit.embeddings.cls_token.expand(3, -1, -1), patches], dim=1)
        states = states + vit.embeddings.position_embeddings
        last = 17
        assert states.shape[1] == last
        prompt = None
        for number, layer in enumerate(vit.layers):
            if depth == "all" or number == 0:
                prompt = tokens[number].expand(3, -1, -1)
            both = layer.__class__.forward(layer, torch.cat([states, prompt], dim=1))  # without the hooks
            states, prompt = both[:, :last], both[:, last:]
        expected = vit.layernorm(states)[:, 0]
        torch.testing.assert_close(model.features(pixel_values=images), expected, rtol=0, atol=1e-12)
        plain = IMAGES.model(num_hidden_layers=3).double()
        assert not torch.allclose(plain.features(pixel_values=images), expected)

    @pytest.mark.parametrize("depth", DEPTHS)
    def test_text_is_too_and_padding_changes_nothing(self, depth):
        model, inputs = TEXT.model(prompt_depth=depth, **VIT).double(), TEXT.inputs()
        bert, tokens = model.backbone, weights(model)
        states = bert.embeddings.__class__.forward(bert.embeddings, input_ids=inputs["input_ids"])
        for number, layer in enumerate(bert.encoder.layer):
            if depth == "all" or number == 0:
                prompt = tokens[number].expand(3, -1, -1)
            found = layer.__class__.forward(layer, torch.cat([states, prompt], dim=1), None)
            found = found[0] if isinstance(found, tuple) else found
            states, prompt = found[:, :9], found[:, 9:]
        torch.testing.assert_close(model.features(**inputs), states[:, 0], rtol=0, atol=1e-12)
        torch.testing.assert_close(
            model.features(input_ids=inputs["input_ids"]), states[:, 0], rtol=0, atol=1e-12
        )  # all tokens are seen
        longer = {name: nn.functional.pad(value, (0, 5)) for name, value in inputs.items()}
        torch.testing.assert_close(model.features(**longer), states[:, 0], rtol=0, atol=1e-12)

    @pytest.mark.parametrize("depth", DEPTHS)
    @pytest.mark.parametrize("pooling", ["mean", "last"])
    def test_other_poolings_leave_them_out(self, depth, pooling):
        model, inputs = TEXT.model(prompt_depth=depth, pooling=pooling, **VIT), TEXT.inputs()
        inputs["attention_mask"][1, 6:] = 0
        mask = nn.functional.pad(inputs["attention_mask"], (0, 4), value=1)
        states = model.backbone(input_ids=inputs["input_ids"], attention_mask=mask).last_hidden_state
        assert states.shape[1] == 13
        expected = states[1, 5] if pooling == "last" else states[1, :6].mean(dim=0)
        torch.testing.assert_close(model.features(**inputs)[1], expected)

    @pytest.mark.parametrize("case", [IMAGES, TEXT], ids=str)
    @pytest.mark.parametrize("depth", DEPTHS)
    def test_each_token_learns_and_matters(self, case, depth):
        model, inputs = case.model(prompt_depth=depth, **VIT).double(), case.inputs(labels=True)
        inputs = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
        before = model(**inputs)
        before.loss.backward()
        for tokens in weights(model):
            assert (tokens.grad.abs().sum(dim=1) > 0).all()
            for token in range(4):
                change(tokens[token])
                assert not torch.allclose(model(**inputs).logits, before.logits, rtol=0, atol=1e-9)
                change(tokens[token], -1)

    def test_ways_of_attention_agree(self):
        model, inputs = IMAGES.model(prompt_depth="all", **VIT), IMAGES.inputs()
        found = model(**inputs).logits
        model.set_attn_implementation("eager")
        output = model(**inputs, output_attentions=True, output_hidden_states=True)
        torch.testing.assert_close(output.logits, found)
        # What a backbone returns of its inside has the prompts in it, behind the patches.
        assert {states.shape[1] for states in output.hidden_states} == {21}
        assert output.attentions[0].shape[-2:] == (21, 21)


class TestBackbones:
    @pytest.mark.parametrize("depth", DEPTHS)
    @pytest.mark.parametrize("kind", ["ViT", "DeiT", "Dinov2", "Dinov2WithRegisters"])
    def test_vision_transformers(self, kind, depth, tmp_path):
        # Whose poolers are left out, as those of checkpoints are.
        classes = (getattr(transformers, f"{kind}{what}") for what in ("Config", "Model"))
        vit = tiny_vit(*classes, initializer_range=0.3)
        model = HMAForImageClassification.from_backbone(vit, prompt_tokens=50, prompt_depth=depth, **MEMORY)
        assert len(prompts(model.backbone)) == (3 if depth == "all" else 1)
        # The backbone's own range, and a given backbone stays as it is.
        assert all(0.27 < tokens.std() < 0.33 and abs(tokens.mean()) < 0.03 for tokens in weights(model))
        assert not prompts(vit)
        for name, value in vit.state_dict().items():
            if name in model.backbone.state_dict():
                assert torch.equal(value, model.backbone.state_dict()[name])
        model.save_pretrained(tmp_path)
        again = HMAForImageClassification.from_pretrained(tmp_path)
        assert torch.equal(again(**IMAGES.inputs()).logits, model(**IMAGES.inputs()).logits)

    @pytest.mark.parametrize("kind", ["bert", "roberta", "vit"])
    def test_a_checkpoint(self, kind, backbones):
        case = IMAGES if kind == "vit" else TEXT
        model = case.model_class.from_backbone(backbones[kind], prompt_tokens=2, prompt_depth="all", **MEMORY)
        assert len(prompts(model.backbone)) == model.config.num_hidden_layers
        assert model(**case.inputs()).logits.shape == (3, 3)

    def test_what_has_no_place_for_them_is_refused(self):
        sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
        resnet = transformers.ResNetModel(transformers.ResNetConfig(**sizes))
        gpt2 = transformers.GPT2Model(transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=99))
        small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
        dinov3 = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(image_size=16, patch_size=4, **small))
        swin = transformers.SwinModel(transformers.SwinConfig(image_size=32, embed_dim=8, depths=[1], num_heads=[2]))
        bert = transformers.BertModel(transformers.BertConfig(vocab_size=99, is_decoder=True, **small))
        for backbone in (resnet, gpt2, dinov3, swin, bert):
            name, reads_text = type(backbone).__name__, backbone.main_input_name == "input_ids"
            model_class = HMAForSequenceClassification if reads_text else HMAForImageClassification
            with pytest.raises(ValueError, match=f"`prompt_tokens=2` is for .* `{name}`. Leave `prompt_tokens` out"):
                model_class.from_backbone(backbone, prompt_tokens=2, **MEMORY)
        with pytest.raises(ValueError, match="`prompt_tokens=2` is for .* `GraphNetworkModel`. Leave"):
            Case("hma", "HMAForGraphClassification").model(prompt_tokens=2)
        with pytest.raises(ValueError, match="`prompt_tokens=2` go into an encoder .* Leave `prompt_tokens` out"):
            HMAForImageClassification.from_backbone(nn.Flatten(), feature_size=12, prompt_tokens=2, **MEMORY)
        with pytest.raises(ValueError, match="`prompt_tokens=2` go into an encoder"):
            HMAHead(HMAConfig(feature_size=32, prompt_tokens=2, num_labels=3))

    def test_a_backbone_that_has_some_is_refused(self):
        used = IMAGES.model(prompt_tokens=2).backbone
        for count in (0, 2):
            with pytest.raises(ValueError, match="has the prompt tokens of another model"):
                HMAForImageClassification.from_backbone(used, prompt_tokens=count, **MEMORY)

    @pytest.mark.parametrize(
        ("fields", "row"),
        [
            ({"augmentation": "none"}, "erm"),
            ({"augmentation": "none", "prompt_tokens": 2}, "prompt-p"),
            ({"augmentation": "none", "prompt_tokens": 2, "prompt_depth": "all"}, "prompt-a"),
            ({"prompt_tokens": 2, "prompt_depth": "all"}, "prompt-a+hma"),
            ({"prompt_depth": "all"}, "hma"),
        ],
    )
    def test_what_tables_call_them(self, fields, row):
        assert row_name(IMAGES.config(**fields), "erm") == row


class TestCheckpoints:
    @pytest.mark.parametrize("case", [IMAGES, TEXT], ids=str)
    @pytest.mark.parametrize("depth", DEPTHS)
    def test_they_come_back(self, case, depth, tmp_path):
        model, inputs = case.model(prompt_depth=depth, **VIT), case.inputs()
        model.save_pretrained(tmp_path)
        again = getattr(transformers, case.auto_class).from_pretrained(tmp_path)
        assert torch.equal(again(**inputs).logits, model(**inputs).logits)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in again.state_dict().items())
        assert again.config.prompt_tokens == 4 and again.config.prompt_depth == depth

    def test_missing_ones_are_drawn_by_the_backbones_range(self, tmp_path):
        IMAGES.model().save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="`prompt_tokens=50` does not fit .* `prompt_tokens=0`"):
            HMAForImageClassification.from_pretrained(tmp_path, prompt_tokens=50)
        again, info = HMAForImageClassification.from_pretrained(
            tmp_path, prompt_tokens=50, prompt_depth="all", ignore_mismatched_sizes=True, output_loading_info=True
        )
        assert info["missing_keys"] and all("prompt_tokens" in name for name in info["missing_keys"])
        assert all(0.17 < tokens.std() < 0.23 for tokens in weights(again))


class TestTraining:
    @pytest.mark.parametrize("depth", DEPTHS)
    def test_the_momentum_encoder_has_its_own_and_follows(self, depth):
        model, inputs = IMAGES.model(prompt_depth=depth, momentum=0.75, **VIT).train(), IMAGES.inputs(labels=True)
        model.head.memory.queue.clear()
        theirs = [module.weight for module in prompts(model.momentum_backbone).values()]
        begun = [tokens.detach().clone() for tokens in weights(model)]
        assert all(torch.equal(ours, other) for ours, other in zip(begun, theirs, strict=True))
        assert not {tokens.data_ptr() for tokens in weights(model)} & {tokens.data_ptr() for tokens in theirs}
        assert not any(tokens.requires_grad for tokens in theirs)
        model(**inputs).loss.backward()
        assert all(tokens.grad is None for tokens in theirs)
        model.update_memory()
        torch.optim.SGD(model.parameters(), lr=1.0).step()
        model(**inputs)
        model.update_memory()
        for first, ours, other in zip(begun, weights(model), theirs, strict=True):
            assert not torch.equal(first, ours)
            torch.testing.assert_close(other, 0.75 * first + 0.25 * ours.detach())
        # What the copy reads are the copy's.
        model.eval()
        images = {"pixel_values": inputs["pixel_values"], "return_dict": True}
        ours, before = (model._features(encoder, images)[0] for encoder in (model.backbone, model.momentum_backbone))
        for tokens in theirs:
            change(tokens)
        assert torch.equal(model._features(model.backbone, images)[0], ours)
        assert not torch.allclose(model._features(model.momentum_backbone, images)[0], before)

    @pytest.mark.parametrize("reentrant", [False, True])
    @pytest.mark.parametrize("depth", DEPTHS)
    def test_gradient_checkpointing_gives_the_same_gradients(self, depth, reentrant):
        found = []
        for checkpointing in (False, True):
            model = IMAGES.model(prompt_depth=depth, **VIT).train()
            if checkpointing:
                model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model(**IMAGES.inputs(labels=True)).loss.backward()
            found.append([tokens.grad for tokens in weights(model)])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)


class TestFrozenBackbones:
    """Table 2: only the class token and the head are tuned, and the prompts, and the memories."""

    @pytest.mark.parametrize("augmentation", ["none", "hma"])
    @pytest.mark.parametrize("depth", [None, *DEPTHS])
    def test_what_learns(self, augmentation, depth):
        fields = {"num_hidden_layers": 3, "prompt_tokens": 0} if depth is None else {**VIT, "prompt_depth": depth}
        model = IMAGES.model(augmentation=augmentation, **fields).train()
        assert model.freeze_backbone() is model
        model.eval().train()
        model(**IMAGES.inputs(labels=True)).loss.backward()
        learns = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
        layers = {None: [], "input": ["embeddings"], "all": ["embeddings", "layers.1", "layers.2"]}[depth]
        expected = {"backbone.embeddings.cls_token", *(f"backbone.{layer}.prompt_tokens.weight" for layer in layers)}
        assert learns == expected | {f"head.{name}" for name, _ in model.head.named_parameters()}
        assert learns == {name for name, parameter in model.named_parameters() if parameter.requires_grad}

    def test_what_is_kept_can_be_chosen(self):
        model = IMAGES.model().freeze_backbone(keep=("cls_token", "layernorm"))
        learns = {name for name, parameter in model.backbone.named_parameters() if parameter.requires_grad}
        assert learns == {"embeddings.cls_token", "layernorm.weight", "layernorm.bias"}
        model = TEXT.model(prompt_tokens=2).freeze_backbone(keep=())
        learns = {name for name, parameter in model.backbone.named_parameters() if parameter.requires_grad}
        assert learns == {"embeddings.prompt_tokens.weight"}

    def test_a_name_that_is_not_there_is_refused_and_nothing_is_frozen(self):
        model = TEXT.model()
        with pytest.raises(ValueError, match=r"`keep` names `cls_token`, .* `keep=\(\)` freezes the whole"):
            model.freeze_backbone()
        assert all(parameter.requires_grad for parameter in model.backbone.parameters())


class TestAdapters:
    """Adapters of PEFT beside them; and, for text, PEFT's own prompts."""

    @pytest.mark.parametrize("name", ["PromptTuningConfig", "PromptEncoderConfig", "PrefixTuningConfig"])
    @pytest.mark.parametrize("fields", [{}, {"prompt_tokens": 2, "prompt_depth": "all"}, {"pooling": "mean"}], ids=str)
    def test_prompts_of_peft(self, name, fields, tmp_path):
        peft = pytest.importorskip("peft")
        plain, inputs = TEXT.model(**fields).train(), TEXT.inputs(labels=True)
        inputs["attention_mask"][1, 6:] = 0
        plain.head.memory.queue.clear()
        config = getattr(peft, name)(task_type="SEQ_CLS", num_virtual_tokens=3, modules_to_save=["memory"])
        model = peft.get_peft_model(copy.deepcopy(plain), config).train()
        model(**inputs).loss.backward()
        learned = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
        assert any(name.startswith("prompt_encoder.") for name in learned)
        assert {name.split(".")[2] for name in learned if ".head." in name} == {"classifier", "memory"}
        assert not any("backbone" in name for name in learned)
        # What the momentum encoder gave has been read with the same prompts, once.
        hma = model.get_base_model()
        hma.update_memory()
        assert int(hma.head.memory.queue.written) == 3
        momentum = hma.head.memory.queue.slots[:3, :32]
        model.eval()
        found = model(**{key: value for key, value in inputs.items() if key != "labels"})
        torch.testing.assert_close(momentum, found.features)  # the copy is still what the backbone is
        assert not torch.allclose(found.logits, plain.eval()(**inputs).logits, atol=1e-3)
        model.save_pretrained(tmp_path)
        again = peft.PeftModel.from_pretrained(copy.deepcopy(plain), tmp_path).eval()
        assert torch.equal(again(**inputs).features, model(**inputs).features)

    def test_a_prefix_is_read_by_every_layer_before_its_own_keys(self):
        peft = pytest.importorskip("peft")
        plain, inputs = TEXT.model(), TEXT.inputs()
        config = peft.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
        model = peft.get_peft_model(copy.deepcopy(plain), config).eval()
        prefix = model.get_prompt(3)
        mask = torch.cat([torch.ones(3, 3), inputs["attention_mask"]], dim=1)
        expected = plain.backbone(input_ids=inputs["input_ids"], attention_mask=mask, past_key_values=prefix)
        torch.testing.assert_close(model(**inputs).features, expected.last_hidden_state[:, 0])
        longer = {name: nn.functional.pad(value, (0, 5)) for name, value in inputs.items()}
        torch.testing.assert_close(model(**longer).features, expected.last_hidden_state[:, 0])

    def test_lora_beside_them(self, tmp_path):
        peft = pytest.importorskip("peft")
        model, inputs = IMAGES.model(prompt_depth="all", **VIT), IMAGES.inputs(labels=True)
        config = peft.LoraConfig(
            target_modules=model.adapter_targets,
            modules_to_save=["memory", "classifier", "prompt_tokens"],
            init_lora_weights=False,
        )
        adapted = peft.get_peft_model(copy.deepcopy(model), config).train()
        adapted(**inputs).loss.backward()
        learned = [name for name, p in adapted.named_parameters() if p.grad is not None and "prompt_tokens" in name]
        assert len(learned) == 3 and all(".modules_to_save.default." in name for name in learned)
        for name, parameter in adapted.named_parameters():
            if name in learned:
                change(parameter)
        adapted.eval()
        found = adapted(**inputs).logits
        adapted.save_pretrained(tmp_path)
        again = peft.PeftModel.from_pretrained(copy.deepcopy(model), tmp_path).eval()
        torch.testing.assert_close(again(**inputs).logits, found)
        torch.testing.assert_close(again.merge_and_unload()(**inputs).logits, found)
