# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What `ContinualTrainer` cannot train raises an error before training, which says the fix."""

import pytest
import torch

from hf_memaug import ContinualTrainer, ContinualTrainingArguments
from hf_memaug.data import DomainDataset
from training.continual_runs import continual_trainer, growing, texts, word_tokenizer
from training.domain_runs import rows, tiny_model

pytestmark = pytest.mark.usefixtures("light_collector")


class TestRefusals:
    def test_an_unknown_strategy(self, tmp_path):
        with pytest.raises(ValueError, match="`strategy` is 'f\\+mem'.*Did you mean 'f\\+m'"):
            ContinualTrainingArguments(output_dir=str(tmp_path), strategy="f+mem")
        with pytest.raises(ValueError, match="Did you mean 'slots'"):
            ContinualTrainingArguments(output_dir=str(tmp_path), strategy="f+m", strategy_kwargs={"slot": 3})
        with pytest.raises(ValueError, match='`strategy="f"` has no options'):
            ContinualTrainingArguments(output_dir=str(tmp_path), strategy_kwargs={"slots": 3})
        for slots in (0, None, "5"):
            with pytest.raises(ValueError, match=f"`slots` is {slots!r}; it must be a whole number, 1 or more"):
                ContinualTrainingArguments(output_dir=str(tmp_path), strategy="f+m", strategy_kwargs={"slots": slots})

    def test_what_would_be_ignored(self, tmp_path):
        with pytest.raises(ValueError, match="`strategy` sets the loss"):
            ContinualTrainingArguments(output_dir=str(tmp_path), algorithm="coral")
        with pytest.raises(ValueError, match="`optimizers` is not supported"):
            optimizer = torch.optim.SGD(tiny_model("kv").parameters(), lr=0.1)
            arguments = ContinualTrainingArguments(output_dir=str(tmp_path))
            ContinualTrainer(tiny_model("kv"), arguments, train_dataset=rows(), optimizers=(optimizer, None))
        for missing in ({"train_dataset": rows()}, {"model": tiny_model("kv")}):
            with pytest.raises(ValueError, match="`model` and `train_dataset` are required"):
                ContinualTrainer(args=ContinualTrainingArguments(output_dir=str(tmp_path)), **missing)
        with pytest.raises(TypeError, match="Give a `ContinualTrainingArguments`"):
            from transformers import TrainingArguments

            ContinualTrainer(tiny_model("kv"), TrainingArguments(output_dir=str(tmp_path)), train_dataset=rows())
        with pytest.raises(ValueError, match="takes only `resume_from_checkpoint=True`"):
            continual_trainer("f", tmp_path).train("runs/checkpoint-3")

    def test_rows_without_labels(self, tmp_path):
        def without(given):
            return DomainDataset({name: given[name] for name in given.column_names if "label" not in name}, [])

        for name, wrong in (
            ("train_dataset", {"train": without(rows())}),
            ("test_dataset", {"test": without(rows(15, 2))}),
            ("eval_dataset", {"eval_dataset": without(rows(15, 3))}),
            ("train_dataset", {"train": {**rows().by_domain(), "books": without(rows().domain("books"))}}),
        ):
            with pytest.raises(ValueError, match=f"`{name}` has no labels in 'books'.*`load_domains.*label="):
                continual_trainer("f", tmp_path, **wrong)

    def test_domains_that_are_not_there_empty_or_repeated(self, tmp_path):
        with pytest.raises(ValueError, match="`domains` has 'film', missing from `train_dataset`. Did you mean"):
            continual_trainer("f", tmp_path, domains=["books", "film"])
        with pytest.raises(ValueError, match="`domains` has 'books' twice"):
            continual_trainer("f", tmp_path, domains=["books", "films", "books"])
        data = rows().by_domain()
        with pytest.raises(ValueError, match="`train_dataset` has no row of the domain 'films'"):
            continual_trainer("f", tmp_path, train={**data, "films": data["films"].select([])})
        with pytest.raises(ValueError, match=r"`test_dataset` \(by default.* has no row of the domain 'phones'"):
            continual_trainer("f", tmp_path, test=rows(9).select([0, 1]))

    def test_selection_by_the_rows_that_are_reported(self, tmp_path):
        best = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
        arguments = ContinualTrainingArguments(output_dir=str(tmp_path), **best)
        with pytest.raises(ValueError, match="Give other rows as `test_dataset`"):
            ContinualTrainer(tiny_model("kv"), arguments, train_dataset=rows(), eval_dataset=rows(9, 3))
        with pytest.raises(ValueError, match="needs rows of the domain 'books' in `eval_dataset`"):
            continual_trainer("f", tmp_path, eval_strategy="epoch")

    def test_a_score_that_is_not_there(self, tmp_path):
        trainer = continual_trainer("f", tmp_path, matrix_metric="bleu")
        with pytest.raises(ValueError, match='`matrix_metric` is "bleu", but the scores are: accuracy, f1'):
            trainer.train()

    def test_vocabulary_without_texts_or_with_another_tokenizer(self, tmp_path):
        with pytest.raises(ValueError, match="looks for new words.*Pass texts"):
            continual_trainer("f+v", tmp_path, model=growing(), train=rows(), processing_class=word_tokenizer())
        with pytest.raises(ValueError, match="`model` has 98 word vectors and `processing_class` 11 words"):
            continual_trainer("f+v", tmp_path, model=growing(vocab_size=98))

    def test_nothing_to_resume(self, tmp_path):
        with pytest.raises(ValueError, match="has no run to resume"):
            continual_trainer("f", tmp_path).train(resume_from_checkpoint=True)
        continual_trainer("f", tmp_path).train()
        with pytest.raises(ValueError, match="has another plan"):
            continual_trainer("f", tmp_path, domains=["films", "books"]).train(resume_from_checkpoint=True)
        with pytest.raises(ValueError, match="has another strategy"):
            continual_trainer("lwf", tmp_path).train(resume_from_checkpoint=True)


class TestLabels:
    def parts(self, names):
        data = texts(24).by_domain()
        return {
            "books": data["books"],
            "films": DomainDataset({n: data["films"][n] for n in data["films"].column_names}, names),
        }

    def make(self, tmp_path, names):
        tokenizer = word_tokenizer()
        return continual_trainer(
            "f",
            tmp_path,
            model=growing(vocab_size=len(tokenizer)),
            train=self.parts(names),
            test=self.parts(names),
            processing_class=tokenizer,
        )

    def test_other_names_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match="other labels in 'films'.*Use the same label names"):
            self.make(tmp_path, ["poor", "so-so", "great"])

    def test_domains_of_one_dataset_without_a_label_in_common(self, tmp_path):
        data, tokenizer = texts(24), word_tokenizer()
        shift = {"films": 3}
        labels = [row["label"] + shift.get(row["domain"], 0) for row in data]
        columns = {name: data[name] for name in data.column_names}
        rows = DomainDataset({**columns, "label": labels}, ["low", "middle", "high", "poor", "so-so", "great"])
        model = growing(vocab_size=len(tokenizer), num_labels=6)
        with pytest.raises(ValueError, match="'low', 'middle'.*'poor', 'so-so'.*no label in common"):
            continual_trainer("f", tmp_path, model=model, train=rows, test=rows, processing_class=tokenizer)

    def test_the_ids_are_those_of_a_model_that_has_the_names(self, tmp_path):
        tokenizer = word_tokenizer()
        for names, expected in ((["high", "low", "middle"], [1, 2, 0]), (["a", "b", "c"], [0, 1, 2])):
            model = growing(vocab_size=len(tokenizer), id2label=dict(enumerate(names)))
            data = {"model": model, "train": texts(24), "test": texts(12), "processing_class": tokenizer}
            trainer = continual_trainer("f", tmp_path, **data)
            for name, found in trainer.train_rows.items():
                assert found["label"] == [expected[label] for label in texts(24).domain(name)["label"]]

    def test_the_same_names_in_another_order_are_matched_by_name(self, tmp_path):
        trainer = self.make(tmp_path, ["high", "middle", "low"])
        assert trainer.train_rows["films"]["label"] == [2 - label for label in texts(24).domain("films")["label"]]

    def test_a_label_that_a_domain_lacks_is_said(self, tmp_path, monkeypatch):
        said = []
        monkeypatch.setattr("hf_memaug.training.continual.rows.logger.warning", said.append)
        data = texts(24)
        kept = [n for n, row in enumerate(data) if row["domain"] != "films" or row["label"] != 1]
        tokenizer = word_tokenizer()
        model = growing(vocab_size=len(tokenizer))
        continual_trainer("f", tmp_path, model=model, train=data.select(kept), test=data, processing_class=tokenizer)
        assert "The domain 'films' has no training row with the label 'middle'." in said

    def test_labels_that_the_model_does_not_know(self, tmp_path):
        with pytest.raises(ValueError, match="has label 2 in row .* `num_labels=2`"):
            continual_trainer("f", tmp_path, model=tiny_model("kv", num_labels=2))


def test_a_dataset_of_the_datasets_library(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = rows()
    columns = {name: data[name] for name in data.column_names if name != "labels"}
    given = datasets.Dataset.from_dict({**columns, "label": data["labels"]})
    trainer = continual_trainer("f", tmp_path / "theirs", train=given)
    trainer.train()
    reference = continual_trainer("f", tmp_path / "ours")
    reference.train()
    assert trainer.record.matrix() == reference.record.matrix()
    with pytest.raises(ValueError, match="`train_dataset` has no `domain` column"):
        continual_trainer("f", tmp_path, train=given.remove_columns("domain"))
