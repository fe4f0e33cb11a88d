# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""The fixture of the browser sees what the tests of pages rely on."""

import pytest

PAGE = """<meta name=viewport content='width=device-width'><h1>Here</h1><script>%s</script>"""


@pytest.mark.parametrize(
    "script, errors, outside",
    [
        ("", 0, []),
        ("console.error('wrong')", 1, []),
        ("nowhere.to.be.found", 1, []),
        ("new Image().src = 'https://example.org/a.png'", 1, ["https://example.org/a.png"]),
        ("fetch('http://localhost.example.org/')", 2, ["http://localhost.example.org/"]),
    ],
)
def test_errors_and_requests_are_noticed(open_page, tmp_path, script, errors, outside):
    (tmp_path / "page.html").write_text(PAGE % script)
    page = open_page(tmp_path / "page.html")
    page.wait_for_timeout(100)
    assert page.inner_text("h1") == "Here"
    assert len(page.errors) == errors and page.outside == outside


def test_sizes_and_schemes(open_page, tmp_path):
    (tmp_path / "page.html").write_text(PAGE % "")
    seen = "[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]"
    assert open_page(tmp_path / "page.html").evaluate(seen) == [1280, False]
    assert open_page(tmp_path / "page.html", size="phone", dark=True).evaluate(seen) == [390, True]
