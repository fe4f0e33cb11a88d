# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A plain vision transformer becomes a GMoE that says the same (C.2), and checkpoints work wherever ViT's do."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file
from tiny_backbones import save_backbone, tiny_image_processor, tiny_vit
from transformers import (
    AutoModelForImageClassification,
    BertConfig,
    BertModel,
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    DeiTModel,
    ViTModel,
    pipeline,
)

from hf_memaug import ViTGMoEForImageClassification, ViTGMoEModel

IMPLEMENTATIONS = ("eager", "batched_mm", "grouped_mm", "grouped_experts")


def images(rows: int = 4, height: int = 16, width: int = 16) -> torch.Tensor:
    return torch.randn(rows, 3, height, width, generator=torch.Generator().manual_seed(3))


def tiny_deit(model_class=DeiTForImageClassification, **kwargs):
    model = tiny_vit(DeiTConfig, model_class, **kwargs)
    with torch.no_grad():  # they begin at zero, where a mistake would not show
        for name in ("cls_token", "distillation_token", "position_embeddings"):
            getattr(model.base_model.embeddings, name).normal_()
    return model


class TestUpcycling:
    @pytest.mark.parametrize("plain", [tiny_vit, tiny_deit])
    @pytest.mark.parametrize("how", IMPLEMENTATIONS)
    @pytest.mark.parametrize(
        "kwargs",
        [
            {},
            {"num_experts": 3, "num_experts_per_tok": 1},
            {"num_experts": 4, "num_experts_per_tok": 4, "router": "linear"},
            {"moe_layers": [0, 1, 2]},
            {"moe_placement": "every_two", "router_dim": 5},
        ],
    )
    @torch.no_grad()
    def test_it_says_what_the_transformer_says(self, plain, how, kwargs):
        vit = plain()
        model = ViTGMoEForImageClassification.from_vit(vit, experts_implementation=how, **kwargs)
        assert not model.training and model.config._experts_implementation == how
        expected = vit(images(), output_hidden_states=True)
        found = model(images(), output_hidden_states=True)
        torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-5)
        for mine, theirs in zip(found.hidden_states, expected.hidden_states, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
        larger = {"pixel_values": images(2, 24, 20), "interpolate_pos_encoding": True}
        torch.testing.assert_close(model(**larger).logits, vit(**larger).logits, rtol=0, atol=1e-5)

    @pytest.mark.parametrize(("plain", "model_class"), [(tiny_vit, ViTModel), (tiny_deit, DeiTModel)])
    @torch.no_grad()
    def test_without_a_head(self, plain, model_class):
        vit = plain(model_class=model_class)
        model = ViTGMoEModel.from_vit(vit)
        torch.testing.assert_close(model(images()).pooler_output, vit(images()).pooler_output, rtol=0, atol=1e-5)
        headed = ViTGMoEForImageClassification.from_vit(vit, num_labels=5)
        assert headed(images()).logits.shape == (4, 5)

    def test_experts_are_copies_that_go_their_own_ways(self):
        vit = tiny_vit()
        before = {name: value.clone() for name, value in vit.state_dict().items()}
        model = ViTGMoEForImageClassification.from_vit(vit, router_noise=0.0)
        experts, network = model.vit.layers[2].moe.experts, vit.vit.layers[2].mlp
        for mine, theirs in (
            (experts.up_proj, network.fc1.weight),
            (experts.up_proj_bias, network.fc1.bias),
            (experts.down_proj, network.fc2.weight),
            (experts.down_proj_bias, network.fc2.bias),
        ):
            assert len(mine) == 6 and all(torch.equal(one, theirs) for one in mine)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.train()(images(), labels=torch.tensor([0, 1, 0, 1])).loss.backward()
        optimizer.step()
        assert not any(torch.equal(experts.up_proj[0], other) for other in experts.up_proj[1:])
        assert all(torch.equal(value, before[name]) for name, value in vit.state_dict().items()), "vit was changed"

    def test_routers_are_fresh_and_the_seed_says_how(self):
        found = []
        for seed in (0, 0, 1):
            vit = tiny_vit()
            torch.manual_seed(seed)
            found.append(ViTGMoEForImageClassification.from_vit(vit).vit.layers[1].moe.router.experts)
        assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])

    @pytest.mark.parametrize("kind", ["vit", "deit"])
    def test_from_a_folder(self, kind, tmp_path):
        vit = tiny_vit(num_labels=3) if kind == "vit" else tiny_deit(num_labels=3)
        vit.config.id2label = {0: "dog", 1: "elephant", 2: "giraffe"}
        vit.save_pretrained(tmp_path)
        model = ViTGMoEForImageClassification.from_vit(tmp_path, dtype=torch.float64)
        assert model.dtype == torch.float64 and model.config.id2label[1] == "elephant"
        assert model.config._name_or_path == str(tmp_path)
        vit.double()
        torch.testing.assert_close(model(images()).logits, vit(images().double()).logits, rtol=0, atol=1e-10)
        fresh = ViTGMoEForImageClassification.from_vit(tmp_path, num_labels=3, dtype=torch.float64)
        assert not torch.equal(fresh.classifier.weight, vit.classifier.weight), "a head for other labels"
        found, expected = (one.base_model(images().double()).last_hidden_state for one in (fresh, vit))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)

    def test_a_teachers_head_is_not_thrown_away_in_silence(self, tmp_path):
        deit = tiny_deit(DeiTForImageClassificationWithTeacher)
        deit.save_pretrained(tmp_path)
        for given in (deit, tmp_path):
            with pytest.raises(ValueError, match="`vit` is a DeiT with a distillation head.*Pass `num_labels`"):
                ViTGMoEForImageClassification.from_vit(given)
            model = ViTGMoEForImageClassification.from_vit(given, num_labels=4)
            found, expected = model.vit(images()).last_hidden_state, deit.deit(images()).last_hidden_state
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)

    def test_what_does_not_fit_is_refused(self, tmp_path):
        from_vit = ViTGMoEForImageClassification.from_vit
        with pytest.raises(TypeError, match="`from_vit` takes no `num_expert`. Did you mean `num_experts`"):
            from_vit(tiny_vit(), num_expert=3)
        with pytest.raises(TypeError, match="`from_vit` takes no `device_map`. Save the model"):
            from_vit(tiny_vit(), device_map="auto")
        with pytest.raises(TypeError, match="`from_vit` takes no `use_safetensors`"):
            from_vit(tmp_path, use_safetensors=False)
        with pytest.raises(TypeError, match="`dtype` is for checkpoints, and `vit` is a model"):
            from_vit(tiny_vit(), dtype=torch.bfloat16)
        with pytest.raises(StrictDataclassError, match="`moe_layers` names layer 5, and there are layers 0 to 2"):
            from_vit(tiny_vit(), moe_layers=[5])
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        BertModel(BertConfig(**sizes)).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="and this is a `bert`"):
            from_vit(tmp_path)
        from peft import LoraConfig

        adapted = tiny_vit()
        adapted.add_adapter(LoraConfig(target_modules=["q_proj"]))
        with pytest.raises(ValueError, match="`vit` has no weights for.*without adapters"):
            from_vit(adapted)


class TestCheckpoints:
    def test_experts_are_stored_as_they_are(self, tmp_path):
        model = ViTGMoEForImageClassification.from_vit(tiny_vit())
        model.save_pretrained(tmp_path)
        stored = load_file(tmp_path / "model.safetensors")
        assert set(stored) == set(model.state_dict())
        assert stored["vit.layers.1.moe.experts.up_proj"].shape == (6, 48, 32)

    def test_the_distillation_token_comes_back(self, tmp_path):
        model = ViTGMoEForImageClassification.from_vit(tiny_deit())
        model.save_pretrained(tmp_path)
        again = AutoModelForImageClassification.from_pretrained(tmp_path)
        assert again.config.distillation_token and torch.equal(again(images()).logits, model(images()).logits)

    def test_a_pipeline_finds_all_it_needs(self, tmp_path):
        from PIL import Image

        model = ViTGMoEForImageClassification.from_vit(save_backbone("vit", tmp_path / "vit"))
        model.save_pretrained(tmp_path / "model")
        processor = tiny_image_processor()
        processor.save_pretrained(tmp_path / "model")
        pixels = (images(1)[0].permute(1, 2, 0) * 60 + 128).clamp(0, 255).byte().numpy()
        image = Image.fromarray(pixels).resize((40, 30))
        found = pipeline("image-classification", model=str(tmp_path / "model"))(image)
        expected = model(**processor(image, return_tensors="pt")).logits.softmax(dim=-1)[0]
        assert {row["label"]: pytest.approx(row["score"], abs=1e-6) for row in found} == {
            f"LABEL_{i}": value for i, value in enumerate(expected.tolist())
        }


class TestAdaptersOnTheExperts:
    TARGETS = ["experts.up_proj", "experts.down_proj"]

    def adapted(self, implementation: str = "grouped_experts"):
        from peft import LoraConfig, get_peft_model

        model = ViTGMoEForImageClassification.from_vit(
            tiny_vit(), num_experts=4, router_noise=0.0, experts_implementation=implementation
        )
        torch.manual_seed(0)
        return get_peft_model(
            model, LoraConfig(r=2, target_modules=[], target_parameters=self.TARGETS, modules_to_save=["router"])
        )

    def train(self, model, steps: int = 3):
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5)
        model.train()
        for _ in range(steps):
            optimizer.zero_grad()
            model(pixel_values=images(), labels=torch.tensor([0, 1, 0, 1])).loss.backward()
            optimizer.step()
        return model.eval()

    def test_they_learn_and_nothing_else_does(self):
        model = self.adapted()
        expected = tiny_vit()(images()).logits
        torch.testing.assert_close(model(pixel_values=images()).logits, expected, rtol=0, atol=1e-5)
        frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
        self.train(model)
        trainable = {name for name, p in model.named_parameters() if p.requires_grad}
        assert all("lora_" in name or "router.modules_to_save" in name for name in trainable)
        gradients = [(n, p.grad) for n, p in model.named_parameters() if "lora_B" in n and p.requires_grad]
        assert len(gradients) == 4 and all(g.abs().max() > 0 for _, g in gradients), "two matrices in two layers"
        assert all(torch.equal(model.get_parameter(name), value) for name, value in frozen.items())
        assert not torch.allclose(model(pixel_values=images()).logits, expected, atol=1e-3)

    @pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
    def test_every_implementation_reads_them(self, implementation):
        trained = self.train(self.adapted("eager"))(pixel_values=images()).logits
        other = self.train(self.adapted(implementation))(pixel_values=images()).logits
        torch.testing.assert_close(other, trained, rtol=1e-3, atol=1e-4)

    def test_merging_and_saving_change_nothing(self, tmp_path):
        from peft import PeftModel

        model = self.train(self.adapted())
        expected = model(pixel_values=images()).logits
        model.save_pretrained(tmp_path / "adapter")
        base = ViTGMoEForImageClassification.from_vit(tiny_vit(), num_experts=4, router_noise=0.0)
        again = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
        torch.testing.assert_close(again(pixel_values=images()).logits, expected, rtol=0, atol=1e-6)
        merged = model.merge_and_unload()
        assert type(merged) is ViTGMoEForImageClassification
        torch.testing.assert_close(merged(images()).logits, expected, rtol=0, atol=1e-5)
