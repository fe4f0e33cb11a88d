# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Every recipe in examples/recipes gives jobs, on stand-in rows of the shape that its data has."""

import io
import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
RECIPES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "examples/recipes").glob("*.yaml"))}
WORDS = ["good", "bad", "slow", "new"]


def write(path: Path, rows: list[dict]) -> None:
    if "image" in rows[0]:
        import pandas

        pandas.DataFrame(rows).to_parquet(path.with_suffix(".parquet"))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def picture(number: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (8, 8), (number % 256, number // 256, 0)).save(file, "png")
    return file.getvalue()


def write_digits(folder: Path) -> None:
    """The four files of MNIST, with 30 digits each."""
    for part, first in (("train", 0), ("t10k", 30)):
        digits = bytes(number % 10 for number in range(first, first + 30))
        pixels = bytes((number + first) % 251 for number in range(30 * 28 * 28))
        for name, sizes, values in (("images-idx3", (30, 28, 28), pixels), ("labels-idx1", (30,), digits)):
            head = bytes((0, 0, 8, len(sizes))) + b"".join(size.to_bytes(4, "big") for size in sizes)
            (folder / f"{part}-{name}-ubyte").write_bytes(head + values)


def row_of(kind: str, number: int) -> dict:
    text = f"the {WORDS[number % 4]} number {number}"
    if kind == "tags":
        words = text.split()
        return {"tokens": words, "ner_tags": ["O"] * (len(words) - 1) + ["B-X"]}
    if kind == "questions":
        return {
            "question": "which?",
            "context": text,
            "answers": {"text": [str(number)], "answer_start": [len(text) - len(str(number))]},
        }
    if kind == "smiles":
        return {"smiles": "C" * (number % 30 + 1) + "N" * (number // 30), "label": number % 2}
    if kind == "graph":
        size = number + 3
        return {"num_nodes": size, "edges": [[one, one + 1] for one in range(size - 1)], "label": number % 2}
    if kind == "image":
        return {"image": picture(number), "label": number % 2}
    if kind == "replies":
        return {"text": text, "text_pair": f"why the {WORDS[(number + 1) % 4]} one?"}
    return {"text": text, "label": number % 2}


def kind_of(recipe: dict) -> str:
    for kind, is_so in (
        ("smiles", "smiles" in recipe),
        ("graph", recipe.get("backbone", "").startswith("gin")),
        ("image", "cifar" in recipe["data"]),
    ):
        if is_so:
            return kind
    return recipe.get("task", "classes")


def stand_in(recipe: dict, folder: Path) -> str:
    """Rows with the domains and splits that the recipe reads, as `--data` takes them."""
    source, colon, _ = recipe["data"].partition(":")
    if colon:
        write_digits(folder)
        return f"{source}:{folder}"
    if "pacs" in recipe["data"]:
        for number, name in enumerate(f"{d}/{c}" for d in ("art", "photo", "sketch") for c in ("cat", "dog")):
            (folder / name).mkdir(parents=True)
            for row in range(5):
                (folder / name / f"{row}.png").write_bytes(picture(40 * number + row))
        return str(folder)
    kind = kind_of(recipe)
    splits = [recipe[key] for key in ("split", "dev_split", "test_split") if key in recipe]
    domains = recipe.get("order") or (["books", "dvd", "films"] if recipe.get("target") == "all" else [None])
    number = 0
    for domain in domains:
        for split in splits:
            rows = [row_of(kind, number + one) for one in range(max([20, *recipe.get("shots", [])]))]
            number += len(rows)
            write(folder / ".".join(filter(None, [domain, split, "jsonl"])), rows)
    return str(folder)


def test_every_family_and_every_training_command_has_a_recipe():
    methods = {name for recipe in RECIPES.values() for name in [*recipe.get("methods", []), recipe.get("method")]}
    assert {"mil", "hma", "gmoe", "gmap", "memory-rnn"} <= methods
    assert {recipe["command"] for recipe in RECIPES.values()} == {"compare", "sweep", "pretrain", "train", "continual"}


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_says_how_to_run_it(name):
    path = ROOT / f"examples/recipes/{name}.yaml"
    assert f"hf-memaug {RECIPES[name]['command']} --recipe examples/recipes/{name}.yaml" in path.read_text()


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe["command"] != "pretrain"])
def test_the_recipe_gives_jobs(name, tmp_path, monkeypatch, capsys, backbones):
    from hf_memaug_cli.app import main

    recipe = RECIPES[name]
    if "smiles" in recipe:
        pytest.importorskip("rdkit", reason="rdkit is not installed: the extra `graph`")
    monkeypatch.chdir(tmp_path)
    words = [recipe["command"], "--recipe", str(ROOT / f"examples/recipes/{name}.yaml"), "--dry-run", "--json"]
    if not recipe["data"].startswith("generated"):
        (tmp_path / "rows").mkdir()
        words += ["--data", stand_in(recipe, tmp_path / "rows")]
    if "gmap" in [*recipe.get("methods", []), recipe.get("method")]:
        words += ["--general", backbones["roberta"], "--backbone", backbones["roberta"]]
    code = main(words)
    out, error = capsys.readouterr()
    assert code == 0, error
    jobs = [json.loads(line) for line in out.splitlines()]
    assert jobs and all(job["state"] == "to do" for job in jobs)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe["command"] != "pretrain"])
def test_the_trainer_takes_the_settings(name, tmp_path):
    """A dry run builds no arguments of a trainer."""
    import dataclasses

    from hf_memaug import BilevelTrainingArguments, ContinualTrainingArguments, DomainTrainingArguments

    recipe = RECIPES[name]
    if recipe["command"] == "continual":
        kind = ContinualTrainingArguments
    else:
        kind = BilevelTrainingArguments if "episodes" in recipe else DomainTrainingArguments
    known = {field.name for field in dataclasses.fields(kind)}
    # YAML reads `1e-4` as a text.
    settings = {
        key: float(value) if str(value)[1:3] == "e-" else value for key, value in recipe.items() if key in known
    }
    kind(str(tmp_path), use_cpu=True, **settings)
