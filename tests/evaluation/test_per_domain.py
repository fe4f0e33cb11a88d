# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from transformers import EvalPrediction

from hf_memaug.evaluation import accuracy, classification_scores, macro_f1, micro_f1, score_table

LOGITS = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.0, 5.0], [4.0, 0.0, 0.0]])
PREDICTED = [0, 1, 2, 0]


class TestClassificationScores:
    def expected(self, predictions, references):
        return {
            "accuracy": accuracy(predictions, references),
            "macro_f1": macro_f1(predictions, references),
            "micro_f1": micro_f1(predictions, references),
        }

    @pytest.mark.parametrize(
        "predictions",
        [LOGITS, (LOGITS, np.zeros((4, 7))), np.array(PREDICTED), torch.tensor(LOGITS)],
        ids=["logits", "tuple", "ids", "tensor"],
    )
    def test_forms(self, predictions):
        references = np.array([0, 1, 1, 2])
        scores = classification_scores(EvalPrediction(predictions=predictions, label_ids=references))
        assert scores == self.expected(PREDICTED, references)
        assert scores["accuracy"] == 0.5
        assert scores == classification_scores((predictions, references))

    def test_ignored_label(self):
        scores = classification_scores(EvalPrediction(predictions=LOGITS, label_ids=np.array([0, -100, 1, -100])))
        assert scores == self.expected([0, 2], [0, 1])

    def test_token_classification(self):
        references = np.array([[0, -100], [2, 1]])
        scores = classification_scores(EvalPrediction(predictions=LOGITS.reshape(2, 2, 3), label_ids=references))
        assert scores == self.expected([0, 2, 0], [0, 2, 1])

    @pytest.mark.parametrize(
        "predictions, references, words",
        [
            (LOGITS, None, "has no labels"),
            (LOGITS, np.full(4, -100), "no label other than -100"),
            (LOGITS, np.array([0, 1]), "shape"),
            (LOGITS[0], np.array([[0, 1]]), "one more axis"),
        ],
    )
    def test_errors(self, predictions, references, words):
        with pytest.raises(ValueError, match=words):
            classification_scores(EvalPrediction(predictions=predictions, label_ids=references))


class TestScoreTable:
    rows = {
        "erm": {"books": [0.81, 0.82, 0.80], "dvd_us": 0.7004, "shift": 0.4},
        "mil|x": {"books": [0.83, 0.84, 0.85], "dvd_us": 0.7001},
    }

    def test_text(self):
        assert score_table(self.rows, header="method") == (
            "method       books   dvd_us   shift\n"
            "-----------------------------------\n"
            "erm     81.0 ± 1.0     70.0*   40.0\n"
            "mil|x   84.0 ± 1.0*    70.0*      -"
        )

    def test_markdown(self):
        rows = {
            method: {name: cells[name] for name in ("books", "shift") if name in cells}
            for method, cells in self.rows.items()
        }
        assert score_table(rows, style="markdown") == (
            "|        |          books | shift |\n"
            "| ------ | -------------: | ----: |\n"
            "| erm    |     81.0 ± 1.0 |  40.0 |\n"
            "| mil\\|x | **84.0 ± 1.0** |     - |"
        )

    def test_latex(self):
        table = score_table(self.rows, style="latex")
        assert r"\begin{tabular}{lrrr}" in table and r"dvd\_us & shift \\" in table
        assert r"mil|x & \textbf{84.0} $\pm$ 1.0 & \textbf{70.0} &     - \\" in table

    def test_ties_follow_the_shown_digits(self):
        assert [line.count("70.0*") for line in score_table(self.rows).splitlines()[2:]] == [1, 1]

    def test_lower_is_better_and_plain_numbers(self):
        rows = {"erm": {"a_distance": 1.8}, "mil": {"a_distance": [1.2, 1.4]}}
        best = score_table(rows, points=False, lower_is_better=["a_distance"]).splitlines()
        assert best[3].endswith("1.3 ± 0.1*") and best[2].endswith("1.8")
        assert score_table(rows, points=False).splitlines()[2].endswith("1.8*")

    def test_one_seed_and_diverged_run(self):
        rows = {"erm": {"dvd": [0.5]}, "mil": {"dvd": [0.9, float("nan")]}, "irm": {"dvd": []}}
        lines = score_table(rows).splitlines()
        assert [line.split()[1:] for line in lines[2:]] == [["50.0"], ["nan"], ["-"]]

    def test_columns_line_up(self):
        lines = score_table({"a": {"x": 0.05, "y": [0.1, 1.0]}, "long name": {"x": 1.0, "y": 0.2}}).splitlines()
        assert lines[2].index("5.0") + 3 == lines[3].index("100.0") + 5

    @pytest.mark.parametrize(
        "call, words",
        [
            (lambda rows: score_table({}), "`rows` is empty"),
            (lambda rows: score_table(rows, style="html"), "`style` 'html' .*markdown"),
            (lambda rows: score_table({"erm": {"dvd": 81.2}}), "81.2 for 'erm' in column 'dvd'.*`points=False`"),
        ],
    )
    def test_errors(self, call, words):
        with pytest.raises(ValueError, match=words):
            call(self.rows)
