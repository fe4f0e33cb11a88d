# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What the unmodified Trainer makes of a loss that is not a mean over rows."""

import pytest
import torch
from families import Case
from tiny_backbones import QUIET
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

from hf_memaug import DomainTrainer, DomainTrainingArguments

CASE = Case("vit_gmoe", "ViTGMoEForImageClassification")
LARGE = {"router_noise": 0.0, "aux_loss_weight": 1.0}


def rows_of(inputs: dict, rows: int) -> list[dict]:
    return [{key: value[row] for key, value in inputs.items()} for row in range(rows)]


@pytest.mark.parametrize(("per_device", "accumulation"), [(8, 1), (4, 2), (2, 4)])
def test_accumulation_takes_the_mean_of_the_auxiliary_losses(per_device, accumulation, tmp_path):
    """Each part has its own; their weight does not grow with the number of parts."""
    inputs = CASE.inputs(rows=8, labels=True)
    model = CASE.model(**LARGE)
    reference = CASE.model(**LARGE).train()
    settings = {**QUIET, "per_device_train_batch_size": per_device, "gradient_accumulation_steps": accumulation}
    settings |= {"max_steps": 1, "learning_rate": 0.1, "optim": "sgd", "lr_scheduler_type": "constant"}
    settings |= {"max_grad_norm": 0.0, "train_sampling_strategy": "sequential", "logging_steps": 1}
    arguments = TrainingArguments(output_dir=str(tmp_path), **settings)
    trainer = Trainer(model=model, args=arguments, train_dataset=rows_of(inputs, 8))
    trainer.train()

    losses, auxiliary = [], []
    for start in range(0, 8, per_device):
        part = {name: value[start : start + per_device] for name, value in inputs.items()}
        output = reference(part["pixel_values"])
        auxiliary.append(output.aux_loss.item())
        losses.append(F.cross_entropy(output.logits, part["labels"]) + output.aux_loss)
    loss = torch.stack(losses).mean()
    loss.backward()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert sum(auxiliary) / len(auxiliary) > 0.01, "nothing would be seen of it"
    for (name, found), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(
            found.detach(), (expected - 0.1 * expected.grad).detach(), rtol=1e-4, atol=1e-6, msg=lambda t, n=name: n + t
        )


def test_evaluation_scores_the_task_and_gathers_nothing_but_logits(tmp_path):
    inputs = CASE.inputs(rows=6, labels=True)
    model = CASE.model(aux_loss_weight=10.0, output_router_logits=True)
    arguments = TrainingArguments(
        output_dir=str(tmp_path), per_device_eval_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = Trainer(model=model, args=arguments, eval_dataset=rows_of(inputs, 6))
    expected = F.cross_entropy(model(inputs["pixel_values"]).logits, inputs["labels"])
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert trainer.predict(rows_of(inputs, 6)).predictions.shape == (6, 3)


@pytest.mark.parametrize(("algorithm", "row"), [("erm", "gmoe"), ("coral", "gmoe+coral")])
def test_a_card_names_it_as_a_table_does(algorithm, row, tmp_path):
    arguments = DomainTrainingArguments(str(tmp_path), algorithm=algorithm, use_cpu=True, report_to=[])
    assert DomainTrainer(CASE.model(), arguments).method_name == row
