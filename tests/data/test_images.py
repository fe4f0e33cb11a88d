# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import io
import random

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from tiny_backbones import tiny_image_processor

from hf_memaug.data import DomainDataset, ImageCollator, check_images, decode_image
from hf_memaug.data.augmentation import SEED_COLUMN, augment_image

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
IMAGE = Image.fromarray(PIXELS)


def encoded(image=IMAGE, kind="PNG", **kwargs) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **kwargs)
    return buffer.getvalue()


def smooth(width=48, height=40):
    """An image whose parts can be told apart after it was made smaller."""
    down, across = np.mgrid[0:height, 0:width]
    return Image.fromarray(
        np.stack([across * 255 // width, down * 255 // height, 60 + 0 * down], axis=-1).astype(np.uint8)
    )


class TestDecode:
    def test_every_kind_gives_the_same_image(self, tmp_path):
        path = tmp_path / "a.png"
        path.write_bytes(encoded())
        kinds = [
            path,
            str(path),
            encoded(),
            bytearray(encoded()),
            {"bytes": encoded(), "path": None},
            {"bytes": encoded(), "path": "gone.png"},
            {"bytes": None, "path": str(path)},
            IMAGE,
        ]
        for kind in kinds:
            found = decode_image(kind)
            assert found.mode == "RGB" and (np.asarray(found) == PIXELS).all(), type(kind)

    def test_other_modes_become_rgb(self):
        grey = IMAGE.convert("L")
        for one in (grey, encoded(grey)):
            assert (np.asarray(decode_image(one)) == np.asarray(grey)[..., None]).all()
        assert decode_image(encoded(IMAGE.convert("RGBA"))).mode == "RGB"
        assert decode_image(encoded(IMAGE.convert("CMYK"), "JPEG")).mode == "RGB"
        clear = IMAGE.convert("P")
        assert decode_image(encoded(clear, transparency=bytes(range(256)))).mode == "RGB"

    def test_sixteen_bits_keep_their_shades(self):
        deep = Image.fromarray((np.arange(64, dtype=np.uint16) * 1024).reshape(8, 8))
        assert deep.mode.startswith("I;16")
        assert np.asarray(decode_image(encoded(deep)))[..., 0].ravel().tolist() == [4 * level for level in range(64)]

    def test_a_photograph_taken_sideways_is_turned(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        turned = decode_image(encoded(IMAGE, "PNG", exif=exif))
        assert (np.asarray(turned) == np.asarray(IMAGE.transpose(Image.Transpose.ROTATE_270))).all()

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (b"no image", r"`image` cannot be decoded \(8 bytes\): no image format that is known"),
            (encoded(IMAGE, "JPEG")[:300], r"`image` cannot be decoded \(300 bytes\): "),
            (encoded()[:200], "`image` cannot be decoded"),
            (b"", "`image` cannot be decoded"),
            ("nowhere/a.jpg", "there is no file 'nowhere/a.jpg'"),
        ],
        ids=["text", "cut jpeg", "cut png", "nothing", "no file"],
    )
    def test_what_is_no_image(self, value, message):
        with pytest.raises(ValueError, match=message):
            decode_image(value)

    @pytest.mark.parametrize("value", [None, 3, [1, 2], {"pixels": 1}])
    def test_what_is_of_another_kind(self, value):
        with pytest.raises(TypeError, match="`image` is a .*must be a path, bytes, a dict"):
            decode_image(value)


class TestCheckImages:
    @pytest.fixture
    def dataset(self, tmp_path):
        (tmp_path / "good.png").write_bytes(encoded())
        (tmp_path / "cut.png").write_bytes(encoded()[:90])
        paths = [str(tmp_path / name) for name in ("good.png", "cut.png", "good.png", "gone.png")]
        return DomainDataset({"image": paths, "label": [0, 1, 1, 0], "domain": ["photo", "photo", "sketch", "sketch"]})

    def test_they_are_named_and_refused(self, dataset):
        with pytest.raises(ValueError) as caught:
            check_images(dataset)
        text = str(caught.value)
        assert "2 of 4 images cannot be decoded" in text and '`broken="skip"`' in text
        assert "row 1 (domain 'photo')" in text and "cut.png" in text
        assert "row 3 (domain 'sketch')" in text and "gone.png" in text
        assert "row 0" not in text and "row 2" not in text

    def test_of_the_datasets_library(self):
        rows = {"image": [{"bytes": encoded(), "path": None}, {"bytes": b"x", "path": None}], "domain": ["a", "a"]}
        dataset = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
        with pytest.raises(ValueError, match=r"1 of 2 images.*row 1 \(domain 'a'\)"):
            check_images(dataset)
        assert len(check_images(dataset, broken="skip")) == 1


def convnext_processor():
    """It enlarges, and then cuts off the border."""
    from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil

    return ConvNextImageProcessorPil(size={"shortest_edge": 16}, crop_pct=0.5)


class TestCollator:
    @pytest.mark.parametrize("make", [tiny_image_processor, convnext_processor])
    def test_it_is_what_the_processor_makes_of_them(self, make):
        processor = make()
        images = [smooth(), IMAGE, IMAGE.convert("L")]
        values = [encoded(images[0]), {"bytes": None, "path": None, **{"bytes": encoded(images[1])}}, images[2]]
        batch = ImageCollator(processor)([{"image": v, "label": n} for n, v in enumerate(values)])
        expected = processor([image.convert("RGB") for image in images], return_tensors="pt")["pixel_values"]
        assert torch.equal(batch["pixel_values"], expected) and expected.shape == (3, 3, 16, 16)
        assert batch["labels"].tolist() == [0, 1, 2] and batch["labels"].dtype == torch.int64
        assert set(batch) == {"pixel_values", "labels"}

    @pytest.mark.parametrize("name", ["label", "labels", "label_ids"])
    def test_labels_by_any_of_their_names_and_without(self, name):
        collator = ImageCollator(tiny_image_processor())
        assert collator([{"image": IMAGE, name: np.int64(2)}])["labels"].tolist() == [2]
        assert set(collator([{"image": IMAGE}])) == {"pixel_values"}

    def test_a_rows_own_seed_is_all_that_counts(self):
        collator = ImageCollator(tiny_image_processor())
        rows = [{"image": smooth(), SEED_COLUMN: seed} for seed in (5, 6, 5)]
        batch = collator(rows)["pixel_values"]
        assert torch.equal(batch[0], batch[2]) and not torch.equal(batch[0], batch[1])
        torch.manual_seed(9)
        assert torch.equal(collator(rows[1:2])["pixel_values"][0], batch[1]), "it depends on the batch"

    @pytest.mark.parametrize("make", [tiny_image_processor, convnext_processor])
    def test_what_is_varied_is_resized_once(self, make):
        """And the border is not cut off a second time."""
        processor = make()
        row = {"image": smooth(), SEED_COLUMN: 3}
        crop = augment_image(smooth(), (16, 16), random.Random(3))
        expected = processor(crop, do_resize=False, do_center_crop=False, return_tensors="pt")["pixel_values"]
        assert torch.equal(ImageCollator(processor)([row])["pixel_values"], expected)

    def test_a_processor_that_does_not_resize_is_obeyed(self):
        processor = tiny_image_processor()
        processor.do_resize = False
        assert ImageCollator(processor)([{"image": IMAGE, SEED_COLUMN: 0}])["pixel_values"].shape == (1, 3, 20, 30)
        with pytest.raises(ValueError, match="`image_processor` does not bring.*`height` and `width`"):
            ImageCollator(processor)([{"image": IMAGE}, {"image": smooth()}])

    def test_refusals(self):
        from tiny_backbones import tiny_tokenizer

        with pytest.raises(ValueError, match="`image_processor` is a .*makes no `pixel_values`.*`AutoImageProcessor"):
            ImageCollator(tiny_tokenizer("bert"))
        with pytest.raises(ValueError, match="`image_processor` is a NoneType"):
            ImageCollator(None)
        collator = ImageCollator(tiny_image_processor())
        with pytest.raises(ValueError, match="a row has no `image`, but 'label'.*`remove_unused_columns=False`"):
            collator([{"label": 0}])
        with pytest.raises(ValueError, match="a row has no `image`, but 'picture'"):
            collator([{"picture": IMAGE}])
        with pytest.raises(ValueError, match=r"cannot be decoded.*in the domain 'photo'.*`check_images\(dataset\)`"):
            collator([{"image": b"broken", "domain": "photo"}])


def many(change, count=400, image=None, size=(40, 48)):
    """`change` of so many variations of one image."""
    generator = random.Random(0)
    return np.array([change(np.asarray(augment_image(image, size, generator), float)) for _ in range(count)])


class TestAugmentation:
    def test_shape_mode_and_determinism(self):
        first, again, other = (augment_image(smooth(), (8, 9), random.Random(s)) for s in (1, 1, 2))
        assert first.mode == "RGB" and first.size == (9, 8)
        assert (np.asarray(first) == np.asarray(again)).all() and (np.asarray(first) != np.asarray(other)).any()
        assert augment_image(smooth(), None, random.Random(0)).size == (48, 40)

    def test_half_are_flipped(self):
        # Light to the right: of a flipped image, to the left.
        ramp = Image.fromarray(np.tile((np.arange(48) * 5).astype(np.uint8), (40, 1))).convert("RGB")
        flipped = many(lambda pixels: pixels[:, :10].mean() > pixels[:, -10:].mean(), image=ramp)
        assert 0.42 < flipped.mean() < 0.58
        upside_down = many(lambda pixels: abs(pixels[:10].mean() - pixels[-10:].mean()) < 3, image=ramp)
        assert upside_down.all()

    def test_a_crop_keeps_70_to_100_percent(self, monkeypatch):
        sizes = []
        monkeypatch.setattr(Image.Image, "crop", lambda self, box: sizes.append(box) or self)
        many(lambda pixels: 0, image=smooth(60, 50))
        left, top, right, bottom = np.array(sizes).T
        areas, ratios = (right - left) * (bottom - top) / 3000, (right - left) / (bottom - top)
        assert 0.68 < areas.min() < 0.73 and 0.93 < areas.max() <= 1.0 and 0.8 < areas.mean() < 0.88
        assert 0.72 < ratios.min() and ratios.max() < 1.36 and np.ptp(ratios) > 0.3
        assert left.min() == top.min() == 0 and right.max() == 60 and bottom.max() == 50 and len(set(left)) > 5

    def test_brightness_contrast_saturation_and_hue_change_by_up_to_three_tenths(self, monkeypatch):
        from PIL import ImageEnhance

        factors = {"Brightness": [], "Contrast": [], "Color": []}
        order = []
        for name in factors:
            original = getattr(ImageEnhance, name).enhance

            def enhance(self, factor, name=name, original=original):
                factors[name].append(factor)
                order.append(name)
                return original(self, factor)

            monkeypatch.setattr(getattr(ImageEnhance, name), "enhance", enhance)
        hues = many(lambda pixels: 0, count=300, image=smooth())
        assert len(hues) == 300
        for name, values in factors.items():
            assert len(values) == 300, f"{name} was left out"
            assert 0.7 <= min(values) < 0.72 and 1.28 < max(values) <= 1.3
        assert len({tuple(order[start : start + 3]) for start in range(0, 900, 3)}) == 6, "always in one order"
