# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The app's answers as HTML, and its messages where there is none. No browser is needed."""

import numpy as np
import pytest
from markupsafe import escape
from saved_checkpoints import TEXT, case_of, example, picture, put_adapter, save

from hf_memaug.app import html
from hf_memaug.app.session import ask, draw_molecule, load_session
from hf_memaug.inference import CheckpointError, InputError

KV = case_of("RobertaWithKVMemoryForSequenceClassification")
GMOE = case_of("ViTGMoEForImageClassification")
MASKS = case_of("GMAPForMaskedLM")
QUESTIONS = case_of("GMAPForQuestionAnswering")
TALK = case_of("MemoryRNNForConditionalGeneration")
GRAPHS = case_of("HMAForGraphClassification")
TAGS = case_of("GMAPForTokenClassification")
ONE_OF_EACH_KIND = [KV, GMOE, MASKS, QUESTIONS, TALK, GRAPHS, TAGS]


def question(case) -> tuple:
    given = example(case)
    return given if isinstance(given, tuple) else (given,)


def test_every_kind_is_here():
    from hf_memaug.inference.checkpoints import KINDS

    found = [next(kind for part, kind in KINDS.items() if part in case.name) for case in ONE_OF_EACH_KIND]
    assert sorted(found) == sorted(set(KINDS.values()))


@pytest.mark.parametrize("case", ONE_OF_EACH_KIND, ids=str)
def test_an_answer_shows_the_prediction_and_the_memory(case, tmp_path):
    session = load_session(save(case, tmp_path))
    found = ask(session, *question(case))
    page = html.header(session) + html.waiting(session) + html.answer(found)
    assert "This model" in page and case.name in page and (found.explanation.plain_is[:30] in page)
    for reading in found.explanation.readings:
        assert str(escape(reading.title)) in page and f"{100 * reading.slots[0].share:.1f}%" in page
    prediction = found.explanation.prediction
    for name, share in prediction.scores[:3]:
        assert name in page and f"{100 * share:.1f}%" in page
    for words in prediction.masks:
        assert f"{100 * words[0][1]:.1f}%" in page
    for piece in prediction.pieces:
        assert piece.label is None or piece.text in page
    if case is GMOE:
        assert page.count('title="expert ') == 2 * 16 and "data:image/png;base64," in page
    if case is GRAPHS:
        assert "data:image/svg+xml;base64," in page and found.drawing.count("bond-") >= 13, "the bonds of aspirin"
    assert ("Without the memory" in page) == (case is not GMOE)


@pytest.mark.parametrize(
    "case, given, said",
    [
        (KV, ("  ",), "no text yet"),
        (KV, ("a" * 100_001,), "Shorten it"),
        (GMOE, (None,), "no picture yet"),
        (GRAPHS, ("",), "no molecule yet"),
        (QUESTIONS, ("what is bad", " "), "no context yet"),
        (QUESTIONS, ("what is bad", "a" * 100_001), "Shorten it"),
    ],
)
def test_inputs_that_have_no_answer(case, given, said, tmp_path):
    with pytest.raises(InputError, match=said):
        ask(load_session(save(case, tmp_path)), *given)


def test_a_baseline_stands_beside(tmp_path, backbones):
    from transformers import AutoTokenizer, RobertaForSequenceClassification

    plain = RobertaForSequenceClassification.from_pretrained(backbones["roberta"], num_labels=3)
    plain.config.id2label = {0: "no", 1: "perhaps", 2: "yes"}
    plain.save_pretrained(tmp_path / "plain")
    AutoTokenizer.from_pretrained(backbones["roberta"]).save_pretrained(tmp_path / "plain")
    session = load_session(save(KV, tmp_path / "ours"), tmp_path / "plain")
    found = ask(session, TEXT)
    assert found.plain_name == "Plain model" and "other labels: no, perhaps, yes" in found.notes[0]
    page = html.answer(found)
    assert "Plain model" in page and "perhaps" in page
    assert "no" in html.header(load_session(tmp_path / "plain")), "a plain model is served too"
    with pytest.raises(
        CheckpointError, match="`baseline` .* is a `ViTForImageClassification`, and `checkpoint` is a `RobertaWith"
    ):
        load_session(tmp_path / "ours", backbones["vit"])


def test_graphs_that_are_not_molecules_cannot_be_typed(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="not molecules"):
        load_session(save(GRAPHS, tmp_path / "other", node_vocab_sizes=[5]))
    assert draw_molecule("C" * 400) is None, "too large for a drawing"
    save(GRAPHS, tmp_path / "ours")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"pip install hf_memaug\[graph\]"):
        load_session(tmp_path / "ours")


def test_an_adapter_is_named_in_the_header(tmp_path):
    put_adapter(save(KV, tmp_path / "base"), tmp_path / "adapter", KV)
    assert "An adapter, merged into" in html.header(load_session(tmp_path / "adapter"))


def test_values_are_escaped(tmp_path):
    def named(model):
        model.config.id2label = {0: "<script>alert(1)</script>", 1: "b", 2: "c"}

    save(KV, tmp_path, named)
    texts = np.array(["<img src=x onerror=alert(2)>", "good"])
    np.savez(tmp_path / "features.npz", text=texts, domain=np.array(["a", "b"]))
    session = load_session(tmp_path)
    page = html.header(session) + html.answer(ask(session, TEXT)) + html.message("`<b>` and <i>")
    assert "<script" not in page and "<img" not in page and "<i>" not in page and "<code>&lt;b&gt;</code>" in page
    assert "&lt;script&gt;" in page and "&lt;img" in page


def test_more_experts_than_colours_are_numbered(tmp_path):
    found = ask(load_session(save(GMOE, tmp_path, num_experts=9)), picture())
    expert = int(found.explanation.readings[0].experts[0, 0])
    assert f'<i title="expert {expert}">{expert}</i>' in html.answer(found)
