# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The report in a browser: every section has content, hover and sort work, phones and the dark are served too."""

import re

import pytest
from run_folders import NASTY, continual_run, image_run, text_run

from hf_memaug.reporting.html_report import write_report

SECTIONS = {
    "text": ["comparison", "domains", "curves", "features", "distance", "memory", "cost", "data", "reproduce"],
    "image": ["comparison", "domains", "curves", "features", "distance", "experts", "cost", "data", "reproduce"],
    "continual": ["comparison", "domains", "continual", "curves", "cost", "data", "reproduce"],
}
# What must be drawn in each section, and how often at least.
CONTENT = {
    "comparison": {"table.sortable tbody tr": 2, "button.open": 3, "dialog": 2},
    "domains": {"svg.chart .whisker, svg.chart .seed": 4},
    "continual": {"table.matrix td": 32, "svg.chart path.line": 8},
    "curves": {"svg.chart path.line": 6},
    "features": {"#features-map path": 90, "#features-legend li": 3},
    "distance": {"svg.chart rect.bar": 4},
    "memory": {"svg.chart rect.heat": 100},
    "experts": {"svg.chart rect.stack": 12, "img": 2},
    "cost": {"tbody tr": 2, ".fill": 2},
    "data": {"tbody tr": 3, ".fill": 6},
    "reproduce": {"pre": 2, "tbody tr": 6},
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = {"text": text_run, "image": image_run, "continual": continual_run}
    return {name: write_report(make(folder / f"{name}-run")) for name, make in made.items()}


@pytest.fixture
def opened(reports, open_page):
    """A page of the reports; at the end, none has said or thrown an error, or asked for anything."""
    pages = []

    def open_one(name, **options):
        pages.append(open_page(reports[name], reduced_motion="reduce", **options))
        return pages[-1]

    yield open_one
    for page in pages:
        assert page.errors == [] and page.outside == []
        assert page.evaluate("window.broken") is None


@pytest.mark.parametrize("size", ["laptop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_is_there_and_fits(opened, tmp_path, name, size, dark):
    page = opened(name, size=size, dark=dark)
    assert page.locator("main section").evaluate_all("all => all.map(one => one.id)") == SECTIONS[name]
    width = page.evaluate("innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for key in SECTIONS[name]:
        section = page.locator(f"#{key}")
        assert section.is_visible() and len(section.inner_text()) > 60
        for selector, least in CONTENT[key].items():
            assert section.locator(selector).count() >= least, f"{key}: {selector}"
        picture = section.screenshot(path=tmp_path / f"{key}.png")
        assert len(picture) > 3000
        box = section.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
    sizes = page.locator("svg.chart").evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")
    assert len([size for size in sizes if size > 0]) >= 3
    drawn = page.locator("svg").evaluate_all("all => all.map(one => one.outerHTML).join('')")
    assert not re.search(r"(?i)\b(nan|inf|infinity|undefined)\b", drawn)
    # Text stands out from what it is on.
    assert contrast(page, "body") > 10 and contrast(page, ".note") > 4.5


def contrast(page, selector) -> float:
    """WCAG's ratio between the colour of a text and that of the page."""
    text = page.locator(selector).first.evaluate("one => getComputedStyle(one).color")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")

    def luminance(colour):
        parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(text), luminance(paper)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_dark_is_dark(opened):
    papers = [
        opened("text", dark=dark).evaluate("getComputedStyle(document.body).backgroundColor") for dark in (False, True)
    ]
    assert papers == ["rgb(251, 250, 247)", "rgb(20, 24, 27)"]


def column(page, place, table="#comparison table >> nth=0"):
    rows = page.locator(f"{table} >> tbody tr")
    return [
        float(rows.nth(row).locator("td, th").nth(place).get_attribute("data-order")) for row in range(rows.count())
    ]


def test_headings_sort_by_click_and_by_key(opened):
    page = opened("text")
    books = page.locator("#comparison table").first.get_by_role("button", name="books")
    before = column(page, 1)
    assert before != sorted(before) and before != sorted(before, reverse=True)
    books.click()
    assert column(page, 1) == sorted(before, reverse=True)
    heading = page.locator("#comparison th[aria-sort]")
    assert heading.count() == 1 and heading.get_attribute("aria-sort") == "descending"
    books.focus()
    page.keyboard.press("Enter")
    assert column(page, 1) == sorted(before) and heading.get_attribute("aria-sort") == "ascending"
    page.locator("#comparison table").first.get_by_role("button", name="method").click()
    names = page.locator("#comparison table >> nth=0 >> tbody th").all_inner_texts()
    assert [name.strip() for name in names] == ["erm", "hma", "mil"]


def test_what_is_not_known_comes_last(opened):
    page = opened("text")
    difference = page.locator("#comparison table").first.get_by_role("button", name="− erm")
    last = page.locator("#comparison table >> nth=0 >> tbody tr >> nth=-1")
    for _ in range(2):
        difference.click()
        assert "baseline" in last.inner_text()


def test_the_winning_configuration_is_one_click_away(opened):
    page = opened("text")
    page.get_by_role("button", name="Its configuration").click()
    dialog = page.locator("dialog[open]")
    shown = dialog.inner_text()
    assert "mil: what it was trained with" in shown and "episodes" in shown and "jobs/mil-books-0/checkpoint" in shown
    assert "from_pretrained('jobs/mil-" in shown
    page.keyboard.press("Escape")
    assert dialog.count() == 0
    page.get_by_role("button", name="settings of hma").first.click()
    assert "hma: what it was trained with" in dialog.inner_text()
    dialog.get_by_role("button", name="Close").click()
    assert dialog.count() == 0


def test_hover_shows_numbers(opened):
    page = opened("text")
    tip = page.locator("#tip")
    assert tip.is_hidden()
    page.locator("#domains .mark").first.hover()
    assert tip.inner_text().startswith("erm: ") and "by seed" in tip.inner_text()
    page.locator("#memory rect.heat").nth(3).hover()
    assert tip.inner_text().startswith("slot ") and "%" in tip.inner_text()
    page.locator("#comparison sup").first.hover()
    assert "above the baseline by" in tip.inner_text()
    page.locator("h1").hover()
    assert tip.is_hidden()


def test_a_feature_shows_its_text_as_a_text(opened):
    page = opened("text")
    places = page.evaluate("JSON.parse(document.getElementById('page-data').textContent).features.views[0].maps.pca")
    svg = page.locator("#features-map")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    scale = box["width"] / 680
    x, y = places[0]
    page.mouse.move(box["x"] + (24 + 632 * x) * scale, box["y"] + (436 - 412 * y) * scale)
    tip = page.locator("#tip")
    assert NASTY in tip.inner_text() and "predicted: positive (wrong)" in tip.inner_text()
    assert tip.locator("script, img").count() == 0
    assert page.locator("#features-map .lit").count() == 1
    page.mouse.move(5, 5)
    assert tip.is_hidden() and page.locator("#features-map .lit").count() == 0


def test_the_map_follows_its_controls(opened):
    page = opened("text")
    first = page.locator("#features-map path").first.get_attribute("transform")
    page.locator("label", has_text="t-SNE").click()
    assert page.locator("#features-map path").first.get_attribute("transform") != first
    page.locator("label", has_text="right or wrong").click()
    assert page.locator("#features-legend").inner_text().split("\n") == ["right: 75", "wrong: 15"]
    page.locator("label", has_text="label").last.click()
    assert "negative: 45" in page.locator("#features-legend").inner_text()
    page.locator("#features-view").select_option(label="hma · target dvd · seed 0")
    page.locator("label", has_text="domain").last.click()
    assert "dvd (target): 30" in page.locator("#features-legend").inner_text()


def test_the_map_can_be_read_with_the_keyboard(opened):
    page = opened("text")
    page.locator("#features-map").scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    page.focus("#features-map")
    page.keyboard.press("ArrowRight")
    first = page.locator("#tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert first.startswith("books") and page.locator("#tip").inner_text() not in ("", first)


def test_a_finger_opens_a_picture(opened):
    page = opened("image", size="phone")
    mark = page.locator("#features-map path").nth(20)
    mark.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    box = mark.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    picture = page.locator("#tip img")
    picture.wait_for(state="visible", timeout=5000)
    assert picture.evaluate("one => one.naturalWidth") == 48


def test_wide_tables_scroll_in_their_own_box(opened):
    page = opened("text", size="phone")
    box = page.locator("#comparison .scroll").first
    assert box.evaluate("one => one.scrollWidth > one.clientWidth")
    box.evaluate("one => one.scrollTo(200, 0)")
    assert page.evaluate("scrollX") == 0


def test_long_names_do_not_widen_a_phone(open_page, tmp_path):
    folder = text_run(tmp_path / ("run-" * 40), seeds=(0, 1))
    long = "a_domain_with_a_very_long_name_and_no_place_to_break_it_" * 2
    for path in [*folder.glob("*.json*"), *folder.glob("jobs/*/memory.json")]:
        path.write_text(path.read_text().replace('"dvd"', f'"{long}"').replace('"mil"', f'"{long}"'))
    page = open_page(write_report(folder), size="phone")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("button", name="Its configuration").click()
    assert page.locator("dialog[open]").bounding_box()["width"] <= 390 and page.errors == []


def test_links_lead_to_their_sections(opened):
    page = opened("text")
    for link in page.locator("nav a").all():
        link.click()
        key = link.get_attribute("href")
        page.wait_for_timeout(50)
        top = page.locator(f"{key} h2").bounding_box()["y"]
        # Below the bar that stays, or as far up as the end of the page allows.
        assert top > 40 and top < 800


def test_print_unfolds_everything(opened):
    page = opened("text")
    folded = page.locator("details:not([open])").count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert folded > 2 and page.locator("details:not([open])").count() == 0
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("nav").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 250, 247)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() == folded
