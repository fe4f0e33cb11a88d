# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""What a user teaches a classifier in the app: rows are written, answered, listed, erased and downloaded."""

import re
import zipfile

import pytest
from safetensors.torch import save_file
from saved_checkpoints import TEXT, case_of, save
from tiny_backbones import SENTENCES

from hf_memaug.app import html
from hf_memaug.app.teaching import Teaching, pasted_rows, table_rows, teachable
from hf_memaug.configuration.configuration_writable_memory import GUARD_FILE
from hf_memaug.inference import InputError, load_predictor
from hf_memaug.layers.writable_memory import GUARD

KV = case_of("RobertaWithKVMemoryForSequenceClassification")
IMAGES = case_of("WritableMemoryForImageClassification")


def started(folder, case=KV, **kwargs):
    return teachable(load_predictor(save(case, folder, **kwargs)))


def taught(start, count: int = 12) -> Teaching:
    """With rows whose class is told by a word."""
    teaching = Teaching(start)
    rows = [{"text": f"{('great', 'terrible')[n % 2]} {SENTENCES[n % 6]} {n}", "label": n % 2} for n in range(count)]
    teaching.teach_rows(rows, "opposites")
    return teaching


def scores(teaching, given=TEXT):
    return dict(teaching.answer(given).explanation.prediction.scores)


def test_the_page_says_when_taught_rows_begin_to_answer(tmp_path):
    teaching = Teaching(started(tmp_path))
    plain = scores(teaching)
    assert teaching.status()[0].startswith("Nothing is taught yet")
    heard = []
    for number in range(12):
        label = ("good", "bad")[number % 2]
        teaching.teach([f"{('great', 'terrible')[number % 2]} {SENTENCES[number % 6]} {number}"], label, "opposites")
        heard.append(teaching.status()[0])
        answers = teaching.model.config.has_memory
        assert ("The memory answers." in heard[-1]) == answers == (scores(teaching) != plain)
        assert answers or "no clear gain yet" in heard[-1]
    assert heard[0].startswith("1 row taught. They show") and heard[-1] == "12 rows taught. The memory answers."


def test_an_answer_names_the_rows_that_decided_and_the_classifier_alone(tmp_path):
    start = started(tmp_path)
    teaching, plain = taught(start), scores(Teaching(start))
    text = teaching.rows()[0]["text"]
    found = teaching.answer(text).explanation
    assert found.prediction.scores[0][0] == "fair" and dict(teaching.answer(TEXT).explanation.plain.scores) == plain
    (reading,) = found.readings
    assert "speaks for fair" in reading.about and text in [slot.name for slot in reading.slots]
    assert sum(abs(slot.share) for slot in reading.slots) == pytest.approx(1)
    assert {slot.owner for slot in reading.slots} <= {"bad", "fair"}


def test_users_do_not_share_what_they_teach(tmp_path):
    start = started(tmp_path)
    plain = scores(Teaching(start))
    first, second = taught(start), taught(start, count=11)
    assert len(first.rows()) == 12 and len(second.rows()) == 11 and scores(first) != scores(second)
    first.erase()
    assert first.rows() == [] and scores(first) == plain == scores(Teaching(start)) and len(second.rows()) == 11
    assert first.model.classifier is start.model.classifier is second.model.classifier


def test_an_input_has_only_the_class_it_was_taught_last(tmp_path):
    teaching = Teaching(started(tmp_path))
    teaching.teach([SENTENCES[0], SENTENCES[1]], "good", "a")
    for label, domain in (("bad", "a"), ("bad", "a"), ("fair", "b")):
        teaching.teach([SENTENCES[0]], label, domain)
        found = {row["text"]: (row["label"], row["domain"]) for row in teaching.rows()}
        assert found == {SENTENCES[0]: (label, domain), SENTENCES[1]: ("good", "a")} and len(teaching.rows()) == 2
    teaching.erase([teaching.rows()[0]["id"]])
    assert [row["text"] for row in teaching.rows()] == [SENTENCES[1]]


@pytest.mark.parametrize("with_texts", [False, True])
def test_a_download_answers_as_the_page_did(with_texts, tmp_path):
    teaching = taught(started(tmp_path / "plain"))
    teaching.teach(["unclear"], None, "opposites", new="<b>both</b>")
    path = teaching.download(with_texts)
    with zipfile.ZipFile(path) as file:
        file.extractall(tmp_path / "taught")
    again = Teaching(teachable(load_predictor(tmp_path / "taught")))
    assert again.model.config.has_memory and scores(again) == scores(teaching)
    texts = [row["text"] for row in again.rows()]
    assert ("unclear" in texts) == with_texts and len(texts) == len(teaching.rows()) == 13
    page = html.taught(again)
    assert "&lt;b&gt;both&lt;/b&gt;" in page and "<b>" not in page and page.count("data-row=") == 13
    again.erase([row["id"] for row in again.rows() if row["label"] == "<b>both</b>"])
    assert again.predictor.labels == ["bad", "fair", "good"]


def test_pictures_are_listed_by_their_files(tmp_path):
    from PIL import Image

    teaching, files = Teaching(started(tmp_path / "model", IMAGES)), []
    assert {row["domain"] for row in teaching.rows()} == {"new"}, "this checkpoint has rows"
    teaching.erase()
    for number in range(12):
        files.append(str(tmp_path / f"{number}<i>.png"))
        Image.new("RGB", (16, 16), (250 * (number % 2), 10 * number, 100)).save(files[-1])
    teaching.teach(files[::2], "good", "colours")
    teaching.teach(files[1::2], "bad", "colours")
    assert {row["text"] for row in teaching.rows()} == {f"{number}<i>.png" for number in range(12)}
    assert "1&lt;i&gt;.png" in html.taught(teaching) and "<i>" not in html.taught(teaching)
    assert teaching.answer(files[0]).explanation.prediction.scores[0][0] == "good"
    assert teaching.answer(files[1]).explanation.readings[0].slots[0].name.endswith("<i>.png")


def test_warnings_of_one_sided_rows(tmp_path):
    teaching = Teaching(started(tmp_path))
    answer = max(scores(teaching), key=scores(teaching).get)
    teaching.teach([TEXT], answer, "a")
    assert "All rows have one class" in teaching.status()[1] and "No rows are protected" in teaching.status()[2]
    teaching.erase()
    other = next(label for label in teaching.predictor.labels if label != answer)
    teaching.teach_rows([{"text": TEXT, "label": other}], "a", [{"text": SENTENCES[0], "label": answer}])
    assert "wrong on all of these rows" in teaching.status()[1] and len(teaching.status()) == 2
    teaching.erase()
    assert teaching.rows() == [] and teaching.status() == ["Nothing is taught yet. The answers are the classifier's."]


def test_rows_that_a_checkpoint_carries_are_protected(tmp_path):
    teaching = Teaching(started(tmp_path))
    teaching.teach([TEXT], "good", "a")
    memory, config = teaching.model.memory, teaching.model.config
    memory.domains[:] = GUARD
    facts = {"fingerprint": config.fingerprint, "vocabulary": config.vocabulary}
    save_file(memory.rows(), tmp_path / GUARD_FILE, facts)
    again = Teaching(teachable(load_predictor(tmp_path)))
    assert again.rows() == [] and len(again.model.memory.row_ids) == 1
    again.teach(SENTENCES[:2], "bad", "a")
    assert not any("No rows are protected" in said for said in again.status())
    again.erase()
    assert len(again.model.memory.row_ids) == 1


def test_rows_come_from_lines_and_files(tmp_path):
    teaching = Teaching(started(tmp_path / "model"))
    teaching.teach_rows(pasted_rows("a text\tgood\n\none text\tand another\tbad\n")[:1], "a")
    (tmp_path / "rows.csv").write_text("id,label,text\n1,bad,from a file\n", encoding="utf-8")
    teaching.teach_rows(table_rows(str(tmp_path / "rows.csv")), "a")
    assert [(row["text"], row["label"]) for row in teaching.rows()] == [("from a file", "bad"), ("a text", "good")]
    assert pasted_rows("one text\tand another\tbad")[0] == {
        "text": "one text",
        "text_pair": "and another",
        "label": "bad",
    }


WRONG = {
    "no tab": (lambda teaching, _: pasted_rows("a\tgood\nb good"), "Line 2 is not a text, a tab, and its class"),
    "columns": (lambda teaching, file: table_rows(file("a,label\n1,2\n")), "^rows.csv needs the columns"),
    "no rows": (lambda teaching, file: table_rows(file("text,label\n")), "rows.csv is empty"),
    "csv": (lambda teaching, file: table_rows(file('text,label\n"a,b\n')), "rows.csv, line 2: not valid CSV"),
    "unknown": (
        lambda teaching, _: teaching.teach_rows([{"text": "a", "label": "other"}], "a"),
        "holds 'other' of these, .* Fix the rows, or tick New classes.$",
    ),
    "empty text": (lambda teaching, _: teaching.teach_rows([{"text": " ", "label": "bad"}], "a"), "Fill it in.$"),
    "nothing": (lambda teaching, _: teaching.teach_rows([], "a"), "^There are no rows"),
    "many": (lambda teaching, _: teaching.teach_rows([{}] * 5001, "a"), "more than 5,000 rows"),
    "class": (lambda teaching, _: teaching.teach(["a"], None, "a"), "Choose the right class first"),
    "number": (lambda teaching, _: teaching.teach(["a"], "bad", "a", new="1"), "a name that is no number"),
    "domain": (lambda teaching, _: teaching.teach(["a"], "bad", " "), "Give the domain a name"),
    "guard": (lambda teaching, _: teaching.teach(["a"], "bad", "guard"), "other than `guard`"),
    "id": (lambda teaching, _: teaching.erase(["00"]), "which is not in the memory"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_errors_are_sentences_and_change_nothing(wrong, tmp_path):
    def file(content: str) -> str:
        (tmp_path / "rows.csv").write_text(content, encoding="utf-8")
        return str(tmp_path / "rows.csv")

    teaching = Teaching(started(tmp_path / "model"))
    act, said = WRONG[wrong]
    with pytest.raises(InputError, match=said) as error:
        act(teaching, file)
    assert str(tmp_path) not in str(error.value) and not re.search("new_labels|on_empty|=None", str(error.value))
    assert teaching.rows() == []


def test_only_classifiers_of_one_class_can_be_taught(tmp_path):
    def several(model):
        model.config.problem_type = "multi_label_classification"

    assert started(tmp_path / "several", change=several) is None
    assert started(tmp_path / "tags", case_of("GMAPForTokenClassification")) is None
