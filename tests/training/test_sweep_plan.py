# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Which runs a sweep plans, with which hyper-parameters, and what its jobs are made of."""

import json
import math
import sys

import pytest

from hf_memaug.data import generated_digits, load_domains
from hf_memaug.evaluation.checks import check_name
from hf_memaug.runs import small_models as building
from hf_memaug.runs.hyperparameters import OWN, draw
from hf_memaug.runs.small_models import build, load_rows
from hf_memaug.training.algorithms import ALGORITHMS
from hf_memaug.training.sweep import Job, plan_jobs
from hf_memaug.training.sweep.__main__ import main
from hf_memaug.training.sweep.job import split_rows, training_arguments
from hf_memaug.training.sweep.plan import file_name

FOUR = {"reviews": ("reviews.csv", ["books", "films", "phones", "hotels"])}
MODELS = {"bert": "bert-base", "small": "small"}


def test_every_domain_is_left_out_in_every_trial_and_draw():
    jobs = plan_jobs(FOUR, MODELS, ["erm", "coral"], trials=3, draws=5, steps=100)
    assert len(jobs) == 4 * 2 * 2 * 3 * 5 == len({job.name for job in jobs})
    assert {job.test_envs for job in jobs} == {("books",), ("films",), ("phones",), ("hotels",)}
    assert [job.trial_seed for job in jobs] == sorted(job.trial_seed for job in jobs)
    assert {job.keep for job in jobs} == {"best"} and {job.steps for job in jobs} == {100}
    assert len(plan_jobs(FOUR, MODELS, ["erm"], test_domains=["films"], trials=2)) == 4


def test_leaving_two_out_takes_as_many_runs_as_the_paper_says():
    # GMoE, D.3: five data sets, six domains in DomainNet and four in the others, "61 individual experiments".
    data = {str(number): ("", list("abcd")) for number in range(4)} | {"DomainNet": ("", list("abcdef"))}
    jobs = plan_jobs(data, {"gmoe": ""}, ["erm"], trials=1, selection="leave_one_out")
    assert len(jobs) == 61
    pairs = [job for job in jobs if len(job.test_envs) == 2]
    assert {job.keep for job in pairs} == {"none"} and {job.keep for job in jobs if job not in pairs} == {"all"}
    some = plan_jobs(FOUR, {"x": ""}, ["erm"], trials=1, selection="leave_one_out", test_domains=["films"])
    assert [job.test_envs for job in some] == [("films",), ("books", "films"), ("films", "phones"), ("films", "hotels")]


def test_one_domain_to_train_on():
    jobs = plan_jobs(FOUR, {"x": ""}, ["erm"], trials=1, setting="single_source")
    assert [job.test_envs for job in jobs][0] == ("films", "phones", "hotels") and len(jobs) == 4


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("`trials` is 0", {"trials": 0}),
        ("`checkpoint_every` is 0", {"checkpoint_every": 0}),
        ("`holdout` is 1.5", {"holdout": 1.5}),
        ("Did you mean 'films'", {"test_domains": ["film"]}),
        ("`hparams` 'rate' is not known", {"hparams": {"rate": 1}}),
        ("`training_arguments` 'bf_16' is not known", {"training": {"bf_16": True}}),
        ("compares domains", {"algorithms": ["coral"], "setting": "single_source"}),
        ("needs several domains", {"selection": "leave_one_out", "setting": "single_source"}),
        ("at least 3", {"selection": "leave_one_out", "datasets": {"two": ("", ["a", "b"])}}),
        ("compares domains", {"algorithms": ["irm"], "datasets": {"two": ("", ["a", "b"])}}),
    ],
)
def test_plans_that_cannot_be_are_refused(reason, changes):
    given = {"datasets": FOUR, "models": MODELS, "algorithms": ["erm"], **changes}
    with pytest.raises(ValueError, match=reason):
        plan_jobs(**given)


def test_names_of_folders_are_told_apart():
    strange = [
        Job("d", "", "m", "", "erm", envs, setting=setting)
        for envs in (("+90%",), ("-90%",), ("a-b",), ("a", "b"), ("a",))
        for setting in ("multi_source", "single_source")
    ]
    names = [job.name for job in strange]
    assert len(set(names)) == len(strange)
    names = [file_name(name) for name in ("..", "a/b", "a_b", "a b", "+90%", "-90%", "x" * 300)]
    assert len(set(names)) == 7 and names[4] == "+90%" and not any(set(name) & set("/ ") for name in names)
    assert not names[0].startswith(".") and max(map(len, names)) < 100


def test_draw_0_is_the_defaults_and_others_lie_in_their_ranges():
    assert draw("coral", 0, 3) == {"learning_rate": 5e-5, "weight_decay": 0.0, "dropout": 0.0, "batch_size": 32}
    drawn = [draw("irm", seed, trial) for seed in range(1, 60) for trial in range(3)]
    logs = {name: [math.log10(one[name]) for one in drawn] for name in ("learning_rate", "weight_decay")}
    assert -5 <= min(logs["learning_rate"]) < -4.8 and -3.7 < max(logs["learning_rate"]) <= -3.5
    assert -6 <= min(logs["weight_decay"]) < -5.5 and -2.5 < max(logs["weight_decay"]) <= -2
    assert {one["dropout"] for one in drawn} == {0.0, 0.1, 0.5}
    assert {one["batch_size"] for one in drawn} >= {8, 20, 44} and max(one["batch_size"] for one in drawn) <= 45
    assert max(one["penalty_weight"] for one in drawn) > 1e4
    # Another draw in another trial; the same whoever asks, and whatever else is drawn.
    assert draw("irm", 1, 0) != draw("irm", 1, 1) and draw("irm", 1, 0) == draw("irm", 1, 0)
    assert draw("irm", 1, 0)["learning_rate"] == draw("erm", 1, 0)["learning_rate"]
    # Steps that the penalty waits for shrink with the run.
    assert draw("irm", 1, 0, steps=50)["penalty_anneal_steps"] == pytest.approx(
        draw("irm", 1, 0)["penalty_anneal_steps"] / 100, abs=1
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_drawn_is_taken(algorithm, tmp_path):
    for seed in (0, 1):
        job = Job("d", "", "m", "", algorithm, ("a",), hparams=draw(algorithm, seed, 0, 100), steps=100)
        arguments = training_arguments(job, tmp_path, sources=3, turns=3 if algorithm == "fish" else 1)
        assert arguments.learning_rate == job.hparams["learning_rate"]
        assert arguments.max_steps == (300 if algorithm == "fish" else 100)
        rows = job.hparams["batch_size"]
        assert arguments.per_device_train_batch_size == (rows if algorithm == "fish" else 3 * rows)
        for name in OWN.get(algorithm, {}) if seed else ():
            of = arguments.algorithm_kwargs if name in ALGORITHMS[algorithm].options else vars(arguments)
            assert of[name] == job.hparams[name]
    for name in OWN:
        check_name("algorithm", name, ALGORITHMS)


def test_a_job_is_read_as_it_was_written(tmp_path):
    (job, *_) = plan_jobs(FOUR, MODELS, ["dann"], draws=2, hparams={"learning_rate": 1e-3}, columns={"label": "stars"})
    job.write(tmp_path)
    assert Job.read(tmp_path) == job and job.hparams["learning_rate"] == 1e-3


def test_each_domain_is_split_by_the_trial_alone():
    rows = load_rows("generated_reviews")
    jobs = [
        Job("d", "", "m", "", "erm", (env,), trial_seed=trial)
        for env, trial in (("books", 0), ("films", 0), ("films", 1))
    ]
    first, second, third = (split_rows(job, rows) for job in jobs)
    assert first[1]["text"] == second[1]["text"] != third[1]["text"]
    inside, outside = first
    assert {len(inside.domain(name)) for name in rows.domains} == {320}
    assert not set(inside["text"]) & set(outside["text"]) and len(inside) + len(outside) == len(rows)


def test_rows_in_two_domains_are_refused_or_dropped():
    rows = [{"text": f"text number {n}", "label": n % 2, "domain": "ab"[n // 10]} for n in range(20)]
    rows.append({"text": "Text number 1.", "label": 1, "domain": "b"})
    rows = load_domains(rows)
    with pytest.raises(ValueError, match='on_overlap="drop"'):
        split_rows(Job("d", "", "m", "", "erm", ("a",)), rows)
    inside, outside = split_rows(Job("d", "", "m", "", "erm", ("a",), on_overlap="drop"), rows)
    # Of what is trained on, not of what is tested.
    assert len(inside.domain("a")) + len(outside.domain("a")) == 10
    assert len(inside.domain("b")) + len(outside.domain("b")) == 10
    with pytest.raises(ValueError, match="the rows have the domains a, b"):
        split_rows(Job("d", "", "m", "", "erm", ("c",)), rows)


def test_words_of_the_domain_left_out_are_unknown():
    model, tokenizer, rows = build(Job("d", "generated_reviews", "m", "small", "erm", ("kitchen",)))
    words = set(tokenizer.get_vocab())
    assert "battery" in words and "kettle" not in words and model.config.id2label == {0: "negative", 1: "positive"}


def test_images_get_a_plain_model_or_one_with_experts():
    jobs = [
        Job("d", "generated_digits", "m", checkpoint, "erm", ("0",), hparams=draw("erm", 1, 0))
        for checkpoint in ("small", "gmoe:small")
    ]
    (plain, processor, rows), (experts, _, _) = map(build, jobs)
    assert type(plain).__name__ == "ViTForImageClassification" and plain.config.num_labels == 10
    assert type(experts).__name__ == "ViTGMoEForImageClassification" and experts.config.num_labels == 10
    assert plain.config.hidden_dropout_prob == experts.config.hidden_dropout_prob == jobs[0].hparams["dropout"]
    assert processor(rows[0]["image"], return_tensors="pt")["pixel_values"].shape == (1, 3, 32, 32)
    with pytest.raises(ValueError, match="have no `image`"):
        build(Job("d", "generated_reviews", "m", "gmoe:small", "erm", ("books",)))


def test_folders_of_images_and_of_mnist_are_data(tmp_path, capsys, monkeypatch):
    rows = generated_digits("coloured", rows_per_domain=4)
    for number, row in enumerate(rows):
        folder = tmp_path / "pictures" / row["domain"] / rows.label_names[row["label"]]
        folder.mkdir(parents=True, exist_ok=True)
        row["image"].save(folder / f"{number}.png")
    assert main(["--data", str(tmp_path / "pictures"), "--models", "gmoe=gmoe:small", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "pictures-gmoe-erm-+90%-trial0-draw0" in said and "9 jobs" in said
    asked = []
    monkeypatch.setattr(building, "mnist_domains", lambda *given: asked.append(given) or rows)
    assert main(["--data", "mnist=coloured_mnist:folder/of/it", "--dry-run"]) == 0
    assert asked == [("folder/of/it", "coloured")] and "mnist-small-erm-+80%-trial2-draw0" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_checkpoint_gets_the_labels_of_the_rows(backbones, kind):
    job = Job("d", "generated_reviews", "m", backbones[kind], "erm", ("books",), hparams={"dropout": 0.5})
    model, tokenizer, rows = build(job)
    assert model.config.num_labels == 2 and model.config.classifier_dropout == 0.5


def test_a_dry_run_lists_the_jobs(tmp_path, capsys):
    assert main(["--output", str(tmp_path / "x"), "--dry-run", "--trials", "2", "--draws", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count("to do  generated_reviews-small-erm-") == 5 * 2 * 2 and "20 jobs, 0 of them done" in said
    assert json.loads(said.splitlines()[0].split("  ")[2])["batch_size"] == 32
    assert not (tmp_path / "x").exists()


def test_a_dry_run_knows_what_the_folder_was_made_with(tmp_path, capsys):
    from hf_memaug.training.sweep.__main__ import check_settings, make_parser

    check_settings(make_parser().parse_args(["--output", str(tmp_path), "--steps", "7"]))
    before = (tmp_path / "sweep.json").read_bytes()
    assert main(["--output", str(tmp_path), "--steps", "7", "--dry-run", "--algorithms", "irm"]) == 0
    with pytest.raises(SystemExit):
        main(["--output", str(tmp_path), "--steps", "8", "--dry-run"])
    assert "`steps` is 8, but the sweep in" in capsys.readouterr().err
    assert (tmp_path / "sweep.json").read_bytes() == before


def test_broken_images_are_found_before_the_first_job(tmp_path, capsys):
    from hf_memaug.training.sweep.__main__ import make_parser, planned

    for number, row in enumerate(generated_digits(rows_per_domain=30)):
        if row["label"] < 2 and row["domain"] in ("0", "15"):
            path = tmp_path / "images" / f"at {row['domain']}" / f"digit {row['label']}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            row["image"].save(path)
    path.write_bytes(path.read_bytes()[:40])
    given = ["--output", str(tmp_path / "x"), "--data", f"digits={tmp_path / 'images'}", "--models", "vit=small"]
    with pytest.raises(SystemExit):
        main(given)
    said = capsys.readouterr().err
    assert path.name in said and "leave them out with `--broken-images skip`" in said
    assert not (tmp_path / "x" / "jobs").exists()
    jobs = planned(make_parser().parse_args([*given, "--broken-images", "skip"]))
    assert {job.broken_images for job in jobs} == {"skip"}
    _, _, rows = build(jobs[0])
    assert len(rows) == len(list((tmp_path / "images").rglob("*.png"))) - 1
    assert not any(path.name in str(row["image"]) for row in rows)


def test_options_that_cannot_be_are_refused(tmp_path, capsys):
    for arguments, reason in (
        (["--hparams", "[1]"], "is not a JSON object"),
        (["--hparams", '{"learning_rat": 1}'], "Did you mean 'learning_rate'"),
        (["--data", "nowhere.csv"], "nowhere.csv"),
        (["--models", "a=x", "a=y"], "twice"),
        (["--models", "=x"], "NAME=VALUE"),
    ):
        with pytest.raises(SystemExit):
            main(["--output", str(tmp_path), "--dry-run", *arguments])
        assert reason in capsys.readouterr().err


def test_rows_of_the_hub(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="`datasets` is not installed")
    rows = [{"words": f"row {n}", "stars": n % 2, "shop": "ab"[n // 4]} for n in range(8)]
    of_split = {"train": datasets.Dataset.from_list(rows), "test": datasets.Dataset.from_list(rows[:3])}
    monkeypatch.setattr(datasets, "load_dataset", lambda name: datasets.DatasetDict(of_split))
    columns = {"text": "words", "label": "stars", "domain": "shop"}
    found = load_rows("somebody/reviews", split="train", **columns)
    assert found["text"] == [row["words"] for row in rows] and found.domains == ["a", "b"]
    monkeypatch.setattr(datasets, "load_dataset", lambda name: datasets.DatasetDict({"train": of_split["train"]}))
    assert len(load_rows("reviews", **columns)) == 8

    def missing(name):
        raise ConnectionError("no such host")

    monkeypatch.setattr(datasets, "load_dataset", missing)
    with pytest.raises(ValueError, match="no dataset of the hub could be loaded by this name .no such host."):
        load_rows("somebody/reviews", **columns)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match="'reviewz' is no file or folder"):
        load_rows("reviewz", **columns)
