# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
import pytest
from families import CASES
from tiny_backbones import SENTENCES, tiny_tokenizer

from hf_memaug import DomainTrainer, DomainTrainingArguments
from hf_memaug.data import load_domains

CASE = next(case for case in CASES if case.name == "RobertaWithKVMemoryForSequenceClassification")
NAMES = ["bad", "fair", "good"]


def trainer(folder, labels=None, numbers=False, train=True, **kwargs):
    tokenizer = tiny_tokenizer(CASE.backbone)
    rows = [
        {
            "text": f"{SENTENCES[row % 6]} {row}",
            "label": row % 3 if numbers else NAMES[row % 3],
            "domain": "ab"[row % 2],
        }
        for row in range(24)
    ]
    rows = load_domains(rows, labels=labels).tokenize(tokenizer)
    model = CASE.model(vocab_size=len(tokenizer), **{"num_labels": 3, **kwargs})
    args = DomainTrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[], max_steps=1, save_strategy="no")
    return DomainTrainer(
        model, args, processing_class=tokenizer, **{"train_dataset" if train else "eval_dataset": rows}
    )


@pytest.mark.parametrize("train", [True, False])
def test_a_model_without_names_takes_those_of_the_rows(train, tmp_path):
    made = trainer(tmp_path, train=train)
    made.save_model()
    config = type(made.model.config).from_pretrained(tmp_path)
    assert config.id2label == dict(enumerate(NAMES)) and config.label2id["good"] == 2


def test_names_that_it_has_stay(tmp_path):
    own = {0: "terrible", 1: "so so", 2: "great"}
    made = trainer(tmp_path, id2label=own, label2id={name: index for index, name in own.items()})
    assert made.model.config.id2label == own


def test_words_for_other_labels_are_refused(tmp_path):
    made = trainer(tmp_path)
    config = made.model.config
    config.verbalizer = {"awful": ["bad"], "fair": ["fair"], "great": ["good"]}
    config.id2label = dict(enumerate(config.verbalizer))
    with pytest.raises(ValueError, match="`verbalizer` has words for .*'great'.*, but the rows have .*'good'"):
        made.train()


def test_the_same_names_in_another_order_are_refused(tmp_path):
    own = {0: "good", 1: "fair", 2: "bad"}
    names = {"id2label": own, "label2id": {name: index for index, name in own.items()}}
    with pytest.raises(ValueError, match="another order.*labels=\\['good', 'fair', 'bad'\\]"):
        trainer(tmp_path, **names)
    trainer(tmp_path, labels=["good", "fair", "bad"], **names)  # what the error says
