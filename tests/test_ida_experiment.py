# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The experiments behind IDA's tables: domains in their turn, equal runs of a seed, tables that can be made again."""

import gc
import gzip
import json
import random
import sys
from pathlib import Path
from statistics import fmean

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples" / "ida"
pytestmark = pytest.mark.usefixtures("here")
DOMAINS = ("fiction", "government", "slate")
TRAIN, HELD_OUT = 24, 32


def write_rows(folder: Path, domains, splits, pairs: bool) -> None:
    """Rows whose words say their domain, and whose label is the first word of the last text."""
    folder.mkdir(parents=True)
    (folder / "labels.json").write_text('["no", "yes"]')
    for domain in domains:
        for split, count in splits.items():
            draw = random.Random(f"{domain} {split}")
            with gzip.open(folder / f"{domain}.{split}.jsonl.gz", "wt") as file:
                for number in range(count):
                    words = " ".join(f"{domain}{draw.randrange(9)}" for _ in range(4))
                    said = f"{('no', 'yes')[number % 2]} {words} {split}{number}"
                    row = {"text": words if pairs else said, "label": number % 2, "domain": domain}
                    file.write(json.dumps({**row, **({"text_pair": said} if pairs else {})}) + "\n")


@pytest.fixture(autouse=True)
def only_new_garbage():
    """A trainer collects garbage at each stage: looking through all that is loaded would take most of the time."""
    import sklearn.metrics  # noqa: F401

    from hf_memaug import ContinualTrainer, MemoryRNNForSequenceClassification  # noqa: F401

    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def folder(tmp_path) -> str:
    write_rows(tmp_path / "data" / "mnli5", DOMAINS, {"train": TRAIN, "test": HELD_OUT}, pairs=True)
    splits = {"train": TRAIN, "dev": 6, "test": 10}
    write_rows(tmp_path / "data" / "vader4", ("tweets", "movie"), splits, pairs=False)
    return str(tmp_path)


def job(**kwargs):
    from experiment import Job

    given = {"data": "mnli5", "domains": DOMAINS, "strategy": "f+m+v", "architecture": "rnn+mem", "seed": 0}
    sizes = {"epochs": 1, "batch_size": 8, "first_slots": 3, "slots": 2, "hidden_size": 6, "learning_rate": 1e-2}
    return Job(**{"backbone": "memory-rnn", **given, **sizes, **kwargs})


KINDS = ["f", "f+m", "f+v", "f+m+v", "f+h", "f+h+v", "ewc", "progressive", "replay", "lwf"]


@pytest.mark.parametrize("strategy", KINDS)
def test_a_domain_is_trained_on_in_its_turn_and_all_are_scored(strategy, folder):
    from experiment import run

    result = run(job(strategy=strategy), folder)
    assert list(result["matrix"]) == list(DOMAINS)
    assert all(list(scores) == list(DOMAINS) for scores in result["matrix"].values())
    assert all(0 <= value <= 100 for scores in result["matrix"].values() for value in scores.values())
    assert [stage["domains"] for stage in result["stages"]] == [[name] for name in DOMAINS]
    assert [stage["rows"] for stage in result["stages"]] == [TRAIN] * 3
    assert result["final"] == result["matrix"]["slate"]
    assert result["figures"]["acc"] == pytest.approx(sum(result["final"].values()) / 3)
    assert None not in result["figures"].values()
    for name, right in result["right"].items():
        assert len(right) == HELD_OUT // 2
        assert 100 * right.count("1") / len(right) == pytest.approx(result["final"][name])
    grown = [set(stage["growth"]) for stage in result["stages"]]
    letters = {"m": "slots", "h": "units", "v": "words"}
    expected = {letters[letter] for letter in strategy.split("+")[1:]}
    expected |= {"columns"} if strategy == "progressive" else set()
    assert grown == [set(), expected, expected]


def test_settings_are_chosen_by_dev_rows(folder, monkeypatch):
    import experiment

    dev = {tuple(rows["text"]): name for name, rows in experiment.load_parts(job(strategy="f"), folder)["dev"].items()}
    answers = dict(zip(DOMAINS, ("1110", "1000", "1010"), strict=True))
    said = lambda trainer, rows: answers.get(dev.get(tuple(rows["text"])), "1")  # noqa: E731
    monkeypatch.setattr(experiment, "right_answers", said)
    for strategy in ("f", "in_domain"):
        result = experiment.run(job(strategy=strategy), folder)
        assert result["dev"] == dict(zip(DOMAINS, (75.0, 25.0, 50.0), strict=True))
        assert set(result["right"].values()) == {"1"}


def test_references_and_single_domains(folder):
    from experiment import run

    many = run(job(strategy="multi_task"), folder)
    assert list(many["matrix"]) == [" + ".join(DOMAINS)] and many["stages"][0]["rows"] == 3 * TRAIN
    assert many["stages"][0]["steps"] == 3 * TRAIN // 8, "as many steps as one domain after the other"
    each = run(job(strategy="in_domain"), folder)
    assert list(each["matrix"]) == list(DOMAINS)
    assert each["final"] == {name: each["matrix"][name][name] for name in DOMAINS}
    assert each["figures"]["acc"] == pytest.approx(sum(each["final"].values()) / 3) and each["figures"]["bwt"] is None
    for name, strategy in (("fiction", "s"), ("slate", "t")):
        alone = run(job(strategy=strategy), folder)
        assert alone["matrix"] == {name: each["matrix"][name]}, "a domain alone is a line of its own"
    plain = run(job(strategy="s", architecture="rnn"), folder)
    assert list(plain["final"]) == list(DOMAINS) and plain["figures"]["forgetting"] is None


def test_a_seed_is_a_run(folder):
    from experiment import run

    found = [run(job(seed=seed), folder) for seed in (0, 0, 1)]
    for result in found:
        del result["seconds"]
    assert found[0] == found[1]
    assert found[0]["right"] != found[2]["right"]


def test_rows_of_a_later_domain_are_not_seen_before_its_turn(folder, monkeypatch):
    from experiment import run

    from hf_memaug import ContinualTrainer

    whole, seen = ContinualTrainer._stage_trainer, []

    def stage_trainer(self, folder, domains, rows, seed):
        made = whole(self, folder, domains, rows, seed)
        words = {word.rstrip("0123456789") for word in self.processing_class.get_vocab()} & set(DOMAINS)
        seen.append((set(rows["domain"]), set(made.eval_dataset["domain"]), words))
        return made

    monkeypatch.setattr(ContinualTrainer, "_stage_trainer", stage_trainer)
    alone = [{name} for name in DOMAINS]
    run(job(strategy="f+m+v"), folder)
    assert seen == [(one, one, set(DOMAINS[: place + 1])) for place, one in enumerate(alone)]
    seen.clear()
    run(job(strategy="f+m"), folder)
    assert seen == [(one, one, {"fiction"}) for one in alone], "words of later domains are unknown"
    seen.clear()
    run(job(strategy="in_domain"), folder)
    assert seen == [(one, one, one) for one in alone]
    seen.clear()
    run(job(strategy="multi_task"), folder)
    assert seen == [(set(DOMAINS),) * 3]


def test_held_out_rows_are_split_by_seed(folder):
    from experiment import load_parts

    parts = [load_parts(job(seed=seed), folder) for seed in (0, 0, 1)]
    for domain in DOMAINS:
        dev, test = (set(parts[0][split][domain]["text_pair"]) for split in ("dev", "test"))
        assert len(dev) == len(test) == HELD_OUT // 2 and not dev & test
        assert test == set(parts[1]["test"][domain]["text_pair"]) != set(parts[2]["test"][domain]["text_pair"])
    # What has dev files is not split.
    parts = load_parts(job(data="vader4", domains=("movie", "tweets"), rows=5), folder)
    counts = {split: [len(rows) for rows in found.values()] for split, found in parts.items()}
    assert counts == {"train": [5, 5], "dev": [6, 6], "test": [10, 10]} and list(parts["test"]) == ["movie", "tweets"]


def test_the_best_epoch_by_dev_rows_is_kept(folder, monkeypatch):
    from experiment import run

    from hf_memaug.training.selection import BestInMemory

    steps, end = [], BestInMemory.on_train_end

    def remember(self, *args, **kwargs):
        steps.append((self.best_step, self.best_score))
        return end(self, *args, **kwargs)

    monkeypatch.setattr(BestInMemory, "on_train_end", remember)
    run(job(epochs=3, learning_rate=1e-9, strategy="f"), folder)
    assert [step for step, _ in steps] == [3, 3, 3], "nothing changes, and the first of equals is kept"


def test_word_vectors_are_those_of_the_file(folder, tmp_path, monkeypatch):
    import experiment

    from hf_memaug import ContinualTrainer

    file = tmp_path / "vectors.txt"
    file.write_text("yes 1 2 3 4 5\nslate3 5 4 3 2 1\nelsewhere 0 0 0 0 0\n")
    made = job(vectors=str(file), learning_rate=0.0)
    model, tokenizer = experiment.make_model(
        made, folder, [experiment.load_parts(made, folder)["train"]["fiction"]], ["no", "yes"]
    )
    assert model.config.embedding_size == 5
    words = model.get_input_embeddings().weight
    assert words[tokenizer.get_vocab()["yes"]].tolist() == [1, 2, 3, 4, 5] and "slate3" not in tokenizer.get_vocab()
    trainers, whole = [], ContinualTrainer.train
    monkeypatch.setattr(ContinualTrainer, "train", lambda self: trainers.append(self) or whole(self))
    experiment.run(made, folder)
    words = trainers[0].model.get_input_embeddings().weight
    place = trainers[0].processing_class.get_vocab()["slate3"]
    assert words[place].tolist() == [5, 4, 3, 2, 1], "a word that was added"


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_pretrained_encoders_get_a_memory(kind, folder):
    from experiment import run
    from families import save_backbone

    save_backbone(kind, Path(folder) / "weights" / "tiny")
    made = {"data": "vader4", "domains": ("tweets", "movie"), "architecture": "encoder+mem", "backbone": "tiny"}
    made |= {"memory_learning_rate": 1e-3, "max_length": 16}
    result = run(job(**made, strategy="f+m"), folder)
    assert list(result["matrix"]) == ["tweets", "movie"] and result["stages"][1]["growth"] == {"slots": 2}
    if kind == "bert":
        for strategy in ("ewc", "lwf", "replay"):
            assert list(run(job(**made, strategy=strategy), folder)["final"]) == ["tweets", "movie"]


def test_options_of_a_strategy_reach_it(folder):
    from experiment import make_arguments

    arguments = make_arguments(job(strategy="ewc", options='{"fisher_weight": 7}'), "ewc", ["fiction"], "out", "cpu")
    assert arguments.strategy_kwargs == {"fisher_weight": 7}
    arguments = make_arguments(job(), "f+m+v", ["fiction"], "out", "cpu")
    assert arguments.strategy_kwargs == {"slots": 2, "word_vectors": None}


def make(monkeypatch, *command: object) -> list:
    from tables import make_jobs, parse_arguments

    monkeypatch.setattr(sys, "argv", ["tables.py", *map(str, command)])
    return make_jobs(parse_arguments())


def test_tables_have_the_lines_of_the_paper(monkeypatch):
    from tables import line_of, rows_of

    lines = [line_of(one) for one in make(monkeypatch, "table2", "--seeds", 1)]
    assert lines == [
        *("rnn s", "rnn t", "rnn+mem s", "rnn+mem t", "multi_task", "f", "f+m", "f+m+v", "f+h", "f+h+v"),
        *("ewc", "progressive"),
    ]
    fourth = make(monkeypatch, "table4", "--seeds", 1)
    assert [line_of(one) for one in fourth] == ["in_domain", "multi_task", "f+v", "f+m+v", "ewc", "progressive"]
    assert fourth[0].domains == ("fiction", "government", "slate", "telephone", "travel")
    assert make(monkeypatch, "table3", "--seeds", 1) == [fourth[3]], "Table 3 is made of models of Table 4"
    weights = ['{"fisher_weight": 1}', '{"fisher_weight": 10}']
    some = make(monkeypatch, "table2", "--strategies", "ewc", "--options", *weights, "--seeds", 2)
    assert [(one.options, one.seed) for one in some] == [(weight, seed) for seed in (0, 1) for weight in weights]
    rates = make(
        monkeypatch, "table2", "--strategies", "f+v", "--learning-rate", 3e-4, 1e-3, "--key-range", 0.3, "--seeds", 1
    )
    assert [(one.learning_rate, one.key_range) for one in rates] == [(3e-4, 0.3), (1e-3, 0.3)]
    methods = [next(rows_of(one, {"final": {"government": 50.0}}, "table2"))["method"] for one in rates]
    assert methods == ["f+v, keys 0.3", "f+v, rate 0.001, keys 0.3"]
    curve = [(one.strategy, one.slots) for one in make(monkeypatch, "figure4", "--seeds", 1)]
    assert curve == [("f+v", 500), *(("f+m+v", slots) for slots in (100, 300, 500, 1000))]
    pretrained, scratch = make(
        monkeypatch, "amazon", "--backbones", "tiny", "memory-rnn", "--strategies", "f", "--seeds", 1
    )
    assert (pretrained.learning_rate, scratch.learning_rate) == (5e-5, 3e-4)
    assert scratch.max_length == pretrained.max_length == 192 and pretrained.architecture == "encoder+mem"


def test_what_a_table_does_not_take_is_refused(monkeypatch, capsys):
    for command in (
        ["figure4", "--slots", 5],
        ["figure4", "--learning-rate", 1e-3, 1e-4],
        ["table3", "--strategies", "f"],
        ["table4", "--options", "{}"],
        ["table4", "--strategies", "f+x"],
        ["amazon", "--key-range", 1],
        ["table4", "--key-range", 1, "--backbones", "memory-rnn", "minilm"],
    ):
        with pytest.raises(SystemExit):
            make(monkeypatch, *command)
        assert str(command[1]) in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--folder", "nowhere"), ("--vectors", "nowhere.txt")])
def test_files_that_are_not_there_are_said_before_the_first_model(option, value, folder, monkeypatch, tmp_path):
    import tables

    given = {"--folder": folder, option: tmp_path / value, "--record": tmp_path / "runs.jsonl", "--seeds": 1}
    arguments = [str(part) for pair in given.items() for part in pair]
    monkeypatch.setattr(tables, "run_in_processes", lambda *given: pytest.fail("a model was begun"))
    monkeypatch.setattr("sys.argv", ["tables.py", "table2", *arguments])
    with pytest.raises(SystemExit, match=f"There is no .*nowhere.*{option}"):
        tables.main()


def test_the_test_of_the_paper_draws_the_same_rows_for_both():
    from tables import DRAWS, drawn_accuracies

    some = {0: "1100" * 20, 1: "1010" * 20}
    a, b = drawn_accuracies(some, some)
    assert a == b and len(a) == DRAWS and len(set(a)) > 1
    better, worse = drawn_accuracies({0: "1" * 50, 1: "0"}, {0: "0" * 50, 2: "1"})
    assert better == [100.0] * DRAWS and worse == [0.0] * DRAWS, "seeds that both have"


def test_tables_from_the_command_line(folder, at_once, monkeypatch, capsys, tmp_path):
    import experiment
    import tables

    calls = []
    monkeypatch.setattr(tables, "run", lambda *args: calls.append(args) or experiment.run(*args))
    output = tmp_path / "results"
    common = ["--folder", folder, "--seeds", "2", "--epochs", "1", "--batch-size", "8", "--hidden-size", "6"]
    common += ["--first-slots", "3", "--record", str(tmp_path / "runs.jsonl"), "--output", str(output)]

    def call(*command):
        monkeypatch.setattr(sys, "argv", ["tables.py", *command, *common])
        tables.main()
        return capsys.readouterr().out

    fourth = ("table4", "--domains", *DOMAINS, "--slots", "2")
    said = call(*fourth, "--strategies", "f+v", "f+m+v", "in_domain")
    rows = json.loads((output / "table4.json").read_text())["rows"]
    # Test and dev rows of three domains and four figures of each, but of the reference ACC alone.
    assert len(calls) == 6 and len(rows) == 2 * (2 * (6 + 4) + 6 + 1)
    assert {row["target"] for row in rows if row["metric"] == "accuracy"} == set(DOMAINS)
    assert {row["metric"] for row in rows if row["method"] == "f+m+v"} == {
        "accuracy",
        "dev accuracy",
        "acc",
        "bwt",
        "fwt",
        "forgetting",
    }
    tests = json.loads((output / "table4_tests.json").read_text())["tests"]
    assert [(one["method"], one["baseline"]) for one in tests] == [("f+m+v", "f+v"), ("f+m+v", "in_domain")]
    of = {
        name: [row["value"] for row in rows if (row["method"], row["metric"]) == (name, "accuracy")]
        for name in ("f+v", "f+m+v", "in_domain")
    }
    for one in tests:
        assert f"f+m+v − {one['baseline']} on memory-rnn, mean over domains: " in said
        assert one["difference"] == pytest.approx(fmean(of["f+m+v"]) - fmean(of[one["baseline"]]), abs=1e-3)
        assert one["seeds"] == [0, 1] and 0 <= one["t_test"] <= 1 and set(one["drawn"]) == set(DOMAINS)
    assert "over 2 seeds" in said and "f+m+v − f+m+v" not in said
    assert all(f"  {name}: " in said for name in DOMAINS) and "one-tailed Wilcoxon" in said
    assert "[6/6, 0 min left] in_domain on memory-rnn, mnli5, seed 1: fiction" in said

    said = call(*fourth, "--strategies", "f+v", "f+m+v", "in_domain")
    assert len(calls) == 6 and "6 of 6 models are in" in said, "what has run is not run again"
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 6
    call("table3", "--domains", *DOMAINS, "--slots", "2")
    assert len(calls) == 6, "the models are those of Table 4"
    assert (output / "table3.png").stat().st_size > 5000 and not (output / "table4.png").exists()
    rows = json.loads((output / "table3.json").read_text())["rows"]
    cells = [row for row in rows if row["metric"] == "accuracy"]
    assert len(cells) == 2 * 9 and {row["method"] for row in cells} == {f"f+m+v, after {name}" for name in DOMAINS}

    monkeypatch.setattr(tables, "NEW_SLOTS", [0, 4])
    call("figure4", "--domains", *DOMAINS[:2])
    rows = json.loads((output / "figure4.json").read_text())["rows"]
    assert {(row["method"], row["slots"]) for row in rows} == {("f+v, 0 slots", 0), ("f+m+v, 4 slots", 4)}
    assert (output / "figure4.png").stat().st_size > 5000

    from hf_memaug.reporting.results import main

    main([str(output / "table4.json"), "--baseline", "f+v", "--cross", "--output", str(tmp_path / "table4.md")])
    report = (tmp_path / "table4.md").read_text()
    assert "## mnli5, memory-rnn, bwt" in report and report.count("| f+m+v ") == 6, "a table for each score"


def test_what_growth_itself_costs(folder, monkeypatch, capsys, tmp_path):
    import disturbance

    sizes = ["--hidden-size", "6", "--first-slots", "3", "--epochs", "1", "--seeds", "2", "--slots", "1", "97"]
    command = ["disturbance.py", "--folder", folder, *sizes, "--output", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", command)
    disturbance.main()
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert len(rows) == 2 * (1 + 2 * 3)
    found = {(row["method"], row["metric"], row["seed"]): row["value"] for row in rows}
    share = "attention to new slots"
    for seed in (0, 1):
        # Soft at the beginning: near to the part that they are of all slots.
        assert found["m, 1 slots", share, seed] == pytest.approx(25, abs=8)
        assert found["m, 97 slots", share, seed] == pytest.approx(97, abs=2)
    assert "[2/2] as trained" in capsys.readouterr().out


def test_the_share_of_new_slots_is_that_of_all_words_that_read():
    import disturbance
    import torch

    class Model:
        device = torch.device("cpu")
        config = type("Config", (), {"memory_slots": [2, 1]})

        def slot_domains(self):
            return torch.tensor([0, 0, 1])

        def __call__(self, input_ids, output_memory_weights):
            weights = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.0, 0.25, 0.75]])
            return type("Output", (), {"memory_weights": weights.expand(len(input_ids), 3, 3)})

    trainer = type("Trainer", (), {"data_collator": staticmethod(lambda rows: {"input_ids": torch.tensor(rows)})})
    assert disturbance.new_share(Model(), trainer, [[1], [2]]) == pytest.approx(0.5)
