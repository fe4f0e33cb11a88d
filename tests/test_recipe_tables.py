# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The recipes have the settings of the experiments whose tables they make, and of the runs that are committed."""

import argparse
import contextlib
import importlib
import json
import sys
from pathlib import Path

import pytest

from hf_memaug.cli import fields
from hf_memaug.cli.app import COMMANDS
from hf_memaug.cli.methods import chosen
from hf_memaug.cli.recipes import resolve, used_settings

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
GMAP_TABLES = ["table1", "table3", "table4", "table5", "more_sets/table1", "acl_arc_15_seeds/table1"]


@contextlib.contextmanager
def examples(family: str):
    """The modules of one family's examples: others have the same names."""
    paths, before = [str(ROOT / "examples" / family), str(ROOT / "examples")], set(sys.modules)
    sys.path[:0] = paths
    try:
        yield importlib.import_module
    finally:
        for path in paths:
            sys.path.remove(path)
        for name in set(sys.modules) - before:
            if str(ROOT / "examples") in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def recipe(name: str):
    """(what was resolved, and the settings of each method or strategy) of a recipe."""
    path = ROOT / "examples" / "recipes" / f"{name}.yaml"
    command = next(line.split()[1] for line in path.read_text().splitlines() if line.startswith("command:"))
    declared = COMMANDS[command]
    resolved = resolve(command, declared.options, {"recipe": str(path)}, [], fields.fields_of(*declared.settings))
    if command == "continual":
        known = {**fields.configuration_fields("memory_rnn"), **fields.trainer_fields("continual")}
        of = dict.fromkeys(resolved.options.strategies, known)
    else:
        of = {method: chosen(method).fields for method in resolved.options.methods}
    return resolved, {method: _Settings(given, of[method]) for method, given in used_settings(resolved, of, of).items()}


class _Settings(dict):
    """What was given, and the defaults of the rest."""

    def __init__(self, given, known):
        super().__init__({name: one.default for name, one in known.items()} | given)


def committed(file: str) -> list[dict]:
    lines = (RESULTS / f"{file}_runs.jsonl").read_text().splitlines()
    return [json.loads(line)["job"] for line in lines]


def all_tables() -> set[str]:
    """Every accuracy table that is committed, but what was tuned, drawn, tested or measured first."""
    found = {str(path.relative_to(RESULTS).with_suffix("")) for path in RESULTS.glob("*/**/*.json")}
    left = ("benchmarks/", "gmap/first/", "hma/")
    return {
        one
        for one in found
        if not one.startswith(left)
        and not one.endswith("_tests")
        and not {"tune", "tuning"} & {one.split("/")[-1].split("_")[0]}
    }


def test_every_table_has_its_recipe_and_the_page_says_which():
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    said = {line.split("(")[1].split(")")[0].removesuffix(".json") for line in page.splitlines() if "| [" in line[:4]}
    for table in all_tables():
        if "figure" in table or "pretraining" in table:
            continue
        assert table in said, f"docs/results/README.md does not say which recipe makes {table}.json"
    for path in (ROOT / "examples" / "recipes").glob("*.yaml"):
        if "docs/results" in path.read_text():
            assert path.name in page, f"docs/results/README.md says nothing of {path.name}"


@pytest.mark.parametrize("name, data, table", [("mil_amazon", "amazon", "table1"), ("mil_mnli5", "mnli5", "table2")])
def test_mil(name, data, table):
    resolved, settings = recipe(name)
    options = resolved.options
    given = argparse.Namespace(
        table=table,
        data=str(ROOT.parent / "shared/data"),
        heads=["fine-tuning"],
        seeds=5,
        first_seed=0,
        sets=None,
        cross=False,
        memory_learning_rate=None,
        memory_key_initializer_range=None,
    )
    with examples("mil") as load:
        experiment, tables = load("experiment"), load("tables")
        tables.load_data = lambda *_: argparse.Namespace(domains=["books"])
        given.passes = tables.PASSES
        jobs = tables.make_jobs(argparse.Namespace(**vars(given), methods=list(options.methods)), {"minilm": ""})
        assert options.max_length == experiment.MAX_LENGTH[data]
        given.memory_learning_rate, given.memory_key_initializer_range = 0.5, 0.25
        others = tables.make_jobs(argparse.Namespace(**vars(given), methods=["+memory", "mil"]), {"minilm": ""})
        assert {(job.memory_learning_rate, job.memory_key_initializer_range) for job in others} == {(0.5, 0.25)}
        assert all(job not in jobs for job in others)
    runs = committed(f"mil/{table}")
    assert {run["method"] for run in runs} == set(options.methods) and {run["seed"] for run in runs} == set(range(5))
    assert (options.data, options.metric, options.on_overlap) == (f"../shared/data/{data}", "f1", "drop")
    assert (options.split, options.test_split, list(options.target)) == ("train", "test", ["all"])
    assert not options.own_steps, "the others have the steps of meta-training too"
    for job in [*(vars(job) for job in jobs), *runs]:
        of = settings[job["method"]]
        reads_memory = job["method"] in ("mil", "+memory")
        names = {
            "steps": "max_steps",
            "batch_size": "per_device_train_batch_size",
            "warmup": "warmup_steps",
            "pooling": "memory_pooling",
        }
        for field in ("learning_rate", "steps", "batch_size", "warmup", "penalty_weight", *_DISCRIMINATOR):
            assert of[names.get(field, field)] == job[field], (job["method"], field)
        assert of["weight_decay"] == 0.01 and options.evaluations == job["evaluations"]
        for field in (*_MEMORY, *(("episodes", "episode_steps", "inner_steps", "hypergradient"),)[0]):
            if field in _MEMORY and reads_memory or job["method"] == "mil":
                assert of[names.get(field, field)] == job[field], (job["method"], field)


_DISCRIMINATOR = ("discriminator_learning_rate", "discriminator_hidden_size")
_MEMORY = (
    "memory_slots",
    "memory_key_size",
    "memory_weight",
    "memory_initializer_range",
    "memory_learning_rate",
    "pooling",
)


def gmap_runs() -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for table in GMAP_TABLES:
        for run in committed(f"gmap/{table}"):
            found.setdefault(run["data"], []).append(run)
    return found


GMAP_DATA = ["chemprot", "acl_arc", "scierc", "csabstruct", "agnews", "hyperpartisan", "ncbi_disease", "covidqa"]


@pytest.mark.parametrize("data", GMAP_DATA)
def test_gmap(data):
    resolved, settings = recipe(f"gmap_{data}")
    options = resolved.options
    with examples("gmap") as load:
        experiment = load("experiment")
        declared, methods, job = experiment.DATA[data], experiment.METHODS, vars(experiment.Job(data, "", "", 0))
    runs = gmap_runs()[data]
    # The logits of two classifiers are added in examples/ alone.
    assert {run["method"] for run in runs} - {"logits-fusion"} == set(options.methods)
    assert options.max_length == declared.length
    assert (options.split, options.dev_split, options.test_split) == ("train", "dev", "test")
    task, metrics = {"tagging": ("tags", (None,)), "answering": ("questions", (None,))}.get(
        declared.task, ("classes", ("accuracy" if declared.metric == "micro_f1" else "f1",))
    )
    assert options.task == task and options.metric in metrics
    # Tables of classes alone leave out dev texts that are training texts.
    assert options.on_overlap == ("drop_dev" if task == "classes" else "ignore")
    assert list(options.seeds) == ["5"] and list(options.target) == ["none"]
    for name, of in settings.items():
        for run in [one for one in runs if one["method"] == name]:
            assert {key: run[key] for key in ("learning_rate", "batch_size", "warmup")} == {
                key: job[key] for key in ("learning_rate", "batch_size", "warmup")
            }
            assert of["num_train_epochs"] == options.evaluations == run["epochs"] == declared.epochs
            assert of["learning_rate"] == run["learning_rate"] and of["warmup_steps"] == run["warmup"]
            assert of["per_device_train_batch_size"] == run["batch_size"] and of["weight_decay"] == 0.01
        encoder, reads = methods[name]
        assert chosen(name).row == {"dapt": "erm" if reads is None else "gmap", "general": "fine-tuning"}[encoder]
        if reads is not None:
            defaults = {"freeze_general": True, "fusion": "memory_attention"}
            assert {key: of[key] for key in ("strategy", *defaults)} == {**defaults, **reads}
            assert of["memory_layers"] is None and (task != "classes" or of["classifier_layers"] == 2)


GMOE = {"gmoe_pacs": "table1", "gmoe_pacs_placement": "table13", "gmoe_pacs_algorithms": "algorithms"}


def method_of(run: dict) -> str:
    """As the command names it: a ViT is what an algorithm trains where nothing else is said."""
    if run["algorithm"] == "erm":
        return run["model"]
    return run["algorithm"] if run["model"] == "vit" else f"{run['model']}+{run['algorithm']}"


@pytest.mark.parametrize("name, table", GMOE.items())
def test_gmoe(name, table):
    resolved, settings = recipe(name)
    options, runs = resolved.options, committed(f"gmoe/{table}")
    with examples("gmoe") as load:
        experiment = load("experiment")
        models = experiment.MODELS
        default = vars(experiment.Job("pacs", "", "", "", "erm", 0))
    assert {method_of(run) for run in runs} == set(options.methods)
    seeds = {run["seed"] for run in runs}
    assert seeds == set(range(options.trials))
    assert (options.draws, options.selection, options.holdout) == (1, "training", 0.2)
    plain = [method for method in options.methods if method in models]
    for run in [*runs, *({**default, "model": model} for model in plain)]:
        of = settings[method_of(run)]
        assert (options.steps, options.checkpoint_every, options.batch_size) == (
            run["steps"],
            run["eval_steps"],
            run["rows_per_domain"],
        )
        assert of["learning_rate"] == run["learning_rate"] and of["augment_images"] == run["augment"]
        assert of["weight_decay"] == 0 and of["lr_scheduler_type"] == "constant" and not run["single_source"]
        more = models[run["model"]]
        found = chosen(method_of(run))
        assert found.row == ("erm" if more is None else "gmoe") and (found.algorithm or "erm") == run["algorithm"]
        for field, value in (more or {}).items():
            assert of[field] == value


def test_ida():
    resolved, settings = recipe("ida_mnli5")
    options, runs = resolved.options, committed("ida/table4")
    with examples("ida") as load:
        experiment, tables = load("experiment"), load("tables")
        default = vars(experiment.Job("mnli5", (), "f+m+v", "rnn+mem", "memory-rnn", 0))
        assert list(options.order) == tables.GENRES and set(options.strategies) == {*tables.GENRE_LINES, "f"}
    assert {run["strategy"] for run in runs} == set(options.strategies)
    assert {run["seed"] for run in runs} == set(range(5)) and list(options.seeds) == ["5"]
    assert options.dev_fraction == 0.5, "half of the test rows are dev rows"
    for run in [*runs, {**default, "domains": options.order}]:
        of = settings[run["strategy"]]
        assert list(run["domains"]) == list(options.order) and options.max_length == run["max_length"]
        for field, key in {
            "epochs": "num_train_epochs",
            "learning_rate": "learning_rate",
            "batch_size": "per_device_train_batch_size",
            "memory_learning_rate": "memory_learning_rate",
            "hidden_size": "hidden_size",
        }.items():
            assert of[key] == run[field], field
        assert of["memory_slots"] == [run["first_slots"]] and of["classifier_size"] == run["hidden_size"]
        if run["strategy"] == "f+m+v":
            assert of["strategy_kwargs"] == {"slots": run["slots"]}
    with examples("ida") as load:
        experiment = load("experiment")
        made = experiment.make_arguments(
            experiment.Job(**runs[0] | {"vectors": None}), "f+v", ["fiction"], "out", "cpu"
        )
    for field in ("balanced_batches", "train_sampling_strategy", "warmup_steps", "per_device_eval_batch_size"):
        assert settings["f+v"][field] == getattr(made, field), field
    assert settings["f+v"]["lr_scheduler_type"] == made.lr_scheduler_type.value
