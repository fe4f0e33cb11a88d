# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What `DomainTrainer` makes of rows with images: batches, augmentation, runs that resume, and refusals."""

import math
import os
import shutil
from pathlib import Path

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from tiny_backbones import tiny_image_processor, tiny_tokenizer
from torch.utils.data import BatchSampler, RandomSampler

from hf_memaug import DomainTrainingArguments
from hf_memaug.data import ImageCollator, decode_image
from hf_memaug.data.sampling import SeededRowsSampler
from training.domain_runs import domain_trainer, logged, weights
from training.image_runs import digits, image_trainer

pytest.importorskip("sklearn")
pytest.importorskip("PIL")

DATA = Path(os.environ.get("HF_MEMAUG_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def pixels(trainer, epoch: int = 0) -> torch.Tensor:
    """All training images of an epoch, in their order."""
    loader = trainer.get_train_dataloader()
    loader.set_epoch(epoch)
    trainer.train_sampler.set_epoch(epoch)
    return torch.cat([batch["pixel_values"] for batch in loader])


def processed(dataset) -> torch.Tensor:
    images = [decode_image(image) for image in dataset["image"]]
    return tiny_image_processor()(images, return_tensors="pt")["pixel_values"]


class TestBatches:
    def test_they_are_what_the_processor_makes_of_the_rows(self, tmp_path):
        trainer = image_trainer("vit", tmp_path)
        expected = processed(digits())
        trainer.get_train_dataloader()
        order = list(trainer.train_sampler)
        assert torch.equal(pixels(trainer), expected[order]) and sorted(order) == list(range(24))
        batch = next(iter(trainer.get_train_dataloader()))
        assert set(batch) == {"pixel_values", "labels", "domain_ids"}
        assert batch["labels"].tolist() == [digits()["label"][row] for row in order[:6]]
        assert sorted(batch["domain_ids"].tolist()) == [0, 0, 1, 1, 2, 2]

    def test_in_evaluation_too_and_in_the_order_of_the_rows(self, tmp_path):
        trainer = image_trainer("vit", tmp_path, evaluate=digits(4, seed=2), augment_images=True)
        batches = list(trainer.get_eval_dataloader())
        assert torch.equal(torch.cat([batch["pixel_values"] for batch in batches]), processed(digits(4, seed=2)))
        batches = list(trainer.get_test_dataloader(digits()))
        assert torch.equal(torch.cat([batch["pixel_values"] for batch in batches]), processed(digits()))

    def test_rows_of_the_datasets_library(self, tmp_path):
        from datasets import Dataset

        ours = image_trainer("vit", tmp_path, augment_images=True)
        columns = {name: digits()[name] for name in digits().column_names}
        theirs = image_trainer("vit", tmp_path, augment_images=True, train=Dataset.from_dict(columns))
        assert torch.equal(pixels(ours), pixels(theirs))

    def test_rows_that_have_pixel_values_already(self, tmp_path):
        made = digits().without_columns("image").with_columns(pixel_values=list(processed(digits())))
        trainer = image_trainer("vit", tmp_path, train=made)
        assert torch.equal(pixels(trainer), pixels(image_trainer("vit", tmp_path)))

    def test_a_collator_of_ones_own_gets_the_image_if_it_asks(self, tmp_path):
        seen = []

        def collate(batch):
            seen.extend(batch)
            return ImageCollator(tiny_image_processor())(batch)

        kwargs = {"data_collator": collate, "processing_class": None, "remove_unused_columns": False}
        trainer = image_trainer("vit", tmp_path, **kwargs)
        trainer.train()
        assert len(seen) >= 18 and set(seen[0]) == {"image", "label", "domain"}


class TestAugmentation:
    def test_training_images_vary_by_seed_and_epoch_and_by_nothing_else(self, tmp_path):
        def run(epoch=0, **kwargs):
            return pixels(image_trainer("vit", tmp_path, augment_images=True, **kwargs), epoch)

        first = run()
        plain = image_trainer("vit", tmp_path)
        plain.get_train_dataloader()
        order = list(plain.train_sampler)
        still = processed(digits())[order]
        assert first.shape == still.shape
        assert all(not torch.equal(one, other) for one, other in zip(first, still, strict=True))
        torch.manual_seed(99)
        assert torch.equal(run(), first), "the state of torch's own numbers has a say"
        assert torch.equal(run(per_device_train_batch_size=2), first), "the batch has a say"
        assert torch.equal(run(dataloader_num_workers=2), first), "the worker has a say"
        assert not torch.equal(run(seed=1)[0], first[0])
        assert not torch.equal(run(data_seed=1)[0], first[0])

    def test_the_same_image_varies_from_epoch_to_epoch(self, tmp_path):
        trainer = image_trainer("vit", tmp_path, augment_images=True)
        by_row = []
        for epoch in range(2):
            found = pixels(trainer, epoch)
            order = [row for row, _ in trainer.train_sampler]
            by_row.append(dict(zip(order, found, strict=True)))
        assert all(not torch.equal(by_row[0][row], by_row[1][row]) for row in range(24))

    @pytest.mark.parametrize("algorithm", ["fish", "mixup", "swad"])
    def test_it_goes_with_other_orders_and_passes(self, algorithm, tmp_path):
        trainer = image_trainer("gmoe", tmp_path, algorithm=algorithm, augment_images=True)
        trainer.train()
        assert len(logged(trainer)) == 3 and all(math.isfinite(loss) for loss, _ in logged(trainer))

    def test_what_is_scored_during_such_a_run_is_not_varied(self, tmp_path, monkeypatch):
        import hf_memaug.data.images as images

        drawn = []
        original = images.augment_image
        monkeypatch.setattr(images, "augment_image", lambda *args: drawn.append(1) or original(*args))
        kwargs = {"eval_strategy": "steps", "eval_steps": 1, "evaluate": digits(5, seed=2), "max_steps": 4}
        trainer = image_trainer("vit", tmp_path, augment_images=True, **kwargs)
        trainer.train()
        # 24 rows are 4 batches; the rows of 4 evaluations would be 60 more.
        assert len(drawn) == 24
        metrics = [trainer.evaluate() for _ in range(2)]
        assert metrics[0]["eval_loss"] == metrics[1]["eval_loss"] and len(drawn) == 24


class TestResume:
    def make(self, folder, kind="gmoe", **kwargs):
        kwargs = {"save_strategy": "steps", "save_steps": 1, "max_steps": 7, "augment_images": True, **kwargs}
        # Four steps are an epoch. Dropout on, so that the state of torch's own numbers has to come back as well.
        dropout = {"hidden_dropout_prob": 0.1} if kind != "resnet" else {}
        return image_trainer(kind, folder, config=dropout, **kwargs)

    @pytest.mark.parametrize(
        ("step", "kwargs"),
        [
            (4, {}),
            (5, {}),
            (5, {"balanced_batches": False}),
            (3, {"algorithm": "fish"}),
            (5, {"dataloader_num_workers": 1}),
            # transformers' own, whose weights have other names in its checkpoints.
            (3, {"kind": "vit"}),
            (3, {"kind": "resnet"}),
        ],
    )
    def test_it_is_bit_equal(self, step, kwargs, tmp_path):
        straight = self.make(tmp_path, **kwargs)
        straight.train()
        for later in range(step + 1, 8):
            shutil.rmtree(tmp_path / f"checkpoint-{later}")
        again = self.make(tmp_path, **kwargs)
        for parameter in again.model.parameters():
            torch.nn.init.constant_(parameter, 0.1)
        again.train(resume_from_checkpoint=True)
        assert again.state.global_step == 7 and len(logged(again)) == 7
        expected = weights(straight)
        for name, value in weights(again).items():
            assert torch.equal(value, expected[name]), name
        assert logged(again) == logged(straight)

    def test_the_image_processor_is_saved_with_the_model(self, tmp_path):
        self.make(tmp_path, max_steps=1).train()
        assert (tmp_path / "checkpoint-1" / "preprocessor_config.json").is_file()


class TestSeededRows:
    def test_several_processes_draw_what_one_does(self):
        def batches(size):
            return BatchSampler(SeededRowsSampler(RandomSampler(range(24))), size, drop_last=False)

        halves = [list(BatchSamplerShard(batches(3), 2, process)) for process in range(2)]
        assert [first + second for first, second in zip(*halves, strict=True)] == list(batches(6))


class TestRefusals:
    def test_no_image_processor(self, tmp_path):
        with pytest.raises(ValueError, match="`train_dataset` has images.*`AutoImageProcessor"):
            image_trainer("vit", tmp_path, processing_class=tiny_tokenizer("bert"))

    def test_rows_without_images(self, tmp_path):
        renamed = digits().with_columns(picture=digits()["image"]).without_columns("image")
        with pytest.raises(ValueError, match="`train_dataset` has no column `image`.*'picture'"):
            image_trainer("vit", tmp_path, train=renamed)
        with pytest.raises(ValueError, match="`eval_dataset` has no column `image`"):
            image_trainer("vit", tmp_path, evaluate={"a": digits(), "b": renamed})

    def test_augmentation_of_texts(self, tmp_path):
        with pytest.raises(ValueError, match="`augment_images=True` needs an image processor"):
            domain_trainer("bert", tmp_path, augment_images=True)
        with pytest.raises(ValueError, match="and no `data_collator`"):
            image_trainer("vit", tmp_path, augment_images=True, data_collator=lambda batch: batch)
        plain = ImageCollator(tiny_image_processor())
        assert image_trainer("vit", tmp_path, data_collator=plain, augment_images=True).args.augment_images

    def test_recording_of_what_counts_batches(self, tmp_path, monkeypatch):
        monkeypatch.setattr(DomainTrainingArguments, "_check_cuda_graphs", lambda self: None)  # there is no device
        with pytest.raises(ValueError, match="`cuda_graphs=True` does not support norms.*Leave it out"):
            image_trainer("resnet", tmp_path, cuda_graphs=True)
        assert image_trainer("gmoe", tmp_path, cuda_graphs=True).args.cuda_graphs

    def test_a_broken_image_is_named_when_it_is_met(self, tmp_path):
        images = digits()["image"]
        broken = digits().with_columns(image=[b"broken", *images[1:]])
        trainer = image_trainer("vit", tmp_path, train=broken, max_steps=8)
        with pytest.raises(ValueError, match=r"cannot be decoded.*in the domain '0'.*`check_images\(dataset\)`"):
            trainer.train()
