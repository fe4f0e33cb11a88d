# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers, as it is: settings that must give the same trajectory do."""

import json

import pytest
import torch
import transformers
from families import TRAINED_HEADS, Case
from tiny_backbones import SENTENCES
from transformers import Trainer, TrainingArguments

from hf_memaug import MemoryUpdateCallback, RunGuard
from hf_memaug.data import DomainDataset
from hf_memaug.training import NonFiniteGradientError
from training.processes import run_in_two_processes
from training.trajectory import train

every_head = pytest.mark.parametrize("case", TRAINED_HEADS, ids=str)
every_family = pytest.mark.parametrize("case", {case.model_type: case for case in TRAINED_HEADS}.values(), ids=str)


def close(first, second, tolerance=2e-4):
    return all(
        a == pytest.approx(b, rel=tolerance, abs=tolerance)
        for x, y in zip(first, second, strict=True)
        for a, b in zip(x, y, strict=True)
    )


def same_weights(first: dict, second: dict) -> None:
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-3, atol=2e-4)


@every_head
def test_trainer_finds_the_labels_and_scores(case: Case, tmp_path):
    """It takes every argument for labels that has the word in its name, and scores nothing if one is missing."""
    rows, collator = case.training_rows(6)
    arguments = TrainingArguments(
        output_dir=str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True, remove_unused_columns=not case.is_graph
    )
    scored = []
    trainer = Trainer(
        case.model(), arguments, collator, eval_dataset=rows, compute_metrics=lambda found: scored.append(found) or {}
    )
    assert trainer.evaluate()["eval_loss"] > 0 and len(scored) == 1
    if case is TRAINED_HEADS[0]:
        assert scored[0].predictions.shape == (6, 3), "the features were gathered beside the logits"


@every_family
def test_accumulation_4x1_is_1x4(case: Case, tmp_path):
    if case.is_graph:
        pytest.skip("batch norm sees a batch as a whole")
    config = case.tiny.additive
    _, whole, weights = train(case.name, tmp_path / "whole", 4, 1, config=config)
    _, parts, accumulated = train(case.name, tmp_path / "parts", 1, 4, config=config)
    assert len(whole) == 12 and close(whole, parts), (whole, parts)
    same_weights(weights, accumulated)


@every_family
def test_resume_is_bit_equal(case: Case, tmp_path):
    def run(folder, **kwargs):
        # Dropout on, so that the state of the random numbers has to come back as well.
        # And an optimizer with a state.
        kwargs |= {"save_strategy": "steps", "save_steps": 5, "optim": "adamw_torch", "learning_rate": 1e-2}
        return train(case.name, folder, 4, 1, config={"hidden_dropout_prob": 0.1}, **kwargs)

    _, _, straight = run(tmp_path / "straight")
    trainer, _, _ = run(tmp_path / "broken", max_steps=12)
    fresh = case.model(seed=7, hidden_dropout_prob=0.1)
    again = Trainer(
        fresh,
        trainer.args,
        trainer.data_collator,
        train_dataset=trainer.train_dataset,
        callbacks=[MemoryUpdateCallback()],
    )
    again.train(resume_from_checkpoint=str(tmp_path / "broken" / "checkpoint-5"))
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, straight[name]), name


@every_family
def test_bf16_is_nearly_the_same_run(case: Case, tmp_path):
    """Mixed precision takes a model's outputs apart and puts them together again."""
    _, exact, _ = train(case.name, tmp_path / "fp32", 4, 1, num_train_epochs=1)
    _, rounded, _ = train(case.name, tmp_path / "bf16", 4, 1, num_train_epochs=1, bf16=True)
    assert exact != rounded, "bf16 was not used"
    # A router that rounds otherwise may send a token to another expert, and on some CPUs does.
    tolerance = 0.15 if case.model_type == "vit_gmoe" else 5e-2
    assert close([[loss] for loss, _ in exact], [[loss] for loss, _ in rounded], tolerance=tolerance)


# Batch norm sees the batch of one process, and the second family is the first on another encoder.
LAST_OF_EACH = {
    case.model_type: case for case in TRAINED_HEADS if case.model_type != "bert_kv_memory" and not case.is_graph
}


@pytest.mark.slow
@pytest.mark.parametrize("case", LAST_OF_EACH.values(), ids=str)
def test_two_processes_are_one(case: Case, tmp_path):
    (tmp_path / "two").mkdir()
    run_in_two_processes("trajectory.py", case.name, tmp_path / "two", 2, json.dumps(case.tiny.steady))
    two = json.loads((tmp_path / "two" / "logs.json").read_text())
    assert two["processes"] == 2, "torchrun started one process only"
    _, one, weights = train(case.name, tmp_path / "one", 4, 1, config=case.tiny.steady)
    assert close(one, two["logs"]), (one, two["logs"])
    same_weights(torch.load(tmp_path / "two" / "weights.pt"), weights)


def domains(tokenizer) -> DomainDataset:
    rows = [
        {"text": f"{text} {i}", "label": i % 2, "domain": "ab"[i % 2 ^ i // 2 % 2]}
        for i, text in enumerate(SENTENCES * 4)
    ]
    from hf_memaug.data import load_domains

    return load_domains(rows).tokenize(tokenizer)


class TestRunGuard:
    def trainer(self, tmp_path, rows=None, case=TRAINED_HEADS[0], callbacks=None, **kwargs):
        inputs = case.inputs(rows=16, labels=True)
        rows = rows or [{key: value[row] for key, value in inputs.items()} for row in range(16)]
        arguments = TrainingArguments(
            output_dir=str(tmp_path), save_steps=1, max_steps=6, report_to=[], use_cpu=True, disable_tqdm=True, **kwargs
        )
        return Trainer(
            model=case.model(), args=arguments, train_dataset=rows, callbacks=[RunGuard(), *(callbacks or [])]
        )

    def test_a_nan_loss_stops_and_keeps_the_last_good_checkpoint(self, tmp_path):
        from safetensors.torch import load_file
        from transformers import TrainerCallback

        class Poison(TrainerCallback):
            def on_step_begin(self, args, state, control, model=None, **kwargs):
                if state.global_step == 3:
                    self.weights = {name: value.clone() for name, value in model.state_dict().items()}
                    model.register_forward_hook(self.spoil)

            def spoil(self, module, args, output):
                output.loss = output.loss * float("nan")

        poison = Poison()
        trainer = self.trainer(tmp_path, callbacks=[poison])
        with pytest.raises(NonFiniteGradientError, match="at step 4.*checkpoint-3.*`learning_rate`"):
            trainer.train()
        assert sorted(p.name for p in tmp_path.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
        kept = load_file(tmp_path / "checkpoint-3" / "model.safetensors")
        for name, value in trainer.model.state_dict().items():
            assert torch.equal(value, poison.weights[name]), "the NaN reached the weights"
            if name in kept:
                assert torch.equal(value, kept[name])

    def test_a_folder_that_cannot_be_written_is_refused(self, tmp_path):
        (tmp_path / "file").write_text("")
        trainer = self.trainer(tmp_path / "gone")
        trainer.args.output_dir = str(tmp_path / "file")
        with pytest.raises(PermissionError, match="`output_dir`.*is not writable. Choose another"):
            trainer.train()
        assert trainer.state.global_step == 0

    def test_an_unknown_label_is_refused_before_training(self, tmp_path, backbones):
        case = TRAINED_HEADS[0]
        tokenizer = transformers.AutoTokenizer.from_pretrained(backbones[case.backbone])
        data = domains(tokenizer).with_columns(labels=[0, 1, 2, 3] * 6)
        trainer = self.trainer(tmp_path, rows=data)
        with pytest.raises(ValueError, match=r"label 3 in row 3.*`num_labels=3`.*`num_labels=4`"):
            trainer.train()
        assert trainer.state.global_step == 0
