# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The page, in a browser: one asks and sees the answer, and nothing leaves the machine."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from families import SENTENCES

sys.path.insert(0, str(Path(__file__).parent))
from served import CONTEXT, SMILES, TEXT, case_of, picture, save

from hf_memaug.app.answers import answer, load_served
from hf_memaug.app.errors import NotServed

KV = case_of("RobertaWithKVMemoryForSequenceClassification")
GMOE = case_of("ViTGMoEForImageClassification")
RNN = case_of("MemoryRNNForSequenceClassification")
LOOKS = [("laptop", False), ("phone", True)]
_HERE = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "", None)
_listening, _asked = [], []


def _hear(event: str, args: tuple) -> None:
    if _listening and event in ("socket.connect", "socket.getaddrinfo"):
        host = args[0] if event == "socket.getaddrinfo" else args[1][0] if isinstance(args[1], tuple) else None
        if host not in _HERE:
            _asked.append(host)


sys.addaudithook(_hear)  # which cannot be taken back, and so hears only while it should


@pytest.fixture
def serve():
    """`serve(checkpoint)` gives the address of a page that is gone after the test; its server asks no other machine."""
    gradio = pytest.importorskip("gradio", reason="the app needs Gradio: pip install hf_memaug[app]")
    from hf_memaug.app import launch

    def begin(*args, **kwargs) -> str:
        return launch(*args, prevent_thread_lock=True, quiet=True, **kwargs)[1]

    _asked.clear()
    _listening.append(True)
    yield begin
    _listening.clear()
    gradio.close_all(verbose=False)
    assert _asked == [], "machines that the server asked for"


def is_quiet(page) -> bool:
    assert page.errors == [], "the console"
    assert page.outside == [], "requests that leave the machine"
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def wait(page) -> None:
    page.wait_for_selector("#answer .card", timeout=60_000)


@pytest.mark.parametrize("size, dark", LOOKS)
def test_type_ask_and_see(size, dark, open_page, serve, tmp_path):
    save(KV, tmp_path / "mil-books" / "checkpoint")
    rows = {"text": np.array(SENTENCES), "domain": np.array(["books", "phones"] * 3)}
    np.savez(tmp_path / "mil-books" / "features.npz", **rows)
    page = open_page(serve(tmp_path / "mil-books" / "checkpoint"), size=size, dark=dark)
    page.locator("textarea").first.fill(TEXT)
    page.get_by_role("button", name="Ask").click()
    wait(page)
    found = answer(load_served(tmp_path / "mil-books" / "checkpoint"), text=TEXT)
    assert page.locator("h1").inner_text() == "mil-books"
    shown = page.locator("#answer").inner_text()
    for prediction in (found.prediction, found.plain):
        label, score = prediction.scores[0]
        assert label in shown and f"{score:.1%}" in shown
    (reading,) = found.readings
    for place in reading.places:
        assert place.name in shown and place.contents[0] in shown
    assert "its memory switched off" in shown
    # The text is legible: dark on light, or light on dark.
    places = {"#answer h2": "color", "body": "backgroundColor"}
    found = (page.evaluate(f"getComputedStyle(document.querySelector('{one}')).{of}") for one, of in places.items())
    text, ground = (sum(map(int, colour[4:-1].split(",")[:3])) for colour in found)
    assert (text > ground + 300) if dark else (ground > text + 300)
    assert is_quiet(page)


def test_a_text_beside_the_checkpoint_is_one_click_away(open_page, serve, tmp_path):
    save(KV, tmp_path)
    np.savez(tmp_path / "features.npz", text=np.array(SENTENCES), domain=np.array(["books", "phones"] * 3))
    page = open_page(serve(tmp_path))
    page.get_by_text(SENTENCES[1]).click()
    page.wait_for_function(f"document.querySelector('textarea').value == {SENTENCES[1]!r}")
    page.get_by_role("button", name="Ask").click()
    wait(page)
    assert is_quiet(page)


def test_what_has_no_answer_is_said_on_the_page(open_page, serve, tmp_path):
    page = open_page(serve(save(RNN, tmp_path, sentence_pairs=True)))
    ask = page.get_by_role("button", name="Ask")
    ask.click()
    page.get_by_text("There is no text yet").wait_for(timeout=60_000)
    page.locator("textarea").nth(0).fill(TEXT)
    ask.click()
    page.get_by_text("compares two texts").wait_for(timeout=60_000)
    page.locator("textarea").nth(1).fill("word " * 200)
    ask.click()
    page.get_by_text("tokens and the model takes 64").wait_for(timeout=60_000)
    wait(page)
    assert is_quiet(page)


@pytest.mark.parametrize("size, dark", LOOKS)
def test_drop_a_picture_and_see_its_experts(size, dark, open_page, serve, tmp_path):
    from PIL import Image

    pytest.importorskip("matplotlib", reason="colours of experts need matplotlib: pip install hf_memaug[app]")
    Image.fromarray(picture()).save(tmp_path / "picture.png")
    (tmp_path / "broken.png").write_bytes(b"no picture at all")
    page = open_page(serve(save(GMOE, tmp_path / "gmoe")), size=size, dark=dark)
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("There is no picture yet").wait_for(timeout=60_000)
    page.set_input_files("input[type=file]", tmp_path / "picture.png")
    wait(page)
    found = answer(load_served(tmp_path / "gmoe"), image=picture())
    label, score = found.prediction.scores[0]
    shown = page.locator("#answer").inner_text()
    assert label in shown and f"{score:.1%}" in shown and "cannot be switched off" in shown
    cells = page.locator("#answer .map").nth(1).locator("i")
    experts = [cells.nth(place).get_attribute("title") for place in range(cells.count())]
    assert experts == [f"expert {one}" for one in found.patches[1].experts.ravel()]
    box = page.locator("#answer .map img").first.bounding_box()
    assert box["width"] > 100 and page.evaluate("document.querySelector('#answer .map img').naturalWidth") == 16
    assert is_quiet(page)


def test_words_are_marked_with_their_tags(open_page, serve, tmp_path):
    address = serve(save(case_of("GMAPForTokenClassification"), tmp_path))
    for size, dark in LOOKS:
        page = open_page(address, size=size, dark=dark)
        page.locator("textarea").first.fill(CONTEXT)
        page.get_by_role("button", name="Ask").click()
        wait(page)
        found = answer(load_served(tmp_path), text=CONTEXT)
        for card, prediction in enumerate((found.prediction, found.plain)):
            marks = page.locator("#answer .marked").nth(card).locator("mark")
            expected = [f"{one.text}{one.label} {one.score:.0%}" for one in prediction.pieces if one.label]
            assert expected and [marks.nth(place).text_content() for place in range(marks.count())] == expected
        assert "Layers of the general encoder" in page.locator("#answer").inner_text()
        assert is_quiet(page)


def test_a_question_is_answered_in_its_context(open_page, serve, tmp_path):
    address = serve(save(case_of("GMAPForQuestionAnswering"), tmp_path))
    for size, dark in LOOKS:
        page = open_page(address, size=size, dark=dark)
        ask = page.get_by_role("button", name="Ask")
        page.get_by_label("Question").fill("what is bad")
        ask.click()
        page.get_by_text("There is no context yet").wait_for(timeout=60_000)
        page.get_by_label("Context").fill(CONTEXT)
        ask.click()
        wait(page)
        found = answer(load_served(tmp_path), text="what is bad", pair=CONTEXT).prediction
        first = page.locator("#answer .marked").first
        assert first.text_content() == CONTEXT
        assert found.text and first.locator("mark").text_content() == found.text
        assert is_quiet(page)


def test_a_molecule_is_typed_and_drawn(open_page, serve, tmp_path):
    pytest.importorskip("rdkit", reason="molecules need RDKit: pip install hf_memaug[graph]")
    address = serve(save(case_of("HMAForGraphClassification"), tmp_path))
    for size, dark in LOOKS:
        page = open_page(address, size=size, dark=dark)
        field, ask = page.get_by_label("Molecule, as SMILES"), page.get_by_role("button", name="Ask")
        field.fill("C1CC")
        ask.click()
        page.get_by_text("no molecule that can be read").wait_for(timeout=60_000)
        field.fill(SMILES)
        ask.click()
        wait(page)
        label, score = answer(load_served(tmp_path), text=SMILES).prediction.scores[0]
        shown = page.locator("#answer").inner_text()
        assert label in shown and f"{score:.1%}" in shown and "Real memory" in shown and "Synthetic memory" in shown
        assert page.evaluate("document.querySelector('#answer .molecule img').naturalWidth") == 420
        assert is_quiet(page)


def test_masks_are_filled(open_page, serve, tmp_path):
    page = open_page(serve(save(case_of("GMAPForMaskedLM"), tmp_path)))
    page.locator("textarea").first.fill("the <mask> is bad")
    page.get_by_role("button", name="Ask").click()
    wait(page)
    (words,) = answer(load_served(tmp_path), text="the <mask> is bad").prediction.masks
    shown = page.locator("#answer .card").first.inner_text()
    assert all(f"{share:.1%}" in shown for _, share in words) and page.locator("#answer mark").count() == 2
    assert is_quiet(page)


def test_a_space_says_what_is_wrong_and_a_terminal_raises_it(open_page, serve, tmp_path, monkeypatch):
    with pytest.raises(NotServed, match="is no folder here"):
        serve(tmp_path / "missing")
    monkeypatch.setenv("SPACE_ID", "me/space")
    page = open_page(serve(tmp_path / "missing"))
    page.get_by_text("is no folder here").wait_for(timeout=60_000)


def test_the_command_refuses_with_words(tmp_path):
    pytest.importorskip("gradio", reason="the app needs Gradio: pip install hf_memaug[app]")
    command = [sys.executable, "-m", "hf_memaug.app", str(tmp_path / "missing")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "is no folder here" in done.stderr and "Traceback" not in done.stderr


def test_gradio_waits_until_it_is_needed_and_counts_nothing():
    code = """
import os, sys
import hf_memaug, hf_memaug.app
from hf_memaug.app import answers, looks, page, space
assert "gradio" not in sys.modules
sys.modules["gradio"] = None
try:
    page.launch("anything")
except ImportError as error:
    assert "pip install hf_memaug[app]" in str(error)
else:
    raise AssertionError
assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
