# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The report in a browser: it fits on a phone, sorts, shows rows of features, and runs no script of the data."""

import pytest
from run_folders import NASTY, continual_run, image_run, text_run

from hf_memaug.reporting.html_report import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = {"text": text_run, "image": image_run, "continual": continual_run}
    return {name: write_report(make(folder / f"{name}-run")) for name, make in made.items()}


@pytest.fixture
def opened(reports, open_page):
    """A page of the reports, which at the end must have had no error and no request."""
    pages = []

    def open_one(name, **options):
        pages.append(open_page(reports[name], reduced_motion="reduce", **options))
        return pages[-1]

    yield open_one
    for page in pages:
        assert page.errors == [] and page.outside == []
        assert page.evaluate("window.broken") is None


@pytest.mark.parametrize("size, dark", [("laptop", False), ("phone", True)])
@pytest.mark.parametrize("name", ["text", "image", "continual"])
def test_every_section_is_visible_and_fits(opened, name, size, dark):
    page = opened(name, size=size, dark=dark)
    width = page.evaluate("innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for section in page.locator("main section").all():
        assert section.is_visible() and len(section.inner_text()) > 60
        box = section.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
    sizes = page.locator("figure.chart svg").evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")
    assert len([one for one in sizes if one > 0]) >= 3
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 24, 27)" if dark else "rgb(251, 250, 247)")


def test_headings_sort_by_click_and_by_key(opened):
    page = opened("text")
    table = page.locator("#comparison table").first

    def column(place):
        cells = table.locator(f"tbody tr > :nth-child({place + 1})")
        return [cell.get_attribute("data-order") for cell in cells.all()]

    heading = table.get_by_role("button", name="books")
    before = list(map(float, column(1)))
    heading.click()
    assert list(map(float, column(1))) == sorted(before, reverse=True)
    heading.focus()
    page.keyboard.press("Enter")
    assert list(map(float, column(1))) == sorted(before)
    table.get_by_role("button", name="method").click()
    assert column(0) == ["erm", "hma", "mil"]
    # What is missing stays last.
    for _ in range(2):
        table.get_by_role("button", name="− erm").click()
        assert column(5)[-1] is None


def test_pointing_at_a_row_shows_it_as_text(opened):
    page = opened("text")
    # The first row has a script for its text.
    page.locator('#features [data-row="0"]').first.hover(force=True)
    tip = page.locator("#tip")
    assert NASTY in tip.inner_text() and tip.locator("script, img").count() == 0
    page.locator("h1").hover()
    assert tip.is_hidden()


def test_pointing_at_an_image_shows_it(opened):
    page = opened("image")
    page.locator('#features [data-row="20"]').first.hover(force=True)
    picture = page.locator("#tip img")
    picture.wait_for(state="visible", timeout=5000)
    assert picture.evaluate("one => one.naturalWidth") == 48
