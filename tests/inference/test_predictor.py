# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What `Predictor` predicts is what the models say."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from saved_checkpoints import CONTEXT, NAMES, PREDICTING, SMILES, TEXT, case_of, picture, put_adapter, save
from tiny_backbones import save_backbone

from hf_memaug.data.spans import answers_from_logits, tokenize_questions
from hf_memaug.inference import CheckpointError, InputError, Piece, load_predictor

KV = case_of("RobertaWithKVMemoryForSequenceClassification")
PROMPT = case_of("RobertaWithKVMemoryForPromptClassification")
RNN = case_of("MemoryRNNForSequenceClassification")
HMA = case_of("HMAForSequenceClassification")
GMOE = case_of("ViTGMoEForImageClassification")
TAGS = case_of("GMAPForTokenClassification")
QUESTIONS = case_of("GMAPForQuestionAnswering")
MASKS = case_of("GMAPForMaskedLM")
TALK = case_of("MemoryRNNForConditionalGeneration")
GRAPHS = case_of("HMAForGraphClassification")
CLASSIFIERS = [case for case in PREDICTING if "Classification" in case.name and case is not TAGS and not case.is_graph]


@pytest.fixture(scope="module")
def predictor_of(tmp_path_factory):
    """`predictor_of(case)`: loaded once for all tests, which must not change it."""
    loaded = {}

    def load(case):
        if case.name not in loaded:
            loaded[case.name] = load_predictor(save(case, tmp_path_factory.mktemp(case.name)))
        return loaded[case.name]

    return load


def joined(prediction) -> str:
    return "".join(piece.text for piece in prediction.pieces)


@pytest.mark.parametrize("case", CLASSIFIERS, ids=str)
def test_labels_have_the_models_probabilities(case, predictor_of):
    predictor = predictor_of(case)
    several = [picture(0), picture(1)] if case.is_image else [TEXT, "great film with a slow start"]
    names = "images" if case.is_image else "text"
    for prediction, one in zip(predictor.predict(several, batch_size=1), several, strict=True):
        with torch.no_grad():
            logits = predictor.model(**predictor.processor(**{names: one}, return_tensors="pt")).logits[0]
        expected = dict(zip(NAMES.values(), logits.softmax(dim=-1).tolist(), strict=True))
        assert dict(prediction.scores) == pytest.approx(expected, abs=1e-6) and prediction.kind == "probabilities"
        assert [share for _, share in prediction.scores] == sorted(expected.values(), reverse=True)
    if case.model_type != "hma":  # whose rows read each other
        together, alone = predictor.predict(several, batch_size=2), predictor.predict(several, batch_size=1)
        for one, other in zip(together, alone, strict=True):
            assert dict(one.scores) == pytest.approx(dict(other.scores), abs=1e-5)


def test_plain_models_of_transformers_predict_too(backbones):
    predictor = load_predictor(backbones["vit"])
    (found,) = predictor.predict([picture()])
    assert len(found.scores) == 3 and not predictor.reads_memory


def test_regressions_and_independent_labels(tmp_path):
    def stars(model):
        model.config.id2label = {0: "stars"}

    number = load_predictor(save(KV, tmp_path / "one", stars, num_labels=1))
    several = load_predictor(save(KV, tmp_path / "many", problem_type="multi_label_classification"))
    inputs = several.processor(TEXT, return_tensors="pt")
    ((found,), (other,)) = number.predict([TEXT]), several.predict([TEXT])
    with torch.no_grad():
        score, logits = float(number.model(**inputs).logits[0, 0]), several.model(**inputs).logits[0]
    assert found.kind == "number" and found.scores == (("stars", pytest.approx(score)),)
    assert other.kind == "independent"
    assert dict(other.scores) == pytest.approx(dict(zip(NAMES.values(), logits.sigmoid().tolist(), strict=True)))


def test_weights_that_are_not_finite_are_named(tmp_path):
    folder, file = save(KV, tmp_path), tmp_path / "model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if name.endswith("slot_values"))
    weights[name][0] = torch.nan
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=f"not finite, because of its `{name}`"):
        load_predictor(folder).predict([TEXT])


def test_fp16_on_a_cpu_becomes_fp32(tmp_path):
    save(KV, tmp_path, change=lambda model: model.half())
    with pytest.warns(UserWarning, match="is in fp16, which is slow on a CPU"):
        assert load_predictor(tmp_path, dtype="auto", device="cpu").model.dtype == torch.float32


def test_pairs_of_texts(tmp_path, predictor_of):
    predictor = load_predictor(save(RNN, tmp_path, sentence_pairs=True))
    with pytest.raises(InputError, match="compares two texts"):
        predictor.predict([TEXT])
    first, second = predictor.predict([(TEXT, "the phone is bad"), {"text": TEXT, "text_pair": "great film"}])
    assert first != second
    with pytest.raises(InputError, match="reads one text"):
        predictor_of(RNN).predict([(TEXT, TEXT)])
    alone, both = predictor_of(KV).predict([TEXT])[0], predictor_of(KV).predict([(TEXT, "the phone is bad")])[0]
    assert alone != both
    with pytest.raises(InputError, match="Predict them separately"):
        predictor_of(KV).predict([(TEXT, TEXT), TEXT])


@pytest.mark.parametrize("case", [KV, HMA], ids=str)
def test_a_long_text_is_cut_and_a_note_says_so(case, tmp_path):
    save(case, tmp_path, max_position_embeddings=40)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings.pop("model_max_length", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    predictor = load_predictor(tmp_path)
    most = 38 if case.backbone == "roberta" else 40
    long = ("good " * 60).strip()
    cut, whole = predictor.predict([long, TEXT])
    tokens = len(predictor.processor(long)["input_ids"])
    assert f"has {tokens} tokens and the model takes {most}" in cut.notes[0] and not whole.notes


# Tags


def test_tags_are_those_of_first_tokens(predictor_of):
    predictor = predictor_of(TAGS)
    text = "the phone is bad, and the battery is bad"
    words = "the phone is bad , and the battery is bad".split()
    encoded = predictor.processor(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        shares = predictor.model(**encoded).logits[0].softmax(dim=-1)
    ids = encoded.word_ids()
    # This tokenizer has no token for the comma, which then has no tag.
    first = [ids.index(word) if word in ids else None for word in range(len(words))]
    expected = ["O" if one is None else predictor.labels[int(shares[one].argmax())] for one in first]
    found, of_words, _ = predictor.predict([text, words, {"tokens": ["phone"]}])
    assert list(found.words) == words and list(found.tags) == expected == list(of_words.tags)
    assert joined(found) == text and any(tag != "O" for tag in expected)
    for piece in found.pieces:
        assert piece.label is None or (piece.label == "Thing" and 1 / 3 < piece.score <= 1)


def test_words_beyond_the_longest_text_have_tags(predictor_of):
    predictor = predictor_of(TAGS)
    short, long = predictor.predict(["the phone", ["bad"] * 150])
    assert len(short.tags) == 2 and len(long.tags) == 150 and predictor.max_length == 64
    assert long.tags[0] == predictor.predict([["bad"] * 62])[0].tags[0]


def test_entities_are_marked(predictor_of, monkeypatch):
    predictor = predictor_of(TAGS)
    real, tokenizer = predictor.model.forward, predictor.processor

    def forward(input_ids, **kwargs):
        output = real(input_ids=input_ids, **kwargs)
        output.logits[:] = torch.tensor([5.0, 0.0, 0.0])
        words = tokenizer(["hotel", "view"], is_split_into_words=True, add_special_tokens=False)
        for word, label in enumerate((1, 2)):
            first = words["input_ids"][words.word_ids().index(word)]
            for place in (input_ids[0] == first).nonzero()[:, 0].tolist()[:1]:
                output.logits[0, place, label] = 10.0
        return output

    monkeypatch.setattr(predictor.model, "forward", forward)
    (found,) = predictor.predict(["the <hotel view> is fine"])
    marked = [piece for piece in found.pieces if piece.label]
    assert [(piece.text, piece.label) for piece in marked] == [("hotel view", "Thing")]
    assert found.pieces[0] == Piece("the <") and marked[0].score > 0.98


def test_tags_that_are_not_iob2_stand_for_one_word_each(tmp_path):
    def parts_of_speech(model):
        model.config.id2label = {0: "NOUN", 1: "VERB", 2: "DET"}

    (found,) = load_predictor(save(TAGS, tmp_path, parts_of_speech)).predict([TEXT])
    assert [piece.text for piece in found.pieces if piece.label] == TEXT.split()


# Questions, masks and replies


@pytest.mark.parametrize("length", [1, 30])
def test_an_answer_is_the_best_span_of_all_parts(length, predictor_of):
    predictor = predictor_of(QUESTIONS)
    row = {"question": "what is bad", "context": f" {CONTEXT} " * length, "answers": {"text": [], "answer_start": []}}
    features = tokenize_questions([row], predictor.processor, 64, 64 // 3)
    with torch.no_grad():
        outputs = [predictor.model(torch.tensor([one["input_ids"]])) for one in features]
    starts, ends = ([output[name][0] for output in outputs] for name in ("start_logits", "end_logits"))
    (expected,) = answers_from_logits(starts, ends, features, [row])
    found, other = predictor.predict([row, ("what is fine", CONTEXT)])
    assert found.text == expected and joined(found) == row["context"] and other.text is not None
    marked = [piece.text for piece in found.pieces if piece.label]
    assert marked == ([expected] if expected else [])
    if expected:
        assert row["context"][found.start :].startswith(expected)
    assert len(found.scores) == 3 and all(0 < share <= 1 for _, share in found.scores)
    assert any("parts that overlap" in note for note in found.notes) == (length > 1)


def test_questions_that_cannot_be_asked(predictor_of):
    for given, said in [
        ({"question": "what is bad", "context": ""}, "no context"),
        ("what is bad", "no context"),
        (("what is bad " * 30, CONTEXT), "Shorten it"),
    ]:
        with pytest.raises(InputError, match=said):
            predictor_of(QUESTIONS).predict([given])


def test_masks_have_their_likeliest_words(predictor_of):
    predictor = predictor_of(MASKS)
    tokenizer = predictor.processor
    inputs = tokenizer("the <mask> is bad and the<mask> is good", return_tensors="pt")
    shares = predictor.model(**inputs).logits[0].softmax(dim=-1)
    places = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    found, other = predictor.predict(["the <mask> is bad and the[MASK] is good", "<mask>"])
    assert len(found.masks) == 2 and len(other.masks) == 1
    for place, words in zip(places, found.masks, strict=True):
        best = shares[place].topk(5)
        assert [share for _, share in words] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert words[0][0] == tokenizer.decode([int(best.indices[0])]).strip()
    assert [piece.label for piece in found.pieces] == [None, "1", None, "2", None]
    for text, said in [(TEXT, "no mask in the text. Write `<mask>`"), ("good " * 80 + "<mask>", "Shorten the text")]:
        with pytest.raises(InputError, match=said):
            predictor.predict([text])


def test_a_reply_is_the_likeliest_one(predictor_of):
    predictor = predictor_of(TALK)
    inputs = predictor.processor(TEXT, return_tensors="pt")
    tokens = predictor.model.generate(input_ids=inputs["input_ids"], max_new_tokens=7, do_sample=False)
    found, other = predictor.predict([TEXT, "the phone"], max_new_tokens=7)
    assert found.text == predictor.processor.decode(tokens[0], skip_special_tokens=True).strip()
    assert other.text == predictor.predict(["the phone"], max_new_tokens=7)[0].text


# Images and graphs


def test_images_that_cannot_be_read(predictor_of):
    with pytest.raises(InputError, match="cannot be read"):
        predictor_of(GMOE).predict([b"not an image"])


def test_molecules(predictor_of, tmp_path):
    pytest.importorskip("rdkit", reason="molecules need RDKit: pip install hf_memaug[graph]")
    from hf_memaug.data.graphs import GraphCollator
    from hf_memaug.data.molecules import graph_from_smiles

    predictor = predictor_of(GRAPHS)
    with torch.no_grad():
        logits = predictor.model(**GraphCollator()([{"graph": graph_from_smiles(SMILES)}])).logits
    expected = dict(zip(NAMES.values(), logits[0].softmax(dim=-1).tolist(), strict=True))
    for given in (SMILES, {"graph": graph_from_smiles(SMILES)}):
        (found,) = predictor.predict([given])
        assert dict(found.scores) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(InputError, match="cannot be parsed"):
        predictor.predict(["C1CC"])
    # A model that knows of no bonds is given none.
    assert load_predictor(save(GRAPHS, tmp_path / "bare", edge_vocab_sizes=[])).predict([SMILES])
    other = load_predictor(save(GRAPHS, tmp_path / "other", node_vocab_sizes=[5]))
    assert not other.reads_molecules
    with pytest.raises(InputError, match="not molecules"):
        other.predict([SMILES])


# Loading


def test_checkpoints_that_cannot_be_loaded(tmp_path):
    save(KV, tmp_path / "run" / "jobs" / "mil" / "checkpoint")
    save(KV, tmp_path / "bare")
    for file in (tmp_path / "bare").glob("tokenizer*"):
        file.unlink()
    case_of("GMAPModel").model().save_pretrained(tmp_path / "headless")
    for name in ("nothing", "broken", "adapter"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    save(KV, tmp_path / "field")
    config = json.loads((tmp_path / "field" / "config.json").read_text())
    (tmp_path / "field" / "config.json").write_text(json.dumps({**config, "memory_query": "cubic"}))
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    for name, said in {
        "missing": "There is no such folder",
        "nothing": "has no `config.json`",
        "run": "Did you mean .*mil.checkpoint",
        "bare": "has no tokenizer",
        "headless": "GMAPModel.*no head",
        "broken": "cannot be loaded",
        "field": "'memory_query' expected one of .'linear', 'mlp'., got cubic",
        "adapter": "merge_and_unload",
    }.items():
        with pytest.raises(CheckpointError, match=said):
            load_predictor(tmp_path / name)
    with pytest.raises(CheckpointError, match="`baseline` 'nobody/nothing' cannot be loaded"):
        load_predictor("nobody/nothing", "baseline")


@pytest.mark.parametrize("case", [KV, PROMPT, HMA, TAGS], ids=str)
def test_an_adapter_is_merged_into_its_model(case, tmp_path):
    from peft import PeftModel

    more = {"exclude_modules": r".*general\..*"} if case is TAGS else {}
    if case is HMA:
        more = {"target_modules": ["query"], "exclude_modules": r".*momentum.*"}
    put_adapter(save(case, tmp_path / "base"), tmp_path / "adapter", case, **more)
    predictor = load_predictor(tmp_path / "adapter")
    assert predictor.adapter_base == str(tmp_path / "base")
    inputs = predictor.processor(TEXT, return_tensors="pt")
    adapted = PeftModel.from_pretrained(case.model_class.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    with torch.no_grad():
        torch.testing.assert_close(
            predictor.model(**inputs).logits, adapted.eval()(**inputs).logits, atol=1e-4, rtol=1e-4
        )
    assert predictor.predict([TEXT]) != load_predictor(tmp_path / "base").predict([TEXT])


def test_adapters_that_cannot_be_loaded(tmp_path):
    from peft import PromptTuningConfig, get_peft_model

    base = save(KV, tmp_path / "base")
    put_adapter(base, tmp_path / "lora", KV)
    config = PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)
    get_peft_model(KV.model_class.from_pretrained(base), config).save_pretrained(tmp_path / "prompts")
    settings = json.loads((tmp_path / "lora" / "adapter_config.json").read_text())
    others = {"plain": save_backbone("roberta", tmp_path / "backbone"), "gone": str(tmp_path / "moved"), "empty": base}
    for name, other in others.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": other}))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "adapter_config.json").write_text("{")
    for name, said in {
        "prompts": "cannot be merged",
        "plain": "is an adapter of .*merge_and_unload",
        "gone": "moved.* cannot be loaded",
        "empty": "cannot be merged",
        "broken": "cannot be read",
    }.items():
        with pytest.raises(CheckpointError, match=said):
            load_predictor(tmp_path / name)


@pytest.mark.slow
def test_predicting_a_text_imports_no_data_and_no_trainer(tmp_path):
    save(KV, tmp_path)
    code = f"""
import sys
from hf_memaug.inference import load_predictor
load_predictor({str(tmp_path)!r}).predict(["a good book"])
ours = [name for name in sys.modules if name.startswith("hf_memaug")]
assert not [name for name in ours if name.split(".")[1:2] in (["data"], ["training"], ["evaluation"], ["runs"])], ours
assert "datasets" not in sys.modules
assert len(ours) < 70, len(ours)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
