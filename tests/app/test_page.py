# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The page in a browser: users ask and see the answer, and nothing leaves the machine."""

import sys
import zipfile

import numpy as np
import pytest
from saved_checkpoints import CONTEXT, TEXT, case_of, picture, save
from tiny_backbones import SENTENCES

from hf_memaug.app.session import ask, load_session
from hf_memaug.inference import load_predictor

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """`serve(case, **kwargs)` gives the address of a page and its folder; the servers ask no other machine."""
    gradio = pytest.importorskip("gradio", reason="the app needs Gradio: pip install hf_memaug[app]")
    from hf_memaug.app import launch

    served = {}

    def begin(case, **kwargs):
        if case.name not in served:
            folder = tmp_path_factory.mktemp(case.name) / "mil-books" / "checkpoint"
            save(case, folder, **kwargs)
            rows = {"text": np.array(SENTENCES), "domain": np.array(["books", "phones"] * 3)}
            np.savez(folder.parent / "features.npz", **rows)
            served[case.name] = (launch(folder, prevent_thread_lock=True, quiet=True)[1], folder)
        return served[case.name]

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


def press(page, label: str | None = None) -> None:
    page.get_by_role("button", name="Ask").click()
    if label is None:
        page.wait_for_selector("#answer .card", timeout=60_000)
    else:
        page.get_by_text(label).wait_for(timeout=60_000)


@pytest.mark.parametrize("size, dark", LOOKS)
def test_a_text_is_classified(size, dark, open_page, serve):
    address, folder = serve(KV)
    page = open_page(address, size=size, dark=dark)
    # One of the texts beside the checkpoint is one click away.
    page.get_by_text(SENTENCES[1]).click()
    page.wait_for_function(f"document.querySelector('textarea').value == {SENTENCES[1]!r}")
    page.locator("textarea").first.fill(TEXT)
    press(page)
    found = ask(load_session(folder), TEXT).explanation
    assert page.locator("h1").inner_text() == "mil-books"
    shown = page.locator("#answer").inner_text()
    for prediction in (found.prediction, found.plain):
        label, score = prediction.scores[0]
        assert label in shown and f"{100 * score:.1f}%" in shown
    (reading,) = found.readings
    for slot in reading.slots:
        assert slot.name in shown and slot.contents[0] in shown
    # The text is legible: dark on light, or light on dark.
    places = {"#answer h2": "color", "body": "backgroundColor"}
    colours = (page.evaluate(f"getComputedStyle(document.querySelector('{one}')).{of}") for one, of in places.items())
    text, ground = (sum(map(int, colour[4:-1].split(",")[:3])) for colour in colours)
    assert (text > ground + 300) if dark else (ground > text + 300)
    assert is_quiet(page)


def test_messages_stand_on_the_page(open_page, serve):
    page = open_page(serve(RNN, sentence_pairs=True)[0])
    press(page, "There is no text yet")
    page.locator("textarea").nth(0).fill(TEXT)
    press(page, "compares two texts")
    page.locator("textarea").nth(1).fill("word " * 200)
    press(page, "tokens and the model takes 64")
    assert is_quiet(page)


@pytest.mark.parametrize("size, dark", LOOKS)
def test_a_picture_is_classified_by_its_experts(size, dark, open_page, serve, tmp_path):
    picture().save(tmp_path / "picture.png")
    address, folder = serve(GMOE)
    page = open_page(address, size=size, dark=dark)
    press(page, "There is no picture yet")
    page.set_input_files("input[type=file]", tmp_path / "picture.png")
    page.wait_for_selector("#answer .card", timeout=60_000)
    found = ask(load_session(folder), picture()).explanation
    label, score = found.prediction.scores[0]
    shown = page.locator("#answer").inner_text()
    assert label in shown and f"{100 * score:.1f}%" in shown and "cannot be switched off" in shown
    cells = page.locator("#answer .map").nth(1).locator("i")
    experts = [cells.nth(place).get_attribute("title") for place in range(cells.count())]
    assert experts == [f"expert {one}" for one in found.readings[1].experts.ravel()]
    box = page.locator("#answer .map img").first.bounding_box()
    assert box["width"] > 100 and page.evaluate("document.querySelector('#answer .map img').naturalWidth") == 16
    assert is_quiet(page)


def test_words_are_marked_with_their_tags(open_page, serve):
    address, folder = serve(case_of("GMAPForTokenClassification"))
    page = open_page(address)
    page.locator("textarea").first.fill(CONTEXT)
    press(page)
    found = ask(load_session(folder), CONTEXT).explanation
    for card, prediction in enumerate((found.prediction, found.plain)):
        marks = page.locator("#answer .marked").nth(card).locator("mark")
        expected = [f"{one.text}{one.label} {100 * one.score:.0f}%" for one in prediction.pieces if one.label]
        assert expected and [marks.nth(place).text_content() for place in range(marks.count())] == expected
    assert page.locator("#answer .marked").first.text_content().startswith(CONTEXT[:3])
    assert page.get_by_role("tab").count() == 0, "only classifiers can be taught"
    assert is_quiet(page)


def open_teaching(page):
    page.get_by_role("tab", name="Teach").click()
    page.get_by_text("Nothing is taught yet").wait_for(timeout=60_000)
    return page


def teach(page, text: str, label: str, rows: int) -> None:
    page.locator("textarea:visible").first.fill(text)
    page.get_by_label("Right class").click()
    page.get_by_role("option", name=label).click()
    page.get_by_role("button", name="Teach", exact=True).click()
    page.get_by_text(f"{rows} row{'s' * (rows > 1)} taught.").wait_for(timeout=60_000)


@pytest.mark.parametrize("size, dark", LOOKS)
def test_a_user_teaches_erases_and_downloads(size, dark, open_page, serve, tmp_path):
    address, _ = serve(KV)
    page, other = (open_teaching(open_page(address, size=size, dark=dark)) for _ in range(2))
    bad = "<img src=x onerror=document.title=1> ${document.title=2} {{value}}"
    teach(page, bad, "good", rows=1)
    assert "no clear gain yet" in page.locator("#taught").inner_text()
    page.get_by_role("button", name="Teach several rows").click()
    lines = [f"{('great', 'terrible')[n % 2]} {SENTENCES[n % 6]} {n}\t{('bad', 'fair')[n % 2]}" for n in range(12)]
    page.get_by_label("On each line").fill("\n".join(lines))
    page.get_by_role("button", name="Teach these rows").click()
    page.get_by_text("13 rows taught. The memory answers.").wait_for(timeout=60_000)
    # The list shows what was typed, and an answer names the rows that decided.
    assert bad in page.locator("#taught").inner_text() and "hf_memaug" in page.title()
    page.locator("textarea:visible").first.fill(lines[0].split("\t")[0])
    page.get_by_role("button", name="Ask").click()
    page.wait_for_function("document.querySelector('#taught-answer .first b').innerText == 'bad'")
    page.get_by_text("The rows that decided").wait_for(timeout=60_000)
    # A class that was just added can be chosen again.
    page.get_by_label("Or the name of a new class").fill("<b>new</b>")
    page.get_by_role("button", name="Teach", exact=True).click()
    page.locator("#taught td", has_text="<b>new</b>").wait_for(timeout=60_000)
    teach(page, "something else", "<b>new</b>", rows=14)
    page.get_by_role("button", name="Erase something else").click()
    page.get_by_text("13 rows taught.").wait_for(timeout=60_000)
    page.get_by_role("button", name="Download the checkpoint").click()
    with page.expect_download(timeout=60_000) as download:
        page.locator("a[download]").first.click()
    with zipfile.ZipFile(download.value.path()) as file:
        file.extractall(tmp_path)
    assert load_predictor(tmp_path).labels == ["bad", "fair", "good", "<b>new</b>"]
    page.get_by_role("button", name="Erase all rows").click()
    page.get_by_text("Nothing is taught yet").wait_for(timeout=60_000)
    teach(other, "of another user", "bad", rows=1)
    assert is_quiet(page) and is_quiet(other)


def test_pictures_and_errors_of_the_teach_tab(open_page, serve, tmp_path):
    for number in range(2):
        picture(number).save(tmp_path / f"{number}.png")
    page = open_teaching(open_page(serve(GMOE)[0]))
    page.get_by_role("button", name="Teach", exact=True).click()
    page.get_by_text("There is no picture yet").wait_for(timeout=60_000)
    page.locator("[role=tabpanel]:visible input[type=file]").first.set_input_files(tmp_path / "0.png")
    page.locator("#taught-answer .card").first.wait_for(timeout=60_000)
    page.get_by_role("button", name="Teach", exact=True).click()
    page.locator("#taught td", has_text=".png").wait_for(timeout=60_000)
    page.get_by_role("button", name="Teach several rows").click()
    page.locator("input[type=file][multiple]").set_input_files([tmp_path / "0.png", tmp_path / "1.png"])
    page.locator("tr.file").nth(1).wait_for(timeout=60_000)
    page.get_by_role("button", name="Teach these rows").click()
    page.get_by_text("2 rows taught.").wait_for(timeout=60_000)
    assert is_quiet(page)
