# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Domain after domain with G-MAP, graphs and questions: trained, gone on with, scored and answered."""

import importlib
import json
from contextlib import nullcontext

import pytest
from cli.row_files import write

from hf_memaug.runs.splits import split_for_continual

NETWORK = ["--backbone", "gin-2x8", "--method", "hma", "--real-memory-size", 16, "--synthetic-slots", 2]


@pytest.fixture
def finished(command, no_report, read_lines, tmp_path):
    """`finished(*words)` runs `continual` into `run`, to its end: the records by their strategies."""

    def run(*words, output="run", report=False):
        with nullcontext() if report else no_report():
            code, _, error = command("continual", *words, "--output", output)
        folder = tmp_path / output
        logs = "".join(file.read_text() for file in folder.glob("jobs/*/log.txt"))
        assert code == 0 and "not written" not in error and "Traceback" not in logs, error + logs
        return {record["job"]["method"]: record for record in read_lines(folder / "runs.jsonl")}

    return run


def held_out(folder, record) -> dict:
    """The rows that a job has scored."""
    spec = json.loads((folder / "jobs" / record["name"] / "job.json").read_text())
    return split_for_continual(spec["source"], spec["protocol"]["order"], spec["protocol"]["holdout"])["test"]


class TestRows:
    """Which rows a job is trained on, and which it is scored on."""

    @pytest.fixture
    def splits(self, tmp_path) -> list:
        """Sorted by class, as files often are; two rows stand in both splits."""
        for split, first in (("train", 0), ("test", 38)):
            rows = [{"text": f"row {first + n}", "label": str(n // 20), "domain": "AB"[n % 2]} for n in range(40)]
            write(tmp_path / f"{split}.jsonl", rows)
        return ["--data", tmp_path, "--split", "train", "--test-split", "test"]

    def test_rows_that_are_trained_on_and_scored_are_refused_or_dropped(self, command, splits):
        code, _, error = command("continual", *splits, "--dry-run")
        assert code == 3 and "2 of 40 rows of `--split` are also in `--test-split`" in error
        assert "Pass `--on-overlap drop` to leave them out." in error
        code, _, error = command("continual", *splits, "--dry-run", "--on-overlap", "drop")
        assert code == 0, error
        for word, count in (("drop", 38), ("ignore", 40)):
            train = split_for_continual(self.source(splits), ["A", "B"], 0.2, on_overlap=word)["train"]
            assert sum(map(len, train.values())) == count

    def test_rows_are_not_scored_in_the_order_of_their_file(self, splits):
        """A model whose rows read each other would be scored on batches of one class."""
        parts = split_for_continual(self.source(splits), ["A"], 0.2, dev_fraction=0.5, on_overlap="ignore")
        alone = split_for_continual(
            self.source([*splits[:4], "--test-split", "train"]), ["A"], 0.5, on_overlap="ignore"
        )
        for part in (parts["dev"], parts["test"], alone["test"]):
            assert list(part["A"]["label"]) != sorted(part["A"]["label"])

    @staticmethod
    def source(words) -> dict:
        from hf_memaug.runs import rows
        from hf_memaug_cli.options import ContinualOptions

        names = {"data": str(words[1]), "split": words[3], "test_split": words[5]}
        return rows.source_of(ContinualOptions(**names))


class TestGMAP:
    @pytest.mark.slow
    def test_texts(self, finished, command, columns, encoder, tmp_path, read_lines):
        models = ["--method", "gmap", "--general", encoder, "--backbone", encoder, "--max-steps", 2]
        # G-MAP's own strategy, beside those of the trainer.
        words = [*columns, "--order", "films,books", *models, "--strategy", "gated", "--fusion", "gate_attention"]
        record = finished(*words, "--strategies", "ewc")["ewc"]
        run = tmp_path / "run"
        assert record["job"]["general"] == "encoder" and record["settings"]["strategy"] == "gated"
        kept = run / record["checkpoint"]
        config = json.loads((kept / "config.json").read_text())
        assert (config["model_type"], config["strategy"], config["fusion"]) == ("gmap", "gated", "gate_attention")
        assert config["run_facts"]["continual"]["strategy"]["name"] == "ewc" and (kept / "strategy.pt").is_file()
        card = (kept / "README.md").read_text()
        assert "films, books" in card and "pipeline_tag: text-classification" in card
        assert (run / "jobs/ewc-seed0/memory.json").is_file()
        code, out, error = command("predict", kept, "a fine book")
        assert code == 0 and json.loads(out)["label"] in ("negative", "positive"), error

        # It goes on, without being told what it is.
        more = [*columns, "--order", "phones", "--backbone", kept, "--max-steps", 1]
        later = finished(*more, "--strategies", "ewc", output="later")["ewc"]
        assert later["matrix"]["trained_on"] == ["films", "books", "phones"] and later["matrix"]["bwt"] is not None
        config = json.loads((tmp_path / "later" / later["checkpoint"] / "config.json").read_text())
        assert (config["model_type"], config["strategy"]) == ("gmap", "gated")
        code, _, error = command("continual", *more, "--general", encoder)
        assert code == 2 and "which contains its general encoder. Leave it out." in error
        code, _, error = command("continual", *more, "--strategies", "ewc", "--vectors", f"{encoder}/config.json")
        assert code == 2 and "`--vectors` is set, and `--backbone` is a trained model" in error and "f+m+v" in error
        code, _, error = command("continual", *more, "--method", "gmap", "--strategy", "single")
        assert code == 2 and "`--strategy` shapes a new model, and `--backbone` is a trained model" in error
        assert command("continual", *more, "--method", "gmap", "--strategies", "ewc", "--dry-run")[0] == 0
        code, _, error = command("continual", *more, "--method", "hma", "--dry-run")
        assert code == 2 and "`--method` is 'hma', and `--backbone` is a trained model, a `gmap`" in error
        code, _, error = command("continual", *more, "--strategies", "f+m", "--dry-run")
        assert code == 2 and "models of `gmap` cannot grow" in error
        code, _, error = command("continual", *more, "--strategies", "in_domain", "--dry-run")
        assert code == 2 and "`--strategies` has 'in_domain', which cannot continue the matrix of `--backbone`" in error
        code, _, error = command("continual", *words, "--strategy", "gatd", "--dry-run")
        assert code == 2 and "`--strategy` is 'gatd'. Did you mean 'gated'? Choose 'single'" in error
        code, _, error = command("continual", "--data", "generated_graphs", "--backbone", kept)
        assert code == 2 and "`--backbone` was trained on texts, and the rows are graphs." in error

    @pytest.mark.slow
    def test_tags(self, finished, command, encoder, tmp_path):
        data = [
            {"tokens": [place, "has", str(number), word], "ner_tags": ["O", "O", "O", tag], "domain": place}
            for place in ("north", "south")
            for number in range(8)
            for word, tag in (("flu", "B-Disease"), ("rest", "O"))
        ]
        data = write(tmp_path / "reports.jsonl", data)
        models = ["--method", "gmap", "--general", encoder, "--backbone", encoder, "--num-train-epochs", 8]
        settings = ["--learning-rate", 5e-3, "--dev-fraction", 0.5, "--holdout", 0.4]
        record = finished("--data", data, "--task", "tags", *models, *settings, "--strategies", "lwf")["lwf"]
        assert record["matrix"]["rows"][0][0] == record["matrix"]["rows"][1][1] == 100.0
        memory = json.loads((tmp_path / "run/jobs/lwf-seed0/memory.json").read_text())
        assert memory["by_domain"]
        readme = (tmp_path / "run/README.md").read_text()
        assert "f1 is that of whole entities" in readme and "macro" not in readme
        kept = tmp_path / "run" / record["checkpoint"]
        card = (kept / "README.md").read_text()
        assert "pipeline_tag: token-classification" in card and "macro" not in card
        code, out, error = command("predict", kept, "south has 3 flu")
        assert code == 0 and json.loads(out)["tags"] == ["O", "O", "O", "B-Disease"], error

        data = [{"tokens": ["a", "drug"], "ner_tags": ["O", "B-Drug"], "domain": "east"}] * 8
        other = write(tmp_path / "other.jsonl", data)
        words = ["--data", other, "--task", "tags", "--backbone", kept, "--on-overlap", "ignore"]
        code, _, error = command("continual", *words, "--dry-run")
        assert code == 3 and "`--data` has the tags 'B-Drug', missing from those of `--backbone`." in error


def test_columns_have_no_auto_class(command, columns, tmp_path):
    (tmp_path / "columns").mkdir()
    (tmp_path / "columns/config.json").write_text('{"model_type": "progressive_columns"}')
    (tmp_path / "columns/continual.json").write_text("{}")
    for words in (["evaluate", "columns"], ["continual", "--backbone", "columns"]):
        code, _, error = command(*words, *columns)
        assert code == 2 and "the columns of progressive networks have no `Auto` class" in error


def test_a_run_that_cannot_go_on_is_refused_with_options(command, columns, tmp_path):
    from tiny_backbones import save_backbone
    from transformers import AutoModelForSequenceClassification

    from hf_memaug.training import ContinualRecord

    folder = tmp_path / "old"
    save_backbone("bert", folder)
    AutoModelForSequenceClassification.from_pretrained(folder).save_pretrained(folder)
    stage = {"domains": ["shoes"], "strategy": "ewc", "growth": {}, "steps": 1, "rows": 1, "scores": {"shoes": 0.5}}
    ContinualRecord(strategy={"name": "ewc"}, labels=["negative", "positive"], stages=[stage]).save(folder)
    words = ["continual", *columns, "--backbone", "old", "--dry-run"]
    code, _, error = command(*words, "--strategies", "replay")
    assert code == 2 and "`--strategies` has 'replay', which needs `" in error and "such as f." in error, error
    assert "trained by ewc" in error and "history" not in error
    code, _, error = command(*words, "--strategies", "f", "--metric", "f1")
    assert code == 2 and "`--metric` is 'f1', and the matrix of `--backbone` holds accuracy. Use that." in error, error
    code, out, error = command(*words, "--strategies", "f")
    assert code == 0 and "to do" in out, error
    for file in folder.glob("*token*"):
        file.write_text("no JSON")
    code, _, error = command(*words, "--strategies", "f")
    assert code == 2 and "`--backbone` 'old' has no tokenizer that can be read." in error, error


def test_a_model_is_asked_for_with_the_settings_of_each_strategy(command, columns, encoder):
    words = ["continual", *columns, "--method", "gmap", "--general", encoder, "--backbone", encoder]
    code, _, error = command(*words, "--strategies", "f,ewc", "--ewc.memory-layers", "40", "--strategy", "single")
    assert code == 2 and "`gmap`: `--memory-layers` names layer 40" in error, error


class TestGraphs:
    @pytest.fixture
    def sets(self, tmp_path):
        """Rings and paths, small and large: files of the TU collection."""
        (tmp_path / "sets").mkdir()
        for name, first in (("SMALL", 4), ("LARGE", 14)):
            write(tmp_path / "sets" / f"{name}.jsonl", self.graphs(first, 3))
        return ["--data", tmp_path / "sets", "--order", "SMALL,LARGE"]

    @staticmethod
    def graphs(first, values):
        for size in range(first, first + 10):
            for label in (0, 1):
                edges = [[one, one + 1] for one in range(size - 1)] + ([[0, size - 1]] if label else [])
                labels = [one % values for one in range(size)]
                yield {"label": label, "num_nodes": size, "edges": edges, "node_labels": labels}

    @pytest.mark.slow
    def test_a_network_and_its_memories(self, finished, command, sets, tmp_path):
        from hf_memaug import DomainDataset

        words = [*sets, *NETWORK, "--max-steps", 3, "--metric", "auroc", "--dropout", 0.1]
        records = finished(*words, "--strategies", "ewc,replay", report=True)
        run = tmp_path / "run"
        assert all(set(record["scores"]) == {"SMALL", "LARGE"} for record in records.values())
        assert records["replay"]["matrix"]["trained_on"] == ["SMALL", "LARGE"]
        config = json.loads((run / records["replay"]["checkpoint"] / "config.json").read_text())
        network = config["backbone_config"]
        assert (network["hidden_size"], network["dropout"], config["real_memory_size"]) == (8, 0.1, 16)
        assert json.loads((run / "run.json").read_text())["rows"] == "graph"
        report = (run / "report.html").read_text()
        assert "Domain after domain" in report
        kept = run / records["replay"]["checkpoint"]
        assert "graph classification" in (kept / "README.md").read_text()

        # The last row of the matrix is what `evaluate` says of the rows that were held out.
        rows = DomainDataset.concatenate(list(held_out(run, records["replay"]).values()))
        rows = [{"graph": row["graph"], "label": str(row["label"]), "domain": row["domain"]} for row in rows]
        code, out, error = command("evaluate", kept, "--data", write(tmp_path / "tested.jsonl", rows), "--json")
        assert code == 0, error
        for name, scores in json.loads(out)["scores"].items():
            assert records["replay"]["scores"][name]["auroc"] == pytest.approx(scores["auroc"])
        code, out, error = command("predict", kept, "--data", sets[1] / "LARGE.jsonl")
        assert code == 0 and len(out.splitlines()) == 20, error

        # It goes on with another set, unless that has what the network has no place for.
        more = ["--backbone", kept, "--strategies", "replay", "--max-steps", 1, "--metric", "auroc"]
        huge = write(tmp_path / "HUGE.jsonl", self.graphs(30, 3))
        later = finished("--data", huge, *more, output="later")["replay"]
        assert later["matrix"]["domains"] == ["SMALL", "LARGE", "HUGE"]
        # A domain that is neither trained nor scored may have them.
        write(tmp_path / "sets/WIDE.jsonl", self.graphs(4, 9))
        code, _, error = command("continual", *sets[:2], "--order", "LARGE", *more, "--dry-run")
        assert code == 0, error
        odd = write(tmp_path / "ODD.jsonl", self.graphs(30, 4))
        code, _, error = command("continual", "--data", odd, *more)
        assert code == 3 and "is 3, and `--backbone`" in error and "knows the values 0 to 2" in error

    def test_there_are_places_for_the_domains_that_come_later(self, finished, sets, tmp_path):
        write(tmp_path / "sets/WIDE.jsonl", self.graphs(4, 9))
        record = finished(*sets[:2], "--order", "SMALL", *NETWORK, "--max-steps", 1)["f"]
        config = json.loads((tmp_path / "run" / record["checkpoint"] / "config.json").read_text())
        assert config["backbone_config"]["node_vocab_sizes"] == [9]

    def test_molecules_with_the_plain_network(self, finished, command, tmp_path):
        rows = [
            {"mol": f"{'C' * (place + size)}{end}", "kind": end, "lab": f"lab{place}"}
            for place in (1, 9)
            for size in range(8)
            for end in "ON"
        ]
        words = ["--data", write(tmp_path / "molecules.jsonl", rows), "--smiles", "mol", "--label", "kind"]
        record = finished(*words, "--domain", "lab", "--max-steps", 2)["f"]
        kept = tmp_path / "run" / record["checkpoint"]
        config = json.loads((kept / "config.json").read_text())
        assert config["augmentation"] == "none" and config["backbone_config"]["hidden_size"] == 64
        code, out, error = command("predict", kept, "CCO")
        assert code == 0 and json.loads(out)["label"] in "ON", error

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["--method", "gmap"], 2, "`gmap` is for texts, and the rows are graphs. Choose ['erm', 'hma']."),
            (["--strategies", "f,f+m"], 2, "`--strategies` has 'f+m', which enlarges the model, and models of `erm`"),
            (
                ["--data", "generated_graphs", "--order", "path", "--metric", "auroc"],
                3,
                "needs two classes, and rows of both",
            ),
            (["--general", "encoder"], 2, "`--general` is for gmap and fine-tuning, and `--method` is 'erm'. Leave it"),
            (["--f.strategy", "ewc"], 2, "`--strategy` is set by the command. Use `--strategies`"),
        ],
    )
    def test_what_cannot_be_is_refused_with_the_mend(self, command, sets, words, code, said):
        found, _, error = command("continual", *sets, *words, "--dry-run")
        assert found == code and said in error


class TestQuestions:
    @pytest.fixture
    def words(self, tmp_path) -> list:
        """Of two hospitals. Some contexts are too long to be read at once, and some questions have no answer."""
        rows = []
        for place in ("north", "south"):
            for number in range(15):
                illness = "heart failure" if number % 2 else "flu"
                context = f"In {place} ward {number} {'all is well and ' * (number % 3) * 3}one has {illness} now."
                answers = {"text": [illness], "answer_start": [context.index(illness)]}
                answers = answers if number % 7 else {"text": [], "answer_start": []}
                rows.append({"asked": "what ?", "report": context, "right": answers, "domain": place})
        names = ["--question", "asked", "--context", "report", "--answers", "right"]
        return ["--data", write(tmp_path / "reports.jsonl", rows), "--task", "questions", *names]

    @pytest.mark.slow
    @pytest.mark.parametrize("method", ["erm", "gmap"])
    def test_answers(self, finished, command, words, encoder, tmp_path, method):
        models = ["--method", method, "--backbone", encoder, *(["--general", encoder] if method == "gmap" else [])]
        settings = ["--learning-rate", 5e-3, "--num-train-epochs", 4, "--max-length", 40]
        strategies = "lwf,replay" if method == "erm" else "ewc"
        settings += ["--dev-fraction", 0.5, "--holdout", 0.4] if method == "gmap" else []
        records = finished(*words, *models, *settings, "--strategies", strategies, report=True)
        run = tmp_path / "run"
        assert ",".join(records) == strategies
        readme = (run / "README.md").read_text()
        assert "\nf1 in points" in readme and "macro" not in readme + (run / "report.html").read_text()
        assert "f1 is that of the words of an answer" in readme
        assert {row["metric"] for row in json.loads((run / "results.json").read_text())["rows"]} == {"f1"}
        record = records[strategies.split(",")[-1]]
        assert record["matrix"]["trained_on"] == ["north", "south"] and max(map(max, record["matrix"]["rows"])) > 10
        kept = run / record["checkpoint"]
        card = (kept / "README.md").read_text()
        assert "pipeline_tag: question-answering" in card and "| f1 |" in card and "macro" not in card
        if method == "gmap":
            memory = json.loads((run / "jobs" / record["name"] / "memory.json").read_text())
            assert memory["by_domain"]
        else:
            # The last row of the matrix is what `evaluate` says of the rows that were held out.
            rows = [
                {"asked": row["text"], "report": row["text_pair"], "right": row["answers"], "domain": name}
                for name, part in held_out(run, record).items()
                for row in part
            ]
            tested = write(tmp_path / "tested.jsonl", rows)
            call = ["evaluate", kept, "--data", tested, *words[4:], "--max-length", 40, "--json"]
            code, out, error = command(*call)
            assert code == 0, error
            for name, scores in json.loads(out)["scores"].items():
                assert record["scores"][name]["f1"] == pytest.approx(scores["f1"], abs=1e-3)
        code, out, error = command("predict", kept, "what ?", "In south ward 3 one has flu now.")
        assert code == 0 and json.loads(out)["question"] == "what ?", error

    def test_what_cannot_be_is_refused_with_the_mend(self, command, words, encoder):
        for more, said in (
            (["--strategies", "f+v"], "models of `erm` cannot grow. Choose `--method` memo"),
            (["--method", "hma"], "`hma` is for texts, and the rows are questions."),
            (["--metric", "accuracy"], "which is not a metric of questions. Choose f1"),
            (["--strategies", "progressive"], "'progressive', which does not support questions."),
            (["--strategies", "write"], "'write', which does not support questions."),
            (["--tags", "right"], "`--tags` is a column of tags, and the task is questions"),
        ):
            code, _, error = command("continual", *words, "--backbone", encoder, *more, "--dry-run")
            assert code == 2 and said in error


@pytest.mark.slow
def test_the_card_of_columns_says_how_to_load_them(finished, tmp_path):
    words = ["--data", "generated_reviews", "--order", "books,films", "--method", "erm", "--max-steps", 2]
    record = finished(*words, "--strategies", "progressive", "--seeds", 1)["progressive"]
    kept = tmp_path / "run" / record["checkpoint"]
    card = (kept / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "AutoModel" not in card
    (line,) = [line for line in card.splitlines() if line.endswith("import ProgressiveColumns")]
    columns = importlib.import_module(line.split()[1]).ProgressiveColumns.from_pretrained(kept)
    assert columns.config.columns == 2


@pytest.mark.slow
def test_written_domains_are_reported_and_go_on(finished, command, columns, encoder, tmp_path):
    words = [*columns, "--order", "books,films", "--backbone", encoder, "--max-steps", 2]
    record = finished(*words, "--strategies", "write", report=True)["write"]
    assert record["matrix"]["trained_on"] == ["books", "films"] and record["matrix"]["bwt"] is not None
    kept = tmp_path / "run" / record["checkpoint"]
    card = (kept / "README.md").read_text()
    assert "| Domains trained on | books |" in card and "## Written domains" in card
    assert (tmp_path / "run/report.html").is_file()
    more = [*columns, "--order", "phones", "--backbone", kept]
    later = finished(*more, "--strategies", "write", output="later")["write"]
    assert later["matrix"]["trained_on"] == ["books", "films", "phones"] and later["settings"]["steps"] == 0
    code, out, _ = command("memory", tmp_path / "later" / later["checkpoint"], "--json")
    assert code == 0 and [entry["name"] for entry in json.loads(out)] == ["films", "phones"]
    code, _, error = command(
        "continual", "--data", "generated_graphs", "--strategies", "write", "--backbone", "gin-1x8"
    )
    assert code == 2 and "'write', which writes texts and images, and the rows are graphs." in error
