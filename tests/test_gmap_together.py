# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The models of the G-MAP tables, trained on top of each other, are those that a plain loop trains one by one."""

import dataclasses
import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from families import SENTENCES
from torch import nn

from hf_memaug import GMAPForMaskedLM

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "gmap"
METHODS = ["dapt", "logits-fusion", "gmap-single", "gmap-multiple", "gmap-gated", "gmap", "gmap-unfrozen"]
METHODS += ["gmap-cross-attention", "gmap-gate-attention", "gmap-pretrained"]


@pytest.fixture
def folders(backbones, tmp_path) -> tuple[Path, Path]:
    """Data of three tasks, and two encoders that differ."""
    data, encoders = tmp_path / "data", tmp_path / "encoders"
    kinds = {"chemprot": classified, "ncbi_disease": tagged, "covidqa": asked}
    for name, make in kinds.items():
        (data / name).mkdir(parents=True)
        for split, count in (("train", 12), ("dev", 10), ("test", 10)):
            rows = [make(number, split) for number in range(count)]
            with gzip.open(data / name / f"{split}.jsonl.gz", "wt") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    shutil.copytree(backbones["roberta"], encoders / "general")
    shutil.copytree(backbones["roberta"], encoders / "dapt-biomed")
    model = transformers.AutoModelForMaskedLM.from_pretrained(encoders / "general")
    torch.manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            value += 0.02 * torch.randn_like(value)
    model.save_pretrained(encoders / "dapt-biomed")
    gmap = GMAPForMaskedLM.from_general_and_domain(encoders / "general", encoders / "dapt-biomed")
    for gate in gmap.gmap.memory.gates:
        nn.init.normal_(gate.importance.weight)
    gmap.save_pretrained(encoders / "gmap-biomed")
    return data, encoders


def classified(number: int, split: str) -> dict:
    # The first test text is also a training text.
    mark = "train" if number == 0 and split == "test" else split
    return {"text": f"{SENTENCES[number % 6]} {mark} {number}", "label": number % 3}


def tagged(number: int, split: str) -> dict:
    words = f"{SENTENCES[number % 6]} {split} {number}".split()
    return {"tokens": words, "ner_tags": ["B-Disease" if place == number % 3 else "O" for place in range(len(words))]}


def asked(number: int, split: str) -> dict:
    context = f"{SENTENCES[number % 6]} {split} {number}"
    answer = context.split()[1]
    return {
        "question": f"What is {number}?",
        "context": context,
        "answers": {"text": [answer], "answer_start": [context.index(answer)]},
    }


def one_by_one(job, encoders: Path, task, order, length: int) -> list[dict]:
    """A plain loop of one model; its parameters after each epoch. The general encoder runs in every step."""
    from experiment import build_model, loaded
    from fusion import LogitsFusion

    model = build_model(job, str(encoders), task).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))
    learners = {name: value for name, value in model.named_parameters() if value.requires_grad}
    groups = [
        {"params": [value for name, value in learners.items() if (name in decayed) == chosen], "weight_decay": decay}
        for chosen, decay in ((True, 0.01), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=job.learning_rate)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 1, len(order))
    labels, rows = task.labels("train", length), task.parts["train"]
    kept = []
    for number, batch in enumerate(order):
        ids = torch.full((len(batch), length), task.pad)
        for place, row in enumerate(batch):
            ids[place, : len(rows[row]["input_ids"])] = torch.tensor(rows[row]["input_ids"])
        inputs = {"input_ids": ids, "attention_mask": (ids != task.pad).long()}
        wanted = labels[torch.from_numpy(batch)]
        if isinstance(model, LogitsFusion):
            with torch.no_grad():
                states = loaded(str(encoders / "general")).eval()(**inputs).last_hidden_state
            loss = nn.functional.cross_entropy(model(general_hidden_states=states[:, None], **inputs).logits, wanted)
        elif task.name == "answering":
            loss = model(**inputs, start_positions=wanted[:, 0], end_positions=wanted[:, 1]).loss
        else:
            loss = model(**inputs, labels=wanted).loss
        loss.backward()
        nn.utils.clip_grad_norm_(learners.values(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if (number + 1) % (len(order) // job.epochs) == 0:
            kept.append({name: value.detach().clone() for name, value in learners.items()})
    return kept


@pytest.mark.parametrize(
    ("data", "method"),
    [*(("chemprot", method) for method in METHODS), ("ncbi_disease", "gmap"), ("covidqa", "gmap"), ("covidqa", "dapt")],
)
def test_together_is_one_by_one(data, method, here, folders, monkeypatch):
    import experiment
    from experiment import Job
    from together import Together

    # In float64: Adam makes a step of the rounding error where a gradient is zero or nearly so.
    build, load = experiment.build_model, experiment.loaded
    for module in (experiment, sys.modules["together"]):
        monkeypatch.setattr(module, "build_model", lambda *inputs: build(*inputs).double())
        monkeypatch.setattr(module, "loaded", lambda folder: load(folder).double())
    root, encoders = folders
    jobs = [Job(data, method, "tiny", seed, learning_rate=1e-3, epochs=2, batch_size=5, warmup=1) for seed in (0, 3)]
    together = Together(jobs, str(root), str(encoders), device="cpu", dropout=False)
    results = together.run()
    assert ("f1_unseen_texts" in results[0]["scores"]) == (data == "chemprot"), "one test text is a training text"
    for number, (job, result) in enumerate(zip(jobs, results, strict=True)):
        order = together._order(job.seed)
        assert order.shape == (6, 5) and sorted(set(order[:3].flatten())) == list(range(12))
        assert [entry["step"] for entry in result["log"]] == [3, 6]
        kept = one_by_one(job, encoders, together.task, order, together.length)
        wanted = kept[result["best_step"] // 3 - 1]
        assert wanted.keys() == together.parameters.keys()
        for name, value in wanted.items():
            mine = together.parameters[name][number]
            torch.testing.assert_close(mine, value, rtol=1e-5, atol=1e-7, msg=lambda text, name=name: f"{name}: {text}")


def test_a_table_is_made_and_not_made_again(folders, tmp_path):
    root, encoders = folders

    def table(*more: object, fails: bool = False) -> str:
        command = [
            sys.executable,
            EXAMPLES / "tables.py",
            "table1",
            "--data",
            root,
            "--encoders",
            encoders,
            "--seeds",
            2,
        ]
        command += ["--sets", "chemprot", "--record", tmp_path / "runs.jsonl", "--output", tmp_path / "results", *more]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, cwd=ROOT)
        assert (done.returncode != 0) == fails, done.stderr[-3000:]
        return done.stderr if fails else done.stdout

    assert "0 of 4 models" in table("--methods", "fine-tuning", "dapt", "ensemble")
    assert "4 of 6 models" in table("--methods", "fine-tuning", "dapt", "gmap", "ensemble")
    rows = json.loads((tmp_path / "results" / "table1.json").read_text())["rows"]
    found = {(row["method"], row["seed"], row["metric"]) for row in rows}
    methods, metrics = ("fine-tuning", "dapt", "gmap", "ensemble"), ("f1", "f1_unseen_texts")
    assert found == {(method, seed, metric) for method in methods for seed in (0, 1) for metric in metrics}
    lines = (tmp_path / "results" / "table1_runs.jsonl").read_text().splitlines()
    assert len(lines) == 6 and all(json.loads(line)["best_step"] > 0 for line in lines)
    for name in ("general", "dapt-biomed"):
        (encoders / name / "pretraining.json").write_text("{}")
    assert "holds models of other encoders" in table("--methods", "dapt", fails=True)
    assert "`tune` takes --rates" in table("--rates", 1e-4, fails=True)


def test_layers_are_chosen_by_dev_rows_and_shown_by_test_rows(here, capsys):
    from experiment import Job
    from tables import say_choice

    # The best on test rows is neither the best on dev rows nor the default of six layers.
    dev, test = {1: 60.0, 4: 50.0, 6: 40.0}, {1: 70.0, 4: 65.0, 6: 90.0}
    done = {
        Job("acl_arc", "gmap-single", "tiny", seed, memory_layers=(layer,)): {
            "dev": dev[layer] + seed,
            "scores": {"f1": test[layer] + seed * (layer == 1)},
        }
        for layer in dev
        for seed in (0, 1)
    }
    say_choice(done, list(done))
    said = capsys.readouterr().out
    assert said == "acl_arc, gmap-single: dev rows choose [1], test 70.5; by default [4], 65.0 (p = 0.058)\n"
    default = {job: {**result, "dev": test[4] + 10 * (job.memory_layers == (4,))} for job, result in done.items()}
    say_choice(default, list(default))
    assert capsys.readouterr().out == "acl_arc, gmap-single: dev rows choose [4], test 65.0\n"


def test_rows_that_were_trained_on_choose_and_prove_nothing(here):
    from tasks import Classification

    texts = {"train": ["a b", "c d"], "dev": ["A b.", "e f", "g h"], "test": ["e f", "c d", "i j", "k l"]}
    rows = {
        split: [{"text": text, "label": number % 2} for number, text in enumerate(part)]
        for split, part in texts.items()
    }

    def tokenizer(texts, **kwargs):
        return {"input_ids": [[0, 1] for _ in texts]}

    tokenizer.pad_token_id = 1
    task = Classification(rows, tokenizer, 8, "micro_f1")
    # Wrong on the dev row that is a training row, right on the others.
    assert task.scores("dev", np.eye(2)[[1, 1, 0]]) == {"f1": 100.0}
    # Right on the two test rows that were seen, wrong on the others.
    assert task.scores("test", np.eye(2)[[0, 1, 1, 0]]) == {"f1": 50.0, "f1_unseen_texts": 0.0}


def test_an_ensemble_adds_probabilities(here):
    from fusion import ensemble

    sure, unsure = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    wanted = (sure.softmax(-1) + unsure.softmax(-1)) / 2
    torch.testing.assert_close(ensemble([sure, unsure]), wanted)
    assert ensemble([sure, unsure]).argmax() == 0, "the surer one decides"


def test_jobs_of_different_settings_are_refused(here, folders):
    from experiment import Job
    from together import Together

    jobs = [Job("chemprot", method, "tiny", 0) for method in ("dapt", "gmap")]
    with pytest.raises(ValueError, match="may differ in `seed` only"):
        Together(jobs, *map(str, folders))


def test_the_encoders_of_the_tables_are_made_and_drawn(backbones, tmp_path):
    pytest.importorskip("matplotlib", reason="the figures are drawn with matplotlib")
    data, results = tmp_path / "data", tmp_path / "results"
    for name in ("biomed", "cs", "reviews", "news", "it_support"):
        (data / "corpora").mkdir(parents=True, exist_ok=True)
        with gzip.open(data / "corpora" / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"text": f"{text} {name}"}) + "\n" for text in SENTENCES * 40)
    (data / "acl_arc").mkdir()
    with gzip.open(data / "acl_arc" / "train.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": text, "label": 0}) + "\n" for text in SENTENCES * 30)

    def run(script: str, *options: object) -> str:
        command = [sys.executable, EXAMPLES / script, *options, "--results", results]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, cwd=ROOT)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        return done.stdout

    names = ["general", "dapt-cs", "dapt+tapt-acl_arc", "further-cs", "gmap-cs"]
    options = ["--backbone", f"tiny={backbones['roberta']}", "--data", data, "--output", tmp_path / "encoders"]
    settings = ["--only", *names, "--steps", 2, "--keep-backbone", "--jobs", 2]
    said = run("encoders.py", *options, *settings)
    assert all(f"{name}, 2 steps" in said for name in names)
    made = json.loads((results / "pretraining_tiny.json").read_text())["encoders"]
    assert list(made) == names and made["dapt+tapt-acl_arc"]["after"] == {}
    # The same held-out rows and masks each time: an encoder begins where the one before it ended.
    for corpus, loss in made["general"]["after"].items():
        assert made["dapt-cs"]["before"][corpus] == pytest.approx(loss, rel=1e-4)
        assert made["further-cs"]["before"][corpus] == pytest.approx(made["dapt-cs"]["after"][corpus], rel=1e-4)
        assert made["gmap-cs"]["before"][corpus] != made["further-cs"]["before"][corpus], "no memory is read"
    before, after = (
        transformers.AutoModel.from_pretrained(folder).state_dict()
        for folder in (backbones["roberta"], tmp_path / "encoders" / "tiny" / "general")
    )
    assert all(torch.equal(after[name], value) for name, value in before.items() if "pooler" not in name)
    assert "steps" not in run("encoders.py", *options, *settings).partition("wrote")[0], "made again"
    command = [
        sys.executable,
        EXAMPLES / "encoders.py",
        *options,
        *settings[:-4],
        3,
        *settings[-3:],
        "--results",
        results,
    ]
    refused = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert refused.returncode != 0 and "was made by another command" in refused.stderr
    for number in (1, 5):
        assert f"figure{number}_tiny.png" in run("figures.py", "--backbone", "tiny")
        assert (results / f"figure{number}_tiny.png").read_bytes().startswith(b"\x89PNG")
    # Layers were compared for another backbone alone.
    row = {"method": "gmap @ 1,2", "target": "acl_arc", "backbone": "other", "metric": "f1", "value": 50.0}
    (results / "figure4.json").write_text(json.dumps({"rows": [row]}))
    assert "figure4" not in run("figures.py", "--backbone", "tiny")
    assert "figure4_other.png" in run("figures.py", "--backbone", "other")


def test_a_set_may_have_a_file_for_each_domain(here, tmp_path):
    from experiment import read_rows

    (tmp_path / "subjqa").mkdir()
    for domain in ("restaurants", "grocery"):
        with gzip.open(tmp_path / "subjqa" / f"{domain}.train.jsonl.gz", "wt") as file:
            file.write(json.dumps({"question": domain}) + "\n")
    assert [row["question"] for row in read_rows(str(tmp_path), "subjqa", "train")] == ["grocery", "restaurants"]
    with pytest.raises(SystemExit, match="has no file `dev.jsonl.gz`.*--data"):
        read_rows(str(tmp_path), "subjqa", "dev")


def test_what_read_in_pretraining_keeps_its_gates(here, folders):
    from experiment import Job, build_model, encoder_folder, prepared

    root, encoders = folders
    task = prepared(str(root), "chemprot", encoder_folder(str(encoders), "general", "chemprot"))
    before = GMAPForMaskedLM.from_pretrained(encoders / "gmap-biomed")
    job = Job("chemprot", "gmap-pretrained", "tiny", 0)
    model = build_model(job, str(encoders), task)
    assert model.config.num_labels == 3
    for name, value in before.gmap.state_dict().items():
        torch.testing.assert_close(model.gmap.state_dict()[name], value, rtol=0, atol=0)
    with pytest.raises(ValueError, match="leave `memory_layers` out"):
        build_model(dataclasses.replace(job, memory_layers=(1, 2)), str(encoders), task)


def test_the_loss_of_a_logits_fusion_is_that_of_the_fused_logits(here):
    from fusion import LogitsFusion

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    encoder = transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes), add_pooling_layer=False)
    model = LogitsFusion(encoder, num_labels=3).eval()
    ids, labels = torch.arange(12).view(2, 6), torch.tensor([0, 2])
    found = model(input_ids=ids, general_hidden_states=10 * torch.randn(2, 1, 6, 8), labels=labels)
    assert torch.equal(found.loss, nn.functional.cross_entropy(found.logits, labels))
