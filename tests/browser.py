# Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests of pages; they skip, with the reason, where there is none."""

import re
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZES = {"laptop": (1280, 800), "phone": (390, 844)}
_OUTSIDE = re.compile(r"^(https?|wss?)://(?!(127\.0\.0\.1|localhost|\[::1\])[:/])")


# Of a module, not of the session: while it is open, asyncio has a running loop in this thread, and others want one too.
@pytest.fixture(scope="module")
def browser():
    """The browser itself, as playwright has it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="`playwright` is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed (Debian: `apt-get install chromium`)")
    with playwright.sync_playwright() as driver:
        # The sandbox does not start for root, which is who runs in most containers.
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser):
    """
    `open_page(address, size="laptop", dark=False)` gives a page of playwright at "laptop" or "phone" size. `address` is
    a URL or a file. The page has two more lists: `errors`, what it has said on the console and thrown, and `outside`,
    the addresses beyond this machine that it has asked for, in vain.
    """
    contexts = []

    def open_one(address, size="laptop", dark=False, **options):
        width, height = SIZES[size]
        look = {"color_scheme": "dark" if dark else "light", "has_touch": size == "phone"}
        context = browser.new_context(viewport={"width": width, "height": height}, **look, **options)
        contexts.append(context)
        page = context.new_page()
        page.errors, page.outside = [], []
        page.on("console", lambda said: page.errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda thrown: page.errors.append(str(thrown)))

        def refuse(route):
            page.outside.append(route.request.url)
            route.abort()

        context.route(_OUTSIDE, refuse)
        page.goto(str(address) if "://" in str(address) else f"file://{address}")
        return page

    yield open_one
    for context in contexts:
        context.close()
