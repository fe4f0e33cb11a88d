# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""The site is built without a warning, has every page and every public name, and needs nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from pages import PAGES, ROOT

import hf_memaug

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    for name in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(name, reason=f"`{name}` is not installed: the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    return folder


def html_pages(site: Path) -> dict[str, str]:
    return {str(path.relative_to(site)): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}


def test_the_menu_has_every_page(site):
    menu = re.search(
        r"<nav class=\"md-nav md-nav--primary.*?</nav>\s*</div>", (site / "index.html").read_text(), re.DOTALL
    )
    linked = set(re.findall(r'href="([^"#]+)"', menu[0]))
    pages = {page.removeprefix("docs/").replace("README.md", "index.md") for page in PAGES if page != "README.md"}
    generated = {str(path.relative_to(site)) for path in (site / "reference").glob("*.html")} | {"changelog.html"}
    assert {page.replace(".md", ".html") for page in pages} | generated <= linked


def test_every_public_name_is_in_the_reference(site):
    described = {
        path.rsplit(".", 1)[-1]: (page.name, path)
        for page in (site / "reference").glob("*.html")
        for path in re.findall(r'<h2 id="(hf_memaug\.[\w.]+)"', page.read_text(encoding="utf-8"))
    }
    overview = (site / "reference" / "index.html").read_text(encoding="utf-8")
    for name in hf_memaug.__all__:
        assert f"{name}</code>" in overview, name
        if name not in ("FAMILIES", "__version__"):
            page, path = described[name]
            assert f'href="{page}#{path}"' in overview, name


def test_arguments_are_described(site):
    """The site understands the format of the docstrings."""
    text = (site / "reference" / "kv_memory.html").read_text(encoding="utf-8")
    plain = " ".join(unescape(re.sub(r"<[^>]+>", "", text)).split())
    assert re.search(r"memory_slots.{0,80}\|K\| of Eq. 1, the number of slots", plain)
    assert "a plain checkpoint of the backbone and adds a fresh memory" in plain, "inherited from a mixin"


def test_nothing_is_fetched_from_elsewhere(site):
    for page, text in html_pages(site).items():
        assert not re.findall(r"<(?:script|img|iframe)[^>]*src=\"?(?:https?:)?//", text), page
        assert not re.findall(r"<link[^>]*href=\"?(?:https?:)?//", text), page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?https?:|@import", sheet.read_text(encoding="utf-8")), sheet


def test_formulas_are_formulas(site):
    """A command that the converter does not know is left in the text with its backslash."""
    pages = html_pages(site)
    for page in ("kv_memory", "gmap", "gmoe", "hma", "memory_rnn"):
        formulas = re.findall(r"<math.*?</math>", pages[f"{page}.html"], re.DOTALL)
        assert len(formulas) > 5
        assert not [formula for formula in formulas if "\\" in formula or "&</mi>" in formula or "<merror" in formula]
        words = re.sub(r"<(script|code|pre)\b.*?</\1>", "", pages[f"{page}.html"], flags=re.DOTALL)
        assert not re.findall(r"\$[^$<]+\$", words), "a formula that was not recognised"


def test_sources_can_be_read(site):
    assert "class KeyValueMemory" in re.sub(
        "<[^>]+>", "", (site / "source/hf_memaug/layers/kv_memory.py.html").read_text()
    )


def test_the_reference_follows_the_registry():
    """A new row has its page by itself."""
    sys.path.insert(0, str(ROOT / "docs" / "_site"))
    try:
        import reference
    finally:
        sys.path.pop(0)
    listed = {path.rsplit(".", 1)[-1] for page in reference.pages() for path in page.objects}
    assert {*hf_memaug.__all__} - {"FAMILIES", "__version__"} <= listed


class TestInABrowser:
    @pytest.mark.parametrize("size", ["laptop", "phone"])
    @pytest.mark.parametrize("page", ["index", "kv_memory", "results/mil", "reference/kv_memory", "guides/own_data"])
    def test_no_error_and_no_scrolling_sideways(self, site, open_page, page, size):
        shown = open_page(site / f"{page}.html", size=size, dark=size == "phone")
        assert shown.errors == [] and shown.outside == []
        assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    def test_formulas_have_a_size(self, site, open_page):
        page = open_page(site / "kv_memory.html")
        sizes = page.eval_on_selector_all(".formulas math", "all => all.map(one => one.getBoundingClientRect().height)")
        assert len(sizes) > 10 and min(sizes) > 8

    def test_the_search_finds_without_a_server(self, site, open_page):
        page = open_page(site / "index.html")
        page.click("input.md-search__input")
        page.keyboard.type("verbalizer")
        page.wait_for_selector(".md-search-result__item", timeout=15000)
        assert page.errors == [] and page.outside == []
