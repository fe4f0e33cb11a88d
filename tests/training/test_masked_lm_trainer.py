# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The head sees the masked tokens alone, and nothing else changes."""

import pytest
import torch
from tiny_backbones import QUIET, SENTENCES, tiny_tokenizer
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, Trainer, TrainingArguments

from hf_memaug import GMAPForMaskedLM
from hf_memaug.data.corpus import PackedTexts, WholeWordMasking
from hf_memaug.training import MaskedLMTrainer
from training.domain_runs import StopAt

SETTINGS = {**QUIET, "remove_unused_columns": False, "logging_steps": 1}


def load(kind: str, backbones):
    if kind == "gmap":
        return GMAPForMaskedLM.from_general_and_domain(backbones["roberta"], backbones["roberta"])
    return AutoModelForMaskedLM.from_pretrained(backbones[kind])


def few_labels(rows: list[dict]) -> dict:
    """Rows of one length, of whose tokens every fifth is to be told, in some rows fewer and in one none."""
    batch = {name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in ("input_ids", "number")}
    number = batch.pop("number")
    labels = torch.full_like(batch["input_ids"], -100)
    labels[:, ::5] = batch["input_ids"][:, ::5]
    for row, place in enumerate(number.tolist()):
        labels[row, : 16 if place == 5 else 3 * (place % 4)] = -100
    return {**batch, "attention_mask": torch.ones_like(labels), "labels": labels}


@pytest.mark.parametrize("kind", ["roberta", "bert", "gmap"])
def test_accumulation_4x1_is_1x4(kind, backbones, tmp_path):
    tokenizer = tiny_tokenizer("bert" if kind == "bert" else "roberta")
    rows = [{**row, "number": number} for number, row in enumerate(PackedTexts(SENTENCES * 8, tokenizer, length=16))]
    found = []
    for per_device, accumulation in ((4, 1), (1, 4)):
        torch.manual_seed(0)
        model = load(kind, backbones)
        for module in model.modules():
            module.p = 0.0  # of dropout
        settings = {**SETTINGS, "per_device_train_batch_size": per_device, "gradient_accumulation_steps": accumulation}
        arguments = TrainingArguments(str(tmp_path), **settings, max_steps=6, learning_rate=0.1, optim="sgd")
        trainer = MaskedLMTrainer(model, arguments, train_dataset=rows, data_collator=few_labels)
        trainer.train()
        logs = [entry for entry in trainer.state.log_history if "loss" in entry]
        found.append(([(entry["loss"], entry["grad_norm"]) for entry in logs], dict(model.named_parameters())))
    (whole, weights), (parts, accumulated) = found
    assert len(whole) == 6
    torch.testing.assert_close(torch.tensor(parts), torch.tensor(whole), rtol=1e-4, atol=1e-4)
    for name, value in weights.items():
        torch.testing.assert_close(accumulated[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["roberta", "bert", "gmap"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_it_trains_as_trainer_does(kind, accumulation, backbones, tmp_path):
    if accumulation == 2 and kind != "gmap":
        pytest.skip("with heads of transformers `Trainer` adds up the means of the batches")
    tokenizer = tiny_tokenizer("bert" if kind == "bert" else "roberta")
    rows = list(PackedTexts(SENTENCES * 8, tokenizer, length=16))
    found, seen = {}, []
    for trainer_class in (Trainer, MaskedLMTrainer):
        torch.manual_seed(0)
        model = load(kind, backbones)
        head = model.cls if kind == "bert" else model.lm_head
        head.register_forward_hook(lambda head, given, scores: seen.append(scores.shape))
        settings = {**SETTINGS, "per_device_train_batch_size": 4, "gradient_accumulation_steps": accumulation}
        arguments = TrainingArguments(
            str(tmp_path / trainer_class.__name__), **settings, max_steps=3, learning_rate=1e-2
        )
        collator = WholeWordMasking(tokenizer, seed=0)
        trainer = trainer_class(model, arguments, train_dataset=rows, eval_dataset=rows[:6], data_collator=collator)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        found[trainer_class] = (losses, dict(model.named_parameters()), trainer.evaluate()["eval_loss"])
    (losses, weights, loss), (our_losses, our_weights, our_loss) = found.values()
    assert our_losses == pytest.approx(losses, rel=1e-5) and our_loss == pytest.approx(loss, rel=1e-5)
    for name, value in weights.items():
        torch.testing.assert_close(
            our_weights[name], value, rtol=1e-4, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}"
        )
    half = len(seen) // 2
    assert {len(shape) for shape in seen[:half]} == {3}, "Trainer scores all tokens"
    trained = seen[half : half + 3 * accumulation]
    assert {len(shape) for shape in trained} == {2} and all(shape[0] < 4 * 16 / 3 for shape in trained)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("texts", [SENTENCES * 8, SENTENCES * 2], ids=["a part of the stream", "more than once"])
def test_a_streamed_run_goes_on_to_the_same_end(texts, workers, backbones, tmp_path):
    tokenizer = tiny_tokenizer("roberta")

    def run(name: str, stop: int | None = None, resume: bool = False) -> dict:
        torch.manual_seed(0)
        model = load("roberta", backbones)
        settings = {**SETTINGS, "per_device_train_batch_size": 2, "dataloader_num_workers": workers}
        arguments = TrainingArguments(str(tmp_path / name), **settings, max_steps=8, learning_rate=1e-2)
        trainer = MaskedLMTrainer(
            model,
            arguments,
            train_dataset=PackedTexts(texts, tokenizer, length=16),
            data_collator=WholeWordMasking(tokenizer),
            callbacks=[StopAt(stop)],
        )
        trainer.train(resume_from_checkpoint=resume)
        assert trainer.state.global_step == (stop or 8)
        return dict(model.named_parameters())

    whole = run("whole")
    run("broken", stop=5)
    again = run("broken", resume=True)
    assert not [name for name, value in whole.items() if not torch.equal(again[name], value)]


def test_a_model_without_a_masked_lm_head_is_refused(backbones, tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(backbones["roberta"])
    with pytest.raises(ValueError, match="RobertaForSequenceClassification without a masked-LM head .* use `Trainer`"):
        MaskedLMTrainer(model, TrainingArguments(str(tmp_path), report_to=[]))
