# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Averaged weights, R-Drop and moved embeddings, each against a slow reference, with any algorithm."""

import pytest
import torch
from torch.nn import functional as F

from training.domain_runs import States, domain_trainer, rows
from training.image_runs import image_trainer

DROPOUT = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
NONE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.mark.parametrize("algorithm", ["erm", "fish"])
@pytest.mark.parametrize("decay", [1.0, 0.6])
def test_the_weights_are_the_mean_of_the_last_steps(algorithm, decay, tmp_path):
    states = States()
    averaged = {"weight_averaging": 0.4, "weight_averaging_decay": decay, "lr_scheduler_type": "constant"}
    trainer = domain_trainer("bert", tmp_path, algorithm=algorithm, max_steps=10, callbacks=[states], **averaged)
    trainer.train()
    states.seen.clear()  # the mean of an earlier run does not count
    trainer.train()
    for name, value in trainer.model.state_dict().items():
        expected = states.seen[4][name].double()
        for number, step in enumerate(states.seen[5:], start=2):
            share = max(1 / number, 1 - decay)
            expected = (1 - share) * expected + share * step[name].double()
        torch.testing.assert_close(value.double(), expected, msg=name)
        assert not torch.equal(value, states.seen[-1][name]) or "position" in name


def test_batch_norms_are_those_of_the_averaged_weights(tmp_path):
    trainer = image_trainer("resnet", tmp_path, weight_averaging=0.5, max_steps=4)
    norm, *_, frozen = [module for module in trainer.model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    frozen.eval().train = lambda mode=True: frozen
    frozen.running_mean.fill_(3)
    trainer.train()
    mean, found = norm.running_mean.clone(), []
    norm.register_forward_pre_hook(lambda module, given: found.append(given[0].mean(dim=(0, 2, 3))))
    trainer.model.train()
    for batch in trainer.get_train_dataloader():
        trainer.model(pixel_values=batch["pixel_values"])
    torch.testing.assert_close(mean, torch.stack(found).mean(dim=0))
    assert frozen.running_mean.eq(3).all()


def loss_of(trainer) -> torch.Tensor:
    torch.manual_seed(3)
    trainer.model.train()
    return trainer.compute_loss(trainer.model, batch_of(trainer))


def batch_of(trainer) -> dict:
    return dict(trainer.data_collator([rows()[place] for place in range(6)]))


def test_rdrop_is_its_definition(tmp_path):
    trainer = domain_trainer("bert", tmp_path, config={**DROPOUT, "initializer_range": 0.5}, rdrop_weight=3.0)
    loss, inputs = loss_of(trainer), batch_of(trainer)
    del inputs["domain_ids"]
    torch.manual_seed(3)
    first, second = trainer.model(**inputs), trainer.model(**inputs)
    one, other = (F.log_softmax(each.logits, dim=-1) for each in (first, second))
    both = [F.kl_div(a, b, log_target=True, reduction="batchmean") for a, b in ((one, other), (other, one))]
    torch.testing.assert_close(loss, (first.loss + second.loss) / 2 + 3.0 / 2 * sum(both) / 2)
    assert sum(both) > 0.1


def test_embeddings_are_moved_to_where_the_loss_rises(tmp_path):
    trainer = domain_trainer("bert", tmp_path, config=NONE, embedding_perturbation=0.5)
    loss, inputs = loss_of(trainer), batch_of(trainer)
    del inputs["domain_ids"]
    embeddings = trainer.model.get_input_embeddings()(inputs.pop("input_ids")).detach().requires_grad_()
    clean = trainer.model(inputs_embeds=embeddings, **inputs).loss
    gradient = torch.autograd.grad(clean, embeddings)[0]
    moved = torch.stack([row + 0.5 * of_row / of_row.norm() for row, of_row in zip(embeddings, gradient, strict=True)])
    worse = trainer.model(inputs_embeds=moved, **inputs).loss
    torch.testing.assert_close(loss, (clean + worse) / 2)
    assert worse > clean
    trainer.model.get_input_embeddings().requires_grad_(False)
    torch.testing.assert_close(loss_of(trainer), loss)


@pytest.mark.parametrize("algorithm", ["group_dro", "mldg", "coral", "dann"])
def test_both_work_with_other_algorithms(algorithm, tmp_path):
    given = {"algorithm": algorithm, "config": DROPOUT}
    plain = loss_of(domain_trainer("bert", tmp_path, **given))
    for more in ({"rdrop_weight": 2.0}, {"embedding_perturbation": 1.0}):
        loss = loss_of(domain_trainer("bert", tmp_path, **given, **more))
        assert loss.isfinite() and abs(loss - plain) > 1e-5


@pytest.mark.parametrize(
    "given, message",
    [
        ({"weight_averaging": 1.5}, "`weight_averaging` is 1.5; it must be 0 or more, and below 1"),
        ({"weight_averaging_decay": 0.9}, "`weight_averaging_decay` needs `weight_averaging`"),
        ({"weight_averaging": 0.5, "algorithm": "swad"}, "chooses the weights. Leave it out"),
        ({"rdrop_weight": -1.0}, "`rdrop_weight` is -1.0; it must be 0 or more"),
        ({"rdrop_weight": 1.0, "config": NONE}, "other dropout, and `BertForSequenceClassification` has none"),
        ({"embedding_perturbation": 1.0, "algorithm": "mixup"}, "mixes the embeddings"),
        ({"embedding_perturbation": 1.0, "kind": "resnet"}, "`ResNetFor.* has no `get_input_embeddings`"),
    ],
)
def test_what_would_do_nothing_is_refused(given, message, tmp_path):
    make = image_trainer if "kind" in given else domain_trainer
    with pytest.raises(ValueError, match=message):
        make(**{"kind": "bert", "output": tmp_path, **given})
