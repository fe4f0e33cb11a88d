# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What each strategy minimises, grows and remembers, against slow and obvious references."""

import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_outputs import QuestionAnsweringModelOutput

from hf_memaug import DomainDataset, GMAPForSequenceClassification, MemoryRNNConfig, MemoryRNNForConditionalGeneration
from hf_memaug.data import generated_graphs
from hf_memaug.training.arguments import check_option_values
from hf_memaug.training.continual import STRATEGIES
from hf_memaug.training.continual.consolidation import diagonal_fisher, distillation
from hf_memaug.training.continual.progressive import ProgressiveColumns
from hf_memaug.training.forward_pass import logits_of
from training.continual_runs import growing, texts, word_tokenizer
from training.domain_runs import tiny_model


def strategy(name, **options):
    return STRATEGIES[name](SimpleNamespace(strategy=name, strategy_kwargs=options))


def one_row_inputs(count=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        ids = torch.randint(5, 99, (1, 6), generator=generator)
        labels = torch.randint(0, 3, (1,), generator=generator)
        yield {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


class Finder(nn.Module):
    """The least that finds the two ends of an answer."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(is_encoder_decoder=False)
        self.words, self.out = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, input_ids, start_positions=None, end_positions=None):
        starts, ends = self.out(self.words(input_ids)).unbind(-1)
        loss = None
        if start_positions is not None:
            loss = (F.cross_entropy(starts, start_positions) + F.cross_entropy(ends, end_positions)) / 2
        return QuestionAnsweringModelOutput(loss=loss, start_logits=starts, end_logits=ends)


def finder(seed=0):
    torch.manual_seed(seed)
    return Finder()


def asked(rows):
    ids = torch.arange(3 * rows).view(rows, 3)
    return {"input_ids": ids, "start_positions": torch.tensor([1] * rows), "end_positions": torch.tensor([2] * rows)}


class TestFisher:
    def test_the_empirical_one_is_the_mean_of_squared_gradients_row_by_row(self):
        model = tiny_model("kv", hidden_dropout_prob=0.5).train()
        found = diagonal_fisher(model, one_row_inputs(), 5, "empirical", seed=0)
        assert model.training, "left as it was"
        model.eval()
        expected = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
        mean = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
        for row in one_row_inputs():
            model.zero_grad()
            model(**row).loss.backward()
            for name, value in model.named_parameters():
                expected[name] += value.grad**2 / 5
                mean[name] += value.grad / 5
        assert set(found) == set(expected)
        for name in found:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-9)
        weight = "classifier.out_proj.weight"
        assert not torch.allclose(found[weight], mean[weight] ** 2, rtol=0.1), "of each row, not of their mean"

    @pytest.mark.slow
    def test_the_true_one_expects_over_the_labels_of_the_model(self):
        model = growing(vocab_size=99)
        (row,) = one_row_inputs(1)
        probabilities = model(**row).logits.softmax(-1)[0].detach()
        assert probabilities.min() > 0.05, "each label is drawn now and then"
        expected = torch.zeros_like(model.out.weight)
        for label in range(3):
            model.zero_grad()
            F.cross_entropy(model(**row).logits, torch.tensor([label])).backward()
            expected += probabilities[label] * model.out.weight.grad**2
        found = diagonal_fisher(model, [row] * 3000, 3000, "true", seed=0)["out.weight"]
        torch.testing.assert_close(found, expected, rtol=0.15, atol=1e-3)
        wrong = diagonal_fisher(model, [row] * 3, 3, "empirical", seed=0)["out.weight"]
        assert not torch.allclose(wrong, expected, rtol=0.15, atol=1e-3)
        again = diagonal_fisher(model, [row] * 5, 5, "true", seed=4)["out.weight"]
        assert torch.equal(again, diagonal_fisher(model, [row] * 5, 5, "true", seed=4)["out.weight"])

    def test_frozen_parameters_and_ignored_positions_have_no_part(self):
        model = growing()
        model.words.requires_grad_(False)
        (row,) = one_row_inputs(1)
        found = diagonal_fisher(model, [row], 1, "empirical", seed=0)
        assert set(found) == {"bank.weight", "out.weight", "out.bias"}
        row["labels"] = torch.tensor([-100])
        assert not any(value.any() for value in diagonal_fisher(model, [row], 1, "true", seed=0).values())

    def test_of_a_question_it_is_that_of_both_ends_of_the_answer(self):
        model, row = finder(), asked(1)
        with torch.no_grad():
            starts, ends = (scores[0].softmax(-1) for scores in model(**row).to_tuple()[1:])
        expected = {kind: torch.zeros_like(model.out.weight) for kind in ("true", "empirical")}
        for start in range(3):
            for end in range(3):
                model.zero_grad()
                scores = model(row["input_ids"])
                likelihood = scores.start_logits.log_softmax(-1)[0, start] + scores.end_logits.log_softmax(-1)[0, end]
                likelihood.backward()
                square = model.out.weight.grad**2
                expected["true"] += starts[start] * ends[end] * square
                if (start, end) == (row["start_positions"], row["end_positions"]):
                    expected["empirical"] += square
        found = diagonal_fisher(model, [row], 1, "empirical", seed=0)["out.weight"]
        torch.testing.assert_close(found, expected["empirical"])
        found = diagonal_fisher(model, [row] * 3000, 3000, "true", seed=0)["out.weight"]
        torch.testing.assert_close(found, expected["true"], rtol=0.15, atol=1e-3)
        assert not torch.allclose(expected["empirical"], expected["true"], rtol=0.15, atol=1e-3)
        # A place outside of the text is not learned.
        row["start_positions"], row["end_positions"] = torch.tensor([7]), torch.tensor([3])
        assert not any(value.any() for value in diagonal_fisher(model, [row], 1, "empirical", seed=0).values())


class TestEWC:
    def test_the_penalty_is_the_formula(self):
        model, ewc = growing(), strategy("ewc", fisher_weight=7.0)
        batch = SimpleNamespace(task_loss=torch.tensor(2.0))
        assert ewc.loss(batch, {}, model) == 2.0, "before the second domain there is nothing to hold on to"
        generator = torch.Generator().manual_seed(0)
        for _ in range(2):
            ewc.anchors.append({n: torch.randn(p.shape, generator=generator) for n, p in model.named_parameters()})
            ewc.fishers.append({n: torch.rand(p.shape, generator=generator) for n, p in model.named_parameters()})
        expected = 0.0
        for anchor, fisher in zip(ewc.anchors, ewc.fishers, strict=True):
            for name, value in model.named_parameters():
                for f, now, then in zip(fisher[name].flatten(), value.flatten(), anchor[name].flatten(), strict=True):
                    expected += 7.0 / 2 * float(f) * (float(now) - float(then)) ** 2
        loss = ewc.loss(batch, {}, model)
        assert float(loss) == pytest.approx(2.0 + expected, rel=1e-4)
        loss.backward()
        wanted = sum(
            7.0 * f["out.weight"] * (model.out.weight.detach() - a["out.weight"])
            for a, f in zip(ewc.anchors, ewc.fishers, strict=True)
        )
        torch.testing.assert_close(model.out.weight.grad, wanted)

    def test_its_options(self):
        for wrong in ({"fisher": "exact"}, {"fisher_weight": -1}, {"fisher_samples": 0}):
            with pytest.raises(ValueError, match="`strategy_kwargs`: `fisher"):
                check_option_values("strategy_kwargs", wrong, STRATEGIES["ewc"])


class TestLearningWithoutForgetting:
    def test_distillation_read_aloud(self):
        logits, taught = torch.tensor([[1.0, 0.0, -2.0], [0.5, 0.5, 3.0]]), torch.tensor([[2.0, 1.0, 0.0]] * 2)
        expected = 0.0
        for row in range(2):
            p = [float(v) ** (1 / 2.0) for v in taught[row].softmax(-1)]
            q = [float(v) ** (1 / 2.0) for v in logits[row].softmax(-1)]
            expected -= sum(a / sum(p) * float(torch.tensor(b / sum(q)).log()) for a, b in zip(p, q, strict=True)) / 2
        assert float(distillation(logits, taught, 2.0)) == pytest.approx(expected, rel=1e-5)
        taught.requires_grad_()
        distillation(taught, taught.detach(), 2.0).backward()
        torch.testing.assert_close(taught.grad, torch.zeros_like(taught), atol=1e-6, rtol=0)

    def test_the_teacher_stays_as_the_model_was(self):
        model, lwf = tiny_model("kv"), strategy("lwf", distillation_weight=3.0)
        (row,) = one_row_inputs(1)
        outputs = model(**row)
        batch = SimpleNamespace(task_loss=outputs.loss, logits=outputs.logits, labels=row["labels"])
        lwf.begin(model, 0)
        assert lwf.loss(batch, row, model) is outputs.loss
        lwf.begin(model, 1)
        before = lwf.teacher(**row).logits.detach()
        with torch.no_grad():
            for value in model.parameters():
                value.add_(0.1)
        outputs = model(**row)
        batch = SimpleNamespace(task_loss=outputs.loss, logits=outputs.logits, labels=row["labels"])
        found = lwf.loss(batch, row, model)
        torch.testing.assert_close(found, outputs.loss + 3.0 * distillation(outputs.logits, before, 2.0))
        assert not any(value.requires_grad for value in lwf.teacher.parameters()) and not lwf.teacher.training

    def test_of_questions_both_ends_are_taught(self):
        model, lwf, inputs = finder(), strategy("lwf", distillation_weight=0.5), asked(2)
        lwf.begin(finder(1), 1)
        outputs, taught = model(**inputs), finder(1)(inputs["input_ids"])
        batch = SimpleNamespace(task_loss=outputs.loss, logits=logits_of(outputs, 1), labels=None)
        learned = [outputs.start_logits, outputs.end_logits]
        both = zip(learned, [taught.start_logits, taught.end_logits], strict=True)
        expected = outputs.loss + 0.5 * sum(distillation(one, other, 2.0) for one, other in both) / 2
        torch.testing.assert_close(lwf.loss(batch, inputs, model), expected)


class TestReplay:
    def test_it_keeps_so_many_rows_of_each_domain(self):
        replay, data = strategy("replay", rows_per_domain=3), texts(24).by_domain()
        assert replay.training_rows(data["books"]) is data["books"]
        for name in ("books", "films"):
            replay.end(None, None, data[name], seed=1)
        rows = replay.training_rows(data["phones"])
        assert {name: len(part) for name, part in rows.by_domain().items()} == {"phones": 8, "books": 3, "films": 3}
        assert all(row in list(data["books"]) for row in rows.domain("books"))
        again = strategy("replay", rows_per_domain=3)
        again.load_state(replay.state())
        assert list(again.training_rows(data["phones"])) == list(rows)

    def test_graphs_and_the_bytes_of_images_are_kept_as_they_are(self, tmp_path):
        rows = generated_graphs(rows_per_domain=4)
        rows = rows.with_columns(image=[bytes([place]) for place in range(len(rows))])
        replay, again = strategy("replay", rows_per_domain=2), strategy("replay", rows_per_domain=2)
        replay.check_model(growing(), None, rows)
        replay.end(None, rows, rows.domain("path"), seed=0)
        torch.save(replay.state(), tmp_path / "kept.pt")
        again.load_state(torch.load(tmp_path / "kept.pt", weights_only=True))
        mixed = again.training_rows(rows.domain("tree"))
        assert mixed["domain"] == ["tree"] * 4 + ["path"] * 2 and mixed.label_names == rows.label_names
        assert all(row in list(rows.domain("path")) for row in list(mixed)[4:])

    def test_rows_that_no_file_holds_are_refused(self):
        data = texts(4).with_columns(image=[object()] * 4)
        with pytest.raises(ValueError, match="the column 'image' of `train_dataset` holds object. Use paths"):
            strategy("replay").check_model(growing(), None, data)


class TestGrowth:
    def test_a_model_without_the_verb_is_refused_by_name(self):
        for name, verb in {"f+m": "memory", "f+v": "vocabulary", "f+h": "hidden", "f+m+v": "memory"}.items():
            with pytest.raises(ValueError, match=re.escape(f'`strategy="{name}"` calls `model.grow_{verb}(...)`')):
                strategy(name).check_model(tiny_model("bert"), word_tokenizer(), texts(4))


class TestProgressive:
    def inputs(self):
        (row,) = one_row_inputs(1)
        return row

    def test_a_new_column_begins_with_what_the_last_one_says(self):
        model = tiny_model("kv").eval()
        expected = model(**self.inputs())
        columns = ProgressiveColumns.around(model).eval()
        found = columns(**self.inputs())
        torch.testing.assert_close(found.logits, expected.logits)
        torch.testing.assert_close(found.loss, expected.loss)
        columns.add_column("previous")
        assert torch.equal(columns.eval()(**self.inputs()).logits, found.logits)
        columns.add_column("random")
        assert not torch.allclose(columns.eval()(**self.inputs()).logits, found.logits)

    def test_only_the_newest_column_and_its_laterals_learn(self):
        progressive = strategy("progressive")
        model = progressive.begin(tiny_model("kv", hidden_dropout_prob=0.1), 0)
        model = progressive.begin(model, 1)
        model.train()
        assert model.column.training and not model.columns[0].training
        assert not any(value.requires_grad for value in model.columns[0].parameters())
        model(**self.inputs()).loss.backward()
        with_gradient = {name for name, value in model.named_parameters() if value.grad is not None}
        assert with_gradient and not any(name.startswith("columns.0") for name in with_gradient)
        assert "laterals.0.weight" in with_gradient and model.laterals[0].weight.grad.any()
        model.eval()
        before = model(**self.inputs()).logits
        with torch.no_grad():
            model.laterals[0].weight.add_(0.1)
        assert not torch.allclose(before, model(**self.inputs()).logits), "the earlier column is read"

    def test_encoder_decoders_say_what_the_newest_column_says_and_then_learn_beside_it(self):
        torch.manual_seed(0)
        ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
        model = MemoryRNNForConditionalGeneration(
            MemoryRNNConfig(vocab_size=9, cell="gru", hidden_size=6, embedding_size=4, memory_slots=[3], **ids)
        ).eval()
        asked = {
            "input_ids": torch.tensor([[4, 5, 6], [7, 8, 0]]),
            "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
        }
        labels = torch.tensor([[5, 6, 3], [8, 3, -100]])
        whole = ProgressiveColumns.around(model).eval()
        whole.add_column("previous")
        assert torch.equal(whole.generate(**asked, max_new_tokens=7), model.generate(**asked, max_new_tokens=7))
        loss = whole(**asked, labels=labels).loss
        assert loss.item() == pytest.approx(model(**asked, labels=labels).loss.item(), rel=1e-6)
        with torch.no_grad():
            whole.laterals[0].weight.normal_()
        logits = whole(**asked, labels=labels).logits
        read = []
        hook = model.lm_head.register_forward_pre_hook(lambda _, given: read.append(given[0]))
        expected = model(**asked, labels=labels).logits + read[0] @ whole.laterals[0].weight.T
        hook.remove()
        torch.testing.assert_close(logits, expected)
        with pytest.raises(ValueError, match="greedy search only"):
            whole.generate(**asked, num_beams=4)

    def test_what_is_frozen_stays_so_where_a_run_goes_on(self, tmp_path):
        """The general encoder of G-MAP: loading makes parameters that all learn."""
        from families import gmap_config

        model, progressive = GMAPForSequenceClassification(gmap_config("gmap")), strategy("progressive")
        frozen = [not one.requires_grad for one in model.parameters()]
        assert any(frozen) and not all(frozen)
        progressive.begin(model, 0).save_pretrained(tmp_path)
        for given in (model, ProgressiveColumns.around(model)):
            again = progressive.begin(progressive.rebuild(given, tmp_path), 1)
            assert [not one.requires_grad for one in again.column.parameters()] == frozen
            assert not any(one.requires_grad for one in again.columns[0].parameters())
        loaded = ProgressiveColumns.from_pretrained(tmp_path)
        assert [not one.requires_grad for one in loaded.column.parameters()] == frozen

    def test_questions_are_refused(self):
        rows = DomainDataset({"input_ids": [[1]], "start_positions": [0], "end_positions": [0], "domain": ["a"]})
        with pytest.raises(ValueError, match="does not support questions. Choose another strategy"):
            strategy("progressive").check_model(finder(), None, rows)

    def test_a_model_without_a_linear_head_is_refused(self):
        from families import HEADS

        case = next(case for case in HEADS if case.name == "BertWithKVMemoryForPromptClassification")
        with pytest.raises(ValueError, match="needs a linear layer with 3 outputs"):
            strategy("progressive").check_model(case.model(), None, texts(3))
        with pytest.raises(ValueError, match="needs a model class of .*, not `GrowingClassifier`"):
            strategy("progressive").check_model(growing(), None, texts(3))
