# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What every page of docs/ has: links that lead somewhere, commands that exist; and what a family's page has."""

import ast
import re

import pytest
from pages import PAGES, ROOT, blocks, text_of

FAMILY_PAGES = ["kv_memory", "gmap", "gmoe", "hma", "memory_rnn"]
LINK = re.compile(r"\]\((?!http)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    folder = (ROOT / page).parent
    # The reference and the changelog are made when the site is built.
    wrong = [link for link in LINK.findall(text_of(page)) if not (folder / link).exists() and "reference/" not in link]
    assert not wrong


@pytest.mark.parametrize("family", FAMILY_PAGES)
class TestFamilyPages:
    def test_has_its_sections_in_order(self, family):
        sections = re.findall(r"^## (.+)$", text_of(f"docs/{family}.md"), re.MULTILINE)
        assert sections[:4] == ["When to use it", "Ten lines to start", "The method", "What we measured"]

    def test_starts_in_ten_lines(self, family):
        """Lines as one speaks of them: a call that is broken over several is one."""
        text = text_of(f"docs/{family}.md")
        first = blocks(f"docs/{family}.md")[0]
        assert text.index("## Ten lines to start") < text.index(first.code) < text.index("## The method")
        assert len(ast.parse(first.code).body) <= 10 + 1

    def test_the_method_has_numbered_formulas(self, family):
        method = text_of(f"docs/{family}.md").partition("## The method")[2].partition("\n## ")[0]
        assert re.findall(r"```math\n", method) and len(re.findall(r"\\tag\{\d", method)) >= 3
        # Half a page.
        assert len(method.split()) < 600

    def test_what_was_measured_is_in_a_file(self, family):
        measured = text_of(f"docs/{family}.md").partition("## What we measured")[2].partition("\n## ")[0]
        files = [link for link in LINK.findall(measured) if link.endswith(".json")]
        assert files and all((ROOT / "docs" / file).is_file() for file in files)


def test_every_family_has_a_page():
    from hf_memaug.registry import FAMILIES

    assert {family.modeling.rpartition("modeling_")[2].removeprefix("vit_") for family in FAMILIES.values()} == set(
        FAMILY_PAGES
    )
