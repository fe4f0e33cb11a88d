# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`train` and `compare`: jobs, the run folder, and going on."""

import json
import os
import signal
import time

import numpy as np
import pytest
import yaml

from hf_memaug.evaluation import macro_f1
from hf_memaug.training import last_complete_checkpoint


def test_several_methods_on_a_csv(command, columns, backbones, quick, memory, no_report, read_lines, tmp_path):
    words = ["compare", *columns, "--methods", "erm,+memory,mil,hma", "--backbone", backbones["roberta"], "--seeds", 2]
    meta = ["--episodes", 1, "--episode-steps", 2, "--real-memory-size", 16, "--target", "films"]
    code, out, error = command(*words, *meta, *quick, *memory)
    assert code == 0, error
    assert "[8/8] hma films seed 1: validation" in out and "(n = 2)" in out
    assert "All other methods take 2 more steps" in out
    folder = tmp_path / "runs" / "compare"
    run = json.loads((folder / "run.json").read_text())
    assert run["methods"] == ["erm", "+memory", "mil", "hma"] and run["targets"] == ["films"] and run["seeds"] == [0, 1]
    assert run["task"] == "text" and run["metric"] == "f1" and run["labels"] == ["negative", "positive"]
    assert run["finished"] and run["versions"]["torch"] and run["command"].startswith("hf-memaug compare --data ")
    data = json.loads((folder / "data.json").read_text())
    assert data["domains"]["films"]["test"] == 12 and data["domains"]["books"]["dev"] == 2
    assert data["overlap"]["between_domains"] == [] and len(data["hash"]) == 64
    records = read_lines(folder / "runs.jsonl")
    assert [record["name"] for record in records[:4]] == [f"{method}-films-seed0" for method in run["methods"]]
    for record in records:
        assert set(record["scores"]) == {"books", "phones", "films"}
        assert set(record["scores"]["films"]) == {"accuracy", "f1", "mcc", "auroc"} and 0 <= record["validation"] <= 100
        assert record["seconds"] > 0 and record["peak_memory_bytes"] > 10**6
        # MIL's two steps of meta-training are given to the others as well.
        assert record["settings"]["steps"] == (2 if record["job"]["method"] == "mil" else 4)
    by_method = {record["job"]["method"]: record for record in records}
    assert by_method["mil"]["job"]["episodes"] == 1 and "episodes" not in by_method["erm"]["job"]
    assert by_method["+memory"]["job"]["memory_slots"] == 8 and "memory_slots" not in by_method["hma"]["job"]
    results = json.loads((folder / "results.json").read_text())
    assert len(results["rows"]) == 8
    assert {row["target"] for row in results["rows"]} == {"films"}
    assert results["rows"][0]["metric"] == "macro_f1" and results["rows"][0]["data"] == "reviews"
    assert "paired t-test" in (folder / "README.md").read_text()

    # What may be published names no folder of this machine, though `--data` did. The run is in the working directory.
    assert yaml.safe_load((folder / "recipe.yaml").read_text())["data"] == os.path.relpath("reviews.csv", folder)
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".md", ".yaml", ".html"):
            assert str(tmp_path) not in path.read_text(), path
    # The backbone is elsewhere.
    for name in ("run.json", "results.json", "README.md", "report.html"):
        assert str(tmp_path.parent) not in (folder / name).read_text()

    # Of each method the weights of one seed are kept, ready to load, with a card.
    from transformers import pipeline

    kept = sorted(path.parent.name for path in folder.glob("jobs/*/checkpoint"))
    assert len(kept) == 4 and {name.split("-")[0] for name in kept} == set(run["methods"])
    for name in kept:
        place = folder / "jobs" / name
        answer = pipeline("text-classification", model=str(place / "checkpoint"))("A dull film.")[0]
        assert answer["label"] in ("negative", "positive")
        card = (place / "checkpoint" / "README.md").read_text()
        assert "films" in card and "more information needed" not in card.lower()
        # From these facts, `push` writes the card again.
        facts = json.loads((place / "checkpoint/config.json").read_text())["run_facts"]
        assert facts["left_out"] == "films" and facts["scores"]
        logged = read_lines(place / "metrics.jsonl")
        assert any("loss" in line for line in logged) and any("eval_f1" in line for line in logged)
        assert not (place / "run").exists()
        features = np.load(place / "features.npz")
        assert len(features["features"]) == len(features["text"]) == len(features["domain"]) == 16
    memory_file = json.loads((folder / "jobs/mil-films-seed0/memory.json").read_text())
    assert memory_file["kind"] == "slots" and set(memory_file["by_domain"]) == {"books", "phones", "films"}
    assert sum(memory_file["by_domain"]["films"]) == pytest.approx(1, abs=1e-3)

    # The same command again: nothing is done twice. The seeds' answers can be averaged then, too.
    before = (folder / "runs.jsonl").read_bytes()
    with no_report():
        code, out, _ = command(*words, *meta, *quick, *memory, "--ensemble-seeds", 2)
    assert code == 0 and "8 of 8 jobs are already done" in out and (folder / "runs.jsonl").read_bytes() == before
    first, second = (np.load(folder / f"jobs/mil-films-seed{seed}/answers.npz") for seed in (0, 1))
    shares = [np.exp(one["logits"]) / np.exp(one["logits"]).sum(axis=-1, keepdims=True) for one in (first, second)]
    expected = 100 * macro_f1(sum(shares).argmax(axis=-1), first["labels"], labels=(0, 1))
    results = json.loads((folder / "results.json").read_text())
    assert [row["value"] for row in results["rows"] if row["method"] == "mil×2"] == [pytest.approx(expected, abs=1e-3)]


def test_the_recipe_of_a_run_gives_the_same_jobs(command, columns, quick, memory, tmp_path):
    words = ["compare", *columns, "--methods", "erm,mil", "--seeds", "4,1", "--dry-run", "--json"]
    more = ["--mil.learning-rate", "1e-4", "--no-balanced-batches", "--algorithm-kwargs", "{}", "--target", "all"]
    code, first, error = command(*words, *quick[:2], *memory, *more)
    assert code == 0, error
    jobs = [json.loads(line) for line in first.splitlines()]
    assert len(jobs) == 2 * 2 * 3 and jobs[1]["job"]["learning_rate"] == 1e-4
    assert jobs[0]["job"]["balanced_batches"] is False and "learning_rate" not in jobs[0]["job"]

    from hf_memaug.cli.recipes import resolve
    from hf_memaug.runs.folder import RunFolder
    from hf_memaug.runs.settings import all_settings
    from hf_memaug_cli.options import CompareOptions

    given = {"data": columns[1], "label": "stars", "domain": "shop", "methods": "erm,mil", "seeds": "4,1"}
    of_all = {"max_steps": "2", "memory_slots": "8", "memory_key_size": "8"}
    of_all |= {"balanced_batches": False, "algorithm_kwargs": "{}"}
    settings = {None: of_all, "mil": {"learning_rate": "1e-4"}}
    resolved = resolve("compare", CompareOptions, given, settings, all_settings("bilevel"))
    RunFolder(tmp_path).write_recipe(resolved.recipe("compare"))
    code, second, error = command("compare", "--recipe", "recipe.yaml", "--dry-run", "--json")
    assert code == 0, error
    assert [json.loads(line) for line in second.splitlines()] == jobs
    # The command line comes last.
    code, third, _ = command("compare", "--recipe", "recipe.yaml", "--seeds", 1, "--dry-run", "--json")
    assert code == 0 and {json.loads(line)["job"]["seed"] for line in third.splitlines()} == {0}


def test_one_method_without_a_target(command, columns, backbones, quick, no_report, read_lines, tmp_path, monkeypatch):
    words = ["train", *columns, "--method", "coral", "--backbone", backbones["bert"], *quick, "--output", "one"]
    with no_report():
        code, out, error = command(*words, "--quiet")
    assert (code, out) == (0, ""), error
    (record,) = read_lines(tmp_path / "one" / "runs.jsonl")
    assert set(record["scores"]) == {"books", "films", "phones"} and record["job"]["target"] == "none"
    recipe = yaml.safe_load((tmp_path / "one" / "recipe.yaml").read_text())
    assert recipe["command"] == "train" and recipe["method"] == "coral" and recipe["max_steps"] == 2
    # The recipe as it lies there, into another folder: the same job, to the number.
    with no_report():
        code, out, error = command("train", "--recipe", "one/recipe.yaml", "--output", "two", "--json")
    assert code == 0, error
    (again,) = read_lines(tmp_path / "two" / "runs.jsonl")
    assert again["job"] == record["job"] and again["scores"] == record["scores"]
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["done", "finished"]
    # Another rate into the same folder would mix two kinds of run.
    code, _, error = command(*words, "--learning-rate", "1e-3")
    assert code == 2 and "`learning_rate` is 0.001" in error and "another `--output`" in error
    assert read_lines(tmp_path / "one" / "runs.jsonl") == [record]
    assert not os.path.isabs(recipe["backbone"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, error = command("train", "--recipe", tmp_path / "one/recipe.yaml", "--dry-run")
    assert code == 0, error


@pytest.mark.slow
def test_ctrl_c_and_go_on(started, columns, no_report, read_lines, tmp_path, command):
    words = ["train", *columns, "--target", "books", "--max-steps", 4000, "--save-steps", 5, "--eval-steps", 5]
    words += ["--output", "killed", "--per-device-train-batch-size", 4]
    one = started(*words)
    run = tmp_path / "killed" / "jobs" / "erm-books-seed0" / "run"
    end = time.monotonic() + 90
    while not last_complete_checkpoint(run):
        assert one.poll() is None and time.monotonic() < end, one.stderr.read()
        time.sleep(0.05)
    # Some steps further, and not at a checkpoint by chance alone. The step under way is saved.
    time.sleep(0.3)
    one.send_signal(signal.SIGINT)
    _, error = one.communicate(timeout=60)
    assert one.returncode == 130, error
    assert "To resume, rerun the same command." in error and not (tmp_path / "killed/runs.jsonl").exists()
    saved = int(last_complete_checkpoint(run).rpartition("-")[2])
    logged = read_lines(run.parent / "metrics.jsonl")
    assert max((line["step"] for line in logged), default=0) <= saved

    # With a lower goal it would be another job; so it is refused, and nothing is lost.
    lower = [str(word) if word != 4000 else str(saved + 2) for word in words]
    code, _, error = command(*lower)
    assert code == 2 and "`max_steps`" in error
    job = run.parent / "job.json"
    job.write_text(job.read_text().replace('"max_steps": 4000', f'"max_steps": {saved + 2}'))
    with no_report():
        code, out, error = command(*lower)
    assert code == 0, error
    assert f"resumed from step {saved}" in out
    (record,) = read_lines(tmp_path / "killed" / "runs.jsonl")
    assert record["settings"]["steps"] == saved + 2
    steps = [line["step"] for line in read_lines(run.parent / "metrics.jsonl") if "loss" in line]
    assert steps == sorted(set(steps)), "what was logged after the checkpoint is logged once"


@pytest.mark.slow
def test_several_jobs_at_once(command, columns, backbones, quick, no_report, read_lines, tmp_path):
    words = ["compare", *columns, "--methods", "erm,vrex", "--seeds", 1, "--target", "books", "--keep", "none"]
    scores = []
    for jobs in (2, 1):
        with no_report():
            call = [*words, *quick, "--backbone", backbones["roberta"], "--jobs", jobs, "--output", f"run{jobs}"]
            code, out, error = command(*call)
        assert code == 0, error + out
        records = read_lines(tmp_path / f"run{jobs}/runs.jsonl")
        assert {record["checkpoint"] for record in records} == {None}
        assert len(records) == 2 and not list(tmp_path.glob("*/jobs/*/checkpoint"))
        scores.append({record["name"]: record["scores"] for record in records})
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_several_processes(command, columns, backbones, quick, no_report, read_lines, tmp_path):
    words = ["train", *columns, "--target", "books", *quick, "--backbone", backbones["roberta"], "--processes", 2]
    with no_report():
        code, out, error = command(*words)
    assert code == 0, error + out + (tmp_path / "runs/train/jobs/erm-books-seed0/log.txt").read_text()[-2000:]
    (record,) = read_lines(tmp_path / "runs/train/runs.jsonl")
    assert record["job"]["processes"] == 2 and record["settings"]["steps"] == 2


def test_processes_without_a_gpu_find_each_other(monkeypatch, tmp_path):
    import torch

    from hf_memaug.runs.arguments import common_arguments

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert common_arguments(tmp_path, 0)["use_cpu"] is False
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert common_arguments(tmp_path, 0)["use_cpu"] is True


def test_images(command, pictures, backbones, quick, no_report, read_lines, tmp_path):
    words = ["compare", "--data", pictures, "--methods", "vit,gmoe+coral,hma", "--backbone", backbones["vit"]]
    more = ["--seeds", 1, "--target", "-90", "--num-experts", 3, "--router-dim", 8, "--real-memory-size", 16]
    with no_report():
        code, out, error = command(*words, *more, *quick, "--augment-images")
    assert code == 0, error + out
    records = {record["job"]["method"]: record for record in read_lines(tmp_path / "runs/compare/runs.jsonl")}
    assert set(records) == {"vit", "gmoe+coral", "hma"}
    place = tmp_path / "runs/compare/jobs" / records["gmoe+coral"]["name"]
    assert json.loads((place / "checkpoint/config.json").read_text())["num_experts"] == 3
    assert json.loads((place / "memory.json").read_text())["kind"] == "experts"
    assert "picture" in np.load(place / "features.npz")
    assert json.loads((tmp_path / "runs/compare/run.json").read_text())["task"] == "image"


@pytest.mark.parametrize("kind", ["jsonl.gz", "parquet", "tsv", "hub"])
def test_rows_of_every_kind(command, reviews, tmp_path, monkeypatch, kind):
    import csv
    import gzip

    with reviews.open(newline="") as file:
        rows = list(csv.DictReader(file))
    where = tmp_path / f"rows.{kind}"
    if kind == "jsonl.gz":
        where.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    elif kind == "tsv":
        lines = ["\t".join(row.values()) for row in rows]
        where.write_text("\n".join(["\t".join(rows[0]), *lines]) + "\n")
    else:
        datasets = pytest.importorskip("datasets", reason="`datasets` is not installed")
        table = datasets.Dataset.from_list(rows)
        if kind == "parquet":
            table.to_parquet(where)
        else:
            where = "somebody/reviews"
            monkeypatch.setattr(datasets, "load_dataset", lambda name: datasets.DatasetDict({"train": table}))
    words = ["--label", "stars", "--domain", "shop", "--methods", "erm", "--dry-run", "--json", "--seeds", 1]
    code, out, error = command("compare", "--data", where, *words)
    assert code == 0, error
    jobs = [json.loads(line)["job"] for line in out.splitlines()]
    assert [job["target"] for job in jobs] == ["books", "films", "phones"]
    # The same rows, whatever they lie in.
    assert command("compare", "--data", reviews, *words)[1] == out
