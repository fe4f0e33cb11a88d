# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""Tags of words, answers in a context, missing words, molecules, adapters: what the page says is what models say."""

import json
import sys
from pathlib import Path

import pytest
import torch
from families import save_backbone

sys.path.insert(0, str(Path(__file__).parent))
from served import CONTEXT, NAMES, SERVED, SMILES, TEXT, case_of, picture, question, save

import hf_memaug
from hf_memaug.app import looks
from hf_memaug.app.answers import answer, load_served
from hf_memaug.app.errors import NotServed
from hf_memaug.app.predictions import MOST_WORDS, Piece
from hf_memaug.app.space import write_space
from hf_memaug.data.molecules import graph_from_smiles
from hf_memaug.data.spans import answers_from_logits, tokenize_questions

TAGS = case_of("GMAPForTokenClassification")
QUESTIONS = case_of("GMAPForQuestionAnswering")
MASKS = case_of("GMAPForMaskedLM")
GRAPHS = case_of("HMAForGraphClassification")
KV = case_of("RobertaWithKVMemoryForSequenceClassification")
PROMPT = case_of("RobertaWithKVMemoryForPromptClassification")
HMA = case_of("HMAForSequenceClassification")
OTHERS = [case for case in SERVED if case.is_per_token or case.is_graph]


def joined(prediction) -> str:
    return "".join(piece.text for piece in prediction.pieces)


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_every_task_has_an_answer_a_plain_one_and_readings(case, tmp_path):
    served = load_served(save(case, tmp_path))
    found = answer(served, **question(case))
    assert found.plain is not None and found.plain != found.prediction and "memory switched off" in found.plain_is
    assert found.readings and not found.notes
    page = looks.header(served) + looks.answered(found) + looks.waiting(served.checkpoint)
    assert "This model" in page and "Without the memory" in page
    again = answer(served, **question(case))
    assert again.prediction == found.prediction, "the memory is on again afterwards"


def test_tags_are_those_of_first_tokens(tmp_path):
    served = load_served(save(TAGS, tmp_path))
    text = "  the phone is bad, and the battery is bad"
    found = answer(served, text=text).prediction
    words = "the phone is bad , and the battery is bad".split()
    encoded = served.checkpoint.processor(words, is_split_into_words=True, return_tensors="pt")
    shares = served.checkpoint.model(**encoded).logits[0].softmax(dim=-1)
    ids = encoded.word_ids()
    # This tokenizer has no token for the comma, which then has no tag.
    first = [ids.index(word) if word in ids else None for word in range(len(words))]
    expected = ["O" if one is None else served.checkpoint.labels[int(shares[one].argmax())] for one in first]
    tagged = [piece for piece in found.pieces if piece.label]
    assert joined(found) == text.strip() and found.kind == "tags"
    assert sum(len(piece.text.replace(",", " ,").split()) for piece in tagged) == sum(tag != "O" for tag in expected)
    assert any(tag != "O" for tag in expected), "this model says something"
    for piece in tagged:
        assert piece.label == "Thing" and 1 / 3 < piece.score <= 1


def test_entities_are_marked_and_cut_texts_are_said(tmp_path, monkeypatch):
    served = load_served(save(TAGS, tmp_path))
    model, tokenizer = served.checkpoint.model, served.checkpoint.processor
    wanted = {"hotel": 1, "view": 2}

    def forward(input_ids, **kwargs):
        output = real(input_ids=input_ids, **kwargs)
        output.logits[:] = torch.tensor([5.0, 0.0, 0.0])
        words = tokenizer(["hotel", "view"], is_split_into_words=True, add_special_tokens=False)
        for word, label in enumerate(wanted.values()):
            first = words["input_ids"][words.word_ids().index(word)]
            for place in (input_ids[0] == first).nonzero()[:, 0].tolist()[:1]:
                output.logits[0, place, label] = 10.0
        return output

    real = model.forward
    monkeypatch.setattr(model, "forward", forward)
    found = answer(served, text="the <hotel view> is fine")
    marked = [piece for piece in found.prediction.pieces if piece.label]
    assert [(piece.text, piece.label) for piece in marked] == [("hotel view", "Thing")]
    assert found.prediction.pieces[0] == Piece("the <")
    page = looks.answered(found)
    assert "hotel view<small>Thing 99%</small></mark>" in page and "the &lt;<mark" in page
    found = answer(served, text="good " * 100)
    assert "The text has 100 words and the model takes 64 tokens" in found.notes[0]
    assert "No word has a tag." in looks.answered(found)


def test_tags_that_are_no_iob2_stand_by_themselves(tmp_path):
    def parts_of_speech(model):
        model.config.id2label = {0: "NOUN", 1: "VERB", 2: "DET"}

    found = answer(load_served(save(TAGS, tmp_path, parts_of_speech)), text=TEXT).prediction
    assert [piece.text for piece in found.pieces if piece.label] == TEXT.split()


@pytest.mark.parametrize("length", [1, 30])
def test_an_answer_is_the_best_span_of_all_parts(length, tmp_path):
    served = load_served(save(QUESTIONS, tmp_path))
    model, tokenizer = served.checkpoint.model, served.checkpoint.processor
    row = {"question": "what is bad", "context": f" {CONTEXT} " * length, "answers": {"text": [], "answer_start": []}}
    features = tokenize_questions([row], tokenizer, 64, 16)
    with torch.no_grad():
        outputs = [model(torch.tensor([one["input_ids"]])) for one in features]
    starts, ends = ([output[name][0] for output in outputs] for name in ("start_logits", "end_logits"))
    (expected,) = answers_from_logits(starts, ends, features, [row])
    found = answer(served, text=row["question"], pair=row["context"])
    assert found.prediction.text == expected and joined(found.prediction) == row["context"]
    marked = [piece.text for piece in found.prediction.pieces if piece.label]
    assert marked == ([expected] if expected else [])
    assert len(found.prediction.scores) == 3 and all(0 < share <= 1 for _, share in found.prediction.scores)
    assert any("parts that overlap" in note for note in found.notes) == (length > 1)
    shown = looks.answered(found)
    assert ("<strong>" + expected in shown) if expected else ("No answer in the context" in shown)


def test_questions_that_cannot_be_asked(tmp_path):
    served = load_served(save(QUESTIONS, tmp_path))
    for given, said in [
        ({}, "no text yet"),
        ({"text": "what is bad"}, "no context yet"),
        ({"text": "what is bad", "pair": "  "}, "no context yet"),
        ({"text": "what is bad " * 30, "pair": CONTEXT}, "Shorten it"),
        ({"text": "what is bad", "pair": "a" * 100_001}, "context has more than"),
    ]:
        with pytest.raises(NotServed, match=said):
            answer(served, **given)


def test_masks_have_their_likeliest_words(tmp_path):
    served = load_served(save(MASKS, tmp_path))
    model, tokenizer = served.checkpoint.model, served.checkpoint.processor
    inputs = tokenizer("the <mask> is bad and the<mask> is good", return_tensors="pt")
    shares = model(**inputs).logits[0].softmax(dim=-1)
    places = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    found = answer(served, text="the <mask> is bad and the[MASK] is good").prediction
    assert len(found.masks) == 2
    for place, words in zip(places, found.masks, strict=True):
        best = shares[place].topk(MOST_WORDS)
        assert [share for _, share in words] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert words[0][0] == tokenizer.decode([int(best.indices[0])]).strip()
    assert [piece.label for piece in found.pieces] == [None, "1", None, "2", None]
    assert found.pieces[1].text == found.masks[0][0][0]
    for text, said in [
        (TEXT, "no mask in the text. Write `<mask>`"),
        ("<mask> " * 13, "13 masks"),
        ("good " * 80 + "<mask>", "Shorten the text before"),
    ]:
        with pytest.raises(NotServed, match=said):
            answer(served, text=text)


def test_a_plain_masked_model_stands_beside(tmp_path, backbones):
    served = load_served(save(MASKS, tmp_path), backbones["roberta"])
    found = answer(served, text="the <mask> is bad")
    assert found.plain_name == "Plain model" and found.plain.kind == "words" and len(found.plain.masks) == 1
    assert not found.notes, "a masked model has no labels to compare"
    with pytest.raises(NotServed, match="fills masks and `checkpoint` classifies"):
        load_served(save(KV, tmp_path / "kv"), backbones["roberta"])


def test_a_molecule_is_typed_and_drawn(tmp_path):
    pytest.importorskip("rdkit", reason="molecules need RDKit: pip install hf_memaug[graph]")
    from hf_memaug.data.graphs import GraphCollator

    served = load_served(save(GRAPHS, tmp_path))
    found = answer(served, text=f" {SMILES} ")
    with torch.no_grad():
        logits = served.checkpoint.model(**GraphCollator()([{"graph": graph_from_smiles(SMILES)}])).logits
    expected = dict(zip(NAMES.values(), logits[0].softmax(dim=-1).tolist(), strict=True))
    assert dict(found.prediction.scores) == pytest.approx(expected, abs=1e-5)
    real, synthetic = found.readings
    assert set(real.groups) == {"bad (7 stored)", "fair (7 stored)", "good (6 stored)"} and synthetic.places
    assert found.drawing.count("bond-") >= 13, "the bonds of aspirin"
    assert "data:image/svg+xml;base64," in looks.answered(found)
    for smiles, said in [("", "no molecule yet"), ("C1CC", "cannot be parsed"), ("C" * 3000, "3,000 letters")]:
        with pytest.raises(NotServed, match=said):
            answer(served, text=smiles)
    assert answer(served, text="C" * 400).drawing is None, "too large for a drawing"
    # Models that know of no bonds get none.
    assert answer(load_served(save(GRAPHS, tmp_path / "bare", edge_vocab_sizes=[])), text=SMILES).prediction


def test_graphs_that_are_no_molecules_are_refused(tmp_path, monkeypatch):
    save(GRAPHS, tmp_path / "other", node_vocab_sizes=[5])
    with pytest.raises(NotServed, match="no molecules of `graph_from_smiles`"):
        load_served(tmp_path / "other")
    with pytest.raises(NotServed, match="reads texts and `checkpoint` molecules"):
        load_served(save(GRAPHS, tmp_path / "ours"), save(KV, tmp_path / "kv"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotServed, match=r"pip install hf_memaug\[graph\]"):
        load_served(tmp_path / "ours")


# Adapters


def put_adapter(base, folder, case, **kwargs) -> str:
    """An adapter of LoRA on a checkpoint, with weights that say something, and a memory of its own."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(init_lora_weights=False, modules_to_save=["memory"], **kwargs)
    torch.manual_seed(3)
    model = get_peft_model(case.model_class.from_pretrained(base), config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "modules_to_save" in name:
                value.add_(torch.randn_like(value))
    model.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("case", [KV, PROMPT, HMA, TAGS], ids=str)
def test_an_adapter_is_served_on_its_model(case, tmp_path):
    from peft import PeftModel

    more = {"exclude_modules": r".*general\..*"} if case is TAGS else {}
    if case is HMA:
        more = {"target_modules": ["query"], "exclude_modules": r".*momentum.*"}
    put_adapter(save(case, tmp_path / "base"), tmp_path / "adapter", case, **more)
    served = load_served(tmp_path / "adapter")
    found, below = (answer(one, text=TEXT) for one in (served, load_served(tmp_path / "base")))
    assert found.prediction != below.prediction and found.readings != below.readings
    adapted = PeftModel.from_pretrained(
        case.model_class.from_pretrained(tmp_path / "base"), tmp_path / "adapter"
    ).eval()
    if case is not TAGS:
        logits = adapted(**served.checkpoint.processor(TEXT, return_tensors="pt")).logits
        expected = dict(zip(NAMES.values(), logits[0].softmax(dim=-1).tolist(), strict=True))
        assert dict(found.prediction.scores) == pytest.approx(expected, abs=1e-4)
    assert "An adapter, merged into" in looks.header(served)


def test_adapters_that_cannot_be_served(tmp_path):
    from peft import PromptTuningConfig, get_peft_model

    base = save(KV, tmp_path / "base")
    put_adapter(base, tmp_path / "lora", KV)
    prompts = get_peft_model(
        KV.model_class.from_pretrained(base), PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)
    )
    prompts.save_pretrained(tmp_path / "prompts")
    settings = json.loads((tmp_path / "lora" / "adapter_config.json").read_text())

    def write(name, **changes):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(json.dumps({**settings, **changes}))

    write("plain", base_model_name_or_path=save_backbone("roberta", tmp_path / "backbone"))
    write("gone", base_model_name_or_path=str(tmp_path / "moved"))
    write("empty")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "adapter_config.json").write_text("{")
    for name, said in {
        "prompts": "cannot be merged",
        "plain": "no model of hf_memaug.*merge_and_unload",
        "gone": "holds an adapter of .*moved.*is no folder here",
        "empty": "cannot be merged",
        "broken": "cannot be read",
    }.items():
        with pytest.raises(NotServed, match=said):
            load_served(tmp_path / name)


# Spaces


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_a_space_of_every_task(case, tmp_path):
    folder = write_space(save(case, tmp_path / "model"), tmp_path / "space")
    first = (folder / "requirements.txt").read_text().splitlines()[0]
    assert first == f"hf_memaug[{'app,graph' if case is GRAPHS else 'app'}]=={hf_memaug.__version__}"
    served = (load_served(tmp_path / "model"), load_served(folder / "checkpoint"))
    assert answer(served[0], **question(case)).prediction == answer(served[1], **question(case)).prediction


def test_a_space_of_an_adapter_holds_the_merged_model(tmp_path):
    import shutil

    put_adapter(save(KV, tmp_path / "base"), tmp_path / "adapter", KV)
    expected = answer(load_served(tmp_path / "adapter"), text=TEXT).prediction
    folder = write_space(tmp_path / "adapter", tmp_path / "space")
    shutil.rmtree(tmp_path / "base")
    assert not (folder / "checkpoint" / "adapter_config.json").exists()
    found = dict(answer(load_served(folder / "checkpoint"), text=TEXT).prediction.scores)
    assert found == pytest.approx(dict(expected.scores), abs=1e-5)


def test_an_adapter_is_published_by_peft_and_its_space_by_us(tmp_path, capsys):
    from hf_memaug.cli.app import main

    (tmp_path / "adapter_config.json").write_text("{}")
    assert main(["push", str(tmp_path), "me/adapter"]) == 2
    assert "`model.push_to_hub`" in capsys.readouterr().err
    assert main(["push", str(tmp_path), "me/adapter", "--space"]) == 1
    assert "does not say of which model" in capsys.readouterr().err


def test_texts_go_to_models_of_texts(tmp_path):
    with pytest.raises(NotServed, match="reads texts"):
        answer(load_served(save(TAGS, tmp_path)), image=picture())
