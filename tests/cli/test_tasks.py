# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Tags and questions on the command line: trained, compared, scored and answered."""

import json

import pytest
from cli.row_files import write
from tiny_backbones import save_backbone

from hf_memaug.data.spans import tags_from_logits, tokenize_tags
from hf_memaug.evaluation import answer_scores, entity_f1


class TestTags:
    @pytest.fixture
    def rows(self) -> list[dict]:
        """Of three hospitals."""
        illnesses = [(["flu"], ["B-Disease"]), (["heart", "failure"], ["B-Disease", "I-Disease"]), (["rest"], ["O"])]
        return [
            {
                "words": [place, "has", str(number), *illness, "now"],
                "tags": ["O", "O", "O", *tags, "O"],
                "hospital": place,
            }
            for place in ("north", "south", "west")
            for number in range(4)
            for illness, tags in illnesses
        ]

    @pytest.fixture
    def columns(self, tmp_path, rows) -> list:
        data = write(tmp_path / "reports.jsonl", rows)
        return ["--data", data, "--tokens", "words", "--tags", "tags", "--domain", "hospital"]

    @pytest.mark.slow
    def test_methods_are_compared_by_whole_entities_where_a_domain_is_left_out(
        self, command, columns, quick, encoder, tmp_path, rows, read_lines
    ):
        models = ["--methods", "erm,fine-tuning,gmap", "--general", encoder, "--backbone", encoder]
        settings = ["--learning-rate", "1e-2", "--max-steps", "12", "--evaluations", "1"]
        call = ["compare", *columns, "--task", "tags", *models, "--target", "west", "--seeds", "1", *settings]
        code, out, error = command(*call, "--output", "run")
        assert code == 0, error
        run = tmp_path / "run"
        assert "f1 in points" in out and "macro" not in out
        records = {record["job"]["method"]: record for record in read_lines(run / "runs.jsonl")}
        assert set(records) == {"erm", "fine-tuning", "gmap"}
        assert set(records["gmap"]["scores"]["west"]) == {"f1", "accuracy"}
        results = json.loads((run / "results.json").read_text())["rows"]
        assert {row["metric"] for row in results} == {"f1"}
        data = json.loads((run / "data.json").read_text())
        assert data["domains"]["west"]["labels"] == {"Disease": 8} and data["columns"]["tokens"] == "words"
        assert "f1 is that of whole entities" in (run / "README.md").read_text()
        report = (run / "report.html").read_text()
        assert "Disease" in report and "unlabelled" not in report
        memory = json.loads((run / "jobs/gmap-west-seed0/memory.json").read_text())
        assert set(memory["by_domain"]) == {"north", "south", "west"}
        assert not (run / "jobs/erm-west-seed0/memory.json").exists()
        assert "Traceback" not in "".join(file.read_text() for file in run.glob("jobs/*/log.txt"))

        from transformers import AutoModelForTokenClassification, AutoTokenizer

        for method in ("erm", "gmap"):
            kept = run / records[method]["checkpoint"]
            card = (kept / "README.md").read_text()
            assert "pipeline_tag: token-classification" in card and "macro_f1" not in card
            model, tokenizer = (
                AutoModelForTokenClassification.from_pretrained(kept),
                AutoTokenizer.from_pretrained(kept),
            )
            names = [model.config.id2label[label] for label in range(3)]
            assert names == ["O", "B-Disease", "I-Disease"]
            # What the library's own functions make of it.
            west = [{"tokens": row["words"], "ner_tags": row["tags"]} for row in rows if row["hospital"] == "west"]
            encoded = tokenize_tags(west, tokenizer, names)
            logits = [
                model(**tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")).logits[0]
                for row in west
            ]
            expected = entity_f1(*tags_from_logits(logits, encoded, names))["f1"]
            assert records[method]["scores"]["west"]["f1"] == pytest.approx(100 * expected, abs=1e-3)

        code, out, error = command("evaluate", kept, *columns, "--json")
        assert code == 0, error
        found = json.loads(out)
        assert found["rows"] == {"north": 12, "south": 12, "west": 12}
        assert found["scores"]["west"] == pytest.approx(records["gmap"]["scores"]["west"], abs=1e-3)
        # What is cut off is missed: no word of an entity is read.
        code, out, error = command("evaluate", kept, *columns, "--json", "--max-length", 4)
        assert code == 0, error
        outside = [tag == "O" for row in west for tag in row["ner_tags"]]
        assert json.loads(out)["scores"]["west"]["accuracy"] <= 100 * sum(outside) / len(outside) + 1e-6

        code, out, error = command("predict", kept, "--data", columns[1], "--tokens", "words")
        assert code == 0, error
        lines = [json.loads(line) for line in out.splitlines()]
        assert [line["tokens"] for line in lines] == [row["words"] for row in rows]
        shown = [line["tags"] for line, row in zip(lines, rows, strict=True) if row["hospital"] == "west"]
        assert shown == tags_from_logits(logits, encoded, names)[0]
        # Words beyond what the model reads at once have tags too.
        code, out, error = command("predict", kept, "has flu", " ".join(["flu"] * 150))
        assert code == 0, error
        short, long = map(json.loads, out.splitlines())
        assert len(short["tags"]) == 2 and len(long["tags"]) == 150
        assert all(one["text"].split() == long["tokens"][one["start"] : one["end"]] for one in long["entities"])

    @pytest.mark.slow
    def test_continual(self, command, columns, encoder, no_report, tmp_path, rows, read_lines):
        call = ["continual", *columns, "--task", "tags", "--backbone", encoder, "--order", "north,south"]
        settings = ["--learning-rate", "1e-2", "--num-train-epochs", 6, "--strategies", "f,ewc"]
        code, out, error = command(*call, *settings, "--output", "run")
        assert code == 0 and "not written" not in error, error
        run = tmp_path / "run"
        records = {record["job"]["method"]: record for record in read_lines(run / "runs.jsonl")}
        assert "f1 at the end, in points" in out and set(records) == {"f", "ewc"}
        assert "Traceback" not in "".join(file.read_text() for file in run.glob("jobs/*/log.txt"))
        readme, report = (run / "README.md").read_text(), (run / "report.html").read_text()
        assert "\nf1 in points" in readme and "macro" not in readme + report
        assert "Domain after domain" in report
        assert {row["metric"] for row in json.loads((run / "results.json").read_text())["rows"]} == {"f1"}
        matrix = records["f"]["matrix"]
        assert matrix["trained_on"] == matrix["domains"] == ["north", "south"] and matrix["rows"][0][0] > 50

        # The last row is the entity F1 of what was kept, on the rows that were held out.
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        from hf_memaug.runs.splits import split_for_continual

        kept = run / records["f"]["checkpoint"]
        model, tokenizer = AutoModelForTokenClassification.from_pretrained(kept), AutoTokenizer.from_pretrained(kept)
        source = json.loads((run / "jobs/f-seed0/job.json").read_text())["source"]
        names = [model.config.id2label[label] for label in range(3)]
        for name, tested in split_for_continual(source, ["north", "south"], 0.2)["test"].items():
            encoded = tokenize_tags(tested, tokenizer, names, column="tags")
            logits = [
                model(**tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")) for row in tested
            ]
            named = tags_from_logits([one.logits[0] for one in logits], encoded, names)
            assert records["f"]["scores"][name]["f1"] == pytest.approx(100 * entity_f1(*named)["f1"], abs=1e-3)

        # It goes on with a domain whose file names the tags in another order.
        west = [row for row in rows if row["hospital"] == "west" and "failure" not in row["words"]]
        other = ["--data", write(tmp_path / "west.jsonl", west)]
        call = ["continual", *other, *columns[2:], "--task", "tags", "--backbone", run / "jobs/ewc-seed0/checkpoint"]
        call += ["--strategies", "ewc", "--max-steps", 1, "--output", "later"]
        with no_report():
            code, _, error = command(*call)
        assert code == 0, error
        (record,) = read_lines(tmp_path / "later/runs.jsonl")
        assert record["matrix"]["trained_on"] == ["north", "south", "west"]
        config = json.loads((tmp_path / "later" / record["checkpoint"] / "config.json").read_text())
        assert list(config["id2label"].values()) == ["O", "B-Disease", "I-Disease"]

    def test_continual_from_its_recipe(self, command, columns, encoder, no_report, tmp_path):
        call = ["continual", *columns, "--task", "tags", "--backbone", encoder, "--max-steps", 1, "--dev-fraction", 0.5]
        with no_report():
            assert command(*call, "--output", "run")[0] == 0
        recipe = (tmp_path / "run/recipe.yaml").read_text()
        assert "task: tags" in recipe and "tokens: words" in recipe and "metric: f1" in recipe
        code, out, error = command("continual", "--recipe", "run/recipe.yaml", "--output", "run", "--dry-run")
        assert code == 0 and "1 jobs, 1 of them done" in out, error
        code, _, error = command(*call, "--method", "gmap")
        assert code == 2 and "`gmap` reads a general encoder. Set `--general`." in error

    def test_splits_of_the_datas_own(self, command, rows, quick, encoder, no_report, tmp_path, read_lines):
        (tmp_path / "ncbi").mkdir()
        for split, place in (("train", "north"), ("dev", "south"), ("test", "west")):
            part = [{"tokens": r["words"], "ner_tags": r["tags"]} for r in rows if r["hospital"] == place]
            # A tag that the training rows have not is a label all the same.
            part = [row for row in part if "I-Disease" not in row["ner_tags"] or split != "train"]
            write(tmp_path / "ncbi" / f"{split}.jsonl", part)
        splits = ["--split", "train", "--dev-split", "dev", "--test-split", "test", "--target", "none"]
        models = ["--method", "gmap", "--general", encoder, "--backbone", encoder, "--metric", "accuracy"]
        call = ["train", "--data", "ncbi", "--task", "tags", "--domain", "none", *splits, *models, *quick]
        with no_report():
            code, _, error = command(*call)
        assert code == 0, error
        (record,) = read_lines(tmp_path / "runs/train/runs.jsonl")
        assert record["validation"] == record["dev_scores"]["ncbi"]["accuracy"]

    def test_a_byte_level_tokenizer_reads_words_and_not_parts_of_them(self, tmp_path, rows):
        from hf_memaug.data import DomainDataset
        from hf_memaug.runs.building import processor_of
        from hf_memaug.runs.methods import chosen

        backbone = save_backbone("roberta", tmp_path / "roberta")
        columns = {"tokens": [["good", "book"]], "tags": [["O", "O"]], "domain": ["a"]}
        tokenizer = processor_of(chosen("erm"), backbone, DomainDataset(columns, ["O"]))
        inside = tokenizer("a good book", add_special_tokens=False)["input_ids"]
        split = tokenizer(["a", "good", "book"], is_split_into_words=True, add_special_tokens=False)["input_ids"]
        assert inside == split

    def test_the_general_encoder_alone_is_given_its_own_tokens(self, tmp_path):
        from hf_memaug.data import DomainDataset
        from hf_memaug.runs.building import processor_of
        from hf_memaug.runs.methods import chosen

        roberta, bert = (save_backbone(kind, tmp_path / kind) for kind in ("roberta", "bert"))
        rows = DomainDataset({"text": ["a good book"], "label": [0], "domain": ["a"]}, ["no", "yes"])
        for name, expected in (("fine-tuning", roberta), ("gmap", bert), ("dapt", bert)):
            assert processor_of(chosen(name), bert, rows, roberta).name_or_path == str(expected)

    def test_a_dataset_of_the_hub_names_the_numbers_of_its_tags(self, command, monkeypatch, rows):
        datasets = pytest.importorskip("datasets")
        names = ["O", "B-Disease", "I-Disease"]
        columns = {
            "tokens": [row["words"] for row in rows],
            "ner_tags": [[names.index(tag) for tag in row["tags"]] for row in rows],
        }
        tags = datasets.Sequence(datasets.ClassLabel(names=names))
        features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
        found = datasets.DatasetDict({"train": datasets.Dataset.from_dict(columns, features=features)})
        monkeypatch.setattr(datasets, "load_dataset", lambda name: found)
        call = ["train", "--data", "you/ncbi", "--task", "tags", "--domain", "none", "--dry-run"]
        code, out, error = command(*call)
        assert code == 0 and "1 jobs" in out, error

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["--methods", "erm,mil"], 2, "`mil` is for texts, and the rows are tags. Choose ['erm', 'gmap'"),
            (["--methods", "vrex"], 2, "`vrex` needs one label for each row, and the rows are tags"),
            (["--methods", "gmap"], 2, "Set `--general`."),
            (["--metric", "mcc"], 2, "`--metric` is 'mcc', which is not a metric of tags. Choose f1, accuracy"),
            (["--label", "stars"], 2, "`--label` is a column of labels or numbers or classes, and the"),
            (["--task", "tag"], 2, "Did you mean 'tags'?"),
            (["--tokens", "word"], 3, "`--tokens` is 'word', but `--data` has no such column. Did you mean 'words'?"),
            (["--tags", "words"], 3, "row 0: the tag 'north' at place 0 is not IOB2"),
            (["--tags", "number"], 3, "`--tags` must hold a list of strings, and is 1 in row 0"),
            (["--backbone", "gin-3x64"], 2, "is for graphs, and the rows are tags"),
        ],
    )
    def test_errors(self, command, columns, tmp_path, rows, words, code, said):
        write(tmp_path / "reports.jsonl", [{**row, "number": 1} for row in rows])
        found, _, error = command("compare", *columns, "--task", "tags", "--methods", "erm", *words)
        assert found == code and said in error

    def test_entities_that_are_in_no_source_are_refused(self, command, columns, tmp_path, rows):
        other = {"words": ["gene"], "tags": ["B-Gene"], "hospital": "west"}
        write(tmp_path / "reports.jsonl", [*rows, other])
        call = ["compare", *columns, "--task", "tags", "--methods", "erm", "--target", "west"]
        code, _, error = command(*call)
        assert code == 3 and "`test` has entities of the type 'Gene', which is missing from `train`" in error

    def test_columns_of_another_task_are_refused(self, command, reviews):
        code, _, error = command("train", "--data", reviews, "--label", "stars", "--domain", "shop", "--tags", "stars")
        assert code == 2 and "`--tags` is a column of tags, and the task is classes" in error


class TestQuestions:
    @pytest.fixture
    def rows(self) -> list[dict]:
        """Of three hospitals. Some contexts are too long to be read at once, and some questions have no answer."""
        found = []
        for place in ("north", "south", "west"):
            for number in range(8):
                illness = "heart failure" if number % 2 else "flu"
                context = f"In {place} ward {number} {'all is well and ' * (number % 3) * 3}one has {illness} now."
                answers = {"text": [illness], "answer_start": [context.index(illness)]}
                answers = answers if number < 7 else {"text": [], "answer_start": []}
                found.append({"asked": "what ?", "report": context, "right": answers, "hospital": place})
        return found

    @pytest.fixture
    def columns(self, tmp_path, rows) -> list:
        names = ["--question", "asked", "--context", "report", "--answers", "right", "--domain", "hospital"]
        return ["--data", write(tmp_path / "reports.jsonl", rows), *names]

    def test_answers_are_compared_where_a_domain_is_left_out(
        self, command, columns, encoder, tmp_path, rows, read_lines
    ):
        models = ["--methods", "erm,gmap,coral", "--general", encoder, "--backbone", encoder, "--target", "west"]
        settings = ["--learning-rate", "1e-2", "--max-steps", 6, "--evaluations", 1, "--seeds", 1, "--max-length", 40]
        code, out, error = command(
            "compare", *columns, "--task", "questions", *models, *settings, "--metric", "exact_match", "--output", "run"
        )
        assert code == 0, error
        run = tmp_path / "run"
        records = {record["job"]["method"]: record for record in read_lines(run / "runs.jsonl")}
        assert set(records["gmap"]["scores"]["west"]) == {"f1", "exact_match"}
        memory = json.loads((run / "jobs/gmap-west-seed0/memory.json").read_text())
        assert set(memory["by_domain"]) == {"north", "south", "west"}
        assert "exact_match in points" in out and "counts answers that are right" in (run / "README.md").read_text()
        assert "unlabelled" not in (run / "report.html").read_text()
        right = [row["right"]["text"] for row in rows if row["hospital"] == "west"]
        for method in ("erm", "gmap"):
            kept, scores = run / records[method]["checkpoint"], records[method]["scores"]["west"]
            card = (kept / "README.md").read_text()
            assert "pipeline_tag: question-answering" in card and "AutoModelForQuestionAnswering" in card
            assert "exact_match" in card and "macro_f1" not in card and "LABEL_0" not in card
            code, out, error = command("evaluate", kept, *columns, "--max-length", 40, "--json")
            assert code == 0, error
            assert json.loads(out)["scores"]["west"] == pytest.approx(scores) and json.loads(out)["rows"]["west"] == 8
            # Where all is read at once, `predict` gives the answers that are scored.
            code, out, error = command("evaluate", kept, *columns, "--json")
            assert code == 0, error
            scores = json.loads(out)["scores"]["west"]
            code, out, error = command("predict", kept, *columns[:6])
            assert code == 0, error
            lines = [json.loads(line) for line in out.splitlines()]
            for line, row in zip(lines, rows, strict=True):
                assert line["answer"] == (row["report"][line["start"] : line["end"]] if line["answer"] else "")
            answers = [line["answer"] for line, row in zip(lines, rows, strict=True) if row["hospital"] == "west"]
            assert scores == pytest.approx({name: 100 * value for name, value in answer_scores(answers, right).items()})
        code, out, error = command("predict", kept, "what ?", "One has flu.")
        assert code == 0 and json.loads(out)["question"] == "what ?", error
        code, _, error = command("predict", kept, "what ?")
        assert code == 2 and "give one and its context behind it" in error

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["--methods", "hma"], 2, "`hma` is for texts, and the rows are questions. Choose ['erm', 'gmap'"),
            (["--methods", "irm"], 2, "`irm` needs one label for each row, and the rows are questions"),
            (["--metric", "accuracy"], 2, "`--metric` is 'accuracy', which is not a metric of questions. Choose"),
            (["--tags", "right"], 2, "`--tags` is a column of tags, and the task is questions"),
            (["--context", "reports"], 3, "`--context` is 'reports', but `--data` has no such column. Did you mean"),
            (["--answers", "asked"], 3, "`--answers` must hold `text` (strings) and `answer_start`"),
            (["--context", "asked"], 3, "`--data`: row 0: the answer 'flu' is not at"),
            (["--max-length", "8", "--max-steps", "1"], 1, "Raise `--max-length` (8)."),
            (["--label-smoothing-factor", "0.1", "--max-steps", "1"], 1, "not supported for questions. Leave it out."),
        ],
    )
    def test_errors(self, command, columns, encoder, words, code, said):
        call = ["compare", *columns, "--task", "questions", "--methods", "erm", "--backbone", encoder]
        found, out, error = command(*call, "--target", "west", "--seeds", "1", *words)
        assert found == code and said in error + out
