# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Models trained on top of each other are the models that the trainers train one by one."""

import json
import sys
from pathlib import Path

import pytest
import torch
from families import SENTENCES

EXAMPLES = Path(__file__).parents[1] / "examples" / "mil"
METHODS = ["erm", "erm-fewer", "+memory", "irm", "coral", "dann", "mil", "+self-attention+ffn"]


def write_data(root: Path) -> None:
    folder = root / "amazon"
    folder.mkdir(parents=True)
    (folder / "labels.json").write_text(json.dumps(["negative", "positive"]))
    for number, domain in enumerate(("books", "dvd", "electronics", "kitchen")):
        for split, count in (("train", 16), ("test", 12)):
            rows = [
                {"text": f"{SENTENCES[(row + number) % 6]} {split} {row} {domain}", "label": row % 2, "domain": domain}
                for row in range(count)
            ]
            (folder / f"{domain}.{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("method", METHODS)
def test_together_is_one_by_one(method, here, backbones, tmp_path, monkeypatch):
    import experiment
    from together import Together

    write_data(tmp_path)
    sizes = {
        "steps": 12,
        "evaluations": 3,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "memory_slots": 12,
        "memory_key_size": 8,
    }
    sizes |= {"episodes": 2, "episode_steps": 2, "memory_learning_rate": 1e-2, "discriminator_hidden_size": 16}
    jobs = [
        experiment.Job("amazon", target, method, "tiny", seed, **sizes) for target, seed in (("books", 0), ("dvd", 3))
    ]
    torch.set_num_threads(1)
    together = Together(jobs, str(tmp_path), backbones["bert"], device="cpu")
    results = together.run()

    # Without the choice of the best evaluation: what must agree is the weights.
    weights = {}
    from hf_memaug.training.selection import BestInMemory

    at_end = BestInMemory.on_train_end

    def remember(self, args, state, control, model=None, **kwargs):
        at_end(self, args, state, control, model=model, **kwargs)
        weights[args.seed] = {name: value.detach().clone() for name, value in model.named_parameters()}

    monkeypatch.setattr(BestInMemory, "on_train_end", remember)
    for number, job in enumerate(jobs):
        alone = experiment.run(job, str(tmp_path), backbones["bert"])
        assert [entry["step"] for entry in alone["log"]] == [entry["step"] for entry in results[number]["log"]]
        assert alone["best_step"] == results[number]["best_step"]
        assert alone["dev"] == pytest.approx(results[number]["dev"], abs=1e-6)
        assert alone["scores"] == pytest.approx(results[number]["scores"], abs=1e-6)
        for name, value in weights[job.seed].items():
            mine = together.parameters[name][number]
            torch.testing.assert_close(mine, value, rtol=2e-3, atol=2e-4, msg=lambda text, name=name: f"{name}: {text}")
        if method == "mil":
            last, mine = alone["meta_log"][-2], results[number]["meta_log"][-1]
            for name in mine:
                assert mine[name] == pytest.approx(last[name], rel=1e-2, abs=1e-4), name


@pytest.mark.parametrize(
    ("fused", "packed"), [("eager", False), (None, True), ("eager", True)], ids=["compiled", "packed", "both"]
)
@pytest.mark.parametrize("method", ["erm", "+memory", "irm", "coral", "dann", "mil"])
def test_compiled_and_packed_steps_are_the_same_steps(method, fused, packed, here, backbones, tmp_path):
    """
    Traced for the first batch and the first layer, what is compiled must read every later one's own weights. Packed,
    no row may see another, and each must be read at its own place.
    """
    import experiment
    from together import Together

    write_data(tmp_path)
    sizes = {"steps": 6, "evaluations": 2, "batch_size": 8, "learning_rate": 1e-3, "memory_slots": 12}
    sizes |= {"memory_key_size": 8, "episodes": 2, "episode_steps": 2, "memory_learning_rate": 1e-2}
    jobs = [
        experiment.Job("amazon", target, method, "tiny", seed, **sizes) for target, seed in (("books", 0), ("dvd", 3))
    ]
    found = []
    for options in ({"packed": False}, {"fused": fused, "packed": packed}):
        together = Together(jobs, str(tmp_path), backbones["bert"], device="cpu", dropout=False, **options)
        found.append((together.run(), together.parameters))
    (plain, weights), (changed, mine) = found
    assert [one["log"] for one in changed] == [one["log"] for one in plain]
    for one, other in zip(changed, plain, strict=True):
        for entry, same in zip(one["meta_log"], other["meta_log"], strict=True):
            assert entry == (pytest.approx(same, rel=1e-5) if packed else same)
    for name, value in weights.items():
        torch.testing.assert_close(
            mine[name], value, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("rows", [5, 256])
def test_rows_are_scored_in_their_own_places(rows, here, backbones, tmp_path, monkeypatch):
    """They are sorted by length and cut to it, batch by batch; each must find its way back to its label."""
    import experiment
    import together

    write_data(tmp_path)
    jobs = [experiment.Job("amazon", target, "erm", "tiny", seed) for target, seed in (("books", 0), ("dvd", 3))]
    stack = together.Together(jobs, str(tmp_path), backbones["bert"], device="cpu")
    # One model has fewer rows than the other, and lengths differ.
    parts = [stack.dev_parts[0], stack.dev_parts[1][:7]]
    assert len({len(row) for row in parts[0]["input_ids"]}) > 2
    monkeypatch.setattr(together, "EVALUATION_ROWS", rows)
    found = stack.predict(stack._table(parts))
    for model, part in enumerate(parts):
        alone = experiment.build_model(jobs[model], backbones["bert"], part.label_names).eval()
        assert len(found[model]) == len(part)
        for row, logits in zip(part, found[model], strict=True):
            inputs = {name: torch.tensor([row[name]]) for name in ("input_ids", "attention_mask")}
            with torch.no_grad():
                torch.testing.assert_close(torch.from_numpy(logits), alone(**inputs).logits[0], rtol=1e-4, atol=1e-5)


def test_prompted_stacks_are_for_a_gpu(here, backbones, tmp_path):
    import experiment
    from together import Together

    write_data(tmp_path)
    job = experiment.Job("amazon", "books", "erm", "tiny", 0, "prompting")
    with pytest.raises(ValueError, match="use `--workers`"):
        Together([job], str(tmp_path), backbones["bert"], device="cpu")


def test_compiling_is_for_stacks_on_a_gpu(here, backbones, tmp_path, monkeypatch):
    import tables

    write_data(tmp_path)
    arguments = ["table1", "--data", tmp_path, "--backbone", f"tiny={backbones['bert']}", "--compile"]
    given = ["tables.py", *map(str, arguments), "--record", str(tmp_path / "record.jsonl")]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit, match="add `--together N`"):
        tables.main()
    monkeypatch.setattr(sys, "argv", [*given, "--together", "2"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="is for a GPU"):
        tables.main()


@pytest.mark.parametrize(
    ("table", "flags", "targets"),
    [
        ("table1", [], {"books", "dvd", "electronics", "kitchen", "cross"}),
        ("table1", ["--no-cross"], {"books", "dvd", "electronics", "kitchen"}),
        ("table1", ["--only-cross"], {"cross"}),
        ("table3", ["--sets", "amazon"], {"books", "dvd", "electronics", "kitchen"}),
        ("table3", ["--sets", "amazon", "--only-cross"], None),
    ],
)
def test_columns_of_a_table(table, flags, targets, here, tmp_path, monkeypatch, capsys):
    import tables

    write_data(tmp_path)
    seen = []

    def run_jobs(options, jobs, *args, **kwargs):
        seen.extend(jobs)
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "run_jobs", run_jobs)
    arguments = [table, "--data", str(tmp_path), "--backbone", "tiny=x", "--output", str(tmp_path), *flags]
    monkeypatch.setattr(sys, "argv", ["tables.py", *arguments])
    if targets is None:
        with pytest.raises(SystemExit):
            tables.main()
        assert "leave --only-cross out" in capsys.readouterr().err
        return
    with pytest.raises(KeyboardInterrupt):
        tables.main()
    assert {job.target for job in seen} == targets


@pytest.mark.parametrize("method", ["+ffn", "+self-attention+ffn"])
def test_added_layers_have_as_many_parameters_as_the_memory(method, here, backbones):
    import experiment

    # Large enough for the four projections of a layer that attends.
    sizes = {"memory_slots": 512, "memory_key_size": 64}
    plain, added = (
        experiment.build_model(
            experiment.Job("amazon", "books", name, "tiny", 0, **sizes), backbones["bert"], ["a", "b"]
        )
        for name in ("erm", method)
    )
    memory = sum(parameter.numel() for parameter in plain.memory_parameters())
    layer = added.base_model.encoder.layer[-1]
    assert len(added.base_model.encoder.layer) == len(plain.base_model.encoder.layer) + 1
    found = sum(parameter.numel() for parameter in layer.parameters())
    assert abs(found - memory) <= 2 * plain.config.hidden_size + 1, "within one row of the feed-forward part"
    assert added.config.intermediate_size == plain.config.intermediate_size


def test_what_each_method_may_spend(here):
    import experiment

    jobs = {
        name: experiment.Job("amazon", "books", name, "tiny", 0, steps=450, episodes=15) for name in experiment.METHODS
    }
    spent = {name: job.task_steps + (job.meta_steps if name == "mil" else 0) for name, job in jobs.items()}
    fewer = {"mil-fresh", "erm-fewer"}
    assert {spent[name] for name in spent if name not in fewer} == {750}
    assert {spent[name] for name in fewer} == {jobs["mil"].task_steps} == {450}


def test_jobs_of_different_settings_are_refused(here, backbones, tmp_path):
    import experiment
    from together import Together

    jobs = [experiment.Job("amazon", "books", "erm", "tiny", 0, steps=steps) for steps in (1, 2)]
    with pytest.raises(ValueError, match="may differ in `target` and `seed` only"):
        Together(jobs, str(tmp_path), backbones["bert"])
    job = experiment.Job("amazon", "books", "mil", "tiny", 0, hypergradient="exact")
    with pytest.raises(ValueError, match="Only the first-order hyper-gradient"):
        Together([job], str(tmp_path), backbones["bert"])


def test_the_figures_come_from_what_the_tables_leave(here, backbones, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="the figures are drawn with matplotlib")
    import experiment
    import figures
    import tables

    write_data(tmp_path / "data")
    small = {"evaluations": 1, "batch_size": 4, "memory_slots": 12, "memory_key_size": 8}
    small |= {"episodes": 1, "episode_steps": 1, "discriminator_hidden_size": 4}
    monkeypatch.setattr(tables, "SETTINGS", small)
    monkeypatch.setattr(tables, "STEPS_A_PASS", {"amazon": 1})
    monkeypatch.setattr(figures, "CURVES", {"figure5": ("memory_slots", [4, 8], "memory slots")})
    monkeypatch.setattr(experiment, "CROSS", {"amazon": {}})
    results, features, record = tmp_path / "results", tmp_path / "features", tmp_path / "record.jsonl"
    features.mkdir()
    common = ["--data", str(tmp_path / "data"), "--backbone", f"tiny={backbones['bert']}", "--output", str(results)]

    def run(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, arguments)])
        script.main()

    table = [*common, "--seeds", 2, "--methods", "erm", "mil", "--no-cross", "--together", 3, "--record", record]
    table += ["--diagnose", "--passes", 2]
    run(tables, "table1", *table, "--features", features)
    rows = json.loads((results / "table1.json").read_text())["rows"]
    assert len(rows) == 2 * 4 * 2 and {row["method"] for row in rows} == {"erm", "mil"}
    lines = record.read_text()
    run(tables, "table1", *table, "--features", features)
    assert record.read_text() == lines, "what is recorded is not run again"
    run(tables, "table1", *table, "--first-seed", 1)
    added = [json.loads(line)["job"] for line in record.read_text()[len(lines) :].splitlines()]
    assert len(added) == 2 * 4 and {job["seed"] for job in added} == {2}, "seed 1 is there already"
    record.write_text(lines)
    without_output = ["table1", *common[: common.index("--output")]]
    for script, case, message in (
        (tables, [*without_output, "--memory-learning-rate", 1.0], "--memory-learning-rate makes another table"),
        (tables, [*without_output, "--passes", 5], "--passes makes another table: say with --output"),
        (tables, [*without_output, "--passes", 0], "--passes is at least 1"),
        (figures, ["figure4", "--record", record, "--head", "prompting"], "figure4 does not take --head"),
        (figures, ["keys", *common, "--together", 3], "keys does not take --together"),
    ):
        with pytest.raises(SystemExit):
            run(script, *case)
        assert message in capsys.readouterr().err
    # What the tables above were made with, from here on.
    monkeypatch.setattr(tables, "PASSES", 2)

    run(figures, "figure3", "--features", features / "amazon-books-mil-tiny-fine-tuning.npz", "--output", results)
    run(figures, "figure4", "--record", record, "--output", results)
    # A longer run is not of the tables' budget, and lies on no curve of it.
    longer = json.loads(lines.splitlines()[0])
    longer["job"]["steps"] += 1
    longer["log"] = [{"step": 99, "dev": 50.0}]
    record.write_text(lines + json.dumps(longer) + "\n")
    run(figures, "budget", "--record", record, "--output", results)
    figure5 = ["figure5", *common, "--sets", "amazon", "--seeds", 1, "--together", 4, "--record", tmp_path / "f5.jsonl"]
    run(figures, *figure5)
    run(figures, "keys", *common, "--sets", "amazon", "--seeds", 1)
    for name in (
        "keys_fine-tuning",
        "figure3_pca",
        "figure3_tsne",
        "figure4",
        "figure5_amazon",
        "budget_amazon_tiny_fine-tuning",
    ):
        assert (results / f"{name}.png").stat().st_size > 5000, name
    distances = json.loads((results / "figure4.json").read_text())["rows"]
    # Two bars for MIL: what its head reads, and its memory alone.
    assert len(distances) == 8 * 3 and all(0 <= row["value"] <= 2 for row in distances)
    by_step = json.loads((results / "budget.json").read_text())["rows"]
    ends = {(row["method"], row["step"]) for row in by_step if row["metric"] == "dev_macro_f1"}
    assert ends == {("erm", 3), ("mil", 3)}, "two steps and one of meta-training, which ERM spends on its classifier"
    entropies = [row for row in by_step if row["metric"] == "slot_entropy"]
    assert len(entropies) == 8 and all(row["step"] == 1 and 0 <= row["value"] <= 100 for row in entropies)
    accuracies = [row for row in by_step if row["metric"] == "discriminator_accuracy"]
    assert len(accuracies) == 8 and all(row["step"] == 1 and 0 <= row["value"] <= 100 for row in accuracies)
    fresh = {
        (row["memory_key_initializer_range"], row["metric"]): row["value"]
        for row in json.loads((results / "keys.json").read_text())["rows"]
    }
    assert len(fresh) == 2 * len(figures.KEY_RANGES) and all(0 <= value <= 100 for value in fresh.values())
    assert fresh[4.0, "slot_entropy"] < fresh[0.0625, "slot_entropy"], "large keys tell slots apart"
    assert fresh[4.0, "memory_spread"] > fresh[0.0625, "memory_spread"], "and texts"
    curve = json.loads((results / "figure5.json").read_text())["rows"]
    scores = [row for row in curve if row["metric"] == "dev_macro_f1"]
    assert {row.get("memory_slots") for row in scores} == {None, 4, 8} and len(scores) == 4 * 3
    games = [row for row in curve if row["metric"] == "discriminator_accuracy"]
    assert {row["memory_slots"] for row in games} == {4, 8} and len(games) == 4 * 2, "ERM plays none"


def test_a_round_of_tuning_with_prompts(here, tmp_path, monkeypatch):
    import dataclasses

    import experiment
    import tune

    from hf_memaug.reporting.results import here as made_with

    def run_jobs(options, jobs, *_, score_target, **__):
        scores = {"scores": {"nyt": 60.0}} if score_target else {"scores": {}}
        return [{"job": dataclasses.asdict(job), "dev": 50.0, "made_with": made_with(), **scores} for job in jobs]

    monkeypatch.setattr(tune, "run_jobs", run_jobs)
    arguments = ["--round", "6", "--head", "prompting", "--seeds", "1", "--sets", "vader4=nyt", "amazon=books"]
    monkeypatch.setattr(sys, "argv", ["tune", "--backbone", "tiny=FOLDER", *arguments, "--output", str(tmp_path)])
    tune.main()
    rows = json.loads((tmp_path / "tuning.json").read_text())["rows"]
    assert {row["head"] for row in rows} == {"prompting"}
    assert {row["target"] for row in rows if row["metric"] == "macro_f1"} == {"nyt"}, (
        "a target of the tables is not seen"
    )
    assert "mil, memory_key_initializer_range 0.25, memory_learning_rate 0.0001" in {row["method"] for row in rows}
    assert len({row["method"] for row in rows}) == 1 + 4 + 8
    assert set(experiment.PROMPTS) == set(experiment.MAX_LENGTH)
