# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`hf-memaug sweep`."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_sweep(command, columns, no_report, read_lines, tmp_path):
    words = ["sweep", *columns, "--methods", "erm,+memory", "--target", "films", "--trials", 1, "--steps", 2]
    more = ["--checkpoint-every", 1, "--batch-size", 4, "--memory-slots", 8, "--memory-key-size", 8]
    code, out, error = command(*words, *more)
    log = "".join(path.read_text()[-2000:] for path in (tmp_path / "runs/sweep/jobs").glob("*/log.txt"))
    assert code == 0, error + out + log
    folder = tmp_path / "runs/sweep"
    records = {record["job"]["method"]: record for record in read_lines(folder / "runs.jsonl")}
    assert set(records) == {"erm", "+memory"} and records["erm"]["settings"]["batch_size"] == 4
    for record in records.values():
        assert record["seconds"] > 0 and record["peak_memory_bytes"] > 10**6
        assert record["parameters"] >= record["trainable"] > 10**4
        place = folder / "jobs" / record["name"]
        assert any("loss" in line for line in read_lines(place / "metrics.jsonl")) and not (place / "run").exists()
        assert (place / "features.npz").is_file()
    assert (folder / "jobs" / records["+memory"]["name"] / "memory.json").is_file()
    for name in ("recipe.yaml", "run.json", "data.json", "results.json", "README.md", "report.html"):
        assert (folder / name).is_file(), name
    results = json.loads((folder / "results.json").read_text())
    assert {row["method"] for row in results["rows"]} == {"erm", "+memory"}
    selected = folder / records["+memory"]["checkpoint"]
    assert json.loads((selected / "config.json").read_text())["memory_slots"] == 8
    assert f"checkpoint: {Path('runs/sweep', records['+memory']['checkpoint'])}" in out and "[2/2" in out
    assert "Trained as `+memory`" in (selected / "README.md").read_text()
    code, _, error = command(*words, *more[:2], *more[4:])
    assert code == 2 and "another `--output`" in error
    assert "held-out rows of the domains trained on" in (folder / "README.md").read_text()
    words[words.index("--methods") + 1] = "erm"
    with no_report():
        code, _, error = command(*words, *more[:4], "--selection", "oracle", "--output", "oracle")
    assert code == 0, error
    card = (tmp_path / "oracle/README.md").read_text()
    assert "accuracy on held-out rows of the target" in card
    assert not list(tmp_path.glob("oracle/jobs/*/checkpoint"))
    code, _, error = command("sweep", *columns, "--methods", "mil")
    assert code == 2 and "mil" in error
