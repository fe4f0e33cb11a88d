# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""HMA's models: what each augmentation reads, which backbones they stand on, and what they refuse."""

import pytest
import torch
import transformers
from families import Case

from hf_memaug import HMAConfig, HMAForImageClassification, HMAHead
from hf_memaug.configuration.configuration_hma import AUGMENTATIONS

HEAD, IMAGES, TEXT = (
    Case("hma", name) for name in ("HMAHead", "HMAForImageClassification", "HMAForSequenceClassification")
)


def head(augmentation: str, **kwargs) -> HMAHead:
    return HEAD.model(augmentation=augmentation, inference="batch", **kwargs).double()


def features(rows: int = 5, seed: int = 3) -> torch.Tensor:
    return torch.randn(rows, 32, generator=torch.Generator().manual_seed(seed)).double()


class TestAugmentations:
    @pytest.mark.parametrize("augmentation", AUGMENTATIONS)
    def test_they_are_what_the_paper_calls_so(self, augmentation):
        """Section 4, step by step, with the readers as given."""
        model, h1 = head(augmentation), features()
        rows = h1
        if augmentation != "none":
            memory = model.memory
            unknown = memory.label_embedding.weight[3]
            rows = torch.cat([h1, unknown.expand(5, -1)], dim=-1)  # C^1
        if augmentation in ("param", "rma", "abd+rma", "hma"):
            slots = rows[:0] if augmentation == "param" else memory.queue.slots[:20]
            # Eq. 5: each row with the buffer and itself, repeated as in the paper.
            rows = torch.cat([_alone(memory.real_reader, row[None], slots) for row in rows])
        if augmentation in ("param", "abd", "abd+rma", "abd+syn", "hma"):
            slots = rows[:0]
            if augmentation in ("abd+syn", "hma"):
                of_class = [
                    torch.cat([slot, memory.label_embedding.weight[label]])
                    for label in range(3)
                    for slot in memory.synthetic_slots[label]
                ]
                slots = torch.stack(of_class)
            if augmentation == "param":
                rows = torch.cat([_alone(memory.synthetic_reader, row[None], slots) for row in rows])
            else:
                rows = _together(memory.synthetic_reader, rows, slots)  # Eq. 6
        expected = model.classifier(rows)
        found = model(h1)
        torch.testing.assert_close(found.logits, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(found.augmented_features, rows, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("augmentation", AUGMENTATIONS)
    def test_each_has_its_parts_and_no_others(self, augmentation):
        memory = head(augmentation).memory
        parts = set(AUGMENTATIONS[augmentation])
        if augmentation == "none":
            assert memory is None
            return
        has = {
            "real reader": memory.real_reader,
            "real": memory.queue,
            "synthetic reader": memory.synthetic_reader,
            "synthetic": memory.synthetic_slots,
        }
        assert {name for name, part in has.items() if part is not None} == parts - {"between rows"}

    def test_rows_that_have_read_the_real_memory(self):
        """C^2 of section 4.2."""
        memory = head("hma").memory
        rows = memory.aggregate(features())
        expected = torch.cat([_alone(memory.real_reader, row[None], memory.queue.slots[:20]) for row in rows])
        found, weights = memory.after_real_memory(rows)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert weights.shape == (5, 4, 25) and not weights[..., 20:24].any()
        same, nothing = head("abd+syn").memory.after_real_memory(rows)
        assert same is rows and nothing is None

    def test_none_is_the_backbone_and_a_linear_head(self, backbones):
        model = HMAForImageClassification.from_backbone(backbones["vit"], augmentation="none", num_labels=3)
        plain = transformers.AutoModel.from_pretrained(backbones["vit"], add_pooling_layer=False).eval()
        inputs = IMAGES.inputs()
        expected = model.head.classifier(plain(**inputs).last_hidden_state[:, 0])
        assert torch.equal(model(**inputs).logits, expected) and model.momentum_backbone is None

    def test_slots_of_a_class_differ_and_learn_differently(self):
        model = head("hma").train()
        slots = model.memory.synthetic_slots
        assert not torch.equal(slots[0, 0], slots[0, 1])
        model(features(), labels=torch.arange(5) % 3).loss.backward()
        assert not torch.allclose(slots.grad[0, 0], slots.grad[0, 1])

    def test_a_label_that_is_not_known_is_not_leaked(self):
        model = head("hma")
        one, other = (
            model(features(), labels=labels).logits for labels in (torch.zeros(5).long(), torch.ones(5).long())
        )
        assert torch.equal(one, other)


def _alone(reader, row, slots):
    return reader(row, slots)[0]


def _together(reader, rows, slots):
    """All rows see all rows and slots: the other way round, each reads a memory that holds the others."""
    found = []
    for place, row in enumerate(rows):
        others = torch.cat([rows[:place], rows[place + 1 :], slots])
        found.append(reader(row[None], others)[0])
    return torch.cat(found)


class TestInference:
    def test_in_a_batch_rows_read_each_other(self):
        model, rows = head("hma"), features()
        assert not torch.allclose(model(rows).logits[:1], model(rows[:1]).logits)
        model.config.inference = "independent"
        torch.testing.assert_close(model(rows).logits[:1], model(rows[:1]).logits, rtol=0, atol=1e-12)

    def test_one_row_that_is_not_finite_leaves_the_others_as_they_are(self):
        model, rows = HEAD.model(), features().float()
        expected = model(rows).logits
        rows[0] = torch.nan
        found = model(rows).logits
        assert found[0].isnan().all() and torch.equal(found[1:], expected[1:])

    def test_training_is_between_rows_either_way(self):
        model, rows = head("abd+syn").train(), features()
        labels = torch.zeros(5).long()
        batch = model(rows, labels=labels).logits
        model.config.inference = "independent"
        assert torch.equal(model(rows, labels=labels).logits, batch)

    @pytest.mark.parametrize("shape", [(5, 31), (32,), (5, 7, 32)])
    def test_features_of_another_shape_are_refused(self, shape):
        model = HEAD.model()
        with pytest.raises(ValueError, match=r"`features` has the shape .*must be \(rows, 32\)"):
            model(torch.randn(shape))

    @pytest.mark.parametrize("inference", ["batch", "independent"])
    def test_an_exported_program_takes_any_number_of_rows(self, inference):
        model, rows = head("hma"), torch.export.Dim("rows", min=2, max=64)
        model.config.inference = inference
        program = torch.export.export(
            model, (features(6),), dynamic_shapes={"features": {0: rows}}, strict=False
        ).module()
        for count in (2, 9):
            torch.testing.assert_close(program(features(count)).logits, model(features(count)).logits)


class TestCopiesForEachGpu:
    def test_training_under_data_parallel_is_refused(self):
        model = HEAD.model().train()
        copy_of_a_gpu = model._replicate_for_data_parallel()
        with pytest.raises(RuntimeError, match="nn.DataParallel.*torchrun"):
            copy_of_a_gpu._keep_for_writing(torch.randn(3, 32), torch.arange(3))
        model(**HEAD.inputs(), labels=torch.zeros(3, dtype=torch.long))  # the model itself is no copy


class TestConfiguration:
    def test_what_does_not_fit_is_refused(self):
        with pytest.raises(ValueError, match="`memory_heads` .4. must divide .* 32 .* 5.*`label_embedding_size=8`"):
            HEAD.model(label_embedding_size=5)
        with pytest.raises(Exception, match="`real_memory_size` must be between 1 and 16777216; got 0"):
            HMAConfig(feature_size=8, real_memory_size=0)
        with pytest.raises(Exception, match="`momentum` must be between 0 and 1"):
            HMAConfig(feature_size=8, momentum=1.5)
        with pytest.raises(Exception, match="augmentation"):
            HMAConfig(feature_size=8, augmentation="all")
        with pytest.raises(ValueError, match="HMA embeds classes.*`num_labels` is 1"):
            HMAHead(HMAConfig(feature_size=32, num_labels=1))
        with pytest.raises(ValueError, match="`backbone_config` names no `model_type`"):
            HMAConfig(backbone_config={"hidden_size": 8})
        with pytest.raises(TypeError, match="`real_memory_sizes`. Did you mean `real_memory_size`"):
            HMAConfig(real_memory_sizes=3)

    def test_the_backbones_fields_are_asked_through_it(self):
        config = IMAGES.config()
        assert config.image_size == 16 and config.hidden_size == 32 and config.memory_width == 40
        with pytest.raises(AttributeError):
            _ = HEAD.config().image_size

    def test_it_comes_back_from_its_file(self, tmp_path):
        config = IMAGES.config(real_memory_size=9)
        config.save_pretrained(tmp_path)
        again = transformers.AutoConfig.from_pretrained(tmp_path)
        assert type(again) is HMAConfig
        assert {**again.to_dict(), "_name_or_path": ""} == {**config.to_dict(), "_name_or_path": ""}
        assert type(again.backbone_config) is transformers.ViTConfig
