# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The folder of a Space is complete and publishes no rows by default."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from saved_checkpoints import TEXT, case_of, put_adapter, save

import hf_memaug
from hf_memaug.app import write_space
from hf_memaug.inference import CheckpointError, load_predictor

KV = case_of("RobertaWithKVMemoryForSequenceClassification")


def head(folder) -> dict:
    return yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---")[1])


def launched(folder, monkeypatch) -> tuple[tuple, dict]:
    """What `app.py` launches, when it is run from somewhere else."""
    import hf_memaug.app.page

    calls = []
    monkeypatch.setattr(hf_memaug.app.page, "launch", lambda *args, **kwargs: calls.append((args, kwargs)))
    path = folder / "app.py"
    exec(compile(path.read_text(), str(path), "exec"), {"__file__": str(path), "__name__": "__main__"})
    (call,) = calls
    return call


def test_a_folder_is_copied_into_the_space(tmp_path, monkeypatch):
    save(KV, tmp_path / "jobs" / "mil-books" / "checkpoint")
    job = tmp_path / "jobs" / "mil-books"
    (job / "memory.json").write_text('{"by_domain": {}}')
    (job / "features.npz").write_bytes(b"rows of somebody")
    (job / "checkpoint" / "optimizer.pt").write_bytes(b"large")
    for name in ("trainer_state.json", "secrets.json", "notes.txt"):
        (job / "checkpoint" / name).write_text("{}")
    (job / "checkpoint" / "merges.txt").symlink_to(job / "features.npz")
    folder = write_space(job / "checkpoint", tmp_path / "space")
    copied = {path.name for path in (folder / "checkpoint").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "memory.json"} <= copied
    private = {"features.npz", "optimizer.pt", "trainer_state.json", "secrets.json", "notes.txt", "merges.txt"}
    assert not private & copied
    assert head(folder)["sdk"] == "gradio" and head(folder)["app_file"] == "app.py"
    assert head(folder)["title"] == "mil-books"
    wanted = (folder / "requirements.txt").read_text().splitlines()
    assert wanted[0] == f"hf_memaug[app]=={hf_memaug.__version__}" and not any("+" in line for line in wanted)
    (served,), _ = launched(folder, monkeypatch)
    assert load_predictor(served).predict([TEXT]) == load_predictor(job / "checkpoint").predict([TEXT])
    # Again, and with the rows.
    assert "features.npz" in {
        path.name for path in (write_space(job / "checkpoint", folder, rows=True) / "checkpoint").iterdir()
    }


def test_a_repository_is_named(tmp_path, monkeypatch):
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(save(KV, tmp_path / "kv"))
    monkeypatch.setattr(AutoConfig, "from_pretrained", lambda name, **_: config)
    folder = write_space("me/memory", tmp_path / "space")
    assert head(folder)["models"] == ["me/memory"] and not (folder / "checkpoint").exists()
    assert launched(folder, monkeypatch) == (("me/memory",), {})


def test_what_no_space_is_written_of(tmp_path):
    save(KV, tmp_path / "kv")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "app.py").write_text("mine")
    with pytest.raises(ValueError, match="is not empty"):
        write_space(tmp_path / "kv", tmp_path / "mine")
    assert (tmp_path / "mine" / "app.py").read_text() == "mine"
    with pytest.raises(ValueError, match="inside the checkpoint"):
        write_space(tmp_path / "kv", tmp_path / "kv" / "space")
    with pytest.raises(ValueError, match="is a file"):
        write_space(tmp_path / "kv", tmp_path / "kv" / "config.json")
    case_of("GMAPModel").model().save_pretrained(tmp_path / "headless")
    with pytest.raises(CheckpointError, match="no head"):
        write_space(tmp_path / "headless", tmp_path / "space")
    assert not (tmp_path / "space").exists()


def test_a_space_of_molecules_needs_rdkit(tmp_path):
    folder = write_space(save(case_of("HMAForGraphClassification"), tmp_path / "model"), tmp_path / "space")
    first = (folder / "requirements.txt").read_text().splitlines()[0]
    assert first == f"hf_memaug[app,graph]=={hf_memaug.__version__}"


def test_a_space_of_an_adapter_holds_the_merged_model(tmp_path):
    put_adapter(save(KV, tmp_path / "base"), tmp_path / "adapter", KV)
    (expected,) = load_predictor(tmp_path / "adapter").predict([TEXT])
    folder = write_space(tmp_path / "adapter", tmp_path / "space")
    shutil.rmtree(tmp_path / "base")
    assert not (folder / "checkpoint" / "adapter_config.json").exists()
    (found,) = load_predictor(folder / "checkpoint").predict([TEXT])
    assert dict(found.scores) == pytest.approx(dict(expected.scores), abs=1e-5)


def test_an_adapter_is_published_by_peft_and_its_space_by_us(tmp_path, capsys):
    from hf_memaug_cli.app import main

    (tmp_path / "adapter_config.json").write_text("{}")
    assert main(["push", str(tmp_path), "me/adapter"]) == 2
    assert "Use PEFT's `push_to_hub`" in capsys.readouterr().err
    assert main(["push", str(tmp_path), "me/adapter", "--space"]) == 2
    assert "does not say of which model" in capsys.readouterr().err


def test_what_the_guide_says_runs(tmp_path, monkeypatch, capsys):
    guide = (Path(__file__).parents[2] / "docs" / "app.md").read_text(encoding="utf-8")
    checkpoint = save(KV, tmp_path / "jobs" / "NAME" / "checkpoint")
    serve, space, ask = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for code in (space, ask):
        # The hub is not there; a folder does as well.
        code = code.replace("you/reviews-memory", checkpoint).replace("runs/reviews/jobs/NAME/checkpoint", checkpoint)
        exec(compile(code, "app.md", "exec"), {})
    assert (tmp_path / "space-copy" / "checkpoint" / "config.json").is_file()
    assert "slot " in capsys.readouterr().out
    assert 'launch("you/reviews-memory", baseline="you/reviews-plain")' in serve
