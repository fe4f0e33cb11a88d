# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A model brings its matrix with it, and goes on with other domains."""

import math

import pytest
import torch

from hf_memaug.evaluation import continual_scores
from hf_memaug.training import ContinualRecord
from hf_memaug.training.model_cards import facts_from_trainer
from training.continual_runs import continual_trainer, growing, weights
from training.domain_runs import DOMAINS, rows

pytestmark = pytest.mark.usefixtures("light_collector")


class TestHistory:
    def first(self, tmp_path, strategy="f", **kwargs):
        domains = kwargs.pop("domains", ["books", "films"])
        trainer = continual_trainer(strategy, tmp_path / "first", domains=domains, **kwargs)
        trainer.train()
        return trainer

    def go_on(self, tmp_path, strategy="f", folder=None, **kwargs):
        folder = folder or tmp_path / "first" / "_stages" / "1-films"
        from transformers import AutoModelForSequenceClassification

        model = AutoModelForSequenceClassification.from_pretrained(folder)
        train = kwargs.pop("train", rows().domain("phones"))
        return continual_trainer(strategy, tmp_path / "second", model=model, train=train, **kwargs)

    def test_a_domain_is_added_to_a_checkpoint_months_later(self, tmp_path):
        first = self.first(tmp_path, test=rows(15, 2).select(n for n in range(15) if n % 3 < 2))
        assert first.record.domains == ["books", "films"]
        second = self.go_on(tmp_path)
        assert second.record.trained == ["books", "films"] and second.plan == ["phones"]
        second.train()
        record = second.record
        assert record.trained == list(DOMAINS)
        matrix = record.matrix()
        assert [row[:2] for row in matrix[:2]] == first.record.matrix()
        assert math.isnan(matrix[0][2]) and not any(map(math.isnan, matrix[1])), "scored before its turn"
        figures = second.figures()
        assert figures == continual_scores(matrix, [record.baseline.get(name, math.nan) for name in DOMAINS])
        assert figures["bwt"] is not None and figures["fwt"] is None, "nobody knows the score before any training"
        assert sorted(path.name for path in (tmp_path / "second" / "_stages").iterdir()) == ["2-phones", "start"]

        # All of it is the same as in one go.
        whole = continual_trainer("f", tmp_path / "whole")
        whole.train()
        assert all(torch.equal(value, weights(whole)[name]) for name, value in weights(second).items())
        assert whole.record.matrix()[2] == matrix[2]

    def test_the_card_of_a_model_that_went_on_has_its_own_scores_alone(self, tmp_path):
        first = self.first(tmp_path, test=rows(15, 2).select(n for n in range(15) if n % 3 < 2))
        facts_from_trainer(first)
        first.save_model()
        assert {score["domain"] for score in first.model.config.run_facts["scores"]} == {"books", "films", "average"}
        second = self.go_on(tmp_path, "lwf", tmp_path / "first", test=rows(15, 2).domain("phones"))
        second.train()
        facts = facts_from_trainer(second)
        assert facts["domains"] == list(DOMAINS)
        assert {score["domain"] for score in facts["scores"]} == {"phones"}, "others were not measured again"
        assert facts["method"] == "lwf"

    def test_growth_goes_on(self, tmp_path):
        self.first(tmp_path, "f+m")
        folder = tmp_path / "first" / "_stages" / "1-films"
        model = type(growing()).from_pretrained(folder)
        second = continual_trainer(
            "f+m", tmp_path / "second", model=model, train=rows().domain("phones"), history=folder
        )
        second.train()
        assert second.model.config.memory_slots == [5, 3, 3]
        assert second.model.config.run_facts["continual"]["stages"][-1]["growth"] == {"slots": 3}

    @pytest.mark.parametrize("strategy", ["ewc", "replay"])
    def test_what_a_strategy_remembers_is_in_the_folder(self, strategy, tmp_path, seen):
        self.first(tmp_path, strategy)
        with pytest.raises(ValueError, match=rf'"{strategy}"` needs the `.*\.pt`.*Give the folder that has it'):
            self.go_on(tmp_path, strategy)
        second = self.go_on(tmp_path, strategy, history=tmp_path / "first" / "_stages" / "1-films")
        second.train()
        if strategy == "ewc":
            assert len(second.strategy.anchors) == 3
        else:
            assert seen[-1][0] == set(DOMAINS)
        # The folder of the whole run, or the file itself, will do as well.
        for where in (tmp_path / "first", tmp_path / "first" / "_stages" / "1-films" / "continual.json"):
            assert self.go_on(tmp_path, strategy, history=where).strategy.state()

    def test_a_matrix_can_be_begun_anew(self, tmp_path):
        self.first(tmp_path, domains=["books", "films"])
        second = self.go_on(tmp_path, train=rows(), history={})
        assert second.record.stages == [] and second.plan == list(DOMAINS)

    def test_what_does_not_fit_is_refused(self, tmp_path):
        self.first(tmp_path)
        with pytest.raises(ValueError, match="`domains` has 'books', but the model was trained on it already"):
            self.go_on(tmp_path, train=rows())
        with pytest.raises(ValueError, match='`matrix_metric` is "f1", but `history` has "accuracy"'):
            self.go_on(tmp_path, matrix_metric="f1")
        with pytest.raises(ValueError, match="cannot continue the matrix in `history`.*`history={}`"):
            self.go_on(tmp_path, "multi_task")
        with pytest.raises(FileNotFoundError, match="`history` is .* there is no `continual.json`"):
            self.go_on(tmp_path, history=tmp_path)
        with pytest.raises(ValueError, match="`history` is not a record"):
            self.go_on(tmp_path, history={"matrix": []})

    def test_a_run_of_one_domain_can_be_the_first(self, tmp_path):
        first = self.first(tmp_path, domains=["books"])
        assert first.figures()["bwt"] is None and first.figures()["acc"] is not None
        second = self.go_on(tmp_path, folder=tmp_path / "first" / "_stages" / "0-books", train=rows().domain("films"))
        second.train()
        assert second.figures()["bwt"] is not None


def test_the_record_is_read_and_shown(tmp_path):
    trainer = continual_trainer("f", tmp_path)
    trainer.train()
    record = ContinualRecord.load(tmp_path)
    assert record == trainer.record == ContinualRecord.load(tmp_path / "_stages" / "2-phones")
    assert trainer.model.config.run_facts["continual"] == record.to_dict()
    lines = record.table(style="markdown").splitlines()
    assert lines[0].split() == ["|", "after", "training", "on", "|", "books", "|", "films", "|", "phones", "|"]
    assert len(lines) == 2 + 1 + 3
    assert f"{100 * record.matrix()[2][0]:.1f}" in lines[-1]
