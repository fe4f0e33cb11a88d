# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The arrays behind the pictures are what the model itself says of the patches, and the model is left as it was."""

import copy
from io import BytesIO

import numpy as np
import pytest
import torch
from families import tiny_image_processor, tiny_vit, vit_gmoe_config
from PIL import Image
from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    ResNetConfig,
    ResNetForImageClassification,
)
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from hf_memaug import DomainDataset, ViTGMoEForImageClassification, ViTGMoEModel
from hf_memaug.reporting import expert_maps


def make_gmoe(model_class=ViTGMoEForImageClassification, **kwargs):
    torch.manual_seed(0)
    return model_class(vit_gmoe_config(**kwargs)).eval()


def make_images(count=5, height=20, width=28):
    # Coarse blots: the processor's resizing would turn finer noise into grey.
    blots = np.random.default_rng(0).integers(0, 256, size=(count, 4, 4, 3), dtype=np.uint8)
    return [np.array(Image.fromarray(blot).resize((width, height))) for blot in blots]


def processor_of(height, width, **kwargs):
    return ViTImageProcessorPil(size={"height": height, "width": width}, **kwargs)


def weights_of(model, processor, image):
    """`output_memory_weights` of one image: (layers, tokens, experts)."""
    pixels = processor(images=Image.fromarray(image), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        return model(pixels, interpolate_pos_encoding=True, output_memory_weights=True).memory_weights[0]


# What is in front of the patches, the size of the image, and the patches.
CASES = {
    "plain": ({}, (16, 16), 1, (4, 4)),
    "distillation_token": ({"distillation_token": True}, (16, 16), 2, (4, 4)),
    "interpolated": ({}, (24, 12), 1, (6, 3)),
    "interpolated_with_distillation_token": ({"distillation_token": True}, (8, 20), 2, (2, 5)),
    "no_multiple_of_the_patch": ({}, (23, 17), 1, (5, 4)),
    "linear_router": ({"router": "linear"}, (16, 16), 1, (4, 4)),
    "all_experts": ({"num_experts_per_tok": 4}, (16, 16), 1, (4, 4)),
}


class TestFirstExperts:
    @pytest.mark.parametrize("case", CASES)
    def test_they_are_those_of_the_largest_weight_at_their_patch(self, case):
        fields, size, first_patch, grid = CASES[case]
        model, processor, images = make_gmoe(**fields), processor_of(*size), make_images()
        found = expert_maps.first_experts(model, processor, images, batch_size=2)
        assert len(found) == len(images)
        for image, experts in zip(images, found, strict=True):
            weights = weights_of(model, processor, image)
            assert experts.shape == (2, *grid) and weights.shape[1] == first_patch + grid[0] * grid[1]
            for row, column in np.ndindex(grid):
                wanted = weights[:, first_patch + row * grid[1] + column].argmax(dim=-1)
                assert experts[:, row, column].tolist() == wanted.tolist()
        # Otherwise any order of patches, layers or images would pass.
        assert len({experts.tobytes() for experts in found}) == len(images)
        assert all(len(np.unique(experts)) > 1 for experts in found)
        assert any(not np.array_equal(*experts) for experts in found)

    def test_a_model_of_images_that_are_not_square(self):
        model, processor, images = make_gmoe(image_size=[8, 16]), processor_of(8, 16), make_images()
        pixels = processor(images=Image.fromarray(images[0]), return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            weights = model(pixels, output_memory_weights=True).memory_weights[0]
        experts = expert_maps.first_experts(model, processor, images[:1])[0]
        assert np.array_equal(experts, weights[:, 1:].argmax(dim=-1).view(2, 2, 4).numpy())

    def test_layers_are_given_in_the_order_asked_for(self):
        model, processor, images = make_gmoe(), tiny_image_processor(), make_images(2)
        both = expert_maps.first_experts(model, processor, images)
        turned = expert_maps.first_experts(model, processor, images, layers=[2, 0])
        assert all(np.array_equal(one[::-1], other) for one, other in zip(both, turned, strict=True))
        assert not np.array_equal(both[0][0], both[0][1])

    def test_a_model_without_head(self):
        headed, bare = make_gmoe(), make_gmoe(ViTGMoEModel)
        bare.load_state_dict(headed.vit.state_dict(), strict=False)
        found = [expert_maps.first_experts(model, tiny_image_processor(), make_images()) for model in (headed, bare)]
        assert np.array_equal(*found)

    def test_images_that_keep_their_shapes(self):
        model, processor = make_gmoe(), ViTImageProcessorPil(do_resize=False)
        images = [*make_images(2, 16, 16), *make_images(1, 8, 24), *make_images(1, 16, 16)]
        found = expert_maps.first_experts(model, processor, images)
        alone = [expert_maps.first_experts(model, processor, [image])[0] for image in images]
        assert [experts.shape for experts in found] == [(2, 4, 4), (2, 4, 4), (2, 2, 6), (2, 4, 4)]
        assert all(np.array_equal(one, other) for one, other in zip(found, alone, strict=True))

    def test_adapters_count(self):
        peft = pytest.importorskip("peft")
        model, processor, images = make_gmoe(), tiny_image_processor(), make_images()
        before = expert_maps.first_experts(model, processor, images)
        torch.manual_seed(1)
        adapted = peft.get_peft_model(
            model, peft.LoraConfig(target_modules=model.adapter_targets, init_lora_weights=False)
        ).eval()
        found = expert_maps.first_experts(adapted, processor, images)
        assert not np.array_equal(before, found)
        wanted = [weights_of(adapted, processor, image)[:, 1:].argmax(dim=-1).view(2, 4, 4) for image in images]
        assert np.array_equal(found, torch.stack(wanted).numpy())


def make_dataset(images=None):
    images = make_images(6) if images is None else images
    labels, domains = [0, 2, 0, 0, 2, 2], ["photo", "photo", "sketch", "photo", "sketch", "sketch"]
    return DomainDataset({"image": images, "label": labels, "domain": domains}, ["dog", "horse", "person"])


class TestCounts:
    @pytest.mark.parametrize("batch_size", [1, 4, 100])
    @pytest.mark.parametrize("token", [False, True], ids=["vit", "deit"])
    def test_they_are_those_of_a_slow_loop(self, batch_size, token):
        model, processor, dataset = make_gmoe(distillation_token=token), processor_of(24, 16), make_dataset()
        found = expert_maps.count_experts(model, processor, dataset, batch_size=batch_size, progress=False)
        assert found[:3] == ([0, 2], ["photo", "sketch"], ["dog", "horse", "person"])
        counts = np.zeros((2, 2, 3, 4), dtype=int)
        for row in dataset:
            weights = weights_of(model, processor, row["image"])
            for layer in range(2):
                for token_weights in weights[layer, 2 if token else 1 :]:
                    for expert in range(4):
                        place = layer, found.domains.index(row["domain"]), row["label"], expert
                        counts[place] += int(token_weights[expert] > 0)
        assert np.array_equal(found.counts, counts)
        # k times the 24 patches of each image: 2, 1, and none.
        assert found.counts.sum(axis=-1).tolist() == [[[96, 0, 48], [48, 0, 96]]] * 2

    def test_experts_whose_weight_is_rounded_to_nothing_count(self):
        model, processor = make_gmoe(router="linear"), tiny_image_processor()
        with torch.no_grad():
            for layer in (0, 2):
                model.vit.layers[layer].moe.router.projection.weight.mul_(1e4)
        assert (weights_of(model, processor, make_images()[0]) > 0).sum(dim=-1).min() == 1
        found = expert_maps.count_experts(model, processor, make_dataset(), progress=False)
        assert found.counts.sum() == 2 * 2 * 16 * 6

    def test_the_bar_counts_images(self, capfd):
        expert_maps.count_experts(make_gmoe(), tiny_image_processor(), make_dataset(), batch_size=2)
        shown = capfd.readouterr().err
        assert "Counting experts: 100%" in shown and "6/6" in shown
        expert_maps.count_experts(make_gmoe(), tiny_image_processor(), make_dataset(), progress=False)
        assert "Counting" not in capfd.readouterr().err

    @pytest.mark.parametrize(
        ("dataset", "words"),
        [
            ([{"text": "a", "label": 0, "domain": "x"}], "`dataset` has the columns text, label, domain and no images"),
            (DomainDataset({"image": [b""], "domain": ["x"]}), "`dataset` has no labels: add a column 'label'"),
            (DomainDataset({"image": [], "label": [], "domain": []}), "`dataset` is empty: pass at least one image"),
        ],
    )
    def test_refusals(self, dataset, words):
        with pytest.raises(ValueError, match=words):
            expert_maps.count_experts(make_gmoe(), tiny_image_processor(), dataset)


def make_deit(model_class):
    return tiny_vit(DeiTConfig, model_class)


class TestAttention:
    @pytest.mark.parametrize("size", [(16, 16), (24, 12)], ids=["trained", "interpolated"])
    @pytest.mark.parametrize(
        ("make", "first_patch"),
        [
            (tiny_vit, 1),
            (make_gmoe, 1),
            (lambda: make_gmoe(distillation_token=True), 2),
            (lambda: make_deit(DeiTForImageClassification), 2),
            (lambda: make_deit(DeiTForImageClassificationWithTeacher), 2),
        ],
        ids=["vit", "gmoe", "gmoe_deit", "deit", "deit_teacher"],
    )
    def test_it_is_the_model_s_own(self, make, first_patch, size):
        model, processor, images = make(), processor_of(*size), make_images()
        eager = copy.deepcopy(model)
        eager.set_attn_implementation("eager")
        found = expert_maps.attention_maps(model, processor, images, batch_size=2)
        assert model.config._attn_implementation == "sdpa" and len(found) == len(images)
        for image, attention in zip(images, found, strict=True):
            pixels = processor(images=Image.fromarray(image), return_tensors="pt")["pixel_values"]
            with torch.no_grad():
                last = eager(pixels, interpolate_pos_encoding=True, output_attentions=True).attentions[-1][0]
            assert attention.shape == (size[0] // 4, size[1] // 4)
            for row, column in np.ndindex(attention.shape):
                token = first_patch + row * attention.shape[1] + column
                assert attention[row, column] == pytest.approx(last[:, 0, token].mean().item(), rel=1e-4)
            assert attention.sum() < 1 and np.ptp(attention) > 1e-3

    def test_models_without_such_attention_are_refused(self):
        config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1])
        with pytest.raises(ValueError, match=r"`models\['a'\]` is a ResNetForImageClassification, .*: pass a ViT"):
            model = ResNetForImageClassification(config)
            expert_maps.attention_maps(model, tiny_image_processor(), make_images(1), name="models['a']")


CALLS = {
    "first_experts": lambda model, images: expert_maps.first_experts(model, tiny_image_processor(), images),
    "attention_maps": lambda model, images: expert_maps.attention_maps(model, tiny_image_processor(), images),
    "count_experts": lambda model, images: expert_maps.count_experts(
        model, tiny_image_processor(), make_dataset((images * 6)[:6]), progress=False
    ),
}


class TestTheModelIsLeftAsItWas:
    @pytest.mark.parametrize("broken", [False, True], ids=["whole", "broken_image"])
    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_modes_attention_and_type(self, call, broken, dtype):
        model = make_gmoe().to(dtype).train()
        # One that was frozen by hand must not wake up.
        model.vit.layers[1].eval()
        model.vit.embeddings.requires_grad_(False)
        state = {name: value.clone() for name, value in model.state_dict().items()}
        modes = [module.training for module in model.modules()]
        wanted = [parameter.requires_grad for parameter in model.parameters()]
        images = make_images(2)
        if broken:
            with pytest.raises(ValueError, match="cannot be decoded"):
                CALLS[call](model, [*images, b"no image"])
        else:
            CALLS[call](model, images)
        assert [module.training for module in model.modules()] == modes and len(set(modes)) == 2
        assert [parameter.requires_grad for parameter in model.parameters()] == wanted
        assert model.config._attn_implementation == "sdpa" and model.dtype == dtype
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        assert torch.is_grad_enabled()

    def test_training_mode_adds_no_noise(self):
        model, processor, images = make_gmoe(router_noise=100.0), tiny_image_processor(), make_images()
        wanted = expert_maps.first_experts(model, processor, images)
        assert np.array_equal(expert_maps.first_experts(model.train(), processor, images), wanted)

    def test_eager_attention_stays_eager(self):
        model = make_gmoe()
        model.set_attn_implementation("eager")
        expert_maps.attention_maps(model, tiny_image_processor(), make_images(1))
        assert model.config._attn_implementation == "eager"


class TestImages:
    def test_all_kinds_are_one(self, tmp_path):
        array = make_images(1)[0]
        image, buffer = Image.fromarray(array), BytesIO()
        image.save(tmp_path / "image.png")
        image.save(buffer, format="PNG")
        kinds = [array, torch.tensor(array), image, tmp_path / "image.png", str(tmp_path / "image.png")]
        for kind in [*kinds, buffer.getvalue()]:
            assert np.array_equal(np.asarray(expert_maps.decoded(kind, "image")), array)

    def test_grey_and_palette_become_rgb_and_cameras_are_turned(self, tmp_path):
        image = Image.fromarray(make_images(1)[0])
        for mode in ("L", "P", "RGBA", "LA", "CMYK"):
            assert expert_maps.decoded(image.convert(mode), "image").mode == "RGB"
        exif = Image.Exif()
        exif[0x0112] = 6  # taken with the camera on its side
        image.save(tmp_path / "image.jpg", exif=exif)
        assert expert_maps.decoded(tmp_path / "image.jpg", "image").size == image.size[::-1]

    def test_what_is_shown_is_what_the_model_is_given(self):
        image = make_images(1, 40, 80)[0]
        image[:, :20], image[:, 60:] = 0, 255
        processor = processor_of(16, 24)
        seen, given = (
            expert_maps.as_seen(processor, image),
            processor(images=image, return_tensors="pt")["pixel_values"],
        )
        assert seen.shape == (16, 24, 3)
        # The tiny processor normalises with 0.5 and 0.5.
        assert np.allclose(seen, given[0].permute(1, 2, 0).numpy() * 0.5 + 0.5, atol=1e-6)
        # One that crops shows the middle alone, where neither black nor white is.
        sizes = {"size": {"height": 40, "width": 80}, "crop_size": {"height": 40, "width": 40}}
        cropped = expert_maps.as_seen(DeiTImageProcessorPil(do_center_crop=True, **sizes), image)
        assert np.allclose(cropped, image[:, 20:60] / 255, atol=0.01)

    @pytest.mark.parametrize(
        ("image", "words"),
        [
            (b"no image", r"`images\[1\]` cannot be decoded .*Replace it or leave it out"),
            ("nowhere.jpg", r"`images\[1\]`: there is no file 'nowhere.jpg'. Replace it or leave it out"),
            (np.full((4, 4, 3), 2.0), r"`images\[1\]` is an array of fractions that do not lie between 0 and 1"),
            (np.zeros(4, dtype=np.uint8), r"`images\[1\]` is an array of shape \(4,\)"),
            (None, r"`images\[1\]` is a NoneType; it must be a path"),
        ],
        ids=["bytes", "file", "float", "flat", "none"],
    )
    def test_refusals(self, image, words):
        with pytest.raises(ValueError, match=words):
            expert_maps.first_experts(make_gmoe(), tiny_image_processor(), [make_images(1)[0], image])

    def test_a_file_that_ends_too_early(self, tmp_path):
        Image.fromarray(make_images(1, 200, 200)[0]).save(tmp_path / "image.jpg")
        data = (tmp_path / "image.jpg").read_bytes()
        (tmp_path / "image.jpg").write_bytes(data[: len(data) // 2])
        with pytest.raises(ValueError, match=r"`images\[0\]` cannot be decoded \('.*image.jpg'\).*truncated"):
            expert_maps.first_experts(make_gmoe(), tiny_image_processor(), [tmp_path / "image.jpg"])


class TestRefusals:
    def test_models_without_experts(self):
        for call in ("first_experts", "count_experts"):
            with pytest.raises(
                ValueError, match="`model` is a ViTForImageClassification, which has no experts: pass a"
            ):
                CALLS[call](tiny_vit(), make_images(1))

    @pytest.mark.parametrize("layer", [1, 3, -1])
    def test_layers_without_experts(self, layer):
        with pytest.raises(
            ValueError, match=f"`layer` is {layer}, and the layers with experts are 0, 2, counted from 0"
        ):
            expert_maps.first_experts(make_gmoe(), tiny_image_processor(), make_images(1), layers=[layer])

    def test_batches_of_nothing(self):
        with pytest.raises(ValueError, match="`batch_size` is 0: pass at least 1"):
            expert_maps.first_experts(make_gmoe(), tiny_image_processor(), make_images(1), batch_size=0)
