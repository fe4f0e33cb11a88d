# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The experiments behind HMA's tables: equal budgets, selection on dev rows, and tables that can be made again."""

import argparse
import dataclasses
import gzip
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples" / "hma"
pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def folder(tmp_path) -> str:
    """A small MNIST, whose images show nothing but how large the digit is."""
    draw = np.random.default_rng(0)
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    for part, count in (("train", 50000), ("t10k", 300)):
        digits = draw.integers(0, 10, count).astype(np.uint8)
        images = np.repeat(digits * 25, 784).reshape(count, 28, 28).astype(np.uint8)
        for kind, array, axes in (("images-idx3", images, 3), ("labels-idx1", digits, 1)):
            head = struct.pack(">HBB", 0, 8, axes) + struct.pack(f">{axes}I", *array.shape)
            content = gzip.compress(head + array.tobytes(), compresslevel=1)
            (tmp_path / "data" / "mnist" / f"{part}-{kind}-ubyte.gz").write_bytes(content)
    return str(tmp_path)


def small(monkeypatch) -> None:
    """Rows enough for a few steps."""
    import tasks

    whole = tasks.load

    def fewer(*args):
        return {name: part[slice(200)] for name, part in whole(*args).items()}

    monkeypatch.setattr(tasks, "load", fewer)


def job(**kwargs):
    from experiment import Job

    given = {"data": "coloured_mnist", "setting": "14/0.2/0.1", "backbone": "mlp", "method": "hma", "seed": 0}
    settings = {"epochs": 2, "batch_size": 50, "evaluations": 2, "real_memory_size": 100}
    return Job(**{**given, **settings, **kwargs})


def test_colours_go_with_labels_as_often_as_they_should(folder):
    from coloured import LABEL_NOISE, load

    parts = load(f"{folder}/data/mnist", 14, (0.2, 0.1), seed=0)
    assert {name: len(part) for name, part in parts.items()} == {
        "train": 45000,
        "dev": 5000,
        "reversed": 300,
        "grey": 300,
    }

    def agreement(part):
        colour = part.images[:, 1].sum(dim=(1, 2)) > part.images[:, 0].sum(dim=(1, 2))
        seen = part.images.sum(dim=(1, 2, 3)) > 0  # a zero is black
        return (colour.long() == part.labels)[seen].float().mean()

    first, second = parts["train"][slice(22500)], parts["train"][slice(22500, None)]
    assert agreement(first) == pytest.approx(0.8, abs=0.01) and agreement(second) == pytest.approx(0.9, abs=0.01)
    assert agreement(parts["reversed"]) == pytest.approx(0.1, abs=0.06)
    assert torch.equal(parts["grey"].images[:, 0], parts["grey"].images[:, 1])
    # Only the digit is left: labels are wrong as often as labels are noisy.
    digit = (parts["grey"].images[:, 0].mean(dim=(1, 2)) * 2 * 255 / 25).round()
    assert ((digit < 5).long() != parts["grey"].labels).float().mean() == pytest.approx(LABEL_NOISE, abs=0.08)


def test_a_seed_is_a_run_and_every_method_takes_as_many_steps(folder, monkeypatch):
    from experiment import run

    small(monkeypatch)
    found = [run(job(method=method), folder) for method in ("backbone", "hma", "hma")]
    assert [one["steps"] for one in found] == [8, 8, 8]
    assert found[1]["scores"] == found[2]["scores"] and set(found[1]["scores"]["batch"]) == {"reversed", "grey"}
    assert found[0]["scores"]["batch"] == found[0]["scores"]["independent"], "a backbone reads no other rows"
    assert run(job(seed=1), folder)["scores"] != found[1]["scores"]


def test_how_large_fresh_weights_are(folder):
    from experiment import make_model
    from tasks import TASKS

    stds = []
    for wide in (None, 0.1):
        made = job(initializer_range=wide)
        model = make_model(made, TASKS[made.data](folder, made.setting, made.backbone, made.seed))
        readers = [p for name, p in model.head.named_parameters() if name.endswith("projection.weight")]
        stds.append(torch.cat([weight.flatten() for weight in readers]).std().item())
    assert stds == [pytest.approx(0.02, rel=0.05), pytest.approx(0.1, rel=0.05)]


def test_the_best_weights_on_dev_rows_are_scored(folder, monkeypatch):
    import experiment

    small(monkeypatch)
    scored = []

    def score(metric, logits, labels):
        scored.append(logits)
        return {1: 10.0, 2: 30.0, 3: 20.0}.get(len(scored), 0.0)

    monkeypatch.setattr(experiment, "score", score)
    result = experiment.run(job(method="backbone", evaluations=3, epochs=3), folder)
    assert result["dev"] == 30.0 and result["step"] == 8 and result["steps"] == 12
    monkeypatch.undo()
    small(monkeypatch)
    # After eight steps a run of eight has the same weights.
    task = experiment.TASKS["coloured_mnist"](folder, "14/0.2/0.1", "mlp", 0)
    shorter = experiment.run(job(method="backbone", evaluations=1, epochs=2), folder)
    labels = torch.cat([batch["labels"] for batch in task.parts["reversed"].batches(50, seed=0)])
    assert experiment.score("accuracy", scored[3], labels) == shorter["scores"]["batch"]["reversed"]


def test_rows_that_are_left_over_join_another_batch():
    from tasks import Rows

    rows = Rows(9, lambda index: {"rows": index}, torch.zeros(9))
    batches = [batch["rows"] for batch in rows.batches(4, seed=3)]
    assert [len(batch) for batch in batches] == [4, 5] and sorted(torch.cat(batches).tolist()) == list(range(9))
    again = torch.cat([batch["rows"] for batch in rows.batches(4, seed=3)])
    other = torch.cat([batch["rows"] for batch in rows.batches(4, seed=4)])
    assert torch.equal(torch.cat(batches), again) and not torch.equal(again, other)


def test_graphs_of_every_network(monkeypatch):
    import tasks
    from experiment import run

    from hf_memaug.data import generated_graphs

    whole = generated_graphs("size", rows_per_domain=30)
    parts = {"train": whole, "dev": whole, "test": whole}
    monkeypatch.setitem(
        tasks.TASKS, "bace", lambda folder, setting, *rest: tasks._graph_task(parts, rest[0], "accuracy")
    )
    for network in ("gcn", "gcn-v", "gin", "gin-vn"):
        made = job(data="bace", setting="", backbone=f"{network}-2x16", epochs=1, evaluations=1)
        assert 0 <= run(made, "")["scores"]["independent"]["test"] <= 100


def test_size_shift_of_both_sets(monkeypatch):
    """Table 6: small graphs to train on, large ones to test, scored by Matthews correlation."""
    import tasks
    from tables import TABLES

    from hf_memaug.data import generated_graphs

    asked, whole = [], generated_graphs("size", rows_per_domain=30)
    monkeypatch.setattr(tasks, "_tu", lambda folder, name: asked.append(name) or whole)
    for table in ("size_shift", "size_shift_imdb"):
        (name,), (setting,), (backbone,), _ = TABLES[table]
        task = tasks.TASKS[name]("", setting, backbone, 0)
        nodes = {
            part: torch.cat([b["graph_index"].bincount() for b in rows.batches(50, 0)])
            for part, rows in task.parts.items()
        }
        assert task.metric == "mcc" and nodes["train"].max() < nodes["test"].min()
    assert asked == ["PROTEINS", "IMDB-BINARY"]


def test_packed_molecules_are_the_molecules(tmp_path):
    pytest.importorskip("rdkit")
    from pack_graphs import PARTS, pack
    from tasks import _molecules

    place = tmp_path / "data" / "molecules"
    place.mkdir(parents=True)
    for number, part in enumerate(PARTS):
        with gzip.open(place / f"bace.{part}.jsonl.gz", "wt") as file:
            for label, smiles in enumerate(("CCO", "c1ccccc1", "CC(=O)N")[number:]):
                file.write(json.dumps({"smiles": smiles, "label": label % 2}) + "\n")
    plain = _molecules(str(tmp_path))
    _molecules.cache_clear()
    pack(place, place)
    packed = _molecules(str(tmp_path))
    for part in PARTS:
        for name in ("graph", "label"):
            assert list(packed[part][name]) == list(plain[part][name])
    _molecules.cache_clear()


def test_images_from_parquet_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    from experiment import run
    from families import save_backbone
    from PIL import Image
    from tasks import TASKS

    save_backbone("vit", tmp_path / "weights" / "tiny")
    (tmp_path / "weights" / "tiny" / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    )
    (tmp_path / "data" / "pacs").mkdir(parents=True)
    (tmp_path / "data" / "pacs" / "labels.json").write_text('["dark", "light"]')
    for domain in ("photo", "sketch"):
        rows = {"image": [], "label": []}
        for row in range(40):
            file = tmp_path / "image.png"
            Image.new("RGB", (16, 16), (200 * (row % 2) + row,) * 3).save(file)
            rows["image"].append(file.read_bytes())
            rows["label"].append(row % 2)
        parquet.write_table(pyarrow.table(rows), tmp_path / "data" / "pacs" / f"{domain}.parquet")
    task = TASKS["pacs"](str(tmp_path), "photo", "tiny", 0)
    assert {name: part.count for name, part in task.parts.items()} == {"train": 29, "dev": 3, "test": 8}
    values = [batch["pixel_values"][:, 0, 0, 0] for part in task.parts.values() for batch in part.batches(8, 0)]
    assert len(set(torch.cat(values).tolist())) == 40, "a row is in two parts"
    made = job(data="pacs", setting="photo", backbone="tiny", batch_size=8, epochs=1, evaluations=1)
    assert set(run(made, str(tmp_path))["scores"]["batch"]) == {"test"}
    from experiment import make_model

    made = job(data="pacs", setting="photo", backbone="tiny", method="prompt-a+hma", tuning="head", epochs=1)
    model = make_model(made, task)
    assert (model.config.prompt_tokens, model.config.prompt_depth, model.config.augmentation) == (4, "all", "hma")
    learns = {name for name, p in model.backbone.named_parameters() if p.requires_grad}
    assert learns and all("cls_token" in name or "prompt_tokens" in name for name in learns)
    plain = make_model(job(data="pacs", backbone="tiny", method="prompt-p"), task)
    assert plain.config.prompt_depth == "input" and plain.config.augmentation == "none"
    assert all(p.requires_grad for p in plain.backbone.parameters())
    assert run(made, str(tmp_path))["steps"] == 1


def test_nothing_of_the_target_is_trained_on(tmp_path):
    from experiment import run
    from families import save_backbone
    from tasks import TASKS

    from hf_memaug.data import generated_reviews

    save_backbone("bert", tmp_path / "weights" / "tiny")
    (tmp_path / "data" / "amazon").mkdir(parents=True)
    whole = generated_reviews(rows_per_domain=20)
    for domain, part in whole.by_domain().items():
        for split, chosen in (("train", range(12)), ("test", range(12, 20))):
            with gzip.open(tmp_path / "data" / "amazon" / f"{domain}.{split}.jsonl.gz", "wt") as file:
                for row in part.select(chosen):
                    file.write(json.dumps({name: row[name] for name in ("text", "label", "domain")}) + "\n")
    task = TASKS["amazon"](str(tmp_path), "books", "tiny", 0)
    others = len(whole.domains) - 1
    counts = {name: part.count for name, part in task.parts.items()}
    assert counts == {"train": 12 * others, "dev": 8 * others, "test": 8}
    made = job(data="amazon", setting="books", backbone="tiny", batch_size=16, epochs=1, evaluations=1)
    assert set(run(made, str(tmp_path))["scores"]["batch"]) == {"test"}


def test_a_model_is_one_row_of_the_memory_sizes():
    from tables import make_jobs, rows_of

    from hf_memaug.reporting.memory_sizes import memory_size_curves

    given = argparse.Namespace(
        table="memory_sizes", tune=False, seeds=2, data=None, settings=None, backbones=None, methods=["hma"]
    )
    given.job = argparse.Namespace()
    result = {"metric": "auroc", "scores": {"batch": {"test": 70.0}, "independent": {"test": 60.0}}}
    rows = [row for one in make_jobs(given, {}) for row in rows_of(one, result, "memory_sizes", tuning=False)]
    curves = memory_size_curves(rows)
    assert list(curves) == [0, 32, 64, 128]
    assert all(curve == dict.fromkeys([0, 4, 8, 16, 32], [70.0, 70.0]) for curve in curves.values())


def test_tuned_settings_are_those_that_were_best_on_dev_rows():
    from tables import TUNING_SEEDS, _candidates, _tuned

    wanted = job()
    done = {}
    for seed in range(2):
        for number, candidate in enumerate(_candidates(job(seed=TUNING_SEEDS + seed))):
            done[candidate] = {"dev": 50.0 + (10 if number == 3 else number)}
    best = _candidates(wanted)[3]
    free = ["learning_rate", "momentum"]
    # A setting that is given is tried by itself.
    assert _candidates(job(learning_rate=1e-2), ["momentum"]) == [
        job(learning_rate=1e-2, momentum=one) for one in (0.9, 0.999)
    ]
    assert len(_candidates(wanted)) == len(_candidates(job(method="backbone"))) == 6
    found = _tuned(wanted, done, free)
    assert (found.learning_rate, found.momentum) == (best.learning_rate, best.momentum)
    for other in ({"method": "backbone"}, {"setting": "14/0/0.02"}, {"real_memory_size": 50}):
        assert _tuned(job(**other), done, free) == job(**other), "another job's settings"
    # What is given on the command line is given.
    given = job(learning_rate=3e-3)
    assert _tuned(given, done, ["momentum"]).learning_rate == 3e-3


def test_over_a_frozen_backbone_the_rate_of_what_is_fresh_is_tuned():
    from tables import TUNED, TUNING_SEEDS, _candidates, _tuned, rows_of

    for method in ("backbone", "hma"):
        wanted = job(method=method, tuning="head", head_learning_rate=3e-4)
        candidates = _candidates(dataclasses.replace(wanted, seed=TUNING_SEEDS))
        assert [one.head_learning_rate for one in candidates] == [3e-4, 1e-3, 3e-3]
        assert {one.learning_rate for one in candidates} == {wanted.learning_rate}
        done = {one: {"dev": dev, "metric": "accuracy"} for one, dev in zip(candidates, (60, 70, 65), strict=True)}
        assert _tuned(wanted, done, list(TUNED)) == dataclasses.replace(wanted, head_learning_rate=1e-3)
        # A seed that only some of them have says nothing of which is best.
        harder = dataclasses.replace(candidates[1], seed=TUNING_SEEDS + 1)
        more = {**done, harder: {"dev": 10, "metric": "accuracy"}}
        assert _tuned(wanted, more, list(TUNED)) == dataclasses.replace(wanted, head_learning_rate=1e-3)
        del more[candidates[1]]
        assert _tuned(wanted, more, list(TUNED)) == wanted, "no seed that all have"
        (row,) = rows_of(candidates[2], done[candidates[2]], "head_tuning", tuning=True)
        assert row["method"] == f"{method}, head_learning_rate 0.003" and row["value"] == 65


def test_a_table_from_the_command_line(folder, at_once, monkeypatch, capsys, tmp_path):
    import experiment
    import tables

    small(monkeypatch)

    calls = []
    whole = experiment.run
    monkeypatch.setattr(experiment, "run", lambda *args: calls.append(args) or whole(*args))
    record, output = tmp_path / "runs.jsonl", tmp_path / "results"
    command = ["tables.py", "coloured", "--folder", folder, "--methods", "backbone", "hma", "--seeds", "2"]
    command += ["--settings", "14/0.2/0.1", "--backbones", "mlp", "--epochs", "1", "--batch-size", "50"]
    monkeypatch.setattr(sys, "argv", [*command, "--record", str(record), "--output", str(output)])
    tables.main()
    table = json.loads((output / "coloured.json").read_text())
    assert len(calls) == 4 and len(table["rows"]) == 2 * 2 * (1 + 2)
    assert {row["method"] for row in table["rows"]} == {"backbone", "hma", "hma, independent"}
    assert {row["target"] for row in table["rows"]} == {"14/0.2/0.1 reversed", "14/0.2/0.1 grey"}
    tables.main()
    assert len(calls) == 4 and "4 of 4 models are in" in capsys.readouterr().out, "what has run is not run again"


def test_one_set_of_a_table(monkeypatch, capsys, tmp_path):
    import tables

    def run(data: str) -> list:
        command = ["graphs", "--data", data, "--methods", "param", "--seeds", "1", "--record", tmp_path / "runs.jsonl"]
        monkeypatch.setattr(sys, "argv", ["tables.py", *map(str, command)])
        found = []
        monkeypatch.setattr(tables, "run_jobs", lambda jobs, options: found.extend(jobs) or sys.exit(0))
        with pytest.raises(SystemExit):
            tables.main()
        return found

    assert {(one.data, one.setting) for one in run("imdb-binary")} == {("imdb-binary", fold) for fold in tables.FOLDS}
    assert run("bace") == [] and "is no set of graphs: proteins, imdb-binary" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_recorded_steps_are_the_steps(folder, monkeypatch):
    """Also with a last batch of another size, which is recorded on its own."""
    small(monkeypatch)
    import contextlib

    import steps

    # In full precision: Adam's first steps are as long for a gradient of rounding errors as for any other.
    monkeypatch.setattr(steps.Steps, "_precision", lambda self: contextlib.nullcontext())
    from experiment import make_model
    from tasks import TASKS

    one = job(batch_size=60)
    task = TASKS[one.data](folder, one.setting, one.backbone, 0)
    found = {}
    for graphed in (False, True):
        torch.manual_seed(0)
        model = make_model(one, task).to("cuda")
        groups = [{"params": [value for value in model.parameters() if value.requires_grad], "lr": 1e-3}]
        made = steps.Steps(model, groups, "cuda", graphed)
        for epoch in range(3):
            for batch in task.parts["train"].batches(60, seed=epoch):
                made.train(batch)
        found[graphed] = {name: value.clone() for name, value in model.state_dict().items()}
    for name, value in found[False].items():
        torch.testing.assert_close(
            found[True][name], value, rtol=1e-2, atol=5e-4, msg=lambda said, name=name: f"{name}: {said}"
        )
