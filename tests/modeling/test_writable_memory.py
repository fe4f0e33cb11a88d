# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""Write, erase, explain and publish: a classifier with a writable memory."""

import copy

import pytest
import torch
from families import CASES, CLASSIFIERS
from peft import LoraConfig, get_peft_model
from tiny_backbones import tiny_tokenizer
from transformers import (
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    BertModel,
    DebertaV2Config,
    GPT2Config,
    T5Config,
    pipeline,
)
from writable_rows import HashingProcessor, writable_rows

import hf_memaug.modeling.modeling_writing as modeling_writing
from hf_memaug import (
    WritableMemoryForImageClassification,
    WritableMemoryForSequenceClassification,
    export_with_code,
    load_domains,
)

pytestmark = pytest.mark.filterwarnings("ignore")
WRITABLE = [case for case in CASES if case.model_type == "writable_memory"]
TEXT = next(case for case in WRITABLE if case.is_text)
TOKENIZER = HashingProcessor()


def empty(case=TEXT, **kwargs):
    """With an empty memory."""
    torch.manual_seed(0)
    return case.model_class(case.config(**kwargs)).eval()


def same(first, second) -> bool:
    one, other = first.state_dict(), second.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def facts(model) -> dict:
    """The configuration without the times of writing."""
    found = model.config.to_dict()
    found["domains"] = [{**entry, "written": None} for entry in found["domains"] or ()]
    return found


@pytest.mark.parametrize("case", WRITABLE, ids=str)
def test_written_rows_are_answered_and_guard_rows_keep_their_answers(case):
    model = empty(case)
    rows, guard = writable_rows(model, 1), writable_rows(model, 0, old=True)
    entry = model.write(rows, domain="new", tokenizer=TOKENIZER, guard=guard)
    assert entry["rows"] == 30 and entry["after"] > entry["before"] + 20
    for given, least in ((rows, 0.9), (guard, 0.9)):
        column = "text" if case.is_text else "image"
        answers = model(**TOKENIZER([row[column] for row in given])).logits.argmax(dim=-1)
        assert (answers == torch.tensor([row["label"] for row in given])).float().mean() >= least


@pytest.mark.parametrize("case", WRITABLE, ids=str)
def test_erasing_and_the_order_of_writing_leave_no_trace(case):
    parts = {name: writable_rows(empty(case), 1, seed=seed) for seed, name in enumerate("abc")}
    models = []
    for order in ("ab", "ba", "acb"):
        model = empty(case)
        for name in order:
            # The order of the rows does not matter either.
            model.write(parts[name][:: -1 if name == order[0] else 1], domain=name, tokenizer=TOKENIZER)
        models.append(model)
    models[2].explain(parts["c"][0]["text" if case.is_text else "image"], TOKENIZER)
    models[2].erase("c")
    assert models[2]._nearest is None, "the keys of erased rows are kept"
    assert all(same(models[0], other) and facts(models[0]) == facts(other) for other in models[1:])
    ids = models[0].memory.row_ids[models[0].memory.domains == 0]
    models[0].erase(rows=[f"{int(one) & (2**64 - 1):016x}" for one in ids])
    models[1].erase("a")
    assert same(*models[:2]) and facts(models[0]) == facts(models[1])
    models[1].erase("b")
    assert same(models[1], empty(case)) and models[1].domains() == []


def test_new_classes_grow_the_model_and_erasing_shrinks_it():
    rows = [{**row, "label": "xy"[place % 2]} for place, row in enumerate(writable_rows(empty(), 1))]
    halves = {"first": [row for row in rows if row["label"] == "y"], "second": [r for r in rows if r["label"] == "x"]}
    models, guard = [], writable_rows(empty(), 0, old=True)
    for order in (("first", "second"), ("second", "first")):
        model = empty()
        for name in order:
            model.write(halves[name], name, TOKENIZER, guard if name == order[0] else None, new_labels=True)
        models.append(model)
    assert same(*models) and facts(models[0]) == facts(models[1])
    assert models[0].config.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2", 3: "x", 4: "y"}
    answers = models[0](**TOKENIZER([row["text"] for row in rows])).logits.argmax(dim=-1)
    right = [models[0].config.id2label[int(one)] == row["label"] for one, row in zip(answers, rows, strict=True)]
    assert sum(right) >= 24
    with models[0].without_memory():
        shares = models[0](**TOKENIZER(["a text"])).logits.softmax(dim=-1)[0]
    assert len(shares) == 5 and shares[3:].tolist() == [0, 0]
    models[0].erase("second")
    assert models[0].config.num_labels == 4 and models[0].config.label2id["y"] == 3


def test_a_saved_memory_is_loaded_as_it_was(tmp_path):
    tokenizer = tiny_tokenizer("bert")
    model = empty(vocab_size=len(tokenizer))
    rows = [
        {"text": f"{word} film", "label": place % 3} for place, word in enumerate(sorted(tokenizer.get_vocab())[:30])
    ]
    model.write(rows, domain="films", tokenizer=tokenizer, keep_text=True, new_labels=True)
    export_with_code(model, tmp_path, tokenizer)
    again = WritableMemoryForSequenceClassification.from_pretrained(tmp_path)
    assert same(model, again) and again.domains() == model.domains()
    assert set(again.config.memory_texts.values()) == {row["text"] for row in rows}
    carried = AutoModelForSequenceClassification.from_pretrained(tmp_path, trust_remote_code=True)
    found = pipeline("text-classification", model=carried, tokenizer=tokenizer)("a good film")
    with pytest.raises(ValueError, match=r"`key_layers=\[1\]` does not fit"):
        WritableMemoryForSequenceClassification.from_pretrained(tmp_path, key_layers=[1])
    assert found == pipeline("text-classification", model=model, tokenizer=tokenizer)("a good film")


WRONG = {
    "label": ({"rows": [{"text": "a", "label": "other"}]}, "holds 'other' .* unknown.* pass `new_labels=True`"),
    "empty": ({"rows": []}, "`rows` is empty"),
    "no domain": ({"domain": " "}, "`domain` is ' '. Give it a name"),
    "batch": ({"batch_size": 0}, "`batch_size` is 0. Use 1 or more"),
    "domain": ({"domain": "old"}, "'old' is written already. Erase it first, or pass `append=True`"),
    "guard": ({"domain": "guard"}, "Pass the rows of the old domains as `guard`"),
    "one class": ({"rows": [{"text": "a", "label": 1}, {"text": "b", "label": 1}]}, "have one label.*`append=True`"),
    "tokenizer": ({"tokenizer": None}, "`tokenizer` is missing"),
    "large tokenizer": ({"tokenizer": HashingProcessor(120)}, "has 120 words and the classifier 99"),
    "other tokenizer": ({"tokenizer": HashingProcessor(98)}, "not the one that the rows in the memory were read with"),
    "new classes": (
        {"rows": [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}], "new_labels": True},
        "All rows of `domain` 'new' have new classes.*as `guard`",
    ),
    "guard label": ({"guard": [{"text": "a", "label": 9}]}, "holds 9 .* unknown"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_write_that_fails_changes_nothing(wrong):
    model = empty()
    model.write(writable_rows(model, 1), domain="old", tokenizer=TOKENIZER)
    kept, known = copy.deepcopy(model), facts(model)
    given, said = WRONG[wrong]
    rows = writable_rows(model, 1, seed=3)
    with pytest.raises(ValueError, match=said):
        model.write(**{"rows": rows, "domain": "new", "tokenizer": TOKENIZER, **given})
    assert same(kept, model) and facts(model) == known


def test_a_write_that_is_interrupted_changes_nothing(monkeypatch):
    model = empty()
    model.write(writable_rows(model, 1), domain="old", tokenizer=TOKENIZER)
    kept, known, rows = copy.deepcopy(model), facts(model), writable_rows(model, 1, seed=3)

    def interrupt(memory):
        raise KeyboardInterrupt

    monkeypatch.setattr(modeling_writing.WritableMemory, "solve", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.write(rows, domain="new", tokenizer=TOKENIZER)
    assert same(kept, model) and facts(model) == known


def test_names_of_other_classes_are_not_taken_for_ids():
    names = {"id2label": {0: "World", 1: "Sports", 2: "Business"}}
    rows = [{"text": f"row {row}", "label": "cat dog bird".split()[row % 3]} for row in range(12)]
    with pytest.raises(ValueError, match="have the labels bird, cat, dog, and the classifier has World.*new_labels"):
        empty(**names).write(rows, domain="new", tokenizer=TOKENIZER)
    ids = [{**row, "label": 3 + place % 2} for place, row in enumerate(rows)]
    with pytest.raises(ValueError, match="New classes need names, not ids"):
        empty(**names).write(ids, domain="new", tokenizer=TOKENIZER, new_labels=True)


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3}
CONFIGS = {
    "bert": BertConfig(**SMALL, intermediate_size=16, max_position_embeddings=40),
    "bart": BartConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        max_position_embeddings=40, num_labels=3,
    ),
    "deberta": DebertaV2Config(**SMALL, intermediate_size=16, relative_attention=True, position_biased_input=False),
    "t5": T5Config(d_model=16, d_kv=8, num_heads=2, num_layers=1, d_ff=16, num_labels=3, decoder_start_token_id=0),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_no_text_is_longer_than_the_classifier_reads(name):
    tokenizer = tiny_tokenizer("bert")
    tokenizer.model_max_length = 10**30
    config = CONFIGS[name]
    config.vocab_size, config.eos_token_id, config.pad_token_id = len(tokenizer), tokenizer.sep_token_id, 0
    model = WritableMemoryForSequenceClassification.from_classifier(
        AutoModelForSequenceClassification.from_config(config)
    )
    rows = [{"text": f"{word} " * 60, "label": place % 3} for place, word in enumerate(["good", "bad", "film"])]
    assert model.write(rows, domain="new", tokenizer=tokenizer)["rows"] == 3
    assert len(model.explain((row["text"] for row in rows), tokenizer, max_length=600)) == 3


def test_labels_are_in_the_order_of_their_numbers():
    names = {str(label): f"name {label}" for label in (0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9)}
    model = empty(id2label=names)
    guard = [{"text": f"old {label}", "label": f"name {label}"} for label in range(11)]
    rows = [{"text": f"row {place}", "label": "xy"[place % 2]} for place in range(8)]
    model.write(rows, domain="new", tokenizer=TOKENIZER, guard=guard, new_labels=True)
    expected = {label: f"name {label}" for label in range(11)}
    assert model.config.id2label == {**expected, 11: "x", 12: "y"}
    model.erase("new")
    assert model.config.id2label == expected


def test_a_decoder_without_a_mask_and_blocks_that_were_filled_up():
    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=99, pad_token_id=0, num_labels=3)
    model = WritableMemoryForSequenceClassification.from_classifier(
        AutoModelForSequenceClassification.from_config(config)
    )
    ids = torch.tensor([[5, 6, 7]])
    padded, alone = (model._keys({"input_ids": one})[1] for one in (torch.tensor([[5, 6, 7, 0, 0]]), ids))
    torch.testing.assert_close(padded, alone)
    # BigBird returns states of whole blocks.
    states, mask = torch.randn(2, 6, 4), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    assert all(map(torch.equal, model._pooled([states], mask, "last"), model._pooled([states[:, :4]], mask, "last")))


def test_rows_are_written_under_autocast():
    model = empty()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.write(writable_rows(model, 1), domain="new", tokenizer=TOKENIZER)["rows"] == 30


def test_features_that_are_not_finite_change_nothing():
    model = empty()
    with torch.no_grad():
        model.classifier.classifier.bias[0] = float("nan")
    rows = [{"text": name, "label": place % 3} for place, name in enumerate("abcdef")]
    with pytest.raises(ValueError, match="not finite.*Nothing was written"):
        model.write(rows, domain="new", tokenizer=TOKENIZER)
    assert model.domains() == []


def test_erasing_what_is_not_there_is_an_error():
    model = empty()
    model.write(writable_rows(model, 1), domain="new", tokenizer=TOKENIZER)
    with pytest.raises(ValueError, match="'hotels', which was not written. Domains: new"):
        model.erase("hotels")
    with pytest.raises(ValueError, match="'00', which is not in the memory"):
        model.erase(rows=["00"])
    with pytest.raises(ValueError, match="either `domain` or `rows`"):
        model.erase()
    for nothing, said in (({"domain": "guard"}, "there are no guard rows"), ({"rows": []}, "`rows` is empty. Give")):
        with pytest.raises(ValueError, match=said):
            model.erase(**nothing)


def test_a_classifier_that_was_changed_after_writing_is_an_error(tmp_path):
    model = empty()
    with torch.no_grad():
        # So small that float16 rounds what bfloat16 does not.
        model.classifier.classifier.weight.mul_(1e-5)
    model.write(writable_rows(model, 1), domain="new", tokenizer=TOKENIZER)
    model.bfloat16().save_pretrained(tmp_path / "cast")
    for dtype in ("float32", "float16"):
        WritableMemoryForSequenceClassification.from_pretrained(tmp_path / "cast", dtype=dtype)
    again = empty()
    again.write(writable_rows(again, 1), domain="new", tokenizer=TOKENIZER)
    again.half().save_pretrained(tmp_path / "half")
    for dtype in ("float16", "float32", "bfloat16"):
        WritableMemoryForSequenceClassification.from_pretrained(tmp_path / "half", dtype=dtype)
    with torch.no_grad():
        for parameter in model.classifier.parameters():
            parameter += 0.02
    model.save_pretrained(tmp_path / "changed")
    with pytest.raises(ValueError, match="changed after rows were written"):
        WritableMemoryForSequenceClassification.from_pretrained(tmp_path / "changed")
    with pytest.raises(ValueError, match="changed after rows were written"):
        model.write(writable_rows(model, 1, seed=3), domain="more", tokenizer=TOKENIZER)


def test_training_waits_until_the_rows_are_erased():
    model = empty()
    model.write(writable_rows(model, 1), domain="new", tokenizer=TOKENIZER)
    inputs = {**TEXT.inputs(), "labels": torch.tensor([0, 1, 2])}
    for given in (inputs, TEXT.inputs()):
        # `Trainer` takes the labels itself to smooth them.
        with pytest.raises(ValueError, match="cannot be trained while its memory has rows"):
            model.train()(**given)
    model.erase("new")
    model(**inputs).loss.backward()
    assert all(parameter.grad is not None for parameter in model.classifier.classifier.parameters())


def test_explanations_add_up_and_wrong_labels_are_found():
    model = empty()
    rows = writable_rows(model, 1, rows=60)
    wrong = [10, 20, 30]
    noisy = [{**row, "label": (row["label"] + (place in wrong)) % 3} for place, row in enumerate(rows)]
    model.write(noisy, domain="new", tokenizer=TOKENIZER, keep_text=True)
    suspicious = [entry["text"] for entry in model.audit()]
    assert {rows[place]["text"] for place in wrong} <= set(suspicious)
    entry = model.explain(rows[0]["text"], TOKENIZER, top=60)[0]
    label, trust = model.config.label2id[entry["label"]], float(model.memory.trust)
    part = (1 - entry["gate"] + entry["gate"] * trust) * entry["classifier"][label]
    raw = model(**TOKENIZER([rows[0]["text"]])).logits.exp()[0]
    assert part + sum(row["share"] for row in entry["rows"]) == pytest.approx(float(raw[label]), abs=1e-4)
    assert model.explain(TOKENIZER([rows[0]["text"]]), top=60) == [entry]
    assert entry["memory"] == pytest.approx([a - b for a, b in zip(entry["answer"], entry["classifier"], strict=True)])
    assert {row["domain"] for row in entry["rows"]} == {"new"} and entry["rows"][0]["text"].startswith("row 0")
    assert entry["nearest"][0]["text"] == rows[0]["text"] and entry["nearest"][0]["similarity"] == pytest.approx(
        1, abs=1e-3
    )


@pytest.mark.parametrize("case", CLASSIFIERS, ids=str)
def test_classifiers_of_every_family_can_be_written_to(case, tmp_path):
    if case.model_type == "writable_memory":
        pytest.skip("it has a memory already")
    classifier = case.model(num_labels=3)
    model = WritableMemoryForSequenceClassification.from_classifier(classifier)
    inputs = case.inputs()
    assert torch.equal(model(**inputs).logits, classifier(**inputs).logits)
    # Untrained classifiers may give one answer to all rows.
    assert model.write(writable_rows(model, 1), domain="new", tokenizer=TOKENIZER, append=True)["after"] > 40
    model.save_pretrained(tmp_path)
    again = WritableMemoryForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(again(**inputs).logits, model(**inputs).logits)


def test_an_adapter_is_merged(tmp_path):
    classifier = empty().classifier
    classifier.save_pretrained(tmp_path / "base")
    base = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    config = LoraConfig(target_modules=["query"], task_type="SEQ_CLS", init_lora_weights=False)
    adapted = get_peft_model(base, config).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    inputs = TEXT.inputs()
    for source in (adapted, str(tmp_path / "adapter")):
        model = WritableMemoryForSequenceClassification.from_classifier(
            source, **({} if source is adapted else {"num_labels": 3})
        )
        torch.testing.assert_close(model(**inputs).logits, adapted(**inputs).logits, rtol=0, atol=1e-5)


def test_a_general_encoder_adds_to_the_keys_and_stays_frozen(tmp_path):
    classifier = empty().classifier
    general = BertModel(BertConfig(vocab_size=99, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    model = WritableMemoryForSequenceClassification.from_classifier(classifier, general=general)
    model.write(writable_rows(model, 1), domain="new", tokenizer=TOKENIZER)
    assert model.config.key_shape == [8, 32]
    model.save_pretrained(tmp_path)
    again = WritableMemoryForSequenceClassification.from_pretrained(tmp_path)
    assert same(model, again) and not any(p.requires_grad for p in again.general.parameters())


def test_what_a_memory_cannot_be_added_to_is_said(tmp_path):
    classifier = empty().classifier
    classifier.config.problem_type = "multi_label_classification"
    with pytest.raises(ValueError, match="needs one label of two or more"):
        WritableMemoryForSequenceClassification.from_classifier(classifier)
    empty().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has a writable memory already"):
        WritableMemoryForSequenceClassification.from_classifier(str(tmp_path))
    with pytest.raises(ValueError, match="not a `Linear`"):
        WritableMemoryForImageClassification.from_classifier(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="has a writable memory already"):
        WritableMemoryForSequenceClassification.from_classifier(empty())
    with pytest.raises(ValueError, match="needs `WritableMemoryForSequenceClassification"):
        WritableMemoryForImageClassification.from_classifier(empty().classifier)
    with pytest.raises(TypeError, match="`dtype` is for loading"):
        WritableMemoryForSequenceClassification.from_classifier(empty().classifier, dtype="auto")
    classifier = empty().classifier
    classifier.add_adapter(LoraConfig(target_modules=["query"]))
    with pytest.raises(ValueError, match="has an adapter in it"):
        WritableMemoryForSequenceClassification.from_classifier(classifier)


def test_rows_come_from_files_and_tables(tmp_path):
    given = writable_rows(empty(), 1)
    file = tmp_path / "rows.csv"
    file.write_text("text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in given), encoding="utf-8")
    table = load_domains(given, domain=None)
    models = []
    for source in (given, str(file), table):
        models.append(empty())
        models[-1].write(source, domain="new", tokenizer=TOKENIZER)
    assert same(*models[:2]) and same(*models[1:])
