# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""`--task replies`: trained, scored and continued."""

import json

import pytest
from cli.row_files import write


class TestReplies:
    PAIRS = {
        "films": [("who are you", "i am the captain"), ("where is he", "he is gone"), ("is he here", "no")],
        "help": [("who has root", "sudo gives root"), ("where is grub", "in boot"), ("is it up", "yes it is up")],
    }
    SIZES = ["--hidden-size", 12, "--embedding-size", 8, "--memory-slots", "4", "--cell", "gru"]

    @pytest.fixture
    def columns(self, tmp_path) -> list:
        several = {name: pairs * 4 for name, pairs in self.PAIRS.items()}
        rows = [{"said": a, "answer": b, "channel": name} for name, pairs in several.items() for a, b in pairs]
        data = write(tmp_path / "talk.jsonl", rows)
        return ["--data", data, "--text", "said", "--text-pair", "answer", "--domain", "channel"]

    def test_a_model_learns_to_reply(self, command, columns, tmp_path, read_lines):
        # Equal rows go to one side, so all are written to both splits.
        rows = read_lines(tmp_path / "talk.jsonl")
        write(tmp_path / "talk.jsonl", [{**row, "split": split} for split in ("train", "test") for row in rows])
        settings = ["--learning-rate", "3e-2", "--max-steps", 60, "--evaluations", 1, *self.SIZES]
        splits = ["--split", "train", "--test-split", "test", "--on-overlap", "ignore"]
        call = ["train", *columns, "--task", "replies", *splits, "--method", "memory-rnn", *settings, "--output", "run"]
        code, out, error = command(*call)
        assert code == 0, error
        (record,) = read_lines(tmp_path / "run" / "runs.jsonl")
        assert set(record["scores"]["help"]) == {"accuracy"} and record["validation"] > 80
        assert "accuracy is that of each word of a reply" in (tmp_path / "run" / "README.md").read_text()
        kept = tmp_path / "run" / record["checkpoint"]
        card = (kept / "README.md").read_text()
        assert "AutoModelForSeq2SeqLM" in card and "LABEL_0" not in card

        code, out, error = command("predict", kept, "is he here", "who are you", "--max-new-tokens", 3)
        assert code == 0, error
        assert [json.loads(line) for line in out.splitlines()] == [
            {"text": "is he here", "reply": "no"},
            {"text": "who are you", "reply": "i am the"},
        ]
        code, out, error = command("predict", kept, "--data", columns[1], "--text", "said")
        assert code == 0 and len(out.splitlines()) == 48, error
        code, out, error = command("evaluate", kept, *columns, "--split", "test", "--json")
        assert code == 0, error
        assert json.loads(out)["scores"]["help"] == pytest.approx(record["scores"]["help"], abs=1e-3)

    @pytest.mark.slow
    def test_continual(self, command, columns, no_report, tmp_path, read_lines):
        call = ["continual", *columns, "--task", "replies", "--method", "memory-rnn", "--strategies", "f+m+v,replay"]
        with no_report():
            code, out, error = command(*call, *self.SIZES, "--max-steps", 2, "--holdout", 0.5, "--output", "run")
        assert code == 0, error
        run = tmp_path / "run"
        records = read_lines(run / "runs.jsonl")
        assert [record["job"]["method"] for record in records] == ["f+m+v", "replay"]
        assert all(set(record["scores"]) == set(self.PAIRS) for record in records)
        assert "Traceback" not in "".join(file.read_text() for file in run.glob("jobs/*/log.txt"))
        # It goes on with another domain.
        other = write(tmp_path / "more.jsonl", [{"text": "hi", "text_pair": "ho"}, {"text": "a", "text_pair": "b"}] * 2)
        kept = run / records[0]["checkpoint"]
        call = ["continual", "--data", other, "--domain", "none", "--task", "replies", "--strategies", "f+m+v"]
        call += ["--method", "memory-rnn", "--backbone", kept, "--max-steps", 1, "--holdout", 0.5]
        with no_report():
            code, out, error = command(*call, "--output", "more")
        assert code == 0, error
        (record,) = read_lines(tmp_path / "more" / "runs.jsonl")
        assert record["matrix"]["trained_on"][-1] == "more"

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["train", "--target", "none"], 2, "`erm` is for texts, and the rows are replies. Choose ['memory-rnn']"),
            (["train", "--metric", "f1"], 2, "`--metric` is 'f1', which is not a metric of replies. Choose accuracy"),
            (["train", "--text-pair", "answers"], 3, "`--text-pair` is 'answers'"),
            (["continual", "--task", "question"], 2, "`--task` is 'question'. Did you mean 'questions'"),
        ],
    )
    def test_errors(self, command, columns, words, code, said):
        found, _, error = command(words[0], *columns, "--task", "replies", *words[1:])
        assert found == code and said in error
