# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The models of the GMoE tables are those that `DomainTrainer` trains."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

from hf_memaug import DomainTrainer, DomainTrainingArguments
from hf_memaug.data import DomainDataset, generated_digits
from hf_memaug.training.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "gmoe"
# All whose steps follow from the batches: mixup draws shares, from elsewhere in the sequence of random numbers.
DETERMINED = ["erm", "irm", "vrex", "group_dro", "dann", "coral", "mmd", "mldg", "fish", "fishr", "swad"]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("vit")
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=16,
        patch_size=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=5,
    )
    torch.manual_seed(0)
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def digits():
    return generated_digits("coloured", rows_per_domain=40, image_size=16)


def by_trainer(experiment, output):
    """The same job, by `DomainTrainer`."""
    job, pixels = experiment.job, experiment.pixels

    def dataset(rows):
        images = (pixels.images[rows].float() / 255 - experiment.mean) / experiment.std
        columns = {
            "pixel_values": list(images.numpy()),
            "labels": pixels.labels[rows].tolist(),
            "domain": [pixels.domains[row] for row in rows],
        }
        return DomainDataset(columns)

    from experiment import make_model

    turns = experiment.turns
    assert turns == (len(experiment.sources) if job.algorithm == "fish" else 1)
    size = job.rows_per_domain * (1 if turns > 1 else len(experiment.sources))
    evaluated = {"eval_strategy": "steps", "eval_steps": job.eval_steps} if job.algorithm == "swad" else {}
    trainer = DomainTrainer(
        make_model(job, str(experiment.backbone), pixels.label_names),
        DomainTrainingArguments(
            str(output),
            algorithm=job.algorithm,
            penalty_anneal_steps=job.anneal_steps,
            per_device_train_batch_size=size,
            max_steps=job.steps * turns,
            learning_rate=job.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=0.0,
            dataloader_drop_last=True,
            save_strategy="no",
            seed=job.seed,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            **evaluated,
        ),
        train_dataset=dataset(experiment.rows),
        eval_dataset=dataset([row for name in experiment.sources for row in experiment.outer[name]]),
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("model", ["vit", "gmoe"])
@pytest.mark.parametrize("algorithm", DETERMINED)
def test_it_is_what_domain_trainer_trains(model, algorithm, here, backbone, digits, tmp_path, monkeypatch):
    import experiment
    from experiment import Experiment, Job
    from pixels import Pixels

    if model == "gmoe":
        # The one thing that chance decides in a step: both draw it, but not from the same place in the sequence.
        monkeypatch.setitem(experiment.MODELS, "gmoe", {"router_noise": 0.0})
    settings = {"learning_rate": 1e-3, "steps": 9, "eval_steps": 2, "rows_per_domain": 4, "augment": False}
    # Some refuse it, having no penalty.
    settings["anneal_steps"] = 3 if ALGORITHMS[algorithm].default_penalty_weight else 0
    job = Job("digits", "tiny", digits.domains[0], model, algorithm, 3, **settings)
    found = Experiment(job, Pixels.of(digits, 16), backbone, device="cpu")
    found.backbone = backbone
    before = {name: value.clone() for name, value in found.model.state_dict().items()}
    found.train()
    expected = by_trainer(found, tmp_path).model.state_dict()
    for name, value in found.model.state_dict().items():
        # A bias of all keys changes no attention: its gradient is rounding, of which Adam makes steps.
        if not name.endswith("k_proj.bias"):
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=5e-6, msg=lambda t, n=name: f"{n}: {t}")
    assert any(not torch.equal(value, before[name]) for name, value in found.model.state_dict().items())


def test_selection_sees_the_sources_alone(here):
    from experiment import select

    def record(step, sources, target):
        accuracy = {"a": {"in": 0, "out": sources}, "b": {"in": 0, "out": sources}, "c": {"in": target, "out": target}}
        return {"step": step, "accuracy": accuracy}

    records = [record(1, 50, 99), record(2, 80, 1), record(3, 70, 90)]
    assert select(records, ["a", "b"])["step"] == 2
    assert select(records, ["a", "b"], anneal_steps=2)["step"] == 3, "step 2 has seen no penalty"
    with pytest.raises(ValueError, match="no evaluation lies after `anneal_steps`, 9"):
        select(records, ["a", "b"], anneal_steps=9)
    assert select([*records, {**record(3, 1, 1), "averaged": True}], ["a", "b"])["averaged"]


def test_splits_follow_from_the_seed(here, digits):
    from pixels import Pixels

    pixels = Pixels.of(digits, 16)
    inner, outer = pixels.split(0)
    for name in pixels.names:
        rows = {row for row, domain in enumerate(pixels.domains) if domain == name}
        assert set(inner[name]) | set(outer[name]) == rows and not set(inner[name]) & set(outer[name])
        assert 6 <= len(outer[name]) <= 10
    assert pixels.split(0) == (inner, outer) and pixels.split(1) != (inner, outer)


def test_augmentation_keeps_what_it_should(here):
    from augmenting import augmented

    torch.manual_seed(0)
    images = torch.rand(200, 3, 16, 16)
    changed = augmented(images)
    assert changed.shape == images.shape and changed.min() >= 0 and changed.max() <= 1
    assert (changed - images).abs().mean(dim=(1, 2, 3)).min() > 1e-3, "an image came through unchanged"
    # Grey stays grey, whatever is done to brightness and hue.
    grey = torch.rand(20, 1, 16, 16).expand(-1, 3, -1, -1)
    changed = augmented(grey)
    assert (changed - changed.mean(dim=1, keepdim=True)).abs().max() < 0.02
    # About a tenth of coloured images come out grey.
    torch.manual_seed(1)
    many = augmented(torch.rand(3000, 3, 4, 4))
    share = ((many - many.mean(dim=1, keepdim=True)).abs().amax(dim=(1, 2, 3)) < 1e-5).float().mean()
    assert 0.07 < share < 0.13
    # Flipped in half of the cases: on the left of a picture that is bright there, the mean tells.
    halves = torch.zeros(2000, 3, 8, 8)
    halves[..., :4] = 1.0
    flipped = (augmented(halves)[..., :4].mean(dim=(1, 2, 3)) < augmented(halves)[..., 4:].mean(dim=(1, 2, 3))).float()
    assert 0.2 < flipped.mean() < 0.8


def test_the_tables_run_and_do_not_run_again(backbone, digits, tmp_path):
    import io

    contents = []
    for row in digits:
        buffer = io.BytesIO()
        row["image"].save(buffer, format="PNG")
        contents.append(buffer.getvalue())
    data = tmp_path / "digits.npz"
    np.savez(
        data,
        content=np.frombuffer(b"".join(contents), dtype=np.uint8),
        ends=np.cumsum([len(one) for one in contents]),
        labels=np.array(digits["label"]),
        domains=np.array(digits["domain"]),
        names=np.array(digits.label_names),
    )
    command = [
        sys.executable,
        str(EXAMPLES / "tables.py"),
        "table1",
        "--backbone",
        f"tiny={backbone}",
        "--data",
        str(data),
    ]
    command += ["--size", "16", "--seeds", "2", "--steps", "4", "--eval-steps", "2", "--jobs", "2"]
    command += ["--record", str(tmp_path / "runs.jsonl"), "--output", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "results" / "table1.json").read_text())
    assert len(result["rows"]) == 2 * 2 * 3 and {row["method"] for row in result["rows"]} == {"vit", "gmoe"}
    assert all(0 <= row["value"] <= 100 for row in result["rows"])
    again = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert "12 of 12 models are in" in again.stdout, again.stdout + again.stderr
    assert json.loads((tmp_path / "results" / "table1.json").read_text())["rows"] == result["rows"]
    assert {row["backbone"] for row in result["rows"]} == {"tiny"}
    wrong = subprocess.run([*command, "--targets", "nowhere"], capture_output=True, text=True, timeout=600)
    assert wrong.returncode == 2 and "is no domain of" in wrong.stderr


def test_a_rate_is_chosen_on_the_sources_of_its_target(here):
    from experiment import Job
    from tables import DEFAULT_RATE, rate_of

    def run(target, rate, validation, seed=1000, model="vit"):
        return Job("pacs", "tiny", target, model, "erm", seed, learning_rate=rate), {"validation": validation}

    done = dict([run("a", 1e-4, 90), run("a", 3e-5, 80), run("b", 1e-4, 10), run("b", 3e-5, 20)])
    assert rate_of(done, "tiny", "a", "vit") == 1e-4 and rate_of(done, "tiny", "b", "vit") == 3e-5
    # Neither another model's runs, nor another backbone's, nor those that a table is made of.
    assert rate_of(done, "tiny", "a", "gmoe") == rate_of(done, "other", "a", "vit") == DEFAULT_RATE
    done |= dict([run("a", 3e-5, 99, seed=0)])
    assert rate_of(done, "tiny", "a", "vit") == 1e-4
    done |= dict([run("a", 3e-5, 50, model="gmoe")])
    assert rate_of(done, "tiny", "a", "gmoe-linear") == 3e-5


def test_a_single_source_is_scored_on_what_it_was_not_trained_on(here, backbone, digits):
    from experiment import Experiment, Job, run
    from pixels import Pixels

    pixels = Pixels.of(digits, 16)
    settings = {"steps": 2, "eval_steps": 2, "rows_per_domain": 4, "single_source": True, "size": 16}
    job = Job("digits", "tiny", pixels.names[0], "gmoe", "erm", 0, **settings)
    result = run(job, pixels, backbone, "cpu")
    assert set(result["source"]) == {pixels.names[0]} and set(result["target"]) == set(pixels.names[1:])
    last = result["records"][-1]["accuracy"]
    assert result["target"] == {name: last[name]["out"] for name in pixels.names[1:]}
    with pytest.raises(ValueError, match="which compares domains, and there is one source"):
        Experiment(Job("digits", "tiny", pixels.names[0], "vit", "coral", 0, **settings), pixels, backbone, "cpu")
    with pytest.raises(ValueError, match="`rows_per_domain` asks for 501 rows a step"):
        run(Job("digits", "tiny", "x", "vit", "erm", 0, steps=1, rows_per_domain=500 // 3 + 1), pixels, backbone, "cpu")


def test_both_heads_are_fresh(here, backbone, digits):
    """Also where the checkpoint has one for as many labels."""
    from experiment import Job, make_model

    stored = ViTForImageClassification.from_pretrained(backbone)
    for model in ("vit", "gmoe"):
        made = make_model(Job("digits", "tiny", "x", model, "erm", 0), backbone, list("abcde"))
        assert made.classifier.weight.shape == stored.classifier.weight.shape
        assert not torch.allclose(made.classifier.weight, stored.classifier.weight)
        assert not made.classifier.bias.any() and 0.01 < made.classifier.weight.std() < 0.03
        name = "vit.layers.0.attention.q_proj.weight"
        assert torch.equal(made.state_dict()[name], stored.state_dict()[name])


def test_the_names_that_help_needs_without_torch_are_those_of_the_library(here):
    from tables import EVERY, MNIST

    assert set(EVERY) == set(ALGORITHMS)
    for kind in ("rotated", "coloured"):
        assert sorted(MNIST[f"{kind}_mnist"][0]) == sorted(generated_digits(kind, rows_per_domain=4).domains)


def test_a_single_source_of_digits_has_the_settings_of_digits(here):
    from argparse import Namespace

    from tables import MNIST, make_jobs

    options = Namespace(data="rotated_mnist:x", name="small", seeds=1, targets=["15"], learning_rate=None)
    for name in ("algorithms", "models", "size", "steps", "eval_steps"):
        setattr(options, name, None)
    of = {table: make_jobs(Namespace(**vars(options), table=table), [], {}) for table in ("single_source", "mnist")}
    vit, gmoe = of["single_source"]
    assert (vit.model, gmoe.model) == ("vit", "gmoe") and gmoe.single_source
    assert gmoe.steps == MNIST["rotated_mnist"][1]["steps"] and gmoe.learning_rate == 1e-3 and not gmoe.augment
    assert len(of["mnist"]) == 24 and not of["mnist"][0].single_source
