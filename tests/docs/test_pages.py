# Copyright 2026 The hf_memaug authors.
# SPDX-License-Identifier: Apache-2.0
"""What every page of docs/ has: links that lead somewhere, commands that exist; and what a family's page has."""

import ast
import importlib.util
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


def _options_of(paths) -> set[str]:
    """Also those that are made in a loop over their names."""
    text = "".join(path.read_text(encoding="utf-8") for path in paths)
    looped = re.findall(r'"([a-z][\w-]*)"', text) if 'f"--{' in text else []
    return {*re.findall(r"--[a-z][\w-]*", text), *(f"--{name}" for name in looped)}


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page):
    """Scripts, modules and their options; what the options do, the tests of the scripts say."""
    for block in blocks(page, "bash"):
        for line in block.code.replace("\\\n", " ").splitlines():
            words = line.partition(" #")[0].split()
            if words[:1] != ["python"] or len(words) < 2:
                continue
            if words[1] == "-m":
                found = importlib.util.find_spec(words[2])
                assert found is not None, line
                folder = (ROOT / (words[2].replace(".", "/"))).resolve()
                sources = [*folder.glob("*.py")] if folder.is_dir() else [folder.with_suffix(".py")]
            else:
                script = ROOT / words[1]
                assert script.is_file(), line
                sources = [*script.parent.glob("*.py"), *(ROOT / "examples").glob("*.py")]
                sources += (ROOT / "hf_memaug" / "training" / "sweep").glob("*.py")
            unknown = {word for word in words if word.startswith("--")} - _options_of(sources) - {"--help"}
            assert not unknown, (line, unknown)


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

    assert {family.module.removeprefix("vit_") for family in FAMILIES.values()} == set(FAMILY_PAGES)
