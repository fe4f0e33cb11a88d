# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Graphs and molecules through the commands, and data that brings its own splits."""

import csv
import json
import sys

import numpy as np
import pytest

NETWORK = ["--backbone", "gin-2x8", "--max-steps", "3", "--evaluations", "1", "--per-device-train-batch-size", "6"]
MEMORY = ["--real-memory-size", "16", "--synthetic-slots", "2"]
ALCOHOLS = ["CO", "CCO", "CCCO", "CC(C)O", "CCCCO", "OCCO", "OCCCO", "CC(O)CO", "OC1CCCC1", "Oc1ccccc1"]
AMINES = ["CN", "CCN", "CCCN", "CC(C)N", "CCCCN", "NCCN", "NCCCN", "CC(N)CN", "NC1CCCC1", "Nc1ccccc1"]
LABS = ["one", "two", "three"]


def write(path, rows) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def molecules(tmp_path):
    """A CSV of three labs: molecules with a chain in front that is another one in each."""
    rows = [
        {"mol": f"{'C' * place}{text}", "kind": kind, "lab": lab}
        for place, lab in zip((0, 6, 12), LABS, strict=True)
        for kind, texts in (("alcohol", ALCOHOLS), ("amine", AMINES))
        for text in texts
    ]
    write(tmp_path / "molecules.csv", rows)
    return ["--data", tmp_path / "molecules.csv", "--smiles", "mol", "--label", "kind", "--domain", "lab"]


@pytest.fixture
def splits(tmp_path):
    """A folder of one set of molecules in three splits."""
    (tmp_path / "solvents").mkdir()
    for place, split in enumerate(("train", "dev", "test")):
        rows = [
            {"smiles": f"{'C' * 6 * place}{text}", "label": label}
            for label, texts in enumerate((ALCOHOLS, AMINES))
            for text in texts
        ]
        write(tmp_path / "solvents" / f"solvents.{split}.csv", rows)
    return ["--data", tmp_path / "solvents", "--smiles", "smiles"]


GIVEN = ["--split", "train", "--dev-split", "dev", "--test-split", "test", "--target", "none"]


@pytest.mark.slow
def test_molecules_of_a_lab_that_was_left_out(command, molecules, read_lines, tmp_path):
    words = ["compare", *molecules, "--target", "three", "--methods", "erm,hma", "--seeds", 1]
    code, out, error = command(*words, *NETWORK, *MEMORY, "--metric", "auroc", "--keep", "all", "--dropout", 0.1)
    log = "".join(path.read_text() for path in (tmp_path / "runs/compare/jobs").glob("*/log.txt"))
    assert code == 0, error + out + log
    folder = tmp_path / "runs/compare"
    records = {record["job"]["method"]: record for record in read_lines(folder / "runs.jsonl")}
    assert set(records["hma"]["scores"]["three"]) == {"accuracy", "f1", "mcc", "auroc"}
    assert json.loads((folder / "run.json").read_text())["task"] == "graph"
    (row, *_) = json.loads((folder / "results.json").read_text())["rows"]
    assert row["metric"] == "auroc" and row["value"] == pytest.approx(records["erm"]["scores"]["three"]["auroc"])

    from transformers import AutoModel

    from hf_memaug.data.molecules import ATOM_VOCAB_SIZES

    kept = {name: folder / record["checkpoint"] for name, record in records.items()}
    models = {name: AutoModel.from_pretrained(path) for name, path in kept.items()}
    assert {type(model).__name__ for model in models.values()} == {"HMAForGraphClassification"}
    assert models["erm"].config.augmentation == "none" and models["hma"].config.augmentation == "hma"
    network = models["erm"].config.backbone_config
    assert (network.num_hidden_layers, network.hidden_size, network.dropout) == (2, 8, 0.1)
    assert network.node_vocab_sizes == ATOM_VOCAB_SIZES, "any molecule can be read, not those alone that were there"
    card = (kept["hma"] / "README.md").read_text()
    assert "for graph classification, with a GIN of 2 layers, 8 wide" in card and "pipeline_tag: graph-ml" in card
    assert "GraphCollator" in card and "Tokenizer" not in card and "**three** (left out)" in card
    assert "without a memory" in (kept["erm"] / "README.md").read_text()

    # What the report shows: rows by their SMILES, and what each domain reads.
    texts = np.load(folder / "jobs/hma-three-seed0/features.npz")["text"]
    assert "CCCCCCCCCCCCCO" in texts and (folder / "jobs/hma-three-seed0/memory.json").is_file()
    page = (folder / "report.html").read_text()
    assert "CCCCCCCCCCCCCO" in page and "No features were kept" not in page

    code, out, error = command("evaluate", kept["hma"], *molecules, "--json")
    assert code == 0, error
    found = json.loads(out)["scores"]["three"]
    # Rows of a batch read each other, and stand in another one here.
    assert set(found) == set(records["hma"]["scores"]["three"])
    code, out, error = command("evaluate", kept["erm"], *molecules, "--json")
    assert json.loads(out)["scores"]["three"] == pytest.approx(records["erm"]["scores"]["three"]), error
    code, _, error = command("evaluate", kept["erm"], *molecules[:2], "--text", "mol", *molecules[4:])
    assert code == 2 and "as `--smiles`" in error

    code, out, error = command("predict", kept["erm"], "CCO", "CCN", "--top-k", 0)
    assert code == 0, error
    first, second = map(json.loads, out.splitlines())
    assert first["smiles"] == "CCO" and {one["label"] for one in second["labels"]} == {"alcohol", "amine"}
    assert sum(one["score"] for one in first["labels"]) == pytest.approx(1, abs=1e-5)
    code, out, error = command("predict", kept["hma"], "--data", molecules[1], "--smiles", "mol")
    assert code == 0 and len(out.splitlines()) == 60, error
    code, _, error = command("predict", kept["erm"], "CCO", "CC(")
    assert code == 3 and "Row 1: `smiles` cannot be parsed: 'CC('. Fix it, or leave it out." in error

    # By default a row is read as if it were alone in its batch.
    alone = [command("predict", kept["hma"], "CCO", *how) for how in ((), ("--inference", "batch"))]
    company = command("predict", kept["hma"], "CCO", "CCN", "OCCCO")[1].splitlines()
    assert json.loads(alone[0][1])["score"] == pytest.approx(json.loads(company[0])["score"], abs=1e-5)
    assert alone[0][1] == alone[1][1]
    code, out, error = command("evaluate", kept["hma"], *molecules, "--json")
    assert code == 0 and json.loads(out)["inference"] == "independent", error
    assert "`--inference batch`" in command("evaluate", kept["hma"], *molecules, "--inference", "batch")[1]
    code, _, error = command("evaluate", kept["hma"], *molecules, "--inference", "independant")
    assert code == 2 and "Did you mean 'independent'?" in error
    code, _, error = command("predict", kept["erm"], "--data", molecules[1])
    assert code == 3 and "no column 'smiles'" in error


def test_molecules_that_cannot_be_read_are_refused_or_skipped(command, molecules, tmp_path):
    with (tmp_path / "molecules.csv").open("a") as file:
        file.write("CC(,amine,one\n")
    words = ["compare", *molecules, "--methods", "erm", "--dry-run"]
    code, _, error = command(*words)
    assert code == 3 and "cannot be parsed: 'CC('" in error and "leave them out with `--broken skip`" in error, error
    with (tmp_path / "molecules.csv").open("a") as file:
        file.write(",amine,one\n")
    code, _, error = command(*words)
    assert code == 3 and "row 61 (domain 'one'): `smiles` is a molecule without atoms" in error, error
    code, out, error = command(*words, "--broken", "skip")
    assert code == 0 and "to do" in out, error


@pytest.mark.slow
def test_splits_that_the_data_brings(command, splits, no_report, read_lines, tmp_path):
    words = ["compare", *splits, *GIVEN, "--methods", "backbone,hma", "--seeds", 1, *NETWORK, *MEMORY]
    with no_report():
        code, out, error = command(*words, "--metric", "mcc", "--keep", "all")
    assert code == 0, error + out
    folder = tmp_path / "runs/compare"
    first = read_lines(folder / "runs.jsonl")[0]
    assert first["validation"] == pytest.approx(first["dev_scores"]["solvents"]["mcc"])
    for split, name in (("dev", "dev_scores"), ("test", "scores")):
        scored = ["evaluate", folder / first["checkpoint"], *splits, "--split", split, "--json"]
        code, said, error = command(*scored)
        assert code == 0, error
        assert json.loads(said)["scores"]["solvents"] == pytest.approx(first[name]["solvents"])
    assert f"test {first['scores']['solvents']['mcc']:.1f}" in out
    rows = json.loads((folder / "results.json").read_text())["rows"]
    assert [(row["method"], row["target"]) for row in rows] == [("backbone", "solvents"), ("hma", "solvents")]
    assert "Models are selected on dev and scored on test." in (folder / "README.md").read_text()
    counts = json.loads((folder / "data.json").read_text())["domains"]["solvents"]
    assert [counts[part] for part in ("train", "dev", "test")] == [20, 20, 20]
    assert "| solvents | test |" in (folder / first["checkpoint"] / "README.md").read_text()
    # Other dev rows are other data.
    path = tmp_path / "solvents" / "solvents.dev.csv"
    path.write_text(path.read_text() + "CCCCCCCCCCCCCCCCCCCCCCO,0\n")
    code, _, error = command(*words, "--metric", "mcc", "--keep", "all")
    assert code == 3 and "other rows than those" in error
    # Rows that are tested on are not trained on.
    path.write_text(path.read_text() + "CCCCCCCCCCCCCO,0\n")
    code, _, error = command(*words, "--output", "other", "--dry-run")
    assert code == 3 and "`dev` and `test` overlap" in error and "`--on-overlap drop`" in error
    assert command(*words, "--output", "other", "--dry-run", "--on-overlap", "drop")[0] == 0


def test_rows_are_not_scored_in_the_order_of_their_file(splits):
    from types import SimpleNamespace

    from hf_memaug.runs import rows as data
    from hf_memaug.runs.splits import split_rows

    names = dict(zip(("split", "dev_split", "test_split"), ("train", "dev", "test"), strict=True))
    columns = {"text": "text", "text_pair": None, "label": "label", "domain": "domain", "smiles": "smiles"}
    source = data.source_of(SimpleNamespace(data=str(splits[1]), quiet=True, **names, **columns))
    # In the file, all of one class and then all of the other.
    parts = split_rows(source, "none", 0.2, "raise")
    assert parts["train"]["label"] == [0] * 10 + [1] * 10
    for rows in (parts["dev"], parts["test"], data.load_labelled({**source, "split": "test"}, ["0", "1"])):
        assert sorted(rows["label"]) == [0] * 10 + [1] * 10 and 2 < sum(rows["label"][:10]) < 8
    again = data.source_of(SimpleNamespace(data=str(splits[1]), quiet=True, **names, **columns))
    assert split_rows(again, "none", 0.2, "raise")["test"]["smiles"] == parts["test"]["smiles"]


@pytest.mark.parametrize(
    "words, said",
    [
        (GIVEN[:-2], "add `--target none`"),
        ([*GIVEN[:4], *GIVEN[6:]], "needs `--test-split`, the rows to score"),
        (GIVEN[2:], "needs `--split`, the rows to train on"),
        ([*GIVEN[:4], "--test-split", "dev", *GIVEN[6:]], "Name three different ones"),
        (["--split", "train"], "`--target none`"),
        ([*GIVEN, "--methods", "mixup"], "`mixup` splits a batch by its rows"),
        ([*GIVEN, "--methods", "coral"], "compares domains"),
        ([*GIVEN, "--methods", "mil"], "`mil` is for texts, and the rows are graphs. Choose ['erm', 'hma']."),
        ([*GIVEN, "--methods", "erm", "--backbone", "gni-3x64"], "There is no network 'gni-3x64'. Write gin, gcn"),
    ],
)
def test_wrong_usage(command, splits, words, said):
    code, _, error = command("compare", *splits, "--methods", "erm", "--dry-run", *words)
    assert code == 2 and said in error


def test_graph_networks_are_for_graphs(command, columns):
    code, _, error = command("train", *columns, "--target", "books", "--backbone", "gin-3x64", "--dry-run")
    assert code == 2 and "`--backbone` gin-3x64 is for graphs, and the rows are texts." in error
    code, _, error = command("train", *columns, "--target", "books", "--jumping-knowledge", "sum", "--dry-run")
    assert code == 2 and "`--jumping-knowledge` is for graphs" in error
    code, _, error = command("sweep", *columns, "--backbone", "gin-3x64", "--dry-run")
    assert code == 2 and "`--backbone` gin-3x64 is for graphs, and the rows are texts." in error
    code, _, error = command("compare", "--data", "generated_graphs", "--metric", "auroc", "--methods", "erm")
    assert code == 3 and "needs two classes" in error and "such as mcc" in error


def test_a_sweep_over_molecules(command, molecules, read_lines, tmp_path):
    words = ["sweep", *molecules, "--target", "three", "--methods", "hma", "--backbone", "gin-2x8", "--trials", 1]
    sizes = ["--steps", 2, "--checkpoint-every", 1, "--batch-size", 6, "--dropout", 0.3, "--jumping-knowledge", "sum"]
    code, out, error = command(*words, *sizes, *MEMORY, "--output", "run")
    run = tmp_path / "run"
    assert code == 0, error + out + "".join(path.read_text() for path in run.glob("jobs/*/log.txt"))
    (record,) = read_lines(run / "runs.jsonl")
    assert record["job"]["backbone"] == "gin-2x8" and set(record["scores"]) == set(LABS)
    assert json.loads((run / "run.json").read_text())["task"] == "graph"
    assert (run / "jobs" / record["name"] / "memory.json").is_file() and (run / "report.html").is_file()
    selected = run / record["checkpoint"]
    network = json.loads((selected / "config.json").read_text())["backbone_config"]
    assert (network["dropout"], network["jumping_knowledge"], network["hidden_size"]) == (0.3, "sum", 8)
    assert "three" in (selected / "README.md").read_text()
    code, out, error = command("predict", selected, "CCO")
    assert code == 0 and json.loads(out)["label"] in ("alcohol", "amine"), error
    code, out, error = command(*words, *sizes, *MEMORY, "--output", "run", "--dry-run")
    assert code == 0 and "1 jobs, 1 of them done" in out, error


def test_a_sweep_reads_the_values_of_all_graphs(command, no_report, tmp_path):
    """A value that only the domain left out has needs a place in the network."""
    (tmp_path / "tu").mkdir()
    for name, largest in (("A", 1), ("B", 1), ("C", 5)):
        rows = [
            {
                "num_nodes": size,
                "edges": [[0, 1], [1, 2]],
                "node_labels": [0] * (size - 1) + [largest],
                "label": size % 2,
            }
            for size in range(3, 11)
        ]
        (tmp_path / "tu" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["sweep", "--data", tmp_path / "tu", "--methods", "erm,hma", "--target", "C", "--trials", 1]
    words += ["--on-overlap", "ignore", "--steps", 1, "--checkpoint-every", 1, "--holdout", 0.5, "--output", "run"]
    with no_report():
        code, out, error = command(*words)
    assert code == 0, error + out
    for method, augmentation in (("erm", "none"), ("hma", "hma")):
        config = json.loads((tmp_path / f"run/jobs/{method}-C-trial0-draw0/checkpoint/config.json").read_text())
        assert config["backbone_config"]["node_vocab_sizes"] == [6] and config["augmentation"] == augmentation


def test_molecules_without_rdkit(command, molecules, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    code, _, error = command("train", *molecules, "--dry-run")
    assert code == 3 and "pip install hf_memaug[graph]" in error and "Traceback" not in error


def test_one_domain_without_a_column(command, molecules, columns):
    code, _, error = command("train", *molecules[:-2], "--dry-run")
    assert code == 3 and "`--domain none`" in error
    code, out, error = command("train", *molecules[:-1], "none", "--dry-run", "--json")
    assert code == 0 and json.loads(out)["name"] == "erm-none-seed0", error
    code, _, error = command("train", *columns[:-1], "none", "--target", "books", "--dry-run")
    assert code == 2 and "`--target` is 'books'" in error
    code, out, error = command("train", *columns[:-1], "none", "--dry-run")
    assert code == 0, error


def edges(count: int, label: int) -> dict:
    """A ring, or a path."""
    links = [[one, one + 1] for one in range(count - 1)] + ([[0, count - 1]] if label else [])
    return {"label": label, "num_nodes": count, "edges": links, "node_labels": [one % 3 for one in range(count)]}


def test_a_set_of_the_tu_collection(command, read_lines, tmp_path):
    (tmp_path / "sets").mkdir()
    for name, first in (("RINGS", 4), ("LARGE", 14)):
        rows = [edges(first + count, label) for count in range(8) for label in (0, 1)]
        (tmp_path / "sets" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = tmp_path / "sets" / "RINGS.jsonl"
    code, _, error = command("train", "--data", whole, *NETWORK[:1], "gcn-vn-2x8", *NETWORK[2:], "--output", "run")
    assert code == 0, error
    (record,) = read_lines(tmp_path / "run/runs.jsonl")
    assert set(record["scores"]) == {"RINGS"}
    checkpoint = tmp_path / "run" / record["checkpoint"]
    network = json.loads((checkpoint / "config.json").read_text())["backbone_config"]
    assert (network["network"], network["virtual_node"], network["node_vocab_sizes"]) == ("gcn", True, [3])
    # A folder is a domain for each set.
    code, out, error = command("compare", "--data", tmp_path / "sets", "--methods", "hma", "--dry-run", "--json")
    assert code == 0 and {json.loads(one)["job"]["target"] for one in out.splitlines()} == {"RINGS", "LARGE"}, error
    code, out, error = command("evaluate", checkpoint, "--data", tmp_path / "sets", "--json")
    assert code == 0 and json.loads(out)["rows"] == {"LARGE": 16, "RINGS": 16}, error
    code, out, error = command("predict", checkpoint, "--data", whole)
    assert code == 0 and json.loads(out.splitlines()[3])["row"] == 3, error
    assert command("predict", checkpoint, "CCO")[0] == 2
    # A value that the tables have no place for.
    odd = {**edges(5, 0), "node_labels": [0, 1, 2, 3, 4]}
    (tmp_path / "odd.jsonl").write_text(json.dumps(odd) + "\n" + json.dumps({**odd, "label": 1}) + "\n")
    for words in (["evaluate", checkpoint], ["predict", checkpoint]):
        code, _, error = command(*words, "--data", "odd.jsonl")
        assert code == 3 and "knows the values 0 to 2" in error
    # A network that was saved is a backbone too.
    from hf_memaug import HMAForGraphClassification

    HMAForGraphClassification.from_pretrained(checkpoint).backbone.save_pretrained("network")
    words = ["train", "--data", whole, "--backbone", "network", *NETWORK[2:], "--output", "again"]
    code, _, error = command(*words)
    assert code == 0, error
    code, _, error = command(*words[:2], "odd.jsonl", *words[3:], "--output", "odd")
    assert code == 3 and "`--backbone` network knows" in error
